// SPDX-License-Identifier: Apache-2.0
//! Checksums of blocks in host memory, computed by several threads without copying the blocks.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use once_cell::sync::OnceCell;

use super::pieces::Pieces;
use crate::error::{Error, Result};
use crate::guarded::guarded;
use crate::layout::Layout;
use crate::nixl::MemoryType;
use crate::sync::{Condvar, Mutex, MutexGuard};
use crate::transfer::plan::{Plan, PlanPart, Slots};
use crate::transfer::run::threads::{Pool, Shared};

/// The minimum amount of work for another thread.
const BYTES_A_THREAD: u64 = 1 << 20;
/// Bytes that a thread takes at a time, but at least one block. Processing them takes much longer than taking them.
const BYTES_A_TAKING: u64 = 256 << 10;
/// Bytes processed at a time: twice three streams of 256 bytes, which the crc32c crate processes in parallel.
const STEP: usize = 1536;
/// Number of steps by which bytes are prefetched. The CPU's own prefetcher works within a page, not from one scattered
/// block to the next.
const STEPS_AHEAD: usize = 4;
/// Size of a cache line.
const LINE: usize = 64;

/// The checksums of some layers and outer slots of blocks of host memory.
///
/// The caller holds the layout, and this returns only after all blocks were read. Threads that start later have nothing to
/// read. They do not hold the layout, because the caller may deregister its memory after this has returned.
pub fn checksums(layout: &Layout, blocks: Arc<[u32]>, slots: &Slots) -> Result<Vec<u32>> {
    Reading::start(layout, blocks, slots).results()
}

/// The checksums of all blocks of one side of a plan, which is `layout`, in the order of (token, layer, outer slot, head). The
/// layout is host memory, and the caller keeps it.
pub fn canonical_checksums(plan: &Plan, side: usize, layout: &Layout) -> Vec<u32> {
    debug_assert!(layout.memory_type() == MemoryType::Dram);
    let mut checksums = Vec::with_capacity(plan.blocks() as usize);
    for part in plan.parts() {
        for run in part.runs() {
            let first = if side == 0 { run.source } else { run.destination };
            checksums.extend((first..first + run.length).map(|id| canonical_checksum(&part, side, id)));
        }
    }
    checksums
}

fn canonical_checksum(part: &PlanPart<'_>, side: usize, id: u32) -> u32 {
    let mut checksum = 0;
    part.each_in_canonical_order(side, id, |address, size| {
        // SAFETY: the plan checked its blocks against the layout, which the caller keeps. A caller that writes to them
        // meanwhile gets a checksum of neither the old nor the new bytes.
        let bytes = unsafe { std::slice::from_raw_parts(address as *const u8, size as usize) };
        checksum = crc32c::crc32c_append(checksum, bytes);
    });
    checksum
}

/// Blocks of host memory that threads read, some at a time.
struct Reading {
    blocks: Arc<[u32]>,
    pieces: Pieces,
    /// Number of blocks that a thread takes at a time.
    taking: usize,
    next: AtomicUsize,
    checksums: Box<[AtomicU32]>,
    /// A thread panicked.
    failure: OnceCell<Error>,
    left: Mutex<usize>,
    done: Condvar,
}

impl Reading {
    /// Starts other threads if there is enough work.
    fn start(layout: &Layout, blocks: Arc<[u32]>, slots: &Slots) -> Arc<Self> {
        let pieces = Pieces::of(layout, slots);
        let worth = pieces.block_size().saturating_mul(blocks.len() as u64) / BYTES_A_THREAD;
        let threads = (worth as usize).min(blocks.len()).min(Pool::parallelism());
        let taking = (BYTES_A_TAKING / pieces.block_size().max(1)).max(1) as usize;
        let reading = Arc::new(Self {
            pieces,
            taking,
            next: AtomicUsize::new(0),
            checksums: blocks.iter().map(|_| AtomicU32::new(0)).collect(),
            failure: OnceCell::new(),
            left: Mutex::new(blocks.len()),
            blocks,
            done: Condvar::new(),
        });
        if threads > 1 {
            Pool::get().run(&(reading.clone() as Arc<dyn Shared>), threads - 1);
        }
        reading
    }

