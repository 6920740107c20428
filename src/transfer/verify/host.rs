// SPDX-License-Identifier: Apache-2.0
//! Checksums of blocks in host memory, computed by several threads without copying the blocks.
#![allow(unsafe_code)]

#[cfg(test)]
mod tests;

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use once_cell::sync::OnceCell;

use crate::base::sorting::sort_by_id;
use crate::base::{Condvar, Error, Mutex, MutexGuard, Pool, Result, Shared, ensure, guarded, lists};
use crate::copy::host::poison::Poison;
use crate::copy::host::{LINE, prefetch_into_first_level};
use crate::copy::pieces::Pieces;
use crate::layout::Layout;
use crate::plan::{Plan, PlanPart, Slots};
use crate::run::FileProgress;

use super::read_slots::ReadSlots;

/// The minimum amount of work for another thread.
const BYTES_A_THREAD: u64 = 1 << 20;
/// Bytes that a thread takes at a time, but at least one block. Processing them takes much longer than taking them.
const BYTES_A_TAKING: u64 = 256 << 10;
/// Bytes that may arrive together at the end.
const LAST_BYTES: u64 = 4 << 20;
/// Bytes processed at a time: twice three streams of 256 bytes, which the crc32c crate processes in parallel.
const STEP: usize = 1536;
/// Number of steps by which bytes are prefetched. The CPU's own prefetcher works within a page, not from one scattered
/// block to the next.
const STEPS_AHEAD: usize = 4;

/// Some layers and outer slots of blocks of host memory.
pub struct HostBlocks {
    pieces: Pieces,
    blocks: Vec<u32>,
}

impl HostBlocks {
    pub fn new(layout: &Layout, blocks: Vec<u32>, slots: &Slots) -> Result<Self> {
        Ok(Self { pieces: Pieces::new(layout, slots)?, blocks })
    }

    /// Fills the blocks with poison. The caller holds the layout, and nothing else accesses the blocks.
    pub fn poison(&self) -> Result<()> {
        let poison = Poison::new()?;
        for address in self.blocks.iter().flat_map(|block| self.pieces.addresses(*block)) {
            // SAFETY: a part of a block of the layout, which is host memory that the caller holds.
            unsafe { poison.fill(address, self.pieces.size) };
        }
        Ok(())
    }

    /// Passes the bytes of a block to `change`: those of a tight order are one range. The caller holds the layout, and nothing else
    /// accesses the block.
    pub fn change<T>(&self, block: u32, change: impl FnOnce(&mut [u8]) -> T) -> Result<T> {
        let (addresses, size) = (self.pieces.addresses(block), self.pieces.block_size());
        let [start, end] = addresses.fold([u64::MAX, 0], |[start, end], address| {
            [start.min(address), end.max(address + self.pieces.size)]
        });
        ensure!(end.checked_sub(start) == Some(size), Unsupported, "a block has gaps between its pieces");
        // SAFETY: a block of the layout, which is host memory that the caller holds and nothing else accesses.
        Ok(change(unsafe { std::slice::from_raw_parts_mut(start as *mut u8, size as usize) }))
    }

    /// Computes the checksums of blocks that are written to a file, on threads that begin when the first requests were submitted, if there is
    /// enough work for another thread. Until the result is dropped, the caller holds the layout, and nothing writes to the blocks.
    pub fn begin(self) -> Result<Option<Begun>> {
        let threads = self.threads_beside();
        if threads > 0 { self.begin_on(threads).map(Some) } else { Ok(None) }
    }

    fn begin_on(self, threads: usize) -> Result<Begun> {
        let reading = Arc::new(Reading::new(self)?);
        let leaving = Leaving { reading: reading.clone(), threads: AtomicUsize::new(threads) };
        Ok(Begun { reading, order: Vec::new(), progress: Arc::new(leaving) })
    }

