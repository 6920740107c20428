/* SPDX-License-Identifier: Apache-2.0 */
/* kvmem: statistics: what this process has moved, how long it took, what exists; a trace of the last runs.
 * Generated from src/ffi; do not edit.
 *
 *     kvmem_blob *text = NULL;
 *     kvmem_status status = kvmem_statistics_text(&text, &error);
 *     if (status == KVMEM_STATUS_OK) respond("text/plain; version=0.0.4", kvmem_blob_data(text));
 *     kvmem_blob_destroy(text);
 *
 * Counting is always on, and costs a run some nanoseconds. Each function may be called at any time.
 */

#ifndef KVMEM_STATISTICS_H
#define KVMEM_STATISTICS_H

#include "transfer.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Statistics ---- */

/// What exists in this process, and what has happened since it was started or forked.
///
/// A counter never decreases. Two counters may be read at slightly different times.
typedef struct kvmem_statistics {
    size_t struct_size;
    uint64_t runs_in_flight;  ///< Runs of transfers and requests that have started and not ended.
    /// Bytes of all regions of system memory, also of those that kvmem has for itself. Views are not counted
    /// here and below.
    uint64_t system_bytes;
    uint64_t pinned_bytes;  ///< Bytes of regions of page-locked host memory that kvmem has allocated.
    uint64_t device_bytes;  ///< Bytes of regions of GPU memory.
    uint64_t elastic_bytes;  ///< Bytes of addresses of elastic regions.
    uint64_t elastic_committed_bytes;  ///< Bytes of elastic regions that have memory.
    uint64_t disk_bytes;  ///< Bytes of regions in files.
    uint64_t object_bytes;  ///< Bytes of regions of objects.
    uint64_t block_bytes;  ///< Bytes of regions of block storage.
    /// Registrations of regions with agents, also those that are being made or ended.
    uint64_t num_registrations;
    uint64_t num_store_hits;  ///< Keys that gets have found, in all stores.
    /// Keys of gets that were not found: the first that is not stored, and all after it.
    uint64_t num_store_misses;
    uint64_t num_store_evicted;  ///< Blocks that stores have evicted.
    /// Blocks of stores that could not be read, or whose bytes were not those that were stored.
    uint64_t num_store_damaged;
    uint64_t num_regions;  ///< Handles of regions that were not destroyed.
    uint64_t num_layouts;  ///< Handles of layouts that were not destroyed.
    uint64_t num_transfers;  ///< Handles of transfers that were not destroyed.
    uint64_t num_queues;  ///< Handles of queues that were not destroyed.
    uint64_t num_shares;  ///< Handles of shares that were not destroyed.
    uint64_t num_brokers;  ///< Handles of brokers that were not destroyed.
    uint64_t num_agents;  ///< Handles of agents that were not destroyed.
    uint64_t num_directories;  ///< Handles of directories that were not destroyed.
    uint64_t num_stores;  ///< Handles of stores that were not destroyed.
    uint64_t num_requests;  ///< Handles of requests that were not destroyed.
    uint64_t num_leases;  ///< Handles of leases that were not destroyed, also of those that are over.
    /// Bytes of regions of other processes that are mapped here, which are counted above, too.
    uint64_t mapped_bytes;
    /// Bytes of staging memory: of GPUs, between files and GPUs, and for transfers with peers and objects.
    /// That for peers and objects is counted above, too.
    uint64_t staging_bytes;
    /// Bytes that this process may lock in memory (RLIMIT_MEMLOCK); UINT64_MAX without a limit.
    uint64_t locked_bytes_limit;
    uint64_t excess_bytes;  ///< Bytes that staged runs have read from peers and discarded.
    /// Times that a run with a peer has begun to wait for staging memory of this process.
    uint64_t num_peer_staging_waits;
    /// Times that a run has begun to wait for a stream, descriptors or staging memory of a GPU.
    uint64_t num_gpu_waits;
    /// Calls that waited for a run, a completion or a message until their timeout had elapsed.
    uint64_t num_elapsed_waits;
    /// Reads and writes of files that were continued or repeated: the kernel had moved a part, or was
    /// interrupted.
    uint64_t num_file_retries;
    /// Times that a transfer took another method, because the best one could not be prepared.
    uint64_t num_fallbacks;
} kvmem_statistics;

/// Returns what exists in this process, and what has happened in it. Waits for nothing, and stops nothing.
///
///     kvmem_statistics statistics = {.struct_size = sizeof statistics};
///     status = kvmem_statistics_get(&statistics, &error);
/// @param statistics `struct_size` is set by the caller; all other fields are written
kvmem_status kvmem_statistics_get(kvmem_statistics *statistics, kvmem_error **error);

