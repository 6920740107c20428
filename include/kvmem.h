/* SPDX-License-Identifier: Apache-2.0 */
/* kvmem: KV-cache memory for LLM inference engines. Generated from src/ffi; do not edit.
 *
 * This header is what every engine needs. kvmem_cuda.h has the functions of the CUDA driver: devices,
 * streams, IPC handles, virtual memory management. kvmem_nixl.h has those of NIXL: agents, registrations,
 * metadata.
 *
 * Objects.  A region is a range of memory on one tier: host memory, page-locked host memory, GPU memory or a
 *           file. A layout says where each block of a KV cache is located in regions. A transfer moves blocks
 *           between two layouts. A queue collects completions of transfers. A share carries a region or a
 *           layout to another process; a broker publishes shares by name. A registration makes a region known
 *           to a NIXL agent, so that peers can access it.
 *
 * Example.  Move blocks 7 and 8 of a layout to blocks 42 and 43 of another one:
 *
 *     const kvmem_block_pair pairs[] = {{7, 42}, {8, 43}};
 *     const kvmem_transfer_options options = {
 *         .struct_size = sizeof options, .pairs = pairs, .num_pairs = 2,
 *     };
 *     kvmem_transfer *transfer = NULL;
 *     kvmem_error *error = NULL;
 *     kvmem_status status = kvmem_transfer_start(source, destination, &options, &transfer, &error);
 *     if (status == KVMEM_STATUS_OK) status = kvmem_transfer_wait(transfer, KVMEM_TIMEOUT_FOREVER, &error);
 *     if (status != KVMEM_STATUS_OK) fprintf(stderr, "%s\n", kvmem_error_message(error, NULL));
 *     kvmem_error_destroy(error);
 *     kvmem_transfer_destroy(transfer);
 *
 * Errors.   A function that can fail returns a kvmem_status, and its last parameter is `kvmem_error **error`.
 *           If it fails, *error receives a new error, which the caller destroys; NULL ignores it. On success
 *           *error is not changed. A failed call sets output handles to NULL and changes no other output.
 *           Every such function returns KVMEM_STATUS_OK on success, and KVMEM_STATUS_INVALID_ARGUMENT if a
 *           required pointer is NULL or options are invalid. It can return KVMEM_STATUS_OUT_OF_MEMORY if the
 *           process has no free file descriptors or the kernel has no free memory. Functions that use the
 *           CUDA driver can return KVMEM_STATUS_CUDA and KVMEM_STATUS_OUT_OF_MEMORY if it fails. Comments
 *           list these statuses only with further conditions. If a small allocation on the heap fails, the
 *           process ends, because Rust's collections do not report such failures. Nothing is stored in
 *           thread-local storage.
 *
 * Handles.  The caller owns every handle that it receives through a kvmem_x **, and destroys it once with
 *           kvmem_x_destroy. Handles may be destroyed in any order: an object lives as long as another object
 *           uses it. Destroying NULL does nothing, and destroying never fails.
 *           A handle of another type, or a destroyed one, fails with KVMEM_STATUS_INVALID_ARGUMENT;
 *           destroying it is logged and frees nothing. A destroyed handle is recognized only until its memory
 *           is reused.
 *           A handle that was created before a fork fails with KVMEM_STATUS_INVALID_STATE in the child. The
 *           child may destroy it, and may create its own handles.
 *
 * Options.  An options struct begins with struct_size, which the caller sets to sizeof the struct. A field
 *           that is 0 or NULL has its default; fields without a default, such as sizes, must be set:
 *           `kvmem_x_options o = {.struct_size = sizeof o}` in C, and in C++ `kvmem_x_options o{};` and
 *           `o.struct_size = sizeof o;`. NULL options, where allowed, are defaults.
 *           Unknown flags and values fail with KVMEM_STATUS_INVALID_ARGUMENT.
 *           A struct of an older or newer version of the header is accepted if struct_size is at least that
 *           of the first published version, at most 4096, and all bytes of unknown fields are 0.
 *
 * Strings.  Parameters are NUL-terminated; they are UTF-8, except for paths. A returned const char * is
 *           borrowed: it is valid as long as the object it was read from, or static if there is none. Text
 *           that a call composes is a kvmem_blob, which the caller destroys. kvmem never fills a buffer of
 *           the caller.
 *
 * Numbers.  Sizes are in bytes, times in nanoseconds. A block id is a uint32_t; layers and outer slots are
 *           uint64_t. A GPU is its ordinal in the order of CUDA_VISIBLE_DEVICES.
 *
 * Threads.  Functions without a handle may be called by any thread at any time. The comment of each type says
 *           which functions may use one object at the same time. A call that starts a transfer or request
 *           (kvmem_transfer_start, kvmem_transfer_submit and its variants, kvmem_request_post), asks for its
 *           state or waits (kvmem_transfer_wait, kvmem_transfer_wait_layers, kvmem_request_poll,
 *           kvmem_request_wait, kvmem_queue_wait, kvmem_agent_take_notifications) may run code of NIXL on
 *           the calling thread: give that thread an ordinary stack, and do not end it by pthread_cancel.
 */

#ifndef KVMEM_H
#define KVMEM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Versions ---- */

/// Major version of the headers.
#define KVMEM_VERSION_MAJOR 0
/// Minor version of the headers. Before 1.0 a new minor version may break programs.
#define KVMEM_VERSION_MINOR 1
/// Patch version of the headers.
#define KVMEM_VERSION_PATCH 0
/// Version of the binary interface: 100 × major version, plus the minor version before 1.0. It changes with
/// the SONAME: libkvmem.so.0.MINOR before 1.0, libkvmem.so.MAJOR after.
#define KVMEM_ABI_VERSION 1

/// Returns the version of the library, such as "0.1.0". The string is static.
const char *kvmem_version_string(void);

/// Returns the version of the library as a number: 10000 × major + 100 × minor + patch.
uint32_t kvmem_version_number(void);

/// Returns the version of the library's binary interface. A program that was compiled with another
/// KVMEM_ABI_VERSION must not use the library.
uint32_t kvmem_abi_version(void);

/* ---- Statuses ---- */

/// Result of a call: KVMEM_STATUS_OK, a positive state such as KVMEM_STATUS_IN_PROGRESS, or a negative error.
/// A value is never renumbered or reused.
typedef int32_t kvmem_status;

/// The call succeeded.
#define KVMEM_STATUS_OK 0
/// The run is in flight.
#define KVMEM_STATUS_IN_PROGRESS 1
/// An argument is invalid, independent of the state of the library.
#define KVMEM_STATUS_INVALID_ARGUMENT (-1)
/// Memory, disk space or another resource is exhausted.
#define KVMEM_STATUS_OUT_OF_MEMORY (-2)
/// An index or a size is outside the object.
#define KVMEM_STATUS_OUT_OF_RANGE (-3)
/// The named object does not exist.
#define KVMEM_STATUS_NOT_FOUND (-4)
/// The object to create already exists.
#define KVMEM_STATUS_ALREADY_EXISTS (-5)
/// The state of the object does not allow the call.
#define KVMEM_STATUS_INVALID_STATE (-6)
/// The object is in use.
#define KVMEM_STATUS_BUSY (-7)
/// The timeout expired.
#define KVMEM_STATUS_TIMED_OUT (-8)
/// The work was cancelled.
#define KVMEM_STATUS_CANCELLED (-9)
/// The operation is not supported, here or in general.
#define KVMEM_STATUS_UNSUPPORTED (-10)
/// The system or a peer denied access.
#define KVMEM_STATUS_PERMISSION_DENIED (-11)
/// There is no usable CUDA driver: it is missing, too old, or has no device. The message says which.
#define KVMEM_STATUS_UNAVAILABLE_CUDA (-12)
/// There is no usable NIXL library: it is missing, too old or broken. The message says which.
#define KVMEM_STATUS_UNAVAILABLE_NIXL (-13)
/// The CUDA driver reported an error.
#define KVMEM_STATUS_CUDA (-14)
/// NIXL reported an error.
#define KVMEM_STATUS_NIXL (-15)
/// The operating system reported an error.
#define KVMEM_STATUS_IO (-16)
/// The peer process has ended.
#define KVMEM_STATUS_PEER_LOST (-17)
/// What the handle refers to has changed since.
#define KVMEM_STATUS_STALE (-18)
/// Received or stored bytes are damaged or malicious.
#define KVMEM_STATUS_CORRUPT (-19)
/// Received or stored bytes have a version that this library cannot read.
#define KVMEM_STATUS_VERSION_MISMATCH (-20)
/// A bug in kvmem. Later calls with the same objects fail with KVMEM_STATUS_INVALID_STATE.
#define KVMEM_STATUS_PANIC (-21)

/// Returns the name of a status, such as "KVMEM_STATUS_BUSY". The string is static.
///
/// @param status any value; the name of an unknown one is "KVMEM_STATUS_UNKNOWN"
const char *kvmem_status_name(kvmem_status status);

/// Returns the meaning of a status in one sentence. The string is static.
///
/// @param status any value
const char *kvmem_status_message(kvmem_status status);

/* ---- Errors ---- */

/// Describes a failure: status, message and native cause. An error never changes, so any threads may read it
/// at the same time. The caller destroys it.
typedef struct kvmem_error kvmem_error;

/// There is no native cause.
#define KVMEM_DOMAIN_NONE 0
/// The code is an errno value.
#define KVMEM_DOMAIN_ERRNO 1
/// The code is a status of NIXL's C API.
#define KVMEM_DOMAIN_NIXL 2
/// The code is a CUresult.
#define KVMEM_DOMAIN_CUDA 3

/// Native cause of an error: the error of the library or system that kvmem called.
typedef struct kvmem_error_cause {
    /// KVMEM_DOMAIN_* value.
    uint32_t domain;
    /// Code in that domain; 0 without a cause.
    int32_t code;
    /// Name of the code, such as "ENOSPC"; "" without a cause. Valid as long as the error.
    const char *name;
} kvmem_error_cause;

/// Returns the status of an error.
///
/// @param error an error; NULL returns KVMEM_STATUS_OK
kvmem_status kvmem_error_status(const kvmem_error *error);

/// Returns the message of an error: the request, the reason, and often a remedy, in UTF-8. The string is
/// valid as long as the error.
///
/// @param error an error; NULL returns ""
/// @param length receives the length in bytes, without the terminating NUL; may be NULL
const char *kvmem_error_message(const kvmem_error *error, size_t *length);

/// Returns the native cause of an error.
///
/// @param error an error
/// @param cause receives the cause; its domain is KVMEM_DOMAIN_NONE if kvmem itself found the error
/// @return KVMEM_STATUS_OK
///         KVMEM_STATUS_INVALID_ARGUMENT: a pointer is NULL
kvmem_status kvmem_error_get_cause(const kvmem_error *error, kvmem_error_cause *cause);

/// Destroys an error.
///
/// @param error an error that no other call uses; NULL does nothing
void kvmem_error_destroy(kvmem_error *error);

/* ---- Log ---- */

/// No messages.
#define KVMEM_LOG_OFF 0
/// Failures that no return value can report.
#define KVMEM_LOG_ERROR 1
/// Something works, but not as well as requested.
#define KVMEM_LOG_WARN 2
/// Milestones, such as a loaded library, and slow paths that are caused by the setup.
#define KVMEM_LOG_INFO 3
/// Creation and destruction of regions, layouts and transfers; start and end of runs; opened files,
/// registrations, shares; failed calls.
/// Regions, layouts, transfers, shares, queues and agents have a number, as in "transfer #7".
#define KVMEM_LOG_DEBUG 4
/// All calls, timeouts, and the steps of operations.
#define KVMEM_LOG_TRACE 5

/// Receives one message. Target and message are UTF-8 and valid during the call. Must not unwind.
///
/// kvmem calls it on a dedicated thread, one message at a time, in the order in which the messages were
/// logged. It may call any function of kvmem and may block: no other thread waits for it, except in
/// kvmem_log_set_callback. Messages that kvmem logs on the callback's own thread are not delivered. Work that
/// the callback starts on other threads is logged: a callback that starts a transfer for each transfer
/// message never ends.
///
/// Up to 4 MiB of messages are queued. Further messages are dropped, and a message at KVMEM_LOG_ERROR reports
/// their number.
///
/// Notes: target is the module that logged, such as "kvmem::transfer". Targets may change between versions.
typedef void (*kvmem_log_callback)(uint32_t level, const char *target, const char *message, void *user_data);

/// Sets the log callback of the process, or removes it.
///
/// Messages that were logged before are delivered to the previous callback, then the function returns. After
/// it returns, the previous callback is not running and is not called again, so its user data can be freed.
/// The caller must not hold a lock that the previous callback takes.
///
/// Called from the log callback itself, the function cannot wait: it discards the queued messages, and the
/// previous callback is not called again after its running call returns.
///
/// @param level least important level to deliver, a KVMEM_LOG_* value; KVMEM_LOG_OFF removes the callback
/// @param callback the function to call; NULL removes the callback
/// @param user_data passed to every call
/// @return KVMEM_STATUS_OK
///         KVMEM_STATUS_INVALID_ARGUMENT: the level is not a KVMEM_LOG_* value
///         KVMEM_STATUS_OUT_OF_MEMORY: the callback's thread could not be started; nothing has changed
///
/// Notes: messages that are still queued when the process ends are lost; remove the callback before. Remove a
/// callback that is part of a shared object before dlclose. A forked child starts without a callback.
kvmem_status kvmem_log_set_callback(uint32_t level,
                                    kvmem_log_callback callback,
                                    void *user_data,
                                    kvmem_error **error);

/* ---- Timeouts ---- */

/// A timeout that never expires, for every `timeout_ns`.
#define KVMEM_TIMEOUT_FOREVER UINT64_MAX

/* ---- Blobs ---- */

/// Bytes or text that kvmem created and the caller destroys. A blob never changes, so any threads may read it
/// at the same time. A NUL follows the last byte, so that text can be used as a C string.
typedef struct kvmem_blob kvmem_blob;

/// Returns the first byte of a blob. The pointer is valid as long as the blob.
///
/// @param blob a blob; NULL returns NULL
const void *kvmem_blob_data(const kvmem_blob *blob);

/// Returns the size of a blob in bytes, without the terminating NUL.
///
/// @param blob a blob; NULL returns 0
size_t kvmem_blob_size(const kvmem_blob *blob);

/// Destroys a blob.
///
/// @param blob a blob that no other call uses; NULL does nothing
void kvmem_blob_destroy(kvmem_blob *blob);

/* ---- Regions ---- */

/// A range of memory on one tier: host memory, GPU memory, a file, objects or block storage. Views,
/// registrations, layouts, shares and transfers keep the memory of their regions allocated, so handles may be
/// destroyed in any order.
///
/// Threads: all functions may use one region at the same time, except kvmem_region_destroy.
typedef struct kvmem_region kvmem_region;

/// Host memory.
#define KVMEM_TIER_SYSTEM 1
/// A file.
#define KVMEM_TIER_DISK 2
/// Page-locked host memory, which GPUs access by DMA.
#define KVMEM_TIER_PINNED 3
/// GPU memory.
#define KVMEM_TIER_DEVICE 4
/// GPU memory that grows and shrinks at fixed addresses.
#define KVMEM_TIER_ELASTIC 5
/// Objects of an object store, which NIXL reads and writes.
#define KVMEM_TIER_OBJECT 6
/// Block storage, which NIXL reads and writes.
#define KVMEM_TIER_BLOCK 7

/* ---- Regions: host memory ---- */

/// Ask the kernel for transparent huge pages for a region of any size, and report their absence:
/// KVMEM_REGION_HUGE_PAGE_FALLBACK. Without this flag kvmem asks for them for regions of at least one huge
/// page (2 MiB on x86-64).
#define KVMEM_SYSTEM_TRANSPARENT_HUGE_PAGES 1
/// Fail if the requested page size is not available. Without this flag smaller pages are used, and the info
/// of the region has KVMEM_REGION_HUGE_PAGE_FALLBACK.
#define KVMEM_SYSTEM_HUGE_PAGES_REQUIRED 2
/// Bind the memory to `numa_node`.
#define KVMEM_SYSTEM_NUMA_BIND 4
/// Allocate from a memory file, so that the region can be shared with other processes.
#define KVMEM_SYSTEM_SHAREABLE 8
/// Use ordinary pages only. For memory of which small parts far from each other are accessed: with huge pages
/// the first access to a byte allocates 2 MiB.
#define KVMEM_SYSTEM_NO_HUGE_PAGES 16
/// With KVMEM_SYSTEM_SHAREABLE: no other process can ever map the memory for writing, whatever it opens. It
/// can be shared with KVMEM_SHARE_READ_ONLY only.
#define KVMEM_SYSTEM_WRITE_SEALED 32