    /// The same for blocks that arrive from slots of a file, `stride` bytes apart: a thread takes those that have arrived. `None` if
    /// there is little to do, or a slot is read twice.
    pub fn begin_on_arrival(self, slots: &[u32], stride: u64) -> Result<Option<Begun>> {
        let threads = match self.useful_threads() {
            0 if self.size() <= BYTES_A_TAKING => 0,
            0 => return Ok(None),
            _ => self.threads_beside().max(1),
        };
        let mut order: Vec<u32> = lists::collect(0..slots.len() as u32)?;
        sort_by_id(&mut order, |at| slots[*at as usize])?;
        let sorted: Vec<u32> = lists::collect(order.iter().map(|at| slots[*at as usize]))?;
        if sorted.windows(2).any(|pair| pair[0] == pair[1]) {
            return Ok(None);
        }
        let blocks = lists::collect(order.iter().map(|at| self.blocks[*at as usize]))?;
        let size = self.pieces.block_size();
        let reading = Reading::new(Self { blocks, ..self })?;
        reading.available.store(0, Ordering::Relaxed);
        let (reading, read) = (Arc::new(reading), ReadSlots::new(sorted, size, stride)?);
        let (read, spare) = (Mutex::new((read, 0)), Arc::new(AtomicUsize::new(threads)));
        let arriving = Arriving { reading: reading.clone(), read, spare, is_alone: threads == 0 };
        Ok(Some(Begun { reading, order, progress: Arc::new(arriving) }))
    }

    /// One processor less: who reads or writes the blocks meanwhile needs one.
    fn threads_beside(&self) -> usize {
        self.useful_threads().min(Pool::parallelism().saturating_sub(1))
    }

    fn size(&self) -> u64 {
        self.pieces.block_size().saturating_mul(self.blocks.len() as u64)
    }

    fn useful_threads(&self) -> usize {
        let worth = self.size() / BYTES_A_THREAD;
        (worth as usize).min(self.blocks.len()).min(Pool::parallelism())
    }

    /// The checksum of each block. The caller holds the layout, and this returns only after all blocks were read. Threads that
    /// start later have nothing to read. They do not hold the layout, because the caller may deregister its memory after this
    /// has returned.
    pub fn checksums(self) -> Result<Vec<u32>> {
        let threads = self.useful_threads();
        let reading = Arc::new(Reading::new(self)?);
        if threads > 1 {
            Pool::get().run(&(reading.clone() as Arc<dyn Shared>), threads - 1);
        }
        reading.finish()
    }
}

/// Checksums that threads compute while the blocks move. No thread reads the blocks after it was dropped.
pub struct Begun {
    reading: Arc<Reading>,
    /// The index of each block among those of the caller; empty if they are in the order of the caller.
    order: Vec<u32>,
    progress: Arc<dyn FileProgress>,
}

impl Begun {
    /// The checksum of each block, all of which have moved. Computes those that are left on this thread, too.
    pub fn checksums(&self) -> Result<Vec<u32>> {
        let found = self.reading.finish()?;
        if self.order.is_empty() {
            return Ok(found);
        }
        let mut checksums = lists::copied(&found)?;
        self.order.iter().zip(found).for_each(|(at, checksum)| checksums[*at as usize] = checksum);
        Ok(checksums)
    }

    /// Whether all are computed, so that [`Self::checksums`] waits for nothing.
    pub fn is_over(&self) -> bool {
        *self.reading.left() == 0
    }

    pub fn progress(&self) -> Arc<dyn FileProgress> {
        self.progress.clone()
    }
}

impl Drop for Begun {
    fn drop(&mut self) {
        self.reading.stop();
    }
}

/// Blocks that are written to a file. Threads that began before its first request would take the processor of the thread that submits it.
struct Leaving {
    reading: Arc<Reading>,
    /// How many are to begin.
    threads: AtomicUsize,
}

impl FileProgress for Leaving {
    fn begun(&self) {
        let threads = self.threads.swap(0, Ordering::Relaxed);
        if threads > 0 {
            Pool::get().run(&(self.reading.clone() as Arc<dyn Shared>), threads);
        }
    }
}

/// Blocks in the order of the file that they are read from.
struct Arriving {
    reading: Arc<Reading>,
    /// What has been read, and the number of blocks that threads were woken for.
    read: Mutex<(ReadSlots, usize)>,
    /// The number of threads that may be woken beside those that read.
    spare: Arc<AtomicUsize>,
    /// There is so little that the thread that has moved it reads it: waking another one takes longer.
    is_alone: bool,
}

impl FileProgress for Arriving {
    /// A device may report all that it has been given at once, when it has moved the last byte of it. So three quarters arrive before the
    /// rest, and little is left to be read at the end. It pauses between the parts, so there are few.
    fn may_begin(&self, in_flight: u64, left: u64) -> bool {
        in_flight < (left - left / 4).max(LAST_BYTES)
    }

