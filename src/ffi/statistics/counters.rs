// SPDX-License-Identifier: Apache-2.0
//! The counters, and where they come from.

use rustix::process::{Resource, getrlimit};

use crate::base::Gauge;
use crate::copy::gpu::device::resource::WAITS;
use crate::copy::gpu::device::staging::BYTES as GPU_STAGING;
use crate::ffi::common::guard::ELAPSED;
use crate::ffi::common::kind::{ALIVE, Kind};
use crate::ffi::common::options;
use crate::region::{Tier, statistics as regions};
use crate::run::{counters as run_counters, statistics as runs};
use crate::store::statistics as stores;
use crate::transfer::TransferMethod;

/// From host memory to host memory. Mapped memory of another process is memory here.
pub const KVMEM_DIRECTION_HOST_TO_HOST: u32 = 0;
/// From host memory to GPU memory.
pub const KVMEM_DIRECTION_HOST_TO_GPU: u32 = 1;
/// From GPU memory to host memory.
pub const KVMEM_DIRECTION_GPU_TO_HOST: u32 = 2;
/// From GPU memory to GPU memory.
pub const KVMEM_DIRECTION_GPU_TO_GPU: u32 = 3;
/// From files, objects or block storage to memory.
pub const KVMEM_DIRECTION_READ: u32 = 4;
/// From memory to files, objects or block storage.
pub const KVMEM_DIRECTION_WRITE: u32 = 5;
/// From a peer, by an agent.
pub const KVMEM_DIRECTION_PULL: u32 = 6;
/// To a peer, by an agent.
pub const KVMEM_DIRECTION_PUSH: u32 = 7;

/// What exists in this process, and what has happened since it was started or forked.
///
/// A counter never decreases. Two counters may be read at slightly different times.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct kvmem_statistics {
    /// sizeof(kvmem_statistics)
    pub struct_size: usize,
    /// Runs of transfers and requests that have started and not ended.
    pub runs_in_flight: u64,
    /// Bytes of all regions of system memory, also of those that kvmem has for itself. Views are not counted
    /// here and below.
    pub system_bytes: u64,
    /// Bytes of regions of page-locked host memory that kvmem has allocated.
    pub pinned_bytes: u64,
    /// Bytes of regions of GPU memory.
    pub device_bytes: u64,
    /// Bytes of addresses of elastic regions.
    pub elastic_bytes: u64,
    /// Bytes of elastic regions that have memory.
    pub elastic_committed_bytes: u64,
    /// Bytes of regions in files.
    pub disk_bytes: u64,
    /// Bytes of regions of objects.
    pub object_bytes: u64,
    /// Bytes of regions of block storage.
    pub block_bytes: u64,
    /// Registrations of regions with agents, also those that are being made or ended.
    pub num_registrations: u64,
    /// Keys that gets have found, in all stores.
    pub num_store_hits: u64,
    /// Keys of gets that were not found: the first that is not stored, and all after it.
    pub num_store_misses: u64,
    /// Blocks that stores have evicted.
    pub num_store_evicted: u64,
    /// Blocks of stores that could not be read, or whose bytes were not those that were stored.
    pub num_store_damaged: u64,
    /// Handles of regions that were not destroyed.
    pub num_regions: u64,
    /// Handles of layouts that were not destroyed.
    pub num_layouts: u64,
    /// Handles of transfers that were not destroyed.
    pub num_transfers: u64,
    /// Handles of queues that were not destroyed.
    pub num_queues: u64,
    /// Handles of shares that were not destroyed.
    pub num_shares: u64,
    /// Handles of brokers that were not destroyed.
    pub num_brokers: u64,
    /// Handles of agents that were not destroyed.
    pub num_agents: u64,
    /// Handles of directories that were not destroyed.
    pub num_directories: u64,
    /// Handles of stores that were not destroyed.
    pub num_stores: u64,
    /// Handles of requests that were not destroyed.
    pub num_requests: u64,
    /// Handles of leases that were not destroyed, also of those that are over.
    pub num_leases: u64,
    /// Bytes of regions of other processes that are mapped here, which are counted above, too.
    pub mapped_bytes: u64,
    /// Bytes of staging memory: of GPUs, between files and GPUs, and for transfers with peers and objects.
    /// That for peers and objects is counted above, too.
    pub staging_bytes: u64,
    /// Bytes that this process may lock in memory (RLIMIT_MEMLOCK); UINT64_MAX without a limit.
    pub locked_bytes_limit: u64,
    /// Bytes that staged runs have read from peers and discarded.
    pub excess_bytes: u64,
    /// Times that a run with a peer has begun to wait for staging memory of this process.
    pub num_peer_staging_waits: u64,
    /// Times that a run has begun to wait for a stream, descriptors or staging memory of a GPU.
    pub num_gpu_waits: u64,
    /// Calls that waited for a run, a completion or a message until their timeout had elapsed.
    pub num_elapsed_waits: u64,
    /// Reads and writes of files that were continued or repeated: the kernel had moved a part, or was
    /// interrupted.
    pub num_file_retries: u64,
    /// Times that a transfer took another method, because the best one could not be prepared.
    pub num_fallbacks: u64,
}
options!(kvmem_statistics);