/// Options of kvmem_region_create_system.
typedef struct kvmem_system_options {
    /// sizeof(kvmem_system_options)
    size_t struct_size;
    /// KVMEM_SYSTEM_* flags.
    uint64_t flags;
    /// Bytes, at least 1. Must be 0 in the options of a layout, which computes it.
    uint64_t size;
    /// Page size in bytes, from a reserved pool of the system (hugetlbfs), for example 2097152 or 1073741824;
    /// 0 for other pages. /sys/kernel/mm/hugepages lists the sizes of a system. With
    /// KVMEM_SYSTEM_NUMA_BIND all pages are touched before the call returns, because the kernel cannot
    /// reserve pages of a node.
    uint64_t huge_page_size;
    /// NUMA node of KVMEM_SYSTEM_NUMA_BIND; 0 without that flag.
    uint32_t numa_node;
    /// Threads that touch every page before the call returns; 0: pages are allocated on first access.
    uint32_t prefault_threads;
} kvmem_system_options;

/// Allocates host memory. It is page-aligned and zeroed.
///
/// @param options what to allocate
/// @param region receives the region; the caller destroys it
/// @return KVMEM_STATUS_OK
///         KVMEM_STATUS_INVALID_ARGUMENT: the options contradict each other, or the NUMA node does not exist
///         KVMEM_STATUS_OUT_OF_MEMORY: the machine, the node or the control group has less memory (not
///           checked if vm.overcommit_memory is 1), too few huge pages, or RLIMIT_FSIZE is too small for
///           KVMEM_SYSTEM_SHAREABLE
///         KVMEM_STATUS_UNSUPPORTED: huge pages are required, and the system does not offer them
kvmem_status kvmem_region_create_system(const kvmem_system_options *options,
                                        kvmem_region **region,
                                        kvmem_error **error);

/* ---- Regions: page-locked host memory ---- */

/// Use ordinary pages only.
#define KVMEM_PINNED_NO_HUGE_PAGES 1
/// Bind the memory to `numa_node`.
#define KVMEM_PINNED_NUMA_BIND 2
/// Allocate from a memory file, so that the region can be shared with other processes.
#define KVMEM_PINNED_SHAREABLE 4
/// With KVMEM_PINNED_SHAREABLE: as KVMEM_SYSTEM_WRITE_SEALED.
#define KVMEM_PINNED_WRITE_SEALED 8

/// Reports the progress of a long allocation, in bytes. Called on the calling thread after each chunk, and
/// within large chunks after each 512 MiB. Returns 0 to continue; any other value cancels the allocation.
/// Must not unwind.
typedef int32_t (*kvmem_progress_callback)(uint64_t done, uint64_t total, void *user_data);

/// Options of kvmem_region_create_pinned.
typedef struct kvmem_pinned_options {
    /// sizeof(kvmem_pinned_options)
    size_t struct_size;
    /// KVMEM_PINNED_* flags.
    uint64_t flags;
    /// Bytes, at least 1. Must be 0 in the options of a layout, which computes it.
    uint64_t size;
    /// Bytes per page lock, a multiple of the page size; 0 for 64 GiB. A copy by the driver that crosses two
    /// page locks fails; kvmem splits its own copies there.
    uint64_t chunk_size;
    /// Called between chunks; may be NULL. Not called for a layout.
    kvmem_progress_callback progress;
    /// Passed to progress.
    void *user_data;
    /// GPU that accesses the memory. Without KVMEM_PINNED_NUMA_BIND, pages come from the NUMA node of that
    /// GPU while it has free pages.
    int32_t device;
    /// NUMA node of KVMEM_PINNED_NUMA_BIND; 0 without that flag.
    uint32_t numa_node;
    /// Threads that touch the pages; 0 for one per core, at most 8.
    uint32_t threads;
    /// Must be 0.
    uint32_t reserved;
} kvmem_pinned_options;

/// Allocates page-locked host memory: near the GPU, touched by several threads, page-locked and mapped for
/// all contexts. A failure leaves nothing allocated.
///
/// @param options what to allocate
/// @param region receives the region; the caller destroys it
/// @return KVMEM_STATUS_OK
///         KVMEM_STATUS_INVALID_ARGUMENT: the options contradict each other
///         KVMEM_STATUS_OUT_OF_RANGE: there is no such device
///         KVMEM_STATUS_OUT_OF_MEMORY: the machine, the NUMA node or the control group has less memory. This
///           is checked before a page is touched; the message has the bytes requested and available
///         KVMEM_STATUS_CANCELLED: progress returned another value than 0
///         KVMEM_STATUS_UNAVAILABLE_CUDA, KVMEM_STATUS_CUDA
kvmem_status kvmem_region_create_pinned(const kvmem_pinned_options *options,
                                        kvmem_region **region,
                                        kvmem_error **error);

/* ---- Regions: GPU memory ---- */

/// Options of kvmem_region_create_device.
typedef struct kvmem_device_options {
    /// sizeof(kvmem_device_options)
    size_t struct_size;
    /// Must be 0.
    uint64_t flags;
    /// Bytes, at least 1. Must be 0 in the options of a layout, which computes it.
    uint64_t size;
    /// GPU, in the order of CUDA_VISIBLE_DEVICES.
    int32_t device;
    /// Must be 0.
    uint32_t reserved;
} kvmem_device_options;

/// Allocates GPU memory. Its content is undefined.
///
/// @param options what to allocate
/// @param region receives the region; the caller destroys it
/// @return KVMEM_STATUS_OK
///         KVMEM_STATUS_INVALID_ARGUMENT: the options are invalid
///         KVMEM_STATUS_OUT_OF_RANGE: there is no such device
///         KVMEM_STATUS_OUT_OF_MEMORY: the GPU has less free memory. The message has the bytes requested,
///           free and in total
///         KVMEM_STATUS_UNAVAILABLE_CUDA, KVMEM_STATUS_CUDA
kvmem_status kvmem_region_create_device(const kvmem_device_options *options,
                                        kvmem_region **region,
                                        kvmem_error **error);

/* ---- Regions: GPU memory that grows and shrinks ---- */

/// Extents can be shared by fabric handle (KVMEM_SHARE_FABRIC) as well as by file descriptor. This cannot be
/// enabled later.
#define KVMEM_ELASTIC_FABRIC 1

/// Options of kvmem_region_create_elastic.
typedef struct kvmem_elastic_options {
    /// sizeof(kvmem_elastic_options)
    size_t struct_size;
    /// KVMEM_ELASTIC_* flags; 0: extents can be shared by file descriptor if the GPU supports it.
    uint64_t flags;
    /// Maximum size in bytes, rounded up to whole extents. Must be 0 in the options of a layout, which
    /// computes it.
    uint64_t size;
    /// Bytes per extent, a multiple of the recommended granularity; 0 for 64 MiB. Each extent adds to the
    /// duration of growth. Must be 0 in the options of a layout, which computes it.
    uint64_t extent_size;
    /// GPU, in the order of CUDA_VISIBLE_DEVICES.
    int32_t device;
    /// Must be 0.
    uint32_t reserved;
} kvmem_elastic_options;

/// Reserves GPU addresses for memory that grows and shrinks. No memory is allocated: kvmem_region_commit
/// allocates it.
///
/// @param options what to reserve
/// @param region receives the region; the caller destroys it
/// @return KVMEM_STATUS_OK
///         KVMEM_STATUS_INVALID_ARGUMENT: the extent is not a multiple of the granularity, or the size
///           exceeds any address space
///         KVMEM_STATUS_OUT_OF_RANGE: there is no such device, or there are more than 16,777,216 extents
///         KVMEM_STATUS_OUT_OF_MEMORY: too few free addresses, or no host memory or file descriptor for the
///           control block, in which other processes see changes (64 bytes, and 4 per extent)
///         KVMEM_STATUS_UNSUPPORTED: the GPU has no virtual memory management, or cannot export memory by
///           fabric handle, which is tried for KVMEM_ELASTIC_FABRIC
///         KVMEM_STATUS_UNAVAILABLE_CUDA, KVMEM_STATUS_CUDA
kvmem_status kvmem_region_create_elastic(const kvmem_elastic_options *options,
                                         kvmem_region **region,
                                         kvmem_error **error);

/// Allocates memory for a part of an elastic region, in whole extents. Extents that have memory keep it.
/// Addresses do not change. Agents that the region is registered with can use the new extents. A failure
/// changes nothing.
///
/// @param region an elastic region, not a view
/// @param offset bytes from the start of the region
/// @param size bytes, at least 1; every extent that overlaps the range gets memory
/// @return KVMEM_STATUS_OK
///         KVMEM_STATUS_INVALID_ARGUMENT: the region is not elastic
///         KVMEM_STATUS_OUT_OF_RANGE: the range ends after the reserved addresses
///         KVMEM_STATUS_OUT_OF_MEMORY: the message has the bytes requested and in total, and the free bytes
///           if the process has the primary context of the GPU
///         KVMEM_STATUS_UNSUPPORTED: the region was imported; commit in the process of its owner and share it
///           again
///         KVMEM_STATUS_CUDA, KVMEM_STATUS_NIXL
kvmem_status kvmem_region_commit(kvmem_region *region, uint64_t offset, uint64_t size, kvmem_error **error);

/// Frees the memory of whole extents, after it was deregistered from agents. The caller ensures that no
/// kernel or copy of its own uses the extents any more. Transfers of kvmem are checked.
///
/// @param region an elastic region, not a view
/// @param offset bytes from the start of the region, a multiple of the extent size
/// @param size bytes, a multiple of the extent size
/// @return KVMEM_STATUS_OK
///         KVMEM_STATUS_INVALID_ARGUMENT: the region is not elastic, or the range is not made of whole
///           extents
///         KVMEM_STATUS_OUT_OF_RANGE: the range ends after the reserved addresses
///         KVMEM_STATUS_INVALID_STATE: an extent has no memory
///         KVMEM_STATUS_BUSY: a transfer or a share uses an extent, or an agent is still deregistering memory
///           of a destroyed registration. The call does not wait for either
///         KVMEM_STATUS_UNSUPPORTED: the region was imported; decommit in the process of its owner
///         KVMEM_STATUS_NIXL: an agent could not deregister an extent. The extent is decommitted, but its
///           memory stays mapped, and is used again if the extent is committed again
///         KVMEM_STATUS_CUDA
kvmem_status kvmem_region_decommit(kvmem_region *region, uint64_t offset, uint64_t size, kvmem_error **error);

/// State of an elastic region.
typedef struct kvmem_elastic_info {
    /// Bytes per extent.
    uint64_t extent_size;
    /// Extents that the addresses can hold.
    uint64_t num_extents;
    /// Extents that have memory.
    uint64_t num_committed;
    /// Number of times that the memory at any address has changed.
    uint64_t generation;
} kvmem_elastic_info;

/// Returns the state of an elastic region.
///
/// @param region an elastic region, or a view of one
/// @param info receives the state
/// @return KVMEM_STATUS_OK
///         KVMEM_STATUS_INVALID_ARGUMENT: the region is not elastic
kvmem_status kvmem_region_get_elastic_info(const kvmem_region *region,
                                           kvmem_elastic_info *info,
                                           kvmem_error **error);

/* ---- Regions: files ---- */

/// Use the page cache. Without this flag I/O bypasses it (O_DIRECT) if the file system supports that.
#define KVMEM_DISK_BUFFERED 1
/// Fail if the file system does not support O_DIRECT. Without this flag the page cache is used instead, and
/// the info of the region lacks KVMEM_REGION_DIRECT_IO.
#define KVMEM_DISK_DIRECT_REQUIRED 2
/// Open the file at `path`, which must exist and not be empty. Without this flag the file is created.
#define KVMEM_DISK_OPEN_EXISTING 4
/// Open the file at `path` if it exists, otherwise create it. An empty file is treated as a new one.
#define KVMEM_DISK_OPEN_OR_CREATE 8
/// With KVMEM_DISK_OPEN_EXISTING: open the file for reading. The region can only be the source of transfers.
/// It can be open while a writer has the file open.
#define KVMEM_DISK_READ_ONLY 16
/// Do not lock the file against other writers: the caller excludes them.
#define KVMEM_DISK_NO_LOCK 32

/// Options of kvmem_region_create_disk.
typedef struct kvmem_disk_options {
    /// sizeof(kvmem_disk_options)
    size_t struct_size;
    /// KVMEM_DISK_* flags.
    uint64_t flags;
    /// Bytes, at least 1; 0 with KVMEM_DISK_OPEN_EXISTING for the whole file. Must be 0 in the options of a
    /// layout, which computes it.
    uint64_t size;
    /// Path of the file, which is the caller's: kvmem creates it, and deletes it only if the call that
    /// created it fails. NULL for a temporary file, which has no name and is deleted with the region or with
    /// the process.
    const char *path;
    /// Directory of a temporary file; NULL for $TMPDIR, or /tmp if that is not set.
    const char *directory;
} kvmem_disk_options;

/// Creates or opens a file of fixed size. Space is reserved and the page cache is bypassed if the file system
/// supports that. A call that fails leaves the file as it was before: absent or empty.
///
/// While the region exists, a named file is locked against other writers: opening it again fails with
/// KVMEM_STATUS_BUSY, in this process and in others. KVMEM_DISK_READ_ONLY needs no lock; KVMEM_DISK_NO_LOCK
/// takes none.
///
/// @param options what to create or open
/// @param region receives the region; the caller destroys it
/// @return KVMEM_STATUS_OK
///         KVMEM_STATUS_ALREADY_EXISTS: the file exists, and no flag says to open it
///         KVMEM_STATUS_NOT_FOUND: the directory does not exist, or with KVMEM_DISK_OPEN_EXISTING the file
///         KVMEM_STATUS_BUSY: the file is already open for writing
///         KVMEM_STATUS_INVALID_ARGUMENT: the options contradict each other; the path is not a regular file;
///           or the file is empty and KVMEM_DISK_OPEN_EXISTING is set
///         KVMEM_STATUS_OUT_OF_RANGE: the existing file is too small
///         KVMEM_STATUS_OUT_OF_MEMORY: no space, a quota, RLIMIT_FSIZE, or no file descriptor; or the file is
///           on tmpfs, and exceeds the memory of the machine or of the control group
///         KVMEM_STATUS_UNSUPPORTED: the file system does not support O_DIRECT, which is required, or locks
///         KVMEM_STATUS_PERMISSION_DENIED, KVMEM_STATUS_IO
kvmem_status kvmem_region_create_disk(const kvmem_disk_options *options,
                                      kvmem_region **region,
                                      kvmem_error **error);

/// Returns the absolute path of the file of a disk region.
///
/// @param region a region
/// @param path receives the path as text; the caller destroys the blob
/// @return KVMEM_STATUS_OK
///         KVMEM_STATUS_NOT_FOUND: the region is not on disk; or its file is temporary, was opened from a
///           share, or was renamed or unlinked
kvmem_status kvmem_region_get_path(const kvmem_region *region, kvmem_blob **path, kvmem_error **error);

/// Waits until the written data of a disk region is durable. Does nothing for other regions.
///
/// @param region a region
/// @return KVMEM_STATUS_OK
///         KVMEM_STATUS_IO, KVMEM_STATUS_OUT_OF_MEMORY: the data is not durable
kvmem_status kvmem_region_sync(const kvmem_region *region, kvmem_error **error);
/// Options of kvmem_region_create_object.
typedef struct kvmem_object_options {
    /// sizeof(kvmem_object_options)
    size_t struct_size;
    /// Must be 0.
    uint64_t flags;
    /// Prefix of all keys, UTF-8, 1 to 1014 bytes: "model/" for the keys "model/0000000000",
    /// "model/0000000001" and so on. It has no control characters. No segment before a slash is empty, "." or
    /// "..": NIXL's plugin would remove it from the key.
    const char *key_prefix;
    /// Maximum size of an object in bytes, usually the block stride of the layout.
    uint64_t object_size;
    /// Number of objects, 1 to 2147483647; usually the number of blocks of the layout.
    uint64_t count;
} kvmem_object_options;

/// Creates a region of objects of an object store, such as an S3 bucket. The call only names them: nothing is
/// read or written, and destroying the region deletes no object.
///
/// The key of object i, from 0, is key_prefix and i as 10 decimal digits. Object i starts at offset
/// i * object_size of the region. Each object contains the bytes of one block, or of a part of one block:
/// kvmem_layout_build fails for other layouts, and names the axis that prevents it. If object_size is larger
/// than the block, the object contains only the block.
///
/// Transfers need a layout over the region that was built with an agent. The agent has a backend of NIXL's
/// plugin OBJ, which names the bucket. The other layout is in host or GPU memory, and was built with the same
/// agent. Transfers write whole objects, and may read parts: see KVMEM_PATH_NIXL_OBJECT_READ and
/// KVMEM_PATH_NIXL_OBJECT_WRITE. Regions with the same prefix, in this process or in others, name the same
/// objects of a bucket.
///
/// This process has no addresses of objects: they cannot be shared, exported, or mapped.
///
/// @param options the objects
/// @param region receives the region; the caller destroys it
/// @return KVMEM_STATUS_OK
///         KVMEM_STATUS_INVALID_ARGUMENT: the prefix is missing, too long, not UTF-8, or has a segment or a
///           character that keys cannot have; object_size or count is 0; count is too large, or all objects
///           are more than 2^63 - 1 bytes
///
/// Notes: requests address objects by device ids, which the process numbers from 2^48: do not register raw
/// descriptors of objects with such ids. Registering a region registers all of its objects, also for a layout
/// over a view: an agent keeps about 600 bytes per object, and deregisters them when nothing uses them.
kvmem_status kvmem_region_create_object(const kvmem_object_options *options,
                                        kvmem_region **region,
                                        kvmem_error **error);