    fn moved(&self, offset: u64, size: u64) {
        let mut read = self.read.lock();
        let complete = read.0.note(offset, size);
        let is_worth = (complete - read.1) as u64 * self.reading.pieces.block_size() >= BYTES_A_THREAD;
        let take = |spare: usize| spare.checked_sub(1);
        let wakes = is_worth && self.spare.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).is_ok();
        if wakes {
            read.1 = complete;
        }
        drop(read);
        // Not `fetch_max`, which ThreadSanitizer does not see. What another thread has reported meanwhile may be more.
        let more = |before: usize| (before < complete).then_some(complete);
        let _ = self.reading.available.fetch_update(Ordering::Release, Ordering::Relaxed, more);
        if self.is_alone {
            return self.reading.run();
        }
        if wakes {
            let helper = Helper { reading: self.reading.clone(), spare: self.spare.clone() };
            Pool::get().run(&(Arc::new(helper) as Arc<dyn Shared>), 1);
        }
    }
}

/// Reads what has arrived, on one thread.
struct Helper {
    reading: Arc<Reading>,
    spare: Arc<AtomicUsize>,
}

impl Shared for Helper {
    fn run(&self) {
        self.reading.run();
        self.spare.fetch_add(1, Ordering::Relaxed);
    }
}

/// The checksums of all blocks of a plan in the order of (token, layer, outer slot, head), in source and destination.
/// The layouts are host memory, and the caller keeps them.
pub fn canonical_checksums(plan: &Plan) -> impl Iterator<Item = [u32; 2]> {
    plan.parts().flat_map(|part| {
        part.runs().iter().flat_map(move |run| {
            (0..run.length).map(move |block| {
                let ids = [run.source + block, run.destination + block];
                [0, 1].map(|side| canonical_checksum(&part, side, ids[side]))
            })
        })
    })
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
    blocks: Vec<u32>,
    pieces: Pieces,
    /// Number of blocks that a thread takes at a time.
    taking: usize,
    next: AtomicUsize,
    /// The number of first blocks that can be read.
    available: AtomicUsize,
    checksums: Vec<AtomicU32>,
    /// A thread panicked.
    failure: OnceCell<Error>,
    left: Mutex<usize>,
    done: Condvar,
}

impl Reading {
    fn new(HostBlocks { pieces, blocks }: HostBlocks) -> Result<Self> {
        Ok(Self {
            taking: (BYTES_A_TAKING / pieces.block_size().max(1)).max(1) as usize,
            next: AtomicUsize::new(0),
            available: AtomicUsize::new(blocks.len()),
            checksums: lists::collect(blocks.iter().map(|_| AtomicU32::new(0)))?,
            failure: OnceCell::new(),
            left: Mutex::new(blocks.len()),
            done: Condvar::new(),
            blocks,
            pieces,
        })
    }

    /// Reads blocks on the calling thread too, and waits for the other threads.
    fn finish(&self) -> Result<Vec<u32>> {
        self.available.store(self.blocks.len(), Ordering::Release);
        self.run();
        drop(self.done.wait_while(self.left(), |left| *left > 0));
        if let Some(error) = self.failure.get() {
            return Err(error.clone());
        }
        lists::collect(self.checksums.iter().map(|checksum| checksum.load(Ordering::Acquire)))
    }

    /// No thread takes further blocks. Waits for those that have some.
    fn stop(&self) {
        let taken = self.next.swap(usize::MAX, Ordering::Relaxed).min(self.blocks.len());
        let mut left = self.left();
        *left -= self.blocks.len() - taken;
        drop(self.done.wait_while(left, |left| *left > 0));
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
                // SAFETY: a part of the layout, which is host memory. The caller of `checksums` holds it until all blocks are
                // read. If it is written concurrently, the checksum matches neither the old nor the new contents.
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

    fn take(&self) -> Option<Range<usize>> {
        let mut end = 0;
        let take = |first: usize| {
            end = self.available.load(Ordering::Acquire).min(first.saturating_add(self.taking));
            (first < end).then_some(end)
        };
        let first = self.next.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).ok()?;
        Some(first..end)
    }

    fn left(&self) -> MutexGuard<'_, usize> {
        self.left.lock()
    }
}

impl Shared for Reading {
    fn run(&self) {
        while let Some(taken) = self.take() {
            let mut results = self.checksums[taken.clone()].iter();
            let taken = &self.blocks[taken];
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
            let is_last = *left == 0;
            // The thread that is woken locks it.
            drop(left);
            if is_last {
                self.done.notify_all();
            }
        }
    }
}

fn prefetch(bytes: Range<usize>) {
    bytes.step_by(LINE).for_each(|line| prefetch_into_first_level(line as *const u8));
}