/// What has happened by one method since this process was started or forked.
///
/// Runs that kvmem makes for itself, such as reading blocks to verify them, and runs of captured graphs are
/// not counted.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct kvmem_method_statistics {
    /// sizeof(kvmem_method_statistics)
    pub struct_size: usize,
    /// Runs that have ended, by KVMEM_DIRECTION_* value, and then by the negative value of their status:
    /// `runs[KVMEM_DIRECTION_READ][-KVMEM_STATUS_TIMED_OUT]`.
    pub runs: [[u64; 24]; 8],
    /// Bytes of the runs that have succeeded, by KVMEM_DIRECTION_* value.
    pub bytes: [u64; 8],
    /// Runs that have succeeded, by their bytes, and then by their duration from submission to completion, a
    /// check of the blocks included. The classes of bytes are up to 64 KiB, 1 MiB, 16 MiB, 256 MiB, and more.
    /// The duration at index i is at most 2^(10 + i) ns and more than that of the index before; at index 23
    /// it is more than 2^32 ns.
    pub latencies: [[u64; 24]; 5],
    /// Sum of these durations by class.
    pub latency_sums_ns: [u64; 5],
}
options!(kvmem_method_statistics);

/// Bytes of staging memory, by what it is for.
pub(super) fn staging() -> [(&'static str, u64); 3] {
    [
        ("gpu", GPU_STAGING.value()),
        ("file", run_counters::FILE_STAGING.value()),
        ("peer", run_counters::PEER_STAGING.value()),
    ]
}

pub(super) fn current() -> kvmem_statistics {
    let alive = |name: &str| ALIVE[Kind::index(name)].value();
    kvmem_statistics {
        struct_size: size_of::<kvmem_statistics>(),
        runs_in_flight: runs::in_flight(),
        system_bytes: regions::bytes(Tier::System),
        pinned_bytes: regions::bytes(Tier::Pinned),
        device_bytes: regions::bytes(Tier::Device),
        elastic_bytes: regions::bytes(Tier::Elastic),
        elastic_committed_bytes: regions::committed(),
        disk_bytes: regions::bytes(Tier::Disk),
        object_bytes: regions::bytes(Tier::Object),
        block_bytes: regions::bytes(Tier::Block),
        num_registrations: regions::registrations(),
        num_store_hits: stores::HITS.value(),
        num_store_misses: stores::MISSES.value(),
        num_store_evicted: stores::EVICTED.value(),
        num_store_damaged: stores::DAMAGED.value(),
        num_regions: alive("region"),
        num_layouts: alive("layout"),
        num_transfers: alive("transfer"),
        num_queues: alive("queue"),
        num_shares: alive("share"),
        num_brokers: alive("broker"),
        num_agents: alive("agent"),
        num_directories: alive("directory"),
        num_stores: alive("store"),
        num_requests: alive("request"),
        num_leases: alive("lease"),
        mapped_bytes: regions::mapped(),
        staging_bytes: staging().iter().map(|(_, bytes)| bytes).sum(),
        locked_bytes_limit: getrlimit(Resource::Memlock).current.unwrap_or(u64::MAX),
        excess_bytes: run_counters::EXCESS.value(),
        num_peer_staging_waits: run_counters::STAGING_WAITS.value(),
        num_gpu_waits: WAITS.iter().map(Gauge::value).sum(),
        num_elapsed_waits: ELAPSED.value(),
        num_file_retries: run_counters::FILE_RETRIES.value(),
        num_fallbacks: run_counters::FALLBACKS.iter().flatten().map(Gauge::value).sum(),
    }
}

pub(super) fn of_method(method: Option<TransferMethod>) -> kvmem_method_statistics {
    let counted = runs::by_method(method);
    kvmem_method_statistics {
        struct_size: size_of::<kvmem_method_statistics>(),
        runs: counted.runs,
        bytes: counted.bytes,
        latencies: counted.latencies.map(|class| class.counts),
        latency_sums_ns: counted.latencies.map(|class| class.nanoseconds),
    }
}