/// Options of kvmem_region_create_block.
typedef struct kvmem_block_options {
    /// sizeof(kvmem_block_options)
    size_t struct_size;
    /// Must be 0.
    uint64_t flags;
    /// Number of the device in the configuration of the backend. The plugin GUSLI needs 0.
    uint64_t device_id;
    /// Bytes from the start of the device.
    uint64_t offset;
    /// Bytes, at least 1.
    uint64_t size;
    /// Offsets, sizes and host addresses of I/O must be multiples of this power of two; 0 for 1. Usually the
    /// size of a block of the device.
    uint64_t alignment;
    /// Bytes that the backend needs to register the part; NULL with size 0 for none. They are copied.
    const void *metadata;
    /// Number of bytes of metadata.
    size_t metadata_size;
} kvmem_block_options;

/// Creates a region of block storage: a part of a device that a backend of NIXL accesses, such as one of the
/// plugin GUSLI. The call only names it: nothing is opened, and kvmem does not lock it against other users.
///
/// Transfers need a layout over the region that was built with an agent. The agent has a backend that accepts
/// KVMEM_MEMORY_BLOCK. The paths are KVMEM_PATH_NIXL_BLOCK_READ and KVMEM_PATH_NIXL_BLOCK_WRITE. The other
/// layout is in memory that the backend accepts (GUSLI: host memory), and was built with the same agent.
///
/// This process has no addresses of it: it cannot be shared, exported, or mapped.
///
/// @param options the part
/// @param region receives the region; the caller destroys it
/// @return KVMEM_STATUS_OK
///         KVMEM_STATUS_INVALID_ARGUMENT: size is 0; the part ends after 2^63 - 1 bytes; alignment is not a
///           power of two, or offset and size are not multiples of it
kvmem_status kvmem_region_create_block(const kvmem_block_options *options,
                                       kvmem_region **region,
                                       kvmem_error **error);

/* ---- Regions: memory of the caller ---- */

/// Reports that kvmem no longer uses adopted memory, so that it can be freed. Called once. Must not unwind.
///
/// kvmem calls it on a dedicated thread, one release callback at a time. It may call any function of kvmem
/// and may block: only other release callbacks wait for it. It is called after the last handle, layout,
/// registration, share and transfer that uses the memory was destroyed or has ended, often after the
/// destroying function returned.
///
/// Notes: callbacks that are still pending when the process ends may not be called. A forked child calls none
/// of its parent's release callbacks.
typedef void (*kvmem_release_callback)(void *user_data);

/// Adopt host memory for reading. It may be mapped without PROT_WRITE. The region can only be the source of
/// transfers, and cannot be registered with an agent.
#define KVMEM_ADOPT_READ_ONLY 1
/// Do not add F_SEAL_SHRINK to the seals of the file. For kvmem_region_adopt_file only.
#define KVMEM_ADOPT_KEEP_SEALS 2

/// Memory of the caller to adopt.
typedef struct kvmem_adopt_options {
    /// sizeof(kvmem_adopt_options)
    size_t struct_size;
    /// KVMEM_ADOPT_READ_ONLY or 0.
    uint64_t flags;
    /// First byte. Host memory must be mapped with PROT_READ, and with PROT_WRITE unless
    /// KVMEM_ADOPT_READ_ONLY is set. It must stay mapped until release is called.
    void *address;
    /// Bytes, at least 1.
    uint64_t size;
    /// Called when kvmem no longer uses the memory; may be NULL.
    kvmem_release_callback release;
    /// Passed to release.
    void *user_data;
} kvmem_adopt_options;

/// Adopts host memory of the caller. kvmem never frees it. If the call fails, release is not called.
///
/// If all of the memory is page-locked when a transfer is created (cuMemHostRegister, cuMemHostAlloc), GPUs
/// use the page locks. There may be several, and a block may span two of them. If only a part is page-locked,
/// the memory is treated as not page-locked. Page locks must not change while a transfer of the memory
/// exists.
///
/// @param options the memory
/// @param region receives the region; the caller destroys it
/// @return KVMEM_STATUS_OK
///         KVMEM_STATUS_INVALID_ARGUMENT: a part of the memory is not mapped, or lacks PROT_READ or
///           PROT_WRITE
///         KVMEM_STATUS_IO, KVMEM_STATUS_NOT_FOUND: the kernel's list of mappings cannot be read
///         KVMEM_STATUS_OUT_OF_MEMORY: no file descriptor for that list, or no thread for the release
///           callback
///
/// Notes: the list of mappings (/proc/self/maps) is read to check the memory, which takes about a microsecond
/// per mapping of the process.
kvmem_status kvmem_region_adopt_host(const kvmem_adopt_options *options,
                                     kvmem_region **region,
                                     kvmem_error **error);

/// Adopts GPU memory of the caller, such as a tensor. kvmem never frees it. If the call fails, release is not
/// called.
///
/// The driver confirms that all of it is memory of that GPU, and that the GPU may read and write it, or only
/// read it with KVMEM_ADOPT_READ_ONLY. It may span several allocations and VMM mappings. Adopt it again after
/// the access of a mapping has been reduced.
///
/// @param options the memory; its address is a device pointer
/// @param device the GPU that the memory is located on, in the order of CUDA_VISIBLE_DEVICES
/// @param region receives the region; the caller destroys it
/// @return KVMEM_STATUS_OK
///         KVMEM_STATUS_INVALID_ARGUMENT: it is host memory, managed memory, freed memory, or memory of
///           another GPU
///         KVMEM_STATUS_PERMISSION_DENIED: the GPU may not access it, or only read it
///         KVMEM_STATUS_OUT_OF_RANGE: the memory ends before the range
///         KVMEM_STATUS_OUT_OF_MEMORY: the thread for the release callback could not be started
///         KVMEM_STATUS_UNAVAILABLE_CUDA
///
/// Notes: the memory is gone when its context is destroyed or reset; destroy the region before that.
/// Otherwise, transfers, checksums, shares and registrations of the region fail with
/// KVMEM_STATUS_INVALID_STATE before anything is accessed. A transfer in flight fails, and may destroy the
/// primary context of the GPU. Handles can be destroyed as usual, and release is called.
kvmem_status kvmem_region_adopt_device(const kvmem_adopt_options *options,
                                       int32_t device,
                                       kvmem_region **region,
                                       kvmem_error **error);

/// Part of a memory file to adopt.
typedef struct kvmem_adopt_file_options {
    /// sizeof(kvmem_adopt_file_options)
    size_t struct_size;
    /// KVMEM_ADOPT_* flags.
    uint64_t flags;
    /// Bytes from the start of the file to the memory, a multiple of the page size of the file.
    uint64_t offset;
    /// Bytes, at least 1. The part must be within the file.
    uint64_t size;
    /// Address at which the caller has mapped this part of the file with MAP_SHARED. It must stay mapped
    /// until release is called. NULL: kvmem maps it, and unmaps it before it calls release.
    void *address;
    /// Called when kvmem no longer uses the memory; may be NULL.
    kvmem_release_callback release;
    /// Passed to release.
    void *user_data;
    /// File from memfd_create, or on tmpfs or hugetlbfs, open with O_RDWR, or with O_RDONLY for
    /// KVMEM_ADOPT_READ_ONLY. kvmem opens it again, so the caller may close it after the call. Not 0, which
    /// is a field that was not set: duplicate a file that is open as fd 0 (dup).
    int32_t fd;
    /// Must be 0.
    uint32_t reserved;
} kvmem_adopt_file_options;

/// Adopts a part of a memory file of the caller, so that it can be shared with other processes. If the call
/// fails, release is not called.
///
/// The region is host memory like that of kvmem_region_adopt_host. kvmem_share_create_region and
/// kvmem_share_create_layout share it: importers map the same pages.
///
/// kvmem adds F_SEAL_SHRINK to the file, which then cannot be truncated: a process that accesses memory past
/// the end of a file gets SIGBUS. With KVMEM_ADOPT_KEEP_SEALS, and for a file that cannot be sealed (created
/// without MFD_ALLOW_SEALING, on tmpfs or hugetlbfs, or open with O_RDONLY), importers must trust all
/// processes that can write to the file, by KVMEM_OPEN_TRUST_OWNER. Do not truncate such a file while the
/// region or an importer uses it.
///
/// @param options the memory
/// @param region receives the region; the caller destroys it
/// @return KVMEM_STATUS_OK
///         KVMEM_STATUS_INVALID_ARGUMENT: fd is 0, not open, not open as the flags require, or not a memory
///           file; the file is sealed against writing; the offset is not a multiple of the page size; or the
///           memory at the address is not this part of the file, or lacks PROT_READ or PROT_WRITE
///         KVMEM_STATUS_OUT_OF_RANGE: the part is not within the file
///         KVMEM_STATUS_OUT_OF_MEMORY: no address space, huge pages or file descriptor, or no thread for the
///           release callback
///         KVMEM_STATUS_BUSY: a process has a lease on the file (F_SETLEASE)
///         KVMEM_STATUS_IO, KVMEM_STATUS_NOT_FOUND: the kernel's list of mappings cannot be read
///
/// Notes: importers receive the file, and can access all of it, whatever part was adopted and shared. Any
/// process that can open the file for writing can change the bytes, whatever a share grants.
/// memfd_create creates files of mode 0777: change it to 0600 by fchmod before the memory is shared for
/// reading with processes of another user.
kvmem_status kvmem_region_adopt_file(const kvmem_adopt_file_options *options,
                                     kvmem_region **region,
                                     kvmem_error **error);

/* ---- Regions: views, information, holders ---- */

/// Creates a region that is a part of another region. It keeps the memory of its parent. A view of a view is
/// a view of the region.
///
/// @param region the parent
/// @param offset bytes from the start of the parent
/// @param size bytes, at least 1
/// @param view receives the view; the caller destroys it
/// @return KVMEM_STATUS_OK
///         KVMEM_STATUS_INVALID_ARGUMENT: the size is 0
///         KVMEM_STATUS_OUT_OF_RANGE: the range ends after the parent
kvmem_status kvmem_region_create_view(const kvmem_region *region,
                                      uint64_t offset,
                                      uint64_t size,
                                      kvmem_region **view,
                                      kvmem_error **error);

/// kvmem allocated it.
#define KVMEM_ORIGIN_ALLOCATED 1
/// It is memory of the caller.
#define KVMEM_ORIGIN_ADOPTED 2
/// It is a part of another region.
#define KVMEM_ORIGIN_VIEW 3
/// It is memory of another process.
#define KVMEM_ORIGIN_IMPORTED 4

/// Disk: I/O bypasses the page cache.
#define KVMEM_REGION_DIRECT_IO 1
/// Disk: the space was reserved when this region was created. Not set for a file that existed, or was opened
/// from a share.
#define KVMEM_REGION_PREALLOCATED 2
/// Disk: the file has no name, and is deleted with the region.
#define KVMEM_REGION_TEMPORARY 4
/// System and pinned: pages are smaller than requested.
#define KVMEM_REGION_HUGE_PAGE_FALLBACK 8
/// System and pinned: the memory is a memory file, which can be shared with other processes.
#define KVMEM_REGION_SHAREABLE 16
/// The region can only be read: it was shared, adopted or opened for reading.
#define KVMEM_REGION_READ_ONLY 32

/// Properties of a region.
typedef struct kvmem_region_info {
    /// First byte: a host address, a device address, or an offset in the file or block device. Objects are
    /// one behind the other, from 0.
    uint64_t address;
    /// Bytes.
    uint64_t size;
    /// Bytes per page of the mapping for system and pinned; bytes per extent for elastic; bytes per object
    /// for object; the system's page size for others.
    uint64_t page_size;
    /// Disk and block: offsets, sizes and memory addresses of I/O must be multiples of this. Others: 1.
    uint64_t alignment;
    /// KVMEM_REGION_* flags.
    uint64_t flags;
    /// KVMEM_TIER_* value.
    uint32_t tier;
    /// KVMEM_ORIGIN_* value.
    uint32_t origin;
    /// GPU that the memory is located on, or was page-locked for; -1 for none. The id in NIXL, which
    /// kvmem_layout_info has, is another number.
    int32_t device_id;
    /// NUMA node of the pages; -1 for any.
    int32_t numa_node;
    /// Disk: the open file, valid as long as the region; the caller must not close it. Others: -1.
    int32_t fd;
    /// Agents that the region is registered with; kvmem_region_get_agent returns their names.
    uint32_t registration_count;
} kvmem_region_info;

/// Returns the properties of a region.
///
/// @param region a region
/// @param info receives the properties
kvmem_status kvmem_region_get_info(const kvmem_region *region, kvmem_region_info *info, kvmem_error **error);

/// Resident memory of a region, in bytes.
typedef struct kvmem_region_residency {
    /// In memory, on pages of any size.
    uint64_t resident_bytes;
    /// In memory, on transparent huge pages.
    uint64_t transparent_huge_bytes;
    /// Swapped out.
    uint64_t swapped_bytes;
} kvmem_region_residency;

/// Returns the number of bytes of a region that are resident in memory. For a view, returns the figures of
/// the whole underlying region.
///
/// @param region a system or pinned region
/// @param residency receives the figures
/// @return KVMEM_STATUS_OK
///         KVMEM_STATUS_UNSUPPORTED: the region is adopted, or is not in host memory
///         KVMEM_STATUS_IO, KVMEM_STATUS_NOT_FOUND, KVMEM_STATUS_OUT_OF_MEMORY: the figures of the kernel
///           cannot be read
///
/// Notes: for diagnosis. The kernel walks the pages of all mappings of the process (/proc/self/smaps), which
/// takes milliseconds, and more with much memory. Pages of an adjacent mapping that the kernel merged with
/// the region's may be included; no figure exceeds the size of the region.
kvmem_status kvmem_region_get_residency(const kvmem_region *region,
                                        kvmem_region_residency *residency,
                                        kvmem_error **error);

/// References to the memory of a region at one moment. References to a view count for the view only; here the
/// view counts once.
typedef struct kvmem_region_holders {
    /// References in this process: one per handle, view, registration and share; one or more per layout. A
    /// transfer in flight may add some. 1: only this handle.
    uint64_t references;
    /// Views of it, including views of its views, and those that a layout created for its parts. 0 for a
    /// view.
    uint64_t views;
    /// Agents that it is registered with.
    uint64_t registrations;
    /// Shares of it that are not destroyed. A share of a layout counts for each of its regions.
    uint64_t shares;
    /// Number of times that other processes have it open, each with a separate mapping; at most 1,024 are
    /// counted. A process that has ended does not count.
    uint64_t importers;
    /// Handles to it that are not destroyed, including this one.
    uint64_t handles;
} kvmem_region_holders;

/// Returns the number of references to a region, in this process and in others.
///
/// @param region a region
/// @param holders receives the numbers
/// @return KVMEM_STATUS_OK
///         KVMEM_STATUS_PERMISSION_DENIED, KVMEM_STATUS_IO: the region was shared, and the kernel does not
///           report its importers, for example because a system call filter rejects F_OFD_GETLK
kvmem_status kvmem_region_get_holders(const kvmem_region *region,
                                      kvmem_region_holders *holders,
                                      kvmem_error **error);

/// Checks that the owner of an imported region still has it. If not, existing mappings stay readable. A
/// region of this process is its own owner.
///
/// @param region a region
/// @return KVMEM_STATUS_OK
///         KVMEM_STATUS_PEER_LOST: the owner has freed the region or has ended
kvmem_status kvmem_region_check_owner(const kvmem_region *region, kvmem_error **error);

/// Destroys a region handle. The memory is freed when nothing refers to it any more.
///
/// The driver frees page-locked memory, and memory of kvmem_region_create_device, only when the GPU has
/// finished its work. If that takes longer than 20 ms, a thread frees the memory, which stays allocated
/// meanwhile; an allocation that finds no memory waits for what can be freed. To learn whether the GPU has
/// finished invalidates captures in its primary context, as cudaFree does: see docs/streams.md.
///
/// @param region a region that no other call uses; NULL does nothing
void kvmem_region_destroy(kvmem_region *region);

/* ---- Agents and registrations: see kvmem_nixl.h ---- */

/// A NIXL agent. A thread of kvmem makes its NIXL calls, or a thread that waits for one of its transfers.
/// Registrations, layouts and transfers keep the agent alive. kvmem_nixl.h has its functions.
///
/// Threads: all functions may use one agent at the same time, except kvmem_agent_destroy. kvmem makes the
/// NIXL calls of an agent one at a time: a function waits for those of other threads, and for one step of
/// each transfer in flight. None of these waits for a peer, but NIXL sets no time limit for any of them. A
/// function without a timeout fails with KVMEM_STATUS_TIMED_OUT after call_timeout_ns of the agent, which is
/// 10 minutes by default, also if its comment does not list that status; docs/nixl.md has the limits.
typedef struct kvmem_agent kvmem_agent;