/// Returns the same as text in the format of Prometheus, version 0.0.4, for an HTTP endpoint of the caller,
/// and more: failed calls, leases that layouts keep for peers, and what has happened to each agent, layout,
/// queue and store. docs/statistics.md lists the metrics. A method that has no runs has no lines. Waits for
/// nothing but a queue or the index of a store that another thread uses at this moment.
/// @return KVMEM_STATUS_OUT_OF_MEMORY
kvmem_status kvmem_statistics_text(kvmem_blob **text, kvmem_error **error);

/* ---- Trace ---- */

/// Returns the last 10,000 runs that have ended, with their phases, as JSON in the trace format of Chrome,
/// which ui.perfetto.dev shows. docs/statistics.md describes the events. Waits for nothing, and stops
/// nothing.
///
///     kvmem_blob *json = NULL;
///     status = kvmem_trace_export(&json, &error);
///     fwrite(kvmem_blob_data(json), 1, kvmem_blob_size(json), file);
///     kvmem_blob_destroy(json);
kvmem_status kvmem_trace_export(kvmem_blob **json, kvmem_error **error);

/// Lets other processes of this user, and of root, read the statistics and the trace of this process:
/// `kvmem-doctor top PID` shows them. Does nothing if it was called before; the process serves until it ends.
///
/// Opens the abstract Unix socket `kvmem-reports-PID`, and starts one thread. A forked child serves nothing
/// until it calls this.
/// @return KVMEM_STATUS_ALREADY_EXISTS: another process has the name of the socket
///         KVMEM_STATUS_OUT_OF_MEMORY: the thread was not started
kvmem_status kvmem_statistics_serve(kvmem_error **error);

/* ---- Methods ---- */

/// From host memory to host memory. Mapped memory of another process is memory here.
#define KVMEM_DIRECTION_HOST_TO_HOST 0
#define KVMEM_DIRECTION_HOST_TO_GPU 1  ///< From host memory to GPU memory.
#define KVMEM_DIRECTION_GPU_TO_HOST 2  ///< From GPU memory to host memory.
#define KVMEM_DIRECTION_GPU_TO_GPU 3  ///< From GPU memory to GPU memory.
#define KVMEM_DIRECTION_READ 4  ///< From files, objects or block storage to memory.
#define KVMEM_DIRECTION_WRITE 5  ///< From memory to files, objects or block storage.
#define KVMEM_DIRECTION_PULL 6  ///< From a peer, by an agent.
#define KVMEM_DIRECTION_PUSH 7  ///< To a peer, by an agent.

/// What has happened by one method since this process was started or forked.
///
/// Runs that kvmem makes for itself, such as reading blocks to verify them, and runs of captured graphs are
/// not counted.
typedef struct kvmem_method_statistics {
    size_t struct_size;
    /// Runs that have ended, by KVMEM_DIRECTION_* value, and then by the negative value of their status:
    /// `runs[KVMEM_DIRECTION_READ][-KVMEM_STATUS_TIMED_OUT]`.
    uint64_t runs[8][24];
    uint64_t bytes[8];  ///< Bytes of the runs that have succeeded, by KVMEM_DIRECTION_* value.
    /// Runs that have succeeded, by their bytes, and then by their duration from submission to completion, a
    /// check of the blocks included. The classes of bytes are up to 64 KiB, 1 MiB, 16 MiB, 256 MiB, and more.
    /// The duration at index i is at most 2^(10 + i) ns and more than that of the index before; at index 23
    /// it is more than 2^32 ns.
    uint64_t latencies[5][24];
    uint64_t latency_sums_ns[5];  ///< Sum of these durations by class.
} kvmem_method_statistics;

/// Returns what has happened by one method. Waits for nothing, and stops nothing.
///
///     kvmem_method_statistics statistics = {.struct_size = sizeof statistics};
///     status = kvmem_statistics_get_method(KVMEM_METHOD_URING, &statistics, &error);
/// @param method KVMEM_METHOD_* value; 0 for requests on raw descriptors (kvmem/nixl_raw.h), whose latencies
///        are not measured
/// @param statistics `struct_size` is set by the caller; all other fields are written
kvmem_status kvmem_statistics_get_method(uint32_t method, kvmem_method_statistics *statistics,
    kvmem_error **error);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* KVMEM_STATISTICS_H */
