// SPDX-License-Identifier: Apache-2.0
const c = @import("c");
const core = @import("core.zig");
const constants = @import("constants.zig");
const Diagnostics = core.Diagnostics;
const Error = core.Error;

/// What exists in this process, and what has happened since it was started or forked.
pub const Statistics = struct {
    runs_in_flight: u64,
    /// Bytes of the regions of a tier, without views.
    system_bytes: u64,
    pinned_bytes: u64,
    device_bytes: u64,
    /// Of addresses, of which `elastic_committed_bytes` have memory.
    elastic_bytes: u64,
    elastic_committed_bytes: u64,
    disk_bytes: u64,
    object_bytes: u64,
    block_bytes: u64,
    num_registrations: u64,
    num_store_hits: u64,
    num_store_misses: u64,
    num_store_evicted: u64,
    num_store_damaged: u64,
    /// Handles that were not destroyed.
    num_regions: u64,
    num_layouts: u64,
    num_transfers: u64,
    num_queues: u64,
    num_shares: u64,
    num_brokers: u64,
    num_agents: u64,
    num_directories: u64,
    num_stores: u64,
    num_requests: u64,
    num_leases: u64,
    /// Of regions of other processes, which are mapped here.
    mapped_bytes: u64,
    /// Of staging memory.
    staging_bytes: u64,
    /// That the process may lock in memory; the largest value without a limit.
    locked_bytes_limit: u64,
    /// That staged runs have read from peers and discarded.
    excess_bytes: u64,
    /// Times that a run has begun to wait for staging memory here, or for a resource of a GPU.
    num_peer_staging_waits: u64,
    num_gpu_waits: u64,
    /// Calls that waited until their timeout had elapsed.
    num_elapsed_waits: u64,
    /// Reads and writes that were continued or repeated.
    num_file_retries: u64,
    /// Times that a transfer took another method, because the best one could not be prepared.
    num_fallbacks: u64,
};

/// What has happened by one method.
pub const MethodStatistics = struct {
    /// Runs that have ended, by direction, and then by the negative value of their status.
    runs: [8][24]u64,
    /// Of the runs that have succeeded, by direction.
    bytes: [8]u64,
    /// Runs that have succeeded, by their bytes (up to 64 KiB, 1 MiB, 16 MiB, 256 MiB, more), and then by their duration: at index i at
    /// most 2^(10 + i) ns, at index 23 more.
    latencies: [5][24]u64,
    latency_sums_ns: [5]u64,
};

pub fn statistics(diagnostics: ?*Diagnostics) Error!Statistics {
    return core.get(Statistics, c.kvmem_statistics, diagnostics, c.kvmem_statistics_get, .{});
}

/// What has happened by a method; `null` for requests on raw descriptors.
pub fn methodStatistics(method: ?constants.Method, diagnostics: ?*Diagnostics) Error!MethodStatistics {
    const value: u32 = if (method) |known| @backingInt(known) else 0;
    return core.get(MethodStatistics, c.kvmem_method_statistics, diagnostics, c.kvmem_statistics_get_method, .{value});
}

/// The statistics as text for Prometheus.
pub fn statisticsText(diagnostics: ?*Diagnostics) Error!core.Blob {
    return core.getBlob(diagnostics, c.kvmem_statistics_text, .{});
}

/// The last runs with their phases as JSON in the trace format of Chrome.
pub fn exportTrace(diagnostics: ?*Diagnostics) Error!core.Blob {
    return core.getBlob(diagnostics, c.kvmem_trace_export, .{});
}

/// Lets `kvmem-doctor top` of the same user read this process, until it ends.
pub fn serveStatistics(diagnostics: ?*Diagnostics) Error!void {
    try core.call(diagnostics, c.kvmem_statistics_serve, .{});
}