    /// Reads blocks on the calling thread too, and waits for the other threads.
    fn results(self: Arc<Self>) -> Result<Vec<u32>> {
        self.run();
        let mut left = self.left();
        while *left > 0 {
            left = self.done.wait(left);
        }
        match self.failure.get() {
            Some(error) => Err(error.clone()),
            None => Ok(self.checksums.iter().map(|checksum| checksum.load(Ordering::Acquire)).collect()),
        }
    }

    /// Passes the checksum of each block that a thread has taken to `store`.
    fn of_each(&self, taken: &[u32], mut store: impl FnMut(u32)) {
        let mut ahead = taken.iter().flat_map(|block| self.steps(*block));
        ahead.by_ref().take(STEPS_AHEAD).for_each(prefetch);
        for block in taken {
            store(self.steps(*block).fold(0, |checksum, step| {
                if let Some(later) = ahead.next() {
                    prefetch(later);
                }
                // SAFETY: a part of the layout, which is host memory. The caller of `checksums` holds it until all blocks
                // are read. If it is written concurrently, the checksum matches neither the old nor the new contents.
                let bytes = unsafe { std::slice::from_raw_parts(step.start as *const u8, step.len()) };
                crc32c::crc32c_append(checksum, bytes)
            }));
        }
    }

    /// The address ranges of a block's bytes, one per step.
    fn steps(&self, block: u32) -> impl Iterator<Item = Range<usize>> + '_ {
        self.pieces.addresses(block).flat_map(|address| {
            let (start, end) = (address as usize, (address + self.pieces.size) as usize);
            (start..end).step_by(STEP).map(move |from| from..end.min(from + STEP))
        })
    }

    fn left(&self) -> MutexGuard<'_, usize> {
        self.left.lock()
    }
}

impl Shared for Reading {
    fn run(&self) {
        loop {
            let first = self.next.fetch_add(self.taking, Ordering::Relaxed);
            let Some(blocks) = self.blocks.get(first..) else { return };
            let taken = &blocks[..blocks.len().min(self.taking)];
            if taken.is_empty() {
                return;
            }
            let mut results = self.checksums[first..].iter();
            let store = |checksum| {
                if let Some(result) = results.next() {
                    result.store(checksum, Ordering::Release);
                }
            };
            if let Err(panic) = guarded(|| self.of_each(taken, store)) {
                drop(self.failure.set(panic));
            }
            let mut left = self.left();
            *left -= taken.len();
            if *left == 0 {
                self.done.notify_all();
            }
        }
    }
}

/// Prefetches bytes.
#[cfg(target_arch = "x86_64")]
fn prefetch(bytes: Range<usize>) {
    use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
    for line in bytes.step_by(LINE) {
        // SAFETY: every CPU of this architecture has the instruction. It accepts any address and changes no data.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(line as *const i8) };
    }
}

/// Does nothing: other architectures have no stable intrinsic for it.
#[cfg(not(target_arch = "x86_64"))]
fn prefetch(_: Range<usize>) {}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, channel};

    use super::*;
    use crate::layout::{AllocationConfig, Dimensions};
    use crate::region::SystemConfig;
    use crate::transfer::plan::Slots;

    /// Work that occupies a thread until the sender is dropped.
    struct Blocks(Mutex<Receiver<()>>);

    impl Shared for Blocks {
        fn run(&self) {
            let _ = self.0.lock().recv();
        }
    }

    #[test]
    fn threads_that_start_late_do_not_hold_the_layout() {
        let dimensions = Dimensions {
            num_blocks: 64,
            num_layers: 1,
            outer_dim: 1,
            page_size: 1,
            inner_dim: 256 << 10,
            dtype_width: 1,
            alignment: 1,
            num_heads: None,
        };
        let builder = Layout::builder(dimensions).fully_contiguous().unwrap();
        let layout = builder.allocate(AllocationConfig::System(SystemConfig::default())).build().unwrap();
        let (go, gate) = channel::<()>();
        let blocks: Arc<dyn Shared> = Arc::new(Blocks(Mutex::new(gate)));
        // Occupies all threads of the pool, so that the work stays in its queue.
        Pool::get().run(&blocks, 64);
        let all = Slots::all(layout.geometry());
        checksums(&layout, (0..64).collect(), &all).unwrap();
        assert_eq!(Arc::strong_count(&layout), 1);
        drop(go);
    }
}