/// A region that is registered with an agent. It keeps both alive. The region is deregistered before its
/// memory is freed. kvmem_nixl.h has its functions.
///
/// Threads: all functions may use one registration at the same time, except kvmem_registration_destroy.
typedef struct kvmem_registration kvmem_registration;

/// Host memory.
#define KVMEM_MEMORY_DRAM 1
/// GPU memory.
#define KVMEM_MEMORY_VRAM 2
/// A file.
#define KVMEM_MEMORY_FILE 3
/// A block device, or a store of blocks.
#define KVMEM_MEMORY_BLOCK 4
/// An object store.
#define KVMEM_MEMORY_OBJECT 5

/* ---- Layouts ---- */

/// Location of each block of a KV cache. A layout keeps its regions and registrations alive.
///
/// Threads: all functions may use one layout at the same time, except kvmem_layout_destroy.
typedef struct kvmem_layout kvmem_layout;

/* ---- Layouts: shape ---- */

/// One region. A block contains all its layers, a layer its outer slots: base + block·⌈L·O·R⌉ + layer·O·R +
/// outer·R
#define KVMEM_LAYOUT_FULLY_CONTIGUOUS 1
/// One region per layer. block_dim selects the order within it.
#define KVMEM_LAYOUT_LAYER_SEPARATE 2
/// Any other order of axes, or strides that are not tight. `order` and the strides of kvmem_layout_config
/// select it.
#define KVMEM_LAYOUT_ORDERED 3

/// base[layer] + block·⌈O·R⌉ + outer·R
#define KVMEM_BLOCK_DIM_FIRST 1
/// base[layer] + outer·B·⌈R⌉ + block·⌈R⌉
#define KVMEM_BLOCK_DIM_SECOND 2

/// Shape of a KV cache. `kind` selects a shape of NVIDIA Dynamo's KVBM, and `order` any order of axes: set
/// one of the two. docs/layouts.md has the order of each engine. num_blocks, num_layers, outer_dim,
/// page_size, inner_dim and dtype_width are required, the other fields have defaults. All sizes are those of
/// this memory: with tensor parallelism, num_heads and inner_dim count the heads of this rank. In the
/// formulas of the kinds B is num_blocks, L is num_layers, O is outer_dim, R is page_size × inner_dim ×
/// dtype_width bytes, and ⌈x⌉ is x rounded up to alignment.
typedef struct kvmem_layout_config {
    /// sizeof(kvmem_layout_config)
    size_t struct_size;
    /// Blocks, 1 to 4294967295.
    uint64_t num_blocks;
    /// Layers of the model, at least 1.
    uint64_t num_layers;
    /// Outer slots per layer: 2 if keys and values are separate, 1 if they are combined (MLA).
    uint64_t outer_dim;
    /// Tokens per block, at least 1.
    uint64_t page_size;
    /// Elements per token in one layer and outer slot, such as KV heads × head size; at least 1.
    uint64_t inner_dim;
    /// Bytes per element: 1, 2, 4 or 8.
    uint64_t dtype_width;
    /// Alignment of blocks in bytes, a power of two; 0 for 1. A tight block stride is rounded up to it, and a
    /// given one must be a multiple of it.
    uint64_t alignment;
    /// KV heads, not query heads; inner_dim must be a multiple of it. 0 if unknown; an order with H
    /// requires it.
    uint64_t num_heads;
    /// KVMEM_LAYOUT_FULLY_CONTIGUOUS or KVMEM_LAYOUT_LAYER_SEPARATE. With an order: KVMEM_LAYOUT_ORDERED or
    /// 0.
    uint32_t kind;
    /// KVMEM_BLOCK_DIM_* value; 0 for KVMEM_BLOCK_DIM_FIRST. KVMEM_BLOCK_DIM_SECOND requires
    /// KVMEM_LAYOUT_LAYER_SEPARATE. With an order: 0.
    uint32_t block_dim;
    /// Axes from the outermost to the innermost, such as "L/OBNHC"; NULL for that of the kind. B block, L
    /// layer, O outer slot, N token, H head, C elements of one head of one token. Each axis occurs at most
    /// once, and one that is missing must have one index. Axes before '/' have separate regions, and the
    /// last of them varies fastest in the list of regions; B and C cannot have any. Without H, C is all
    /// elements of a token, and num_heads must be 0 or 1.
    const char *order;
    /// Bytes from one block to the next; 0 if tight: the stride of the next inner axis times its number of
    /// indices, rounded up to the alignment. A larger one describes padded blocks.
    uint64_t block_stride;
    /// Bytes from one layer to the next; 0 if tight, and if layers have separate regions.
    uint64_t layer_stride;
    /// Bytes from one outer slot to the next; 0 if tight, and if outer slots have separate regions.
    uint64_t outer_stride;
    /// Bytes from one token to the next; 0 if tight, and if tokens have separate regions.
    uint64_t token_stride;
    /// Bytes from one head to the next; 0 if tight, and if heads have separate regions.
    uint64_t head_stride;
    /// Bytes from one element of a head to the next; 0 if tight: dtype_width if C is the innermost axis.
    uint64_t element_stride;
} kvmem_layout_config;

/// Memory that a shape needs.
typedef struct kvmem_layout_requirements {
    /// Regions: the product of the sizes of the axes before '/', such as num_layers for
    /// KVMEM_LAYOUT_LAYER_SEPARATE; 1 if there are none.
    uint64_t num_regions;
    /// Bytes of each region: to the end of its last element, rounded up to the alignment.
    uint64_t region_size;
    /// Bytes of all regions.
    uint64_t total_size;
    /// Bytes of one allocation that contains all regions. Each region starts at a multiple of the alignment;
    /// from the second one on, also at a multiple of 512 bytes. The allocation itself must start at a
    /// multiple of 256 bytes, as those of cuMemAlloc do.
    uint64_t allocation_size;
} kvmem_layout_requirements;

/// Returns the memory that a shape needs. Allocates nothing.
///
/// @param config the shape
/// @param requirements receives the sizes
/// @return KVMEM_STATUS_OK
///         KVMEM_STATUS_INVALID_ARGUMENT: the shape is invalid; the message has the field
kvmem_status kvmem_layout_get_requirements(const kvmem_layout_config *config,
                                           kvmem_layout_requirements *requirements,
                                           kvmem_error **error);

/* ---- Layouts: building ---- */

/// Allocate one range for all regions, each at a multiple of the alignment, and all but the first also at a
/// multiple of 512 bytes.
#define KVMEM_LAYOUT_ALLOCATE 1
/// Use regions of the caller. With an agent, each is registered with it. If one is a view of an elastic
/// region, of objects or of block storage, the region that it is a part of is registered instead.
/// The caller commits and decommits an elastic region. It must start at an extent, and the size of an extent
/// must be a multiple of the block stride, so that no block spans two extents.
/// An object has the bytes of at most one block.
#define KVMEM_LAYOUT_REGIONS 2
/// Use regions that are registered, all with one agent.
#define KVMEM_LAYOUT_REGISTRATIONS 3

/// Options of kvmem_layout_build.
typedef struct kvmem_layout_options {
    /// sizeof(kvmem_layout_options)
    size_t struct_size;
    /// Must be 0.
    uint64_t flags;
    /// Shape.
    const kvmem_layout_config *config;
    /// Agent that registers the regions, which access by peers and transfers of objects and block storage
    /// require; NULL for none.
    kvmem_agent *agent;
    /// KVMEM_LAYOUT_ALLOCATE: host memory to allocate, with size 0. Set exactly one of system, disk, pinned,
    /// device and elastic.
    const kvmem_system_options *system;
    /// KVMEM_LAYOUT_ALLOCATE: a file to create or open, with size 0. A named file ends with a fingerprint of
    /// the layout, which is checked when the file is opened again; see docs/files.md.
    const kvmem_disk_options *disk;
    /// KVMEM_LAYOUT_ALLOCATE: page-locked host memory to allocate, with size 0.
    const kvmem_pinned_options *pinned;
    /// KVMEM_LAYOUT_ALLOCATE: GPU memory to allocate, with size 0.
    const kvmem_device_options *device;
    /// KVMEM_LAYOUT_ALLOCATE: GPU memory that grows and shrinks, with size and extent_size 0. No block has
    /// memory until kvmem_layout_resize. The block stride is padded so that no block spans two extents.
    const kvmem_elastic_options *elastic;
    /// KVMEM_LAYOUT_REGIONS: the regions: one, or one per layer for KVMEM_LAYOUT_LAYER_SEPARATE, or one per
    /// index of the axes before '/' in the order, of which the last varies fastest.
    kvmem_region *const *regions;
    /// KVMEM_LAYOUT_REGISTRATIONS: the registrations, in the order of the regions.
    kvmem_registration *const *registrations;
    /// Number of regions or registrations.
    size_t count;
    /// KVMEM_LAYOUT_ALLOCATE, KVMEM_LAYOUT_REGIONS or KVMEM_LAYOUT_REGISTRATIONS.
    uint32_t source;
    /// Must be 0.
    uint32_t reserved;
} kvmem_layout_options;

/// Builds a layout. Everything is checked before anything is allocated or registered, and a failure changes
/// nothing.
///
/// @param options shape and memory
/// @param layout receives the layout; the caller destroys it
/// @return KVMEM_STATUS_OK
///         KVMEM_STATUS_INVALID_ARGUMENT: the shape is invalid; the options do not fit the source; the number
///           of regions is wrong; or regions differ in kind, overlap, are not aligned, or belong to another
///           agent
///         KVMEM_STATUS_OUT_OF_RANGE: a region is too small
///         KVMEM_STATUS_INVALID_STATE: a registration was deregistered
///         KVMEM_STATUS_CORRUPT: the file exists and has no fingerprint of a layout
///         KVMEM_STATUS_VERSION_MISMATCH: the fingerprint has a later version
///         any status of kvmem_region_register, and of the kvmem_region_create_* of the memory. For an
///           existing file, KVMEM_STATUS_INVALID_ARGUMENT: it contains another layout, or it is empty and
///           KVMEM_DISK_OPEN_EXISTING is set
kvmem_status kvmem_layout_build(const kvmem_layout_options *options,
                                kvmem_layout **layout,
                                kvmem_error **error);

/// Allocates memory for the first blocks of an elastic layout and frees that of the others, in whole extents.
/// Addresses, strides and block ids do not change.
///
/// @param layout a layout that was built with elastic options
/// @param num_blocks blocks in use, 0 to num_blocks of the layout
/// @return KVMEM_STATUS_OK
///         KVMEM_STATUS_OUT_OF_RANGE: the layout has fewer blocks
///         KVMEM_STATUS_INVALID_STATE: the layout is not elastic
///         KVMEM_STATUS_BUSY: a transfer or a share uses memory to be freed, or an agent is still
///           deregistering it
///         KVMEM_STATUS_OUT_OF_MEMORY, KVMEM_STATUS_CUDA, KVMEM_STATUS_NIXL
kvmem_status kvmem_layout_resize(kvmem_layout *layout, uint64_t num_blocks, kvmem_error **error);

/// A layout that becomes a part of another one.
typedef struct kvmem_layout_part {
    /// Name, 1 to 64 bytes of UTF-8 without control characters, such as "keys" or "scales"; copied.
    const char *name;
    /// Layout that was built, imported or opened, and was not combined itself.
    const kvmem_layout *layout;
} kvmem_layout_part;

/// Combines layouts that share block ids to one layout: keys and values of different width, data and scales,
/// an indexer, a recurrent state, groups of layers with other sizes. Exporting, sharing, importing, resizing,
/// checksums and transfers then work on all parts at once. Nothing is copied or allocated.
///
///     const kvmem_layout_part parts[] = {{"data", data}, {"scales", scales}};
///     status = kvmem_layout_combine(parts, 2, &cache, &error);
///
/// The parts must have the same number of blocks, and be on one tier and device, with the same agent. They
/// may be in the same regions, and may alternate in them, as long as no byte belongs to two parts. The order
/// of the parts does not matter: they are sorted by name. The new layout keeps the parts alive, so their
/// handles may be destroyed.
///
/// A part has its own shape, so functions that return one (kvmem_layout_get_block, kvmem_layout_get_row,
/// kvmem_layout_get_strides) fail for the new layout with KVMEM_STATUS_UNSUPPORTED; call them with a part
/// from kvmem_layout_get_part. A transfer moves parts to the parts of the same names.
///
/// @param parts the parts
/// @param num_parts number of parts, 1 to 1024
/// @param layout receives the layout; the caller destroys it
/// @return KVMEM_STATUS_OK
///         KVMEM_STATUS_INVALID_ARGUMENT: a name is invalid or occurs twice; the parts overlap in memory; or
///           they differ in the number of blocks, tier, device or agent
///         KVMEM_STATUS_IO, KVMEM_STATUS_OUT_OF_MEMORY: the list of this process's mappings cannot be read
kvmem_status kvmem_layout_combine(const kvmem_layout_part *parts,
                                  size_t num_parts,
                                  kvmem_layout **layout,
                                  kvmem_error **error);

/// Returns one part of a layout that was combined, as a separate layout. It has the addresses, shape and
/// memory of the part, and can be used like any other layout, also alone in a transfer.
///
/// @param layout a layout
/// @param name name of the part
/// @param part receives a new handle, which the caller destroys
/// @return KVMEM_STATUS_OK
///         KVMEM_STATUS_NOT_FOUND: there is no such part
kvmem_status kvmem_layout_get_part(const kvmem_layout *layout,
                                   const char *name,
                                   kvmem_layout **part,
                                   kvmem_error **error);

/// Returns the name of one of the parts of a layout.
///
/// @param layout a layout
/// @param index less than num_parts of kvmem_layout_info; parts are in the order of their names
/// @param name receives the name as UTF-8 text; the caller destroys it
/// @return KVMEM_STATUS_OK
///         KVMEM_STATUS_OUT_OF_RANGE: the index is too large, or the layout was not combined
kvmem_status kvmem_layout_get_part_name(const kvmem_layout *layout,
                                        size_t index,
                                        kvmem_blob **name,
                                        kvmem_error **error);

/* ---- Layouts: addresses, checksums, information, pictures ---- */

/// Numbers to compute addresses with: bases[layer·layer_step + outer·outer_step + token·token_step +
/// head·head_step] + block·block_stride + layer·layer_stride + outer·outer_stride + token·token_stride +
/// head·head_stride + element·element_stride. Unless the kind is KVMEM_LAYOUT_ORDERED, a block in one layer
/// and outer slot starts at bases[num_bases > 1 ? layer : 0] + block·block_stride + layer·layer_stride +
/// outer·outer_stride.
typedef struct kvmem_layout_strides {
    /// Start of each region. Valid as long as the layout.
    const uint64_t *bases;
    /// Number of bases: the number of regions.
    uint64_t num_bases;
    /// Bytes from one block to the next.
    uint64_t block_stride;
    /// Bytes from one layer to the next; 0 if layers have separate regions, as in
    /// KVMEM_LAYOUT_LAYER_SEPARATE.
    uint64_t layer_stride;
    /// Bytes from one outer slot to the next; 0 if outer slots have separate regions.
    uint64_t outer_stride;
    /// Bytes from one token to the next; 0 if tokens have separate regions.
    uint64_t token_stride;
    /// Bytes from one head to the next; 0 if heads have separate regions.
    uint64_t head_stride;
    /// Bytes from one element of a head to the next.
    uint64_t element_stride;
    /// Bases from one layer to the next; 0 if layers share regions.
    uint64_t layer_step;
    /// Bases from one outer slot to the next; 0 if outer slots share regions.
    uint64_t outer_step;
    /// Bases from one token to the next; 0 if tokens share regions.
    uint64_t token_step;
    /// Bases from one head to the next; 0 if heads share regions.
    uint64_t head_step;
    /// Bytes of one block in one layer and outer slot, R, if they are contiguous; otherwise 0.
    uint64_t size;
    /// Contiguous bytes of one head of one token: all of its elements, or dtype_width if other elements are
    /// in between.
    uint64_t row_size;
} kvmem_layout_strides;

/// Returns the numbers to compute addresses with.
///
/// @param layout a layout
/// @param strides receives the numbers
/// @return KVMEM_STATUS_OK
///         KVMEM_STATUS_UNSUPPORTED: the layout has parts, each with its own numbers
kvmem_status kvmem_layout_get_strides(const kvmem_layout *layout,
                                      kvmem_layout_strides *strides,
                                      kvmem_error **error);

/// Range of contiguous bytes: of one block in one layer and outer slot, or of one head of one token in it.
typedef struct kvmem_block {
    /// First byte: an address in the process that the memory belongs to, or an offset in the file.
    uint64_t address;
    /// Bytes.
    uint64_t size;
} kvmem_block;

/// Returns the range of one block in one layer and outer slot.
///
/// @param layout a layout
/// @param block block id, less than num_blocks
/// @param layer less than num_layers
/// @param outer less than outer_dim
/// @param out receives the range
/// @return KVMEM_STATUS_OK
///         KVMEM_STATUS_OUT_OF_RANGE: there is no such block, layer or outer slot
///         KVMEM_STATUS_UNSUPPORTED: the bytes are not contiguous; call kvmem_layout_get_row or
///           kvmem_layout_get_strides. Or the layout has parts; call kvmem_layout_get_part
kvmem_status kvmem_layout_get_block(const kvmem_layout *layout,
                                    uint32_t block,
                                    uint64_t layer,
                                    uint64_t outer,
                                    kvmem_block *out,
                                    kvmem_error **error);

