// SPDX-License-Identifier: Apache-2.0
//! Pinned memory: host memory that devices reach by DMA.
//!
//! cuMemHostAlloc touches its pages with one thread. Here the memory is mapped, placed near the device, touched by
//! several threads and then page-locked, chunk by chunk.

use std::time::{Duration, Instant};

use super::numa::Placement;
use super::system::{HugePages, SystemConfig, SystemMemory};
use crate::cuda::host::PageLock;
use crate::cuda::{Context, Device};
use crate::error::{Result, ensure};
use crate::log::log;

/// A chunk that is not asked for otherwise: one page lock of half a TB fails on some drivers.
const CHUNK: u64 = 1 << 30;
/// Pages are touched in slices of this size, so that a stall is noticed.
const SLICE: usize = 256 << 20;
/// A slice that takes longer waits for the kernel to make huge pages: the rest does without.
const STALL: Duration = Duration::from_secs(1);
/// Threads that are not asked for otherwise; more gain little.
const MOST_THREADS: usize = 8;

/// Asked after each chunk with the bytes done and the bytes in all; a no cancels.
pub type Progress<'a> = &'a mut dyn FnMut(u64, u64) -> bool;

/// What to allocate.
#[derive(Clone, Debug, Default)]
pub struct PinnedConfig {
    /// Bytes.
    pub size: u64,
    /// The device it serves.
    pub ordinal: i32,
    /// The NUMA node it is bound to; `None` for the device's own, as far as that has room.
    pub numa_node: Option<u32>,
    /// Threads that touch its pages; 0 for as many as there are cores, up to 8.
    pub threads: u32,
    /// Bytes of one page lock; 0 for 1 GiB.
    pub chunk: u64,
    /// Ordinary pages only.
    pub no_huge_pages: bool,
}

/// Page-locked host memory.
pub struct PinnedMemory {
    // Dropped in this order: unlocked, then unmapped.
    _lock: PageLock,
    memory: SystemMemory,
    ordinal: i32,
}

impl PinnedMemory {
    /// Allocates, or changes nothing.
    pub fn allocate(config: &PinnedConfig, progress: Progress<'_>) -> Result<Self> {
        let page = rustix::param::page_size() as u64;
        let chunk = if config.chunk == 0 { CHUNK } else { config.chunk };
        ensure!(
            chunk.is_multiple_of(page),
            InvalidArgument,
            "a page lock of {chunk} bytes is no multiple of the page size {page}"
        );
        let device = Device::get(config.ordinal)?;
        let context = Context::retain(device)?;
        let mut memory = SystemMemory::allocate(&system_config(config, device))?;
        let (address, size) = (memory.address(), memory.size());
        let threads = if config.threads == 0 { default_threads() } else { config.threads };
        let mut huge = !config.no_huge_pages;
        let prepare = |offset: usize, length: usize| {
            for slice in (offset..offset + length).step_by(SLICE) {
                let began = Instant::now();
                memory.prefault(slice, SLICE.min(offset + length - slice), threads)?;
                if huge && began.elapsed() > STALL {
                    log!(Warn, "making huge pages stalls; ordinary ones from byte {slice} on");
                    memory.give_up_huge_pages(slice);
                    huge = false;
                }
            }
            Ok(())
        };
        let go_on = |done| progress(done, size as u64);
        let lock = PageLock::new(context, address, size, chunk as usize, prepare, go_on)?;
        Ok(Self { _lock: lock, memory, ordinal: config.ordinal })
    }

    /// The host memory.
    pub fn memory(&self) -> &SystemMemory {
        &self.memory
    }

    /// The device it serves.
    pub fn ordinal(&self) -> i32 {
        self.ordinal
    }
}

fn system_config(config: &PinnedConfig, device: Device) -> SystemConfig {
    let bound = config.numa_node.map(Placement::Bind);
    // A kernel that does not know the driver's node places the pages as it likes.
    let near = || device.numa_node().filter(|node| super::numa::node_exists(*node)).map(Placement::Prefer);
    SystemConfig {
        size: config.size,
        huge_pages: if config.no_huge_pages { HugePages::None } else { HugePages::Transparent },
        huge_pages_required: false,
        numa: bound.or_else(near),
        prefault_threads: 0,
    }
}

fn default_threads() -> u32 {
    std::thread::available_parallelism().map_or(1, |count| count.get().min(MOST_THREADS) as u32)
}