/// Returns the range of one head of one token of a block. Every layout has it, whatever its order.
///
/// @param layout a layout
/// @param block block id, less than num_blocks
/// @param layer less than num_layers
/// @param outer less than outer_dim
/// @param token less than page_size
/// @param head less than num_heads; 0 if that is 0
/// @param out receives the range. If the elements are not contiguous, it is that of the first: dtype_width
///        bytes, and the next one is element_stride bytes further
/// @return KVMEM_STATUS_OK
///         KVMEM_STATUS_OUT_OF_RANGE: there is no such block, layer, outer slot, token or head
///         KVMEM_STATUS_UNSUPPORTED: the layout has parts; call kvmem_layout_get_part
kvmem_status kvmem_layout_get_row(const kvmem_layout *layout,
                                  uint32_t block,
                                  uint64_t layer,
                                  uint64_t outer,
                                  uint64_t token,
                                  uint64_t head,
                                  kvmem_block *out,
                                  kvmem_error **error);

/// Computes the CRC32C (Castagnoli, as in iSCSI) of blocks.
///
/// A checksum is of the elements of a block in the order of layers, outer slots, tokens and heads, without
/// padding. Blocks with the same content have the same checksum, whatever the kind, order, alignment or tier
/// of their layouts. In a layout with parts it is of all parts, in the order of their names. The call returns
/// when all checksums are computed. Nothing may write to the blocks during the call: work on streams of the
/// caller must have completed before.
///
/// @param layout a layout that is not remote
/// @param blocks block ids, in any order
/// @param num_blocks number of block ids, at least 1
/// @param checksums receives one checksum per block, in the order of the ids
/// @return KVMEM_STATUS_OK
///         KVMEM_STATUS_OUT_OF_RANGE: there is no such block
///         KVMEM_STATUS_UNSUPPORTED: the layout is remote, and its owner can compute them
///         KVMEM_STATUS_INVALID_STATE: an elastic block has no memory; the context of adopted GPU memory was
///           destroyed; or a layout of objects or block storage has no agent
///         any other status: how reading a file or GPU memory failed
///
/// Notes: host memory is read in place, by several threads if that is faster, and GPU memory by a kernel on
/// its GPU. Blocks of files, and of GPU memory that was opened for another GPU, are first copied to host
/// memory, 16 MiB or one block at a time. So are those of objects and block storage, by NIXL, which has no
/// limit of time: kvmem_layout_checksum_within has one.
kvmem_status kvmem_layout_checksum(const kvmem_layout *layout,
                                   const uint32_t *blocks,
                                   size_t num_blocks,
                                   uint32_t *checksums,
                                   kvmem_error **error);

/// Computes checksums like kvmem_layout_checksum, within a limit of time.
///
/// @param layout a layout that is not remote
/// @param blocks block ids, in any order
/// @param num_blocks number of block ids, at least 1
/// @param timeout_ns nanoseconds; 0 does not wait; KVMEM_TIMEOUT_FOREVER
/// @param checksums receives one checksum per block, in the order of the ids; unchanged after a failure
/// @return KVMEM_STATUS_OK
///         KVMEM_STATUS_TIMED_OUT: not all checksums were computed after `timeout_ns`; for objects, the
///           message has the first object that was being read and its store
///         any other status: as of kvmem_layout_checksum
///
/// Notes: blocks of files, objects and block storage are copied by a run with this limit. After a timeout
/// its buffer, and what it holds of the layout, are released when the read ends. Blocks that are read in
/// place are checked against the limit every 64 MiB.
kvmem_status kvmem_layout_checksum_within(const kvmem_layout *layout,
                                          const uint32_t *blocks,
                                          size_t num_blocks,
                                          uint64_t timeout_ns,
                                          uint32_t *checksums,
                                          kvmem_error **error);

/// Only this process can access it: it has no agent.
#define KVMEM_LOCALITY_LOCAL 1
/// This process can access it, and peers of its agent.
#define KVMEM_LOCALITY_REGISTERED 2
/// It belongs to a peer. Only transfers can access it.
#define KVMEM_LOCALITY_REMOTE 3
/// It belongs to another process and is mapped here: this process can access it like its own memory.
#define KVMEM_LOCALITY_MAPPED 4

/// Properties of a layout.
typedef struct kvmem_layout_info {
    /// As configured.
    uint64_t num_blocks;
    /// As configured.
    uint64_t num_layers;
    /// As configured.
    uint64_t outer_dim;
    /// As configured.
    uint64_t page_size;
    /// As configured.
    uint64_t inner_dim;
    /// As configured.
    uint64_t dtype_width;
    /// As configured; 1 if that was 0.
    uint64_t alignment;
    /// As configured.
    uint64_t num_heads;
    /// Device id of the first region in NIXL: 0 for host memory, the ordinal of a GPU, the fd of a file.
    uint64_t device_id;
    /// Number of regions.
    uint64_t num_regions;
    /// KVMEM_LAYOUT_* value. An order and strides that give the same addresses as a kind are that kind.
    uint32_t kind;
    /// KVMEM_BLOCK_DIM_* value; 0 for KVMEM_LAYOUT_ORDERED.
    uint32_t block_dim;
    /// KVMEM_TIER_* value.
    uint32_t tier;
    /// KVMEM_LOCALITY_* value, the same for all regions: all are on one tier and device, and a shared layout
    /// is either mapped as a whole or remote as a whole.
    uint32_t locality;
    /// KVMEM_MEMORY_* value.
    uint32_t memory_type;
    /// Number of parts that it was combined from; 0 if it was not combined. If it was, each part has its own
    /// shape: only num_blocks, device_id, num_regions, tier, locality and memory_type are set, and the others
    /// are 0.
    uint32_t num_parts;
    /// Order of the axes, NUL-terminated, such as "L/OBNHC". Unless kind is KVMEM_LAYOUT_ORDERED, it has no O
    /// if outer_dim is 1, and no H if num_heads is 0.
    char order[8];
    /// Bytes from one block to the next.
    uint64_t block_stride;
    /// Bytes from one layer to the next; 0 if layers have separate regions.
    uint64_t layer_stride;
    /// Bytes from one outer slot to the next; 0 if outer slots have separate regions.
    uint64_t outer_stride;
    /// Bytes from one token to the next; 0 if tokens have separate regions.
    uint64_t token_stride;
    /// Bytes from one head to the next; 0 if heads have separate regions.
    uint64_t head_stride;
    /// Bytes from one element of a head to the next.
    uint64_t element_stride;
} kvmem_layout_info;

/// Returns the properties of a layout.
///
/// @param layout a layout
/// @param info receives the properties
kvmem_status kvmem_layout_get_info(const kvmem_layout *layout, kvmem_layout_info *info, kvmem_error **error);

/// Returns one of the regions of a layout.
///
/// @param layout a layout
/// @param index less than num_regions
/// @param region receives a new handle, which the caller destroys
/// @return KVMEM_STATUS_OK
///         KVMEM_STATUS_OUT_OF_RANGE: the index is too large
///         KVMEM_STATUS_UNSUPPORTED: the layout is remote
kvmem_status kvmem_layout_get_region(const kvmem_layout *layout,
                                     size_t index,
                                     kvmem_region **region,
                                     kvmem_error **error);

/// Destroys a layout handle. The layout is destroyed when nothing refers to it any more.
///
/// @param layout a layout that no other call uses; NULL does nothing
void kvmem_layout_destroy(kvmem_layout *layout);

/// Draws a layout as an SVG picture: its axes as nested boxes in the order of addresses, strides, padding,
/// and one block highlighted. Reads no memory of the layout.
///
/// @param layout a layout
/// @param block block id to highlight, less than num_blocks
/// @param svg receives the picture as UTF-8 text; the caller destroys it
/// @return KVMEM_STATUS_OK
///         KVMEM_STATUS_OUT_OF_RANGE: there is no such block
kvmem_status kvmem_layout_draw(const kvmem_layout *layout,
                               uint32_t block,
                               kvmem_blob **svg,
                               kvmem_error **error);

/* ---- Queues ---- */

/// A queue of completions, with an event fd. Transfers keep their queue alive. No completion is lost,
/// whatever the number in flight. A completion may arrive shortly after kvmem_transfer_wait has returned.
///
/// Threads: all functions may use one queue at the same time, except kvmem_queue_destroy.
typedef struct kvmem_queue kvmem_queue;

/// End of one run of a transfer.
typedef struct kvmem_completion {
    /// user_data of the transfer, or of the kvmem_submit_options of the run.
    uint64_t user_data;
    /// Bytes moved; 0 after a failure.
    uint64_t bytes;
    /// KVMEM_STATUS_OK, or how the run failed; kvmem_transfer_poll returns the message.
    kvmem_status status;
    /// 0.
    uint32_t reserved;
} kvmem_completion;

/// Creates an empty queue.
///
/// @param queue receives the queue; the caller destroys it
/// @return KVMEM_STATUS_OK
///         KVMEM_STATUS_OUT_OF_MEMORY: no free file descriptor
kvmem_status kvmem_queue_create(kvmem_queue **queue, kvmem_error **error);

/// Returns the event fd of a queue, for poll and epoll: it is readable while the queue has completions. The
/// caller must neither read nor close it.
///
/// @param queue a queue
/// @param fd receives the fd, which is valid as long as the queue
kvmem_status kvmem_queue_get_fd(const kvmem_queue *queue, int32_t *fd, kvmem_error **error);

/// Removes completions from a queue. Never waits.
///
/// @param queue a queue
/// @param completions receives the completions, oldest first
/// @param capacity elements of completions, at least 1
/// @param count receives the number of completions; may be 0
kvmem_status kvmem_queue_poll(kvmem_queue *queue,
                              kvmem_completion *completions,
                              size_t capacity,
                              size_t *count,
                              kvmem_error **error);

/// Removes completions from a queue, and waits for one if there is none.
///
/// @param queue a queue
/// @param timeout_ns nanoseconds; 0 does not wait; KVMEM_TIMEOUT_FOREVER
/// @param completions receives the completions, oldest first
/// @param capacity elements of completions, at least 1
/// @param count receives the number of completions, at least 1
/// @return KVMEM_STATUS_OK
///         KVMEM_STATUS_TIMED_OUT: no completion arrived in time
kvmem_status kvmem_queue_wait(kvmem_queue *queue,
                              uint64_t timeout_ns,
                              kvmem_completion *completions,
                              size_t capacity,
                              size_t *count,
                              kvmem_error **error);

/// Destroys a queue and closes its event fd. Transfers that report to it continue; their completions are
/// discarded.
///
/// @param queue a queue that no other call uses; NULL does nothing
void kvmem_queue_destroy(kvmem_queue *queue);

/* ---- Transfers ---- */

/// A move of blocks from one layout to another: checked, planned and prepared once, submitted any number of
/// times. It keeps both layouts alive.
///
/// A transfer can be given new pairs with each submission: kvmem_transfer_submit_pairs. One run of a transfer
/// is in flight at a time.
///
/// Threads: all functions may use one transfer at the same time, except kvmem_transfer_destroy. Of several
/// threads that submit it, one succeeds, and the others get KVMEM_STATUS_BUSY.
typedef struct kvmem_transfer kvmem_transfer;

/// A block and its destination.
typedef struct kvmem_block_pair {
    /// Block id in the source layout.
    uint32_t source;
    /// Block id in the destination layout.
    uint32_t destination;
} kvmem_block_pair;

/// Blocks of a sequence in the order of its tokens, and which of these tokens are moved. Both sides of a
/// transfer have a table, and their block sizes (page_size) may differ. Token t of a table is token
/// t mod page_size of block blocks[t / page_size]. The i-th token that is moved is token first_token +
/// i·token_step of the table.
typedef struct kvmem_block_table {
    /// Block ids; copied.
    const uint32_t *blocks;
    /// Number of block ids.
    size_t num_blocks;
    /// First token that is moved; 0 for the first of the table.
    uint64_t first_token;
    /// 0 or 1 for consecutive tokens; n for every n-th token, for caches with interleaved tokens (context
    /// parallelism).
    uint64_t token_step;
} kvmem_block_table;

/// Exclude paths that store bytes anywhere between source and destination: in staging memory, in memory of
/// the driver (which it uses if host memory is not page-locked), or in the page cache of a buffered file.
/// Excludes all paths to a peer, because NIXL does not report what its backends do.
#define KVMEM_TRANSFER_ZERO_COPY 1
/// Exclude paths through host memory that is neither source nor destination: all paths between a file and a
/// GPU except GPUDirect Storage, and all paths to a peer.
#define KVMEM_TRANSFER_NO_HOST_BOUNCE 2
/// Move the layers in order, and report how many have moved: see kvmem_transfer_get_layers,
/// kvmem_transfer_wait_layers and kvmem_transfer_wait_on_stream. Bytes that are contiguous across layers are
/// then moved layer by layer, which makes transfers of small fully contiguous blocks slower;
/// kvmem_transfer_explain reports by how much.
#define KVMEM_TRANSFER_BY_LAYER 4
/// After all blocks have moved, compare the CRC32C of each destination block with that of its source block.
/// The run ends after the comparison, with KVMEM_STATUS_CORRUPT if they differ. Until then nothing may write
/// to the blocks. With a range of heads or block tables, only what has moved is compared, token by token;
/// then files with direct I/O are not supported. If a peer serves its layout (kvmem_layout_serve), the
/// transfer is served: the owner of the source sends checksums, the other side compares what has arrived and
/// what its blocks then have, and nothing is read twice over the network. Blocks of other peers, or with
/// another path, are read once more, to memory that has random bytes before: a read that reports success and
/// moves nothing is found, too. Set `checksums` instead to compare with checksums that were computed before.
#define KVMEM_TRANSFER_VERIFY 8

/// Kernels of the caller may run on the GPU during the transfer. Paths that slow them down are not used, or
/// use few CTAs.
#define KVMEM_COMPUTE_MAY_RUN 0
/// The GPU is idle during the transfer. Copies may use all of it.
#define KVMEM_COMPUTE_IDLE 1

/// Options of kvmem_transfer_create, kvmem_transfer_start and kvmem_transfer_start_on_stream.
typedef struct kvmem_transfer_options {
    /// sizeof(kvmem_transfer_options)
    size_t struct_size;
    /// KVMEM_TRANSFER_* flags.
    uint64_t flags;
    /// Blocks, in any order; copied. Each destination may occur once. NULL if block tables are given.
    const kvmem_block_pair *pairs;
    /// Number of pairs, at least 1; 0 if block tables are given.
    size_t num_pairs;
    /// First layer in the source.
    uint64_t source_layer;
    /// First layer in the destination.
    uint64_t destination_layer;
    /// Number of layers; 0 for all: then both first layers must be 0, and both layouts have the same number
    /// of layers.
    uint64_t num_layers;
    /// First outer slot in the source: 0 for keys, 1 for values.
    uint64_t source_outer;
    /// First outer slot in the destination.
    uint64_t destination_outer;
    /// Number of outer slots; 0 for all: then both first slots must be 0, and both layouts have the same
    /// number.
    uint64_t num_outers;
    /// Message to the remote agent; copied. NULL with size 0 for none; not NULL with size 0 for an empty one.
    /// Requires a remote layout. Sent after the last byte has moved and, if the run is verified, has been
    /// found right. A run that fails sends none, unless its deadline passes while the message is sent.
    const void *notification;
    /// Bytes of the notification.
    size_t notification_size;
    /// Queue that receives a completion per run; NULL for none.
    kvmem_queue *queue;
    /// Returned in completions.
    uint64_t user_data;
    /// KVMEM_COMPUTE_* value.
    uint32_t compute;
    /// Maximum number of CTAs of a copy kernel; 0 for the number with the highest throughput.
    uint32_t max_ctas;
    /// Bytes of staging memory; 0 for the default.
    /// For copies through staging memory on the GPU: 128 MiB by default, or 64 MiB with KVMEM_COMPUTE_IDLE.
    /// While long kernels run, it must hold the bytes that the link moves during one of them. All transfers
    /// of a GPU share two such buffers, one per direction; each is as large as the largest request and is
    /// allocated on first use.
    /// Between a file and GPU memory: page-locked host memory in four slots, each of which holds at least one
    /// piece; 64 MiB by default. All transfers of a GPU with files on one file system share it.
    /// For a peer: registered memory in eight slots; 16 MiB by default, or 64 MiB in GPU memory. All
    /// transfers of an agent with the same size share it. Slots that peers which do not respond keep are
    /// replaced, up to eight times this size in all.
    /// For objects: registered memory in eight slots, each of which holds an object; by default as large as
    /// eight objects.
    uint64_t staging_size;
    /// KVMEM_PATH_* value: use this path, or fail. 0: use the path with the highest estimated throughput.
    uint32_t path;
    /// Must be 0.
    uint32_t reserved;
    /// Expected CRC32C of the moved layers and outer slots of each block, one per pair, as
    /// kvmem_layout_checksum computes it; copied. NULL for none. After all blocks have moved, the destination
    /// blocks are read and compared; nothing may write to them until the run has ended. The run ends with
    /// KVMEM_STATUS_CORRUPT if a checksum differs; the message has the first such pair. Blocks of a remote
    /// destination are read back for that. Not supported in a graph, and together with a range of heads,
    /// block tables, KVMEM_TRANSFER_BY_LAYER or KVMEM_TRANSFER_VERIFY.
    const uint32_t *checksums;
    /// First head in the source.
    uint64_t source_head;
    /// First head in the destination.
    uint64_t destination_head;
    /// Number of heads; 0 for all: then both first heads must be 0, and both layouts have the same number.
    /// With tensor parallelism each layout has some of the heads of the model, counted from 0 in each layout.
    /// A range requires num_heads in both layouts.
    uint64_t num_heads;
    /// Blocks and tokens in the source; NULL if pairs are given.
    const kvmem_block_table *source_table;
    /// Blocks and tokens in the destination; NULL if pairs are given. No token may occur twice.
    const kvmem_block_table *destination_table;
    /// Number of tokens that are moved by block tables, at least 1; 0 if pairs are given.
    uint64_t num_tokens;
    /// Names of the parts to move, for layouts that were combined; copied. NULL for all: then both layouts
    /// have parts of the same names. A part is moved to the part of the same name. Ranges of layers, outer
    /// slots and heads apply to each part. A part without heads, such as a latent cache, needs a transfer of
    /// its own, without a range of heads.
    const char *const *parts;
    /// Number of names; 0 for all parts.
    size_t num_parts;
    /// For transfers with a peer: nanoseconds without progress after which a run ends with
    /// KVMEM_STATUS_TIMED_OUT; 0 for 30 seconds with staging memory, and for no limit without. The memory of
    /// such a run stays in use until NIXL has released it; until then kvmem_transfer_submit fails with
    /// KVMEM_STATUS_BUSY.
    uint64_t stall_timeout_ns;
    /// Nanoseconds that a run may take, from its submission on, by any path; 0 or KVMEM_TIMEOUT_FOREVER: no
    /// limit. A run that takes longer is cancelled and ends with KVMEM_STATUS_TIMED_OUT at that time; the
    /// message has the path, the limit and the minimum of bytes that have moved. Parts that had started use
    /// their memory until they end, as after kvmem_transfer_cancel; until then kvmem_transfer_submit fails
    /// with KVMEM_STATUS_BUSY, and adopted memory must not be freed. The time includes work on a stream that
    /// the run waits for, and verification. Not supported in a graph.
    uint64_t timeout_ns;
} kvmem_transfer_options;

/* ---- Transfers: creating and running ---- */

/// Checks, plans and prepares a transfer. Moves nothing.
///
/// A token keeps its elements, and may change its block, layers, outer slots and heads. The layouts may
/// differ in kind, order, strides, alignment, tier and num_blocks; elements that are stored in another order
/// are transposed. The layouts must be equal in dtype_width and in the number of elements per head; in
/// num_heads, num_layers and outer_dim if no range is given; and in page_size if pairs are given rather than
/// block tables. A layout with num_heads 0 has as many heads as the other one. Both layouts stay in use until
/// the transfer is destroyed and its last run has ended.
///
/// At least one pair, or a block table for each side, is required. If kvmem_transfer_submit_pairs will set
/// the pairs or tables of each run, any valid pair or tables will do here.
///
/// The fastest path by estimation is used; kvmem_transfer_explain returns it, and docs/transfers.md lists all
/// paths.
///
/// @param source layout to read from
/// @param destination layout to write to
/// @param options what to move
/// @param transfer receives the transfer; the caller destroys it
/// @return KVMEM_STATUS_OK
///         KVMEM_STATUS_INVALID_ARGUMENT: the layouts differ (the message has the field); a destination
///           occurs twice; memory is both read and written; the layouts have different agents; direct I/O
///           cannot access a range; staging_size is too small for a piece; heads are selected, and a layout
///           does not have num_heads; or both pairs and block tables are given
///         KVMEM_STATUS_OUT_OF_RANGE: there is no such block, layer, outer slot or head, or a block table is
///           too short for the tokens
///         KVMEM_STATUS_NOT_FOUND: a name of `parts` is not that of a part of both layouts
///         KVMEM_STATUS_PERMISSION_DENIED: the destination can only be read
///         KVMEM_STATUS_UNSUPPORTED: no path connects the layouts (the message has an alternative); flags
///           exclude every path; the requested path is not possible; the transfer cannot be verified; or
///           tokens of a layout have separate regions, and block tables move parts of blocks, or block
///           sizes differ
///         KVMEM_STATUS_INVALID_STATE: the path needs an agent, and a layout has none; or the context of
///           memory or page locks was reset or destroyed
///         KVMEM_STATUS_STALE: the peer was invalidated
///
/// Notes: the first transfer on a GPU creates per-device state (streams, events, staging), so it is slower.
/// The state lives as long as any layout on that GPU.
/// Memory that is both read and written is recognized also if a share of it is open more than once. It is not
/// recognized if the caller mapped it a second time and adopted that mapping, or if one side is memory of a
/// peer that is mapped here.
kvmem_status kvmem_transfer_create(const kvmem_layout *source,
                                   const kvmem_layout *destination,
                                   const kvmem_transfer_options *options,
                                   kvmem_transfer **transfer,
                                   kvmem_error **error);

/// Creates a transfer and starts its first run, in one call.
///
/// If blocks move between the same layouts repeatedly, kvmem_transfer_submit_pairs is faster: it reuses the
/// parts of the plan that depend on the layouts.
///
/// @param source layout to read from
/// @param destination layout to write to
/// @param options what to move
/// @param transfer receives the transfer, whose run is in flight; the caller destroys it. If the call fails,
///         no run has started, and the queue receives no completion
/// @return any status of kvmem_transfer_create and kvmem_transfer_submit
kvmem_status kvmem_transfer_start(const kvmem_layout *source,
                                  const kvmem_layout *destination,
                                  const kvmem_transfer_options *options,
                                  kvmem_transfer **transfer,
                                  kvmem_error **error);

/// Starts a run of a transfer. After the run has ended, the transfer can be submitted again.
///
/// If the call fails, no run has started: the queue receives no completion, and poll and wait report the
/// previous run.
///
/// @param transfer a transfer
/// @return KVMEM_STATUS_OK: the run has started. Poll, wait and the queue report its end
///         KVMEM_STATUS_BUSY: a run is in flight
///         KVMEM_STATUS_INVALID_STATE: an elastic block has no memory, or the GPU was reset after the
///           transfer was created
///         KVMEM_STATUS_STALE: the peer was invalidated
///         KVMEM_STATUS_NIXL: NIXL may still use the staging memory of a transfer that failed; create the
///           transfer again
///         KVMEM_STATUS_OUT_OF_MEMORY: the thread that watches copies on GPUs, or deadlines, could not be
///           started
///
/// Notes: a copy between host layouts of at most 32 KiB is done when the call returns, unless it is verified.
/// A run between host memory and a peer, of at most 1 MiB in at most 128 ranges, is executed by the calling
/// thread, if no other thread uses the agent: NIXL copies memory of a peer on the same machine within its
/// calls, this much in less than 1 ms. The agent's thread executes larger runs, and those that wait longer.
/// A run to a file ends when all bytes are written: with direct I/O to the device, otherwise to the page
/// cache. kvmem_region_sync makes them durable.
kvmem_status kvmem_transfer_submit(kvmem_transfer *transfer, kvmem_error **error);

/// Returns the state of the last run. Never waits.
///
/// @param transfer a transfer
/// @return KVMEM_STATUS_OK: all blocks have moved
///         KVMEM_STATUS_IN_PROGRESS: the run is in flight
///         KVMEM_STATUS_INVALID_STATE: the transfer was never submitted
///         KVMEM_STATUS_CANCELLED: the run was cancelled before all its parts had started
///         KVMEM_STATUS_TIMED_OUT: the run was not complete after `timeout_ns`, or a transfer with a peer
///           made no progress for `stall_timeout_ns`. While its memory is in use, submit fails with
///           KVMEM_STATUS_BUSY
///         KVMEM_STATUS_CORRUPT: all blocks have moved, and a checksum differs
///         KVMEM_STATUS_IO: reading or writing a file failed, for example past the end of a truncated file
///         KVMEM_STATUS_OUT_OF_MEMORY: the file system is full, or a thread for I/O or verification could not
///           be started
///         KVMEM_STATUS_PEER_LOST: the process of the peer has ended. Requests that NIXL cannot cancel use
///           their memory until NIXL releases them; until then submit fails with KVMEM_STATUS_BUSY
///         KVMEM_STATUS_NOT_FOUND: an object that is read, or its bucket, does not exist
///         any other status: how the run failed. After a failure any part of the destination blocks may have
///           been written
kvmem_status kvmem_transfer_poll(const kvmem_transfer *transfer, kvmem_error **error);

/// Waits for the end of the last run.
///
/// @param transfer a transfer
/// @param timeout_ns nanoseconds; 0 does not wait; KVMEM_TIMEOUT_FOREVER
/// @return any status of kvmem_transfer_poll, and
///         KVMEM_STATUS_TIMED_OUT: the run is still in flight, and kvmem_transfer_poll returns
///           KVMEM_STATUS_IN_PROGRESS; or the run has ended with this status
///
/// Notes: the waiting thread takes part in a copy between host layouts, and checks the timeout after each
/// MiB. With KVMEM_TIMEOUT_FOREVER, and for a transfer without `timeout_ns`, it also makes the NIXL calls of
/// a transfer over NIXL, if no other thread makes them: such a call may not return. Otherwise the thread of
/// the agent makes them, and the wait ends in time.
kvmem_status kvmem_transfer_wait(const kvmem_transfer *transfer, uint64_t timeout_ns, kvmem_error **error);

/// Cancels the parts of the last run that have not started. Never waits.
///
/// The run ends with KVMEM_STATUS_CANCELLED, or with its normal status if all parts had started. Poll, wait
/// and the queue report the end. Started parts complete and use their memory until then: copies on a stream,
/// a chunk of a host copy, I/O requests in the kernel, requests in NIXL. Any part of the destination blocks
/// may have been written.
///
/// @param transfer a transfer; cancelling again, or after the end of the run, does nothing
/// @return KVMEM_STATUS_OK: the status of the run reports the outcome
///         KVMEM_STATUS_INVALID_STATE: the transfer was never submitted
kvmem_status kvmem_transfer_cancel(kvmem_transfer *transfer, kvmem_error **error);

/* ---- Transfers: other blocks in every step ---- */

/// Options of kvmem_transfer_submit_pairs: the blocks of the next run.
typedef struct kvmem_submit_options {
    /// sizeof(kvmem_submit_options)
    size_t struct_size;
    /// Blocks, in any order; copied. Each destination may occur once. NULL if block tables are given.
    const kvmem_block_pair *pairs;
    /// Number of pairs, at least 1; 0 if block tables are given.
    size_t num_pairs;
    /// Returned in the completion; 0 by default, whatever the transfer was created with.
    uint64_t user_data;
    /// Message to the remote agent; copied. NULL with size 0 for none; not NULL with size 0 for an empty one.
    /// Requires a remote layout. Sent after the last byte has moved and, if the run is verified, has been
    /// found right. A run that fails sends none, unless its deadline passes while the message is sent.
    const void *notification;
    /// Bytes of the notification.
    size_t notification_size;
    /// Expected CRC32C of each block after the run, one per pair; copied. NULL for none. See `checksums` of
    /// kvmem_transfer_options.
    const uint32_t *checksums;
    /// Blocks and tokens in the source; NULL if pairs are given.
    const kvmem_block_table *source_table;
    /// Blocks and tokens in the destination; NULL if pairs are given. No token may occur twice.
    const kvmem_block_table *destination_table;
    /// Number of tokens that are moved by block tables, at least 1; 0 if pairs are given.
    uint64_t num_tokens;
    /// Nanoseconds that runs with these blocks may take; 0 for `timeout_ns` of the transfer;
    /// KVMEM_TIMEOUT_FOREVER for no limit. See `timeout_ns` of kvmem_transfer_options.
    uint64_t timeout_ns;
} kvmem_submit_options;

/// Starts a run of a transfer with new pairs or block tables. This is the call for blocks that differ in
/// every step: layouts, layers, outer slots, heads, queue and flags stay as they were when the transfer was
/// created.
///
///     const kvmem_submit_options step = {
///         .struct_size = sizeof step, .pairs = pairs, .num_pairs = num_pairs, .user_data = request_id,
///     };
///     status = kvmem_transfer_submit_pairs(transfer, &step, &error);
///
/// The number of pairs or tokens may change with each call, and so may the choice of pairs or tables. The
/// path is selected again for the new blocks; kvmem_transfer_get_info and kvmem_transfer_explain report them.
/// kvmem_transfer_submit repeats the last blocks, with the same user_data, notification, checksums and limit.
/// A transfer has one run in flight at a time; use as many transfers as there are steps at the same time.
///
/// If the call fails, no run has started, and the transfer keeps its previous blocks.
///
/// @param transfer a transfer
/// @param options the new pairs or block tables
/// @return KVMEM_STATUS_OK: the run has started
///         KVMEM_STATUS_BUSY: a run is in flight
///         KVMEM_STATUS_INVALID_ARGUMENT: there are neither pairs nor tables, or both; a destination occurs
///           twice; memory is both read and written; pairs are given, and block sizes differ; a notification
///           has no remote agent; or checksums are set for a transfer with KVMEM_TRANSFER_VERIFY
///         KVMEM_STATUS_OUT_OF_RANGE: a layout has no such block, or a table is too short for the tokens
///         KVMEM_STATUS_UNSUPPORTED: no permitted path can move these blocks, they cannot be verified, or
///           tokens have separate regions, as for kvmem_transfer_create
///         any other status of kvmem_transfer_submit
kvmem_status kvmem_transfer_submit_pairs(kvmem_transfer *transfer,
                                         const kvmem_submit_options *options,
                                         kvmem_error **error);

/* ---- Transfers: layers ---- */

/// Returns how many layers of the last run have moved. The blocks of these layers, counted from the first,
/// can be used. Never waits.
///
/// Without KVMEM_TRANSFER_BY_LAYER the number is 0 until the run has ended, then that of all layers. After a
/// failed run it is the number of layers that had moved.
///
/// @param transfer a transfer
/// @param num_layers receives the number
/// @return KVMEM_STATUS_OK
///         KVMEM_STATUS_INVALID_STATE: the transfer was never submitted
kvmem_status kvmem_transfer_get_layers(const kvmem_transfer *transfer,
                                       uint64_t *num_layers,
                                       kvmem_error **error);

/// Waits until the first layers of the last run have moved. Their blocks can be used while the others are in
/// flight.
///
/// @param transfer a transfer with KVMEM_TRANSFER_BY_LAYER; without it, all layers have moved when the run
///         has ended
/// @param num_layers number of layers, counted from the first that is moved; 0 for all
/// @param timeout_ns nanoseconds; 0 does not wait; KVMEM_TIMEOUT_FOREVER
/// @return KVMEM_STATUS_OK: the layers have moved, whatever happens to the others
///         KVMEM_STATUS_OUT_OF_RANGE: the transfer moves fewer layers
///         KVMEM_STATUS_TIMED_OUT: the layers have not moved in time
///         KVMEM_STATUS_INVALID_STATE: the transfer was never submitted
///         any status of kvmem_transfer_poll: how the run failed before the layers had moved
kvmem_status kvmem_transfer_wait_layers(const kvmem_transfer *transfer,
                                        uint64_t num_layers,
                                        uint64_t timeout_ns,
                                        kvmem_error **error);

/* ---- Transfers: paths and information ---- */

/// Host threads copy by memcpy.
#define KVMEM_PATH_MEMCPY 1
/// NIXL reads from a peer.
#define KVMEM_PATH_NIXL_READ 2
/// NIXL writes to a peer.
#define KVMEM_PATH_NIXL_WRITE 3
/// NIXL reads from a file.
#define KVMEM_PATH_NIXL_FILE_READ 4
/// NIXL writes to a file.
#define KVMEM_PATH_NIXL_FILE_WRITE 5
/// The CUDA driver copies, one call per contiguous range.
#define KVMEM_PATH_CUDA_COPY 6

/// The CUDA driver copies, one call for all ranges.
#define KVMEM_PATH_CUDA_BATCH 7
/// The CUDA driver copies rows of blocks at regular distances.
#define KVMEM_PATH_CUDA_2D 8
/// A kernel reads and writes both sides directly.
#define KVMEM_PATH_CUDA_KERNEL 9
/// A kernel gathers or scatters in GPU memory, and the CUDA driver copies contiguous ranges.
#define KVMEM_PATH_CUDA_STAGED 10
/// io_uring reads or writes a file.
#define KVMEM_PATH_URING 11
/// Threads read or write a file by preadv and pwritev.
#define KVMEM_PATH_PREAD 12
/// Between a file and GPU memory, through page-locked host memory: io_uring accesses the file, the CUDA
/// driver the GPU.
#define KVMEM_PATH_URING_STAGED 13
/// As KVMEM_PATH_URING_STAGED, with threads that access the file by preadv and pwritev.
#define KVMEM_PATH_PREAD_STAGED 14

/// NIXL reads large ranges of a peer's memory into staging memory, and host threads or a GPU copy rows from
/// there.
#define KVMEM_PATH_NIXL_READ_STAGED 15
/// Host threads or a GPU gather rows in staging memory, and NIXL writes large ranges to a peer from there.
#define KVMEM_PATH_NIXL_WRITE_STAGED 16

/// The owner of the blocks gathers rows in its staging memory, and NIXL reads large ranges from there.
#define KVMEM_PATH_NIXL_READ_SERVED 17
/// NIXL writes large ranges to staging memory of the owner of the blocks, which copies rows from there.
#define KVMEM_PATH_NIXL_WRITE_SERVED 18

/// NIXL reads from objects to host memory, one request per range of an object that is contiguous there.
#define KVMEM_PATH_NIXL_OBJECT_READ 19
/// NIXL writes whole objects from contiguous host memory.
#define KVMEM_PATH_NIXL_OBJECT_WRITE 20
/// NIXL reads objects into staging memory, and host threads or a GPU copy rows from there.
#define KVMEM_PATH_NIXL_OBJECT_READ_STAGED 21
/// Host threads or a GPU gather objects in staging memory, and NIXL writes them from there.
#define KVMEM_PATH_NIXL_OBJECT_WRITE_STAGED 22
/// NIXL reads from block storage, to memory that its backend accepts.
#define KVMEM_PATH_NIXL_BLOCK_READ 23
/// NIXL writes to block storage, from memory that its backend accepts.
#define KVMEM_PATH_NIXL_BLOCK_WRITE 24

/// Returns the name of a path, such as "NIXL read". The string is static.
///
/// @param path any value; the name of an unknown one is "unknown"
const char *kvmem_path_name(uint32_t path);

/// Properties of a transfer.
typedef struct kvmem_transfer_info {
    /// Bytes to move.
    uint64_t bytes;
    /// Pieces: one per block, layer and outer slot; with block tables one per layer, outer slot and span of
    /// tokens that is within one block on both sides.
    uint64_t num_pieces;
    /// Contiguous ranges, after adjacent pieces were merged.
    uint64_t num_moves;
    /// Requests of NIXL, or reads or writes of a file; 0 for other paths.
    uint64_t num_requests;
    /// Nanoseconds of the last run that has ended, from submit to the end; 0 before.
    uint64_t duration_ns;
    /// KVMEM_PATH_* value.
    uint32_t path;
    /// 0.
    uint32_t reserved;
} kvmem_transfer_info;

/// Returns the properties of a transfer.
///
/// @param transfer a transfer
/// @param info receives the properties
kvmem_status kvmem_transfer_get_info(const kvmem_transfer *transfer,
                                     kvmem_transfer_info *info,
                                     kvmem_error **error);

/// Estimate of a transfer.
typedef struct kvmem_transfer_explanation {
    /// Contiguous ranges.
    uint64_t num_moves;
    /// Estimated throughput in bytes per second. It follows from
    /// - host copies: rates of the machine for long and for short ranges, which kvmem measures;
    /// - copies by a GPU: its copy rates (kvmem_cuda_get_copy_rates) and the number of contiguous ranges; for
    ///   its kernels also the lengths of the ranges on each side, with costs that were fitted on H200 hosts;
    /// - files, objects and peers: earlier runs of this process on the same path with the same file or peer.
    uint64_t bytes_per_second;
    /// KVMEM_PATH_* value.
    uint32_t path;
    /// 1 if the throughput is a typical value, because nothing was measured yet: 2 GB/s by direct I/O, 5 GB/s
    /// by the page cache, 0.2 GB/s for objects, and for peers what docs/nixl.md assumes for descriptors and
    /// bytes. Otherwise 0.
    uint32_t assumed;
} kvmem_transfer_explanation;

/// Returns the path of a transfer, its estimated throughput, and why other paths are not used. Moves nothing.
///
/// @param transfer a transfer
/// @param explanation receives the estimate; may be NULL
/// @param text receives text for people: the loops over the moved elements, the bytes that are read in
///         excess, and a line per path that was compared, as docs/transfers.md explains; the caller destroys
///         the blob; may be NULL
///
/// Notes: the first call for a copy between host layouts measures the copy rate of the machine, which takes
/// some milliseconds.
kvmem_status kvmem_transfer_explain(const kvmem_transfer *transfer,
                                    kvmem_transfer_explanation *explanation,
                                    kvmem_blob **text,
                                    kvmem_error **error);

/// The transfer takes the path. The reason is a remark, or empty.
#define KVMEM_CHOICE_USED 1
/// The path is possible, and its estimate is no better. The reason is empty.
#define KVMEM_CHOICE_SLOWER 2
/// The path is possible, and is not used for the given reason.
#define KVMEM_CHOICE_NOT_USED 3
/// The path is not possible, and the reason says why.
#define KVMEM_CHOICE_IMPOSSIBLE 4

/// A path that was compared with others for a transfer.
typedef struct kvmem_path_choice {
    /// Estimated throughput in bytes per second; 0 if unknown.
    uint64_t bytes_per_second;
    /// KVMEM_PATH_* value.
    uint32_t path;
    /// KVMEM_CHOICE_* value.
    uint32_t choice;
} kvmem_path_choice;

/// Returns a path that was compared for a transfer, and why it is not used: what kvmem_transfer_explain
/// reports as text, for programs. Moves nothing.
///
/// @param transfer a transfer
/// @param index 0 for the path that the transfer takes; 1, 2 and so on for the others. Submitting other pairs
///        compares the paths again
/// @param choice receives the path and the outcome
/// @param reason receives the reason as text, which may be empty; the caller destroys the blob; may be NULL
/// @return KVMEM_STATUS_OK
///         KVMEM_STATUS_OUT_OF_RANGE: fewer paths were compared
kvmem_status kvmem_transfer_get_path_choice(const kvmem_transfer *transfer,
                                            size_t index,
                                            kvmem_path_choice *choice,
                                            kvmem_blob **reason,
                                            kvmem_error **error);

/// Destroys a transfer handle. A run in flight continues, keeps what it uses alive, and reports to its queue.
///
/// @param transfer a transfer that no other call uses; NULL does nothing
void kvmem_transfer_destroy(kvmem_transfer *transfer);

/* ---- Shares ---- */

/// A region or a layout in transit to another process: bytes, and the file descriptors that belong to them.
///
/// The owner of the memory creates the share. Another process receives and opens it. The owner's share keeps
/// the memory allocated, and elastic extents that it carries cannot be decommitted.
///
/// Threads: all functions may use one share at the same time, except kvmem_share_destroy.
typedef struct kvmem_share kvmem_share;

/// Selects the transport by tier: file descriptors for system, pinned, elastic and disk memory, and for
/// device memory that an engine mapped with cuMemMap; the driver's IPC handle for other device memory. Memory
/// that can be exported only as fabric handles is carried by these.
#define KVMEM_SHARE_AUTO 0
/// Carries memory by file descriptors.
#define KVMEM_SHARE_FD 1
/// Carries memory by the driver's IPC handle.
#define KVMEM_SHARE_IPC 2
/// Carries no memory: other processes access the layout through NIXL.
#define KVMEM_SHARE_REMOTE 3
/// Carries memory by the driver's fabric handles: elastic memory created with KVMEM_ELASTIC_FABRIC, or memory
/// that an engine mapped and created with fabric handles.
#define KVMEM_SHARE_FABRIC 4

/// Grants read access only. File descriptors of host memory and files are then read-only, and GPUs get no
/// write access to extents and mappings. That prevents mistakes, and no intent: a process of the same user,
/// or root, can open such a file descriptor again for writing, unless the memory is sealed
/// (KVMEM_SHARE_WRITE_SEALED). For device memory by IPC handle, only the importer's kvmem prevents writing.
#define KVMEM_SHARE_READ_ONLY 1

/// Seals host memory against writing by other processes for ever (F_SEAL_FUTURE_WRITE), before it is shared.
/// Requires KVMEM_SHARE_READ_ONLY. Mappings that exist remain writable, such as those of this process. For
/// memory of KVMEM_SYSTEM_SHAREABLE and KVMEM_PINNED_SHAREABLE it must be set in the first share; for an
/// adopted memory file before a share that grants write access.
#define KVMEM_SHARE_WRITE_SEALED 2

/// Options of kvmem_share_create_region and kvmem_share_create_layout.
typedef struct kvmem_share_options {
    /// sizeof(kvmem_share_options)
    size_t struct_size;
    /// KVMEM_SHARE_* flags; 0 grants read and write access.
    uint64_t flags;
    /// How the memory is carried: KVMEM_SHARE_AUTO (default), KVMEM_SHARE_FD, KVMEM_SHARE_IPC,
    /// KVMEM_SHARE_REMOTE or KVMEM_SHARE_FABRIC.
    uint32_t transport;
    /// Must be 0.
    uint32_t reserved;
} kvmem_share_options;

/// Creates a share of a region.
///
/// The share of a view carries the memory of its whole parent. The share of device memory carries the whole
/// allocation or mapping that contains it. Importers get the region, but can access all memory that is
/// carried.
///
/// @param region a region that this process owns: system or pinned memory that was allocated shareable; an
///        adopted memory file; device memory that was allocated or adopted; elastic memory, of which the
///        extents that are committed now are shared; or a file. Device memory that an engine mapped must have
///        been created exportable
/// @param options access and transport; NULL for the defaults
/// @param share receives the share; the caller destroys it
/// @return KVMEM_STATUS_OK
///         KVMEM_STATUS_INVALID_ARGUMENT: the transport is KVMEM_SHARE_REMOTE, which only layouts have
///         KVMEM_STATUS_UNSUPPORTED: the memory cannot be carried, not by this transport, or not sealed; the
///           message says why
///         KVMEM_STATUS_PERMISSION_DENIED: write access is granted for a file or memory that can only be read
///         KVMEM_STATUS_INVALID_STATE: the context of the device memory was reset or destroyed; or the memory
///           is to be sealed and was shared before: an adopted file to be written, other memory at all
///         KVMEM_STATUS_OUT_OF_MEMORY: there is no memory, or the process has no free file descriptors
///         KVMEM_STATUS_BUSY: a process holds a lease on the file (F_SETLEASE)
///         KVMEM_STATUS_IO, KVMEM_STATUS_CUDA
kvmem_status kvmem_share_create_region(const kvmem_region *region,
                                       const kvmem_share_options *options,
                                       kvmem_share **share,
                                       kvmem_error **error);

/// Creates a share of a layout: its shape, its regions, and the data for NIXL.
///
/// With any transport but KVMEM_SHARE_REMOTE, the share carries the memory of all regions of the layout. The
/// share also carries the data for NIXL: the metadata of the agent, and the layout descriptor. It does not if
/// the layout is on disk, is shared read-only, or has no agent with a backend that reaches peers. NIXL has no
/// read-only access, so a layout that is shared with KVMEM_SHARE_READ_ONLY cannot be accessed through NIXL.
///
/// @param layout a layout of this process
/// @param options access and transport; NULL for the defaults
/// @param share receives the share; the caller destroys it
/// @return any status of kvmem_share_create_region, and
///         KVMEM_STATUS_UNSUPPORTED: the layout is remote; or importers could not align a region, because it
///           starts at an offset in its memory that is not a multiple of the layout's alignment
///         KVMEM_STATUS_INVALID_STATE: the transport is KVMEM_SHARE_REMOTE, and the share would not carry
///           the data for NIXL
///         KVMEM_STATUS_NIXL
kvmem_status kvmem_share_create_layout(const kvmem_layout *layout,
                                       const kvmem_share_options *options,
                                       kvmem_share **share,
                                       kvmem_error **error);

/* ---- Shares: sending and receiving ---- */

/// Sends a share over a connected Unix socket of the caller.
///
/// The socket is of type SOCK_STREAM or SOCK_SEQPACKET, blocking or non-blocking. The caller keeps the share,
/// and can send it again. docs/share-transport.md specifies the bytes on the socket.
///
/// After KVMEM_STATUS_OK the share and the memory may be destroyed if file descriptors carry the memory.
/// Memory that an IPC handle or a fabric handle carries must exist until the peer has opened it, and memory
/// that is reached by NIXL as long as the peer uses it.
///
/// After a failure, close the socket, unless the message says that the call may be tried again.
///
/// @param share a share
/// @param fd the socket; send nothing else on it during the call
/// @param timeout_ns nanoseconds to wait for the peer to read; 0: do not wait; KVMEM_TIMEOUT_FOREVER: no
///        limit
/// @return KVMEM_STATUS_OK: the socket has accepted all of it
///         KVMEM_STATUS_TIMED_OUT: the peer has not read all of it in time
///         KVMEM_STATUS_PEER_LOST: the other end is closed
///         KVMEM_STATUS_INVALID_ARGUMENT: fd is not a connected Unix socket of these types, or its send
///           buffer is too small
///         KVMEM_STATUS_OUT_OF_MEMORY: the system has no memory for the message
///         KVMEM_STATUS_IO
kvmem_status kvmem_share_send(const kvmem_share *share, int32_t fd, uint64_t timeout_ns, kvmem_error **error);

/// Receives a share that kvmem_share_send sent. kvmem does not trust the bytes.
///
/// After a failure, close the socket, unless the message says that the call may be tried again.
///
/// @param fd a connected Unix socket, as for kvmem_share_send; receive nothing else on it during the call
/// @param timeout_ns nanoseconds to wait for the share; 0: do not wait; KVMEM_TIMEOUT_FOREVER: no limit
/// @param share receives the share; the caller destroys it
/// @return KVMEM_STATUS_OK
///         KVMEM_STATUS_TIMED_OUT: the share has not arrived in time
///         KVMEM_STATUS_PEER_LOST: the other end is closed
///         KVMEM_STATUS_CORRUPT: the bytes are not a share
///         KVMEM_STATUS_VERSION_MISMATCH: this library does not read this version of the bytes
///         KVMEM_STATUS_OUT_OF_MEMORY: there is no memory, or the process or the system has no free file
///           descriptors
///         KVMEM_STATUS_PERMISSION_DENIED: the kernel did not pass on file descriptors, for example by a
///           security policy
///         KVMEM_STATUS_INVALID_ARGUMENT: fd is not a connected Unix socket of these types
///         KVMEM_STATUS_IO
kvmem_status kvmem_share_receive(int32_t fd, uint64_t timeout_ns, kvmem_share **share, kvmem_error **error);

/// Returns the bytes of a share, for a channel of the caller.
///
/// The bytes contain addresses. Depending on the transport, they also contain IPC handles, fabric handles or
/// NIXL metadata, which give access to the memory: send them only to processes that may access it.
///
/// @param share a share; may be NULL
/// @param size receives the size in bytes; 0 if the share is NULL; may be NULL
/// @return the first byte, valid until the share is destroyed; NULL if the share is NULL
const void *kvmem_share_data(const kvmem_share *share, size_t *size);

/// Returns a file descriptor of a share. Send the file descriptors to the other process in the order of their
/// indices.
///
/// @param share a share
/// @param index less than num_fds of kvmem_share_info
/// @param fd receives the file descriptor, valid until the share is destroyed; the share owns it, do not
///        close it
/// @return KVMEM_STATUS_OK
///         KVMEM_STATUS_OUT_OF_RANGE: the index is too large
kvmem_status kvmem_share_get_fd(const kvmem_share *share, size_t index, int32_t *fd, kvmem_error **error);

/// Creates a share from bytes and file descriptors that came over a channel of the caller. kvmem does not
/// trust the bytes.
///
/// @param data the bytes of kvmem_share_data; copied
/// @param size size of the bytes
/// @param fds the file descriptors, in the order of kvmem_share_get_fd; duplicated, so the caller closes its
///        own; NULL with num_fds 0
/// @param num_fds number of file descriptors
/// @param share receives the share; the caller destroys it
/// @return KVMEM_STATUS_OK
///         KVMEM_STATUS_CORRUPT: the bytes are damaged, malicious or not a share, or name another number of
///           file descriptors
///         KVMEM_STATUS_VERSION_MISMATCH: this library does not read this version of the bytes
///         KVMEM_STATUS_INVALID_ARGUMENT: a file descriptor is not open
///         KVMEM_STATUS_OUT_OF_MEMORY: the process has no free file descriptors
kvmem_status kvmem_share_create_received(const void *data,
                                         size_t size,
                                         const int32_t *fds,
                                         size_t num_fds,
                                         kvmem_share **share,
                                         kvmem_error **error);

/* ---- Shares: opening ---- */

/// Open for reading only, even if write access is granted.
#define KVMEM_OPEN_READ_ONLY 1
/// Page-lock host memory for the GPU `device`. The region is then pinned memory. Read-only memory can be
/// locked only for a GPU that has CU_DEVICE_ATTRIBUTE_READ_ONLY_HOST_REGISTER_SUPPORTED; for others, opening
/// fails with KVMEM_STATUS_UNSUPPORTED. No effect on files and GPU memory.
#define KVMEM_OPEN_PIN 2
/// Layouts: map the memory, and fail if that is not possible. Do not use NIXL.
#define KVMEM_OPEN_MAPPED_ONLY 4
/// Layouts: use NIXL, even if the memory can be mapped. Needs `agent`.
#define KVMEM_OPEN_REMOTE 8
/// Layouts: register the mapped memory with `agent`.
#define KVMEM_OPEN_REGISTER 16
/// Open GPU memory for kernels of the GPU `device`, which access it over NVLink or PCIe. Without this flag,
/// the memory is opened for the GPU that it is located on, and kernels of other GPUs fail to access it. Plain
/// device memory is opened for one GPU at a time. Elastic memory, and memory that an engine mapped, stays
/// open for its own GPU too. kvmem opens it for another GPU when a transfer first runs there, which delays
/// the creation of that transfer: on an H200, by 0.3 ms per extent of 64 MiB and 20 ms per extent of 1 GiB.
/// No effect on host memory, files, and memory of this process.
#define KVMEM_OPEN_FOR_DEVICE 32
/// Open for reading and writing, and fail with KVMEM_STATUS_PERMISSION_DENIED unless write access is granted.
/// Without this flag and KVMEM_OPEN_READ_ONLY, the region has all granted rights; if it is read-only, its
/// flags have KVMEM_REGION_READ_ONLY.
#define KVMEM_OPEN_READ_WRITE 64
/// Map host memory that other processes can take away: reserved huge pages (`huge_page_size` of
/// kvmem_system_options), and adopted memory files that can be truncated (see kvmem_region_adopt_file). The
/// owner, and every importer with write access, can remove such pages. If this process then touches them, it
/// ends with SIGBUS. Without this flag, such memory fails with KVMEM_STATUS_UNSUPPORTED.
#define KVMEM_OPEN_TRUST_OWNER 128
/// Open elastic memory, and memory that an engine mapped, for every GPU of this process that can access the
/// GPU it is located on: for an engine whose own kernels use it on several GPUs. Each GPU takes as long as
/// with KVMEM_OPEN_FOR_DEVICE. No effect on other memory. Excludes KVMEM_OPEN_FOR_DEVICE.
#define KVMEM_OPEN_FOR_ALL_DEVICES 256

/// Options of kvmem_share_open_region and kvmem_share_open_layout.
typedef struct kvmem_open_options {
    /// sizeof(kvmem_open_options)
    size_t struct_size;
    /// KVMEM_OPEN_* flags; 0 maps the memory with all granted rights.
    uint64_t flags;
    /// The agent that registers the layout, or accesses it through NIXL; NULL for none.
    kvmem_agent *agent;
    /// The GPU of KVMEM_OPEN_PIN and KVMEM_OPEN_FOR_DEVICE. Must be 0 without these flags.
    int32_t device;
    /// Must be 0.
    uint32_t reserved;
} kvmem_open_options;

/// Opens the region of a share.
///
/// In the process that created the share, returns the original region. In other processes, the memory is
/// mapped once per access right and GPU, however often it is opened, and unmapped with the last region.
///
/// kvmem does not trust the bytes of the share: it queries sizes, GPU and kind of memory from the kernel and
/// the driver. The GPU is identified by its UUID, so its ordinal may differ from the owner's.
///
/// If the owner decommits elastic extents later, new transfers of them fail with KVMEM_STATUS_STALE. If the
/// owner ends, the memory stays readable, and kvmem_region_check_owner returns KVMEM_STATUS_PEER_LOST.
///
/// @param share a share of a region
/// @param options how to open it; NULL for the defaults
/// @param region receives the region; the caller destroys it
/// @return KVMEM_STATUS_OK
///         KVMEM_STATUS_CORRUPT: the memory differs from the description in the bytes, or opening its control
///           block would block
///         KVMEM_STATUS_VERSION_MISMATCH: this library does not read this version of the control block
///         KVMEM_STATUS_PERMISSION_DENIED: KVMEM_OPEN_READ_WRITE is set, and write access is not granted
///         KVMEM_STATUS_OUT_OF_RANGE: device is not the ordinal of a GPU
///         KVMEM_STATUS_NOT_FOUND: this process cannot use the GPU, or owned the region and has freed it
///         KVMEM_STATUS_PEER_LOST: the owner has freed the device memory, or has ended
///         KVMEM_STATUS_UNSUPPORTED: the memory is on another machine, or was shared before this one was
///           restarted; it has pages that other processes can remove (KVMEM_OPEN_TRUST_OWNER); the GPU cannot
///           page-lock read-only memory, or cannot access the memory; fabric handles do not work here; or the
///           driver does not open an IPC handle of another PID namespace
///         KVMEM_STATUS_STALE: device memory, or an extent by fabric handle, was freed and allocated again
///           after it was shared
///         KVMEM_STATUS_OUT_OF_MEMORY: there is no memory; with KVMEM_OPEN_PIN also for pages that the owner
///           has not touched
///         KVMEM_STATUS_INVALID_ARGUMENT: the share is of a layout, or flags exclude each other or lack
///           `agent`
///         KVMEM_STATUS_UNAVAILABLE_CUDA, KVMEM_STATUS_CUDA
kvmem_status kvmem_share_open_region(const kvmem_share *share,
                                     const kvmem_open_options *options,
                                     kvmem_region **region,
                                     kvmem_error **error);

/// Opens the layout of a share: maps its memory, or accesses it through NIXL.
///
/// By default the memory is mapped. If that is not possible, the layout is accessed through NIXL. This needs
/// an agent, a share that carries NIXL metadata, and no KVMEM_OPEN_READ_ONLY. `locality` of kvmem_layout_info
/// returns which of the two was chosen. The log says why the memory was not mapped (KVMEM_LOG_INFO).
///
/// A layout is mapped or accessed through NIXL as a whole. Its regions have one tier and device, and a
/// transfer uses one path, so no region is mapped unless all can be.
///
/// @param share a share of a layout
/// @param options how to open it; NULL for the defaults
/// @param layout receives the layout; the caller destroys it
/// @return any status of kvmem_share_open_region; for access through NIXL, any status of
///         kvmem_agent_load_remote_metadata and kvmem_layout_import; and
///         KVMEM_STATUS_INVALID_ARGUMENT: the share is of a region, or KVMEM_OPEN_REMOTE is set without an
///           agent
///         KVMEM_STATUS_UNSUPPORTED: the share carries no memory, and NIXL is not to be used; or
///           KVMEM_OPEN_REMOTE is set, and the share carries no NIXL metadata or KVMEM_OPEN_READ_ONLY is set
kvmem_status kvmem_share_open_layout(const kvmem_share *share,
                                     const kvmem_open_options *options,
                                     kvmem_layout **layout,
                                     kvmem_error **error);

/* ---- Shares: information ---- */

/// The share is of a region.
#define KVMEM_SHARED_REGION 1
/// The share is of a layout.
#define KVMEM_SHARED_LAYOUT 2

/// Properties of a share.
typedef struct kvmem_share_info {
    /// Size of its bytes (kvmem_share_data).
    uint64_t size;
    /// Number of its file descriptors.
    uint64_t num_fds;
    /// Bytes of memory that it carries; 0 if it carries none (KVMEM_SHARE_REMOTE).
    uint64_t memory_size;
    /// Process id of the owner, in the owner's PID namespace.
    uint32_t pid;
    /// KVMEM_SHARED_REGION or KVMEM_SHARED_LAYOUT.
    uint32_t object;
    /// KVMEM_TIER_* value of the memory that it carries; 0 if it carries none.
    uint32_t tier;
    /// 1 if importers may only read, otherwise 0.
    uint32_t read_only;
    /// The transport that was requested or selected: KVMEM_SHARE_FD, KVMEM_SHARE_IPC, KVMEM_SHARE_FABRIC, or
    /// KVMEM_SHARE_REMOTE if it carries no memory. KVMEM_SHARE_AUTO if the regions of a layout have different
    /// transports.
    uint32_t transport;
    /// 0.
    uint32_t reserved;
} kvmem_share_info;

/// Returns the properties of a share.
///
/// @param share a share
/// @param info receives the properties
kvmem_status kvmem_share_get_info(const kvmem_share *share, kvmem_share_info *info, kvmem_error **error);

/// Destroys a share handle. The file descriptors of the share are closed, unless a broker publishes the
/// share. Regions and layouts that were opened from it stay open.
///
/// @param share a share that no other call uses; NULL does nothing
void kvmem_share_destroy(kvmem_share *share);

/* ---- Brokers ---- */

/// A server that publishes shares by name at a socket path.
///
/// One thread serves all clients, and never waits for a single one. A client must run as an allowed user,
/// send its request in time, and present a token.
///
/// Threads: all functions may use one broker at the same time, except kvmem_broker_destroy.
typedef struct kvmem_broker kvmem_broker;

/// Options of kvmem_broker_create.
typedef struct kvmem_broker_options {
    /// sizeof(kvmem_broker_options)
    size_t struct_size;
    /// Must be 0.
    uint64_t flags;
    /// Path of the socket, at most 107 bytes. A relative path begins in the present working directory, also
    /// after that has changed. If it is a socket of the same user on which no process listens, the broker
    /// replaces it.
    const char *path;
    /// User ids that may fetch; copied. No other user may fetch, not even root. NULL with num_users 0 for
    /// only the user of the broker.
    const uint32_t *users;
    /// Number of user ids.
    size_t num_users;
    /// Nanoseconds that a client may take to send its request, and again to read the reply; 0 for 10 seconds.
    uint64_t client_timeout_ns;
    /// Maximum number of bytes of shares in transit to one user. A single share may exceed it. 0 for 256 MiB.
    uint64_t max_bytes_per_user;
    /// Permission bits of the socket; 0 for 0600. Users other than the broker's own need 0660 or 0666 to
    /// connect.
    uint32_t mode;
    /// Maximum number of clients at once; 0 for 256. The kernel keeps further clients waiting.
    uint32_t max_clients;
    /// Maximum number of clients of one user at once; 0 for max_clients divided by the number of users. A
    /// client that was sent file descriptors counts until it has read them, or until its time to do so ends.
    uint32_t max_clients_per_user;
    /// Must be 0.
    uint32_t reserved;
} kvmem_broker_options;

/// Creates a broker. It listens at its path when the call returns.
///
/// @param options path, users and limits
/// @param broker receives the broker; the caller destroys it
/// @return KVMEM_STATUS_OK
///         KVMEM_STATUS_INVALID_ARGUMENT: the path is NULL, empty or too long; mode has other bits than 0777;
///           or mode does not let all users connect
///         KVMEM_STATUS_UNSUPPORTED: the number of a user that may fetch also stands for all users that have
///           no number in this user namespace
///         KVMEM_STATUS_ALREADY_EXISTS: a process listens at the path, or a file or a socket of another user
///           is there
///         KVMEM_STATUS_NOT_FOUND: the directory of the path does not exist
///         KVMEM_STATUS_PERMISSION_DENIED: this process may not create a socket in the directory
///         KVMEM_STATUS_OUT_OF_MEMORY: the thread could not be started, or the process has no free file
///           descriptors
kvmem_status kvmem_broker_create(const kvmem_broker_options *options,
                                 kvmem_broker **broker,
                                 kvmem_error **error);

/// 256 random bits, with which a client fetches a share. Transmit them as a secret.
typedef struct kvmem_token {
    /// The bits.
    uint8_t bytes[32];
} kvmem_token;

/// The token grants read access only, even if the share grants write access.
#define KVMEM_PUBLISH_READ_ONLY 1

/// What a token grants.
typedef struct kvmem_publish_options {
    /// sizeof(kvmem_publish_options)
    size_t struct_size;
    /// KVMEM_PUBLISH_READ_ONLY; 0 grants all that the share grants.
    uint64_t flags;
    /// Number of fetches that the token permits; 0 for no limit. A token that is used up is denied like a
    /// wrong one.
    uint64_t max_uses;
    /// Nanoseconds that the token is valid; 0 for as long as the name is published.
    uint64_t lifetime_ns;
} kvmem_publish_options;

/// Publishes a share under a name, and returns a token for fetching it. The broker keeps the share alive
/// while it is published, even if its handle is destroyed.
///
/// @param broker a broker
/// @param name a name that this broker does not publish yet, 1 to 255 bytes of UTF-8
/// @param share the share
/// @param options rights and limits of the token; NULL for the defaults
/// @param token receives the token
/// @return KVMEM_STATUS_OK
///         KVMEM_STATUS_ALREADY_EXISTS: the name is in use
///         KVMEM_STATUS_INVALID_ARGUMENT: the name is empty, too long or not UTF-8
kvmem_status kvmem_broker_publish(kvmem_broker *broker,
                                  const char *name,
                                  const kvmem_share *share,
                                  const kvmem_publish_options *options,
                                  kvmem_token *token,
                                  kvmem_error **error);

/// Returns another token for a published share.
///
/// @param broker a broker
/// @param name the name of the published share
/// @param options rights and limits of the token; NULL for the defaults
/// @param token receives the token
/// @return KVMEM_STATUS_OK
///         KVMEM_STATUS_NOT_FOUND: the name is not published
kvmem_status kvmem_broker_grant(kvmem_broker *broker,
                                const char *name,
                                const kvmem_publish_options *options,
                                kvmem_token *token,
                                kvmem_error **error);

/// Withdraws a published share and all its tokens. Fetches in progress complete, and regions and layouts
/// already opened stay open.
///
/// @param broker a broker
/// @param name the name of the published share
/// @return KVMEM_STATUS_OK
///         KVMEM_STATUS_NOT_FOUND: the name is not published
kvmem_status kvmem_broker_unpublish(kvmem_broker *broker, const char *name, kvmem_error **error);

/// Fetch read access only, even if write access is granted.
#define KVMEM_FETCH_READ_ONLY 1
/// The broker must run as the user `broker_user`. Without this flag, it must run as the user of the caller.
#define KVMEM_FETCH_BROKER_USER 2
/// Fetch read and write access, and fail with KVMEM_STATUS_PERMISSION_DENIED if less is granted.
#define KVMEM_FETCH_READ_WRITE 4

/// Options of kvmem_share_fetch.
typedef struct kvmem_fetch_options {
    /// sizeof(kvmem_fetch_options)
    size_t struct_size;
    /// KVMEM_FETCH_* flags; 0 fetches all granted rights.
    uint64_t flags;
    /// Path of the broker's socket, at most 107 bytes.
    const char *path;
    /// Name of the published share.
    const char *name;
    /// Token for that share; read during the call.
    const kvmem_token *token;
    /// Nanoseconds to wait for the share; 0 for 10 seconds; KVMEM_TIMEOUT_FOREVER for no limit.
    uint64_t timeout_ns;
    /// User id of KVMEM_FETCH_BROKER_USER. Must be 0 without that flag.
    uint32_t broker_user;
    /// Must be 0.
    uint32_t reserved;
} kvmem_fetch_options;

/// Fetches a share from a broker.
///
/// @param options what to fetch, and from which broker
/// @param share receives the share; the caller destroys it
/// @return KVMEM_STATUS_OK
///         KVMEM_STATUS_PERMISSION_DENIED: the broker does not serve this user; the name or the token is
///           wrong, or the token is used up or expired, which are not distinguished; KVMEM_FETCH_READ_WRITE
///           is set and less is granted; or the broker runs as another user
///         KVMEM_STATUS_NOT_FOUND: nothing is at the path
///         KVMEM_STATUS_INVALID_ARGUMENT: the file at the path is not the socket of a broker; or the name,
///           the path or the flags are invalid
///         KVMEM_STATUS_PEER_LOST: the broker has ended
///         KVMEM_STATUS_BUSY: too many clients of this user are connected, or too many bytes or file
///           descriptors are in transit to it
///         KVMEM_STATUS_TIMED_OUT: the share has not arrived in time, or the broker has not received the
///           request in time
///         KVMEM_STATUS_CORRUPT: the reply is damaged
///         KVMEM_STATUS_OUT_OF_MEMORY: there is no memory, or no file descriptor is free
///         any status of kvmem_share_create_region: the broker cannot share the published object, for example
///           read-only if it received the share from another process (KVMEM_STATUS_UNSUPPORTED)
kvmem_status kvmem_share_fetch(const kvmem_fetch_options *options, kvmem_share **share, kvmem_error **error);

/// Counts of a broker.
typedef struct kvmem_broker_info {
    /// Names published now.
    uint64_t publications;
    /// Clients connected now.
    uint64_t clients;
    /// Fetches granted since the broker was created.
    uint64_t granted;
    /// Clients and requests refused since the broker was created.
    uint64_t refused;
} kvmem_broker_info;

/// Returns the counts of a broker.
///
/// @param broker a broker
/// @param info receives the counts
kvmem_status kvmem_broker_get_info(const kvmem_broker *broker, kvmem_broker_info *info, kvmem_error **error);

/// Destroys a broker: ends its thread, closes and removes its socket, and releases its shares.
///
/// @param broker a broker that no other call uses; NULL does nothing
void kvmem_broker_destroy(kvmem_broker *broker);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* KVMEM_H */
