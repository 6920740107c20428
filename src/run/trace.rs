// SPDX-License-Identifier: Apache-2.0
//! The runs that have ended last, with their times.
//!
//! Their memory is a ring of chunks. A thread that has locked a shard of the counters adds a run to the chunk of that shard, and takes
//! the next one when it is full. So an addition waits for no thread, and is no atomic operation. Readers take no lock: they leave out
//! a run that is replaced while they read it.

use std::array::from_fn;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering, fence};

use super::phases::{MILESTONES, RunTimes};
use crate::base::sorting::sort_by_number;
use crate::base::{Result, Status, lists};
use crate::copy::host::prefetch_into_first_level;

/// How many of the last runs are kept.
pub const RUNS: usize = 10_000;
/// Runs of a chunk: many, because the first one waits for memory that was last used thousands of runs ago.
const EACH: usize = 64;
/// Words of a run without its milestones: one cache line.
const WORDS: usize = 8;
/// No chunk.
const NONE: usize = usize::MAX;

/// A run that has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EndedRun {
    /// The number of the transfer in log messages.
    pub transfer: u64,
    /// The value of the caller.
    pub user_data: u64,
    pub bytes: u64,
    /// The index of its method in statistics, and that of its direction.
    pub method: u8,
    pub direction: u8,
    /// `None` for success.
    pub status: Option<Status>,
    pub times: RunTimes,
}

pub(super) struct Ring {
    /// No run is kept.
    is_off: bool,
    chunks: Vec<Chunk>,
    /// Counts the chunks that were taken.
    taken: AtomicUsize,
    left_out: AtomicU64,
}

#[repr(align(64))]
struct Chunk {
    slots: [Slot; EACH],
    milestones: [[AtomicU64; MILESTONES]; EACH],
    /// A shard adds to it.
    is_taken: AtomicBool,
}

#[repr(align(64))]
#[derive(Default)]
struct Slot([AtomicU64; WORDS]);

/// Where a shard adds its next run. Only for the thread that has locked the shard.
pub(super) struct Place {
    chunk: AtomicUsize,
    next: AtomicUsize,
}

impl Default for Chunk {
    fn default() -> Self {
        let (slots, milestones) = (from_fn(|_| Slot::default()), from_fn(|_| Default::default()));
        Self { slots, milestones, is_taken: AtomicBool::new(false) }
    }
}

impl Default for Place {
    fn default() -> Self {
        Self { chunk: AtomicUsize::new(NONE), next: AtomicUsize::new(EACH) }
    }
}

impl Ring {
    /// For so many places. Keeps nothing if the environment has KVMEM_TRACE=0, or if there is no memory for it.
    pub fn new(places: usize) -> Self {
        Self::with(places, std::env::var_os("KVMEM_TRACE").is_some_and(|value| value == "0"))
    }

    fn with(places: usize, is_off: bool) -> Self {
        let mut chunks = Vec::new();
        let count = RUNS.div_ceil(EACH) + places;
        if !is_off && lists::reserve(&mut chunks, count).is_ok() {
            chunks.resize_with(count, Chunk::default);
        }
        Self { is_off, chunks, taken: AtomicUsize::new(0), left_out: AtomicU64::new(0) }
    }

    /// Adds a run at a place that the thread has locked.
    #[inline]
    pub fn add(&self, place: &Place, run: &EndedRun) {
        if self.is_off {
            return;
        }
        let Some((chunk, at)) = self.next_slot(place) else { return self.leave_out() };
        let (Slot([version, words @ ..]), milestones) = (&chunk.slots[at], &chunk.milestones[at]);
        let before = version.load(Ordering::Relaxed);
        version.store(before + 1, Ordering::Relaxed);
        fence(Ordering::Release);
        // Not compared as an array, which would wait until the words are in memory.
        let has_milestones = run.times.reached.into_iter().fold(0, |any, at| any | at) != 0;
        let status = run.status.map_or(0, |status| (status as i32).unsigned_abs() as u8);
        let kind = [run.method, run.direction, status, has_milestones.into(), 0, 0, 0, 0];
        let RunTimes { started, duration, reached } = run.times;
        let values = [run.transfer, run.user_data, run.bytes, u64::from_le_bytes(kind), started, duration];
        words.iter().zip(values).for_each(|(word, value)| word.store(value, Ordering::Relaxed));
        if has_milestones {
            milestones.iter().zip(reached).for_each(|(word, at)| word.store(at, Ordering::Relaxed));
        }
        version.store(before + 2, Ordering::Release);
        // The line of the next run was last used thousands of runs ago. The next atomic operation would wait for it.
        if let Some(next) = chunk.slots.get(at + 1) {
            prefetch_into_first_level(std::ptr::from_ref(next).cast());
        }
    }

    /// Counts a run that is not kept, because the thread has locked no place.
    #[cold]
    pub fn leave_out(&self) {
        if !self.is_off {
            self.left_out.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[inline]
    fn next_slot(&self, place: &Place) -> Option<(&Chunk, usize)> {
        let next = place.next.load(Ordering::Relaxed);
        if next < EACH {
            place.next.store(next + 1, Ordering::Relaxed);
            return Some((self.chunks.get(place.chunk.load(Ordering::Relaxed))?, next));
        }
        self.take_chunk(place)
    }

    /// Takes the chunk that was taken first of those that no other place has.
    #[cold]
    fn take_chunk(&self, place: &Place) -> Option<(&Chunk, usize)> {
        let before = place.chunk.load(Ordering::Relaxed);
        for _ in 0..self.chunks.len() {
            let index = self.taken.fetch_add(1, Ordering::Relaxed) % self.chunks.len();
            let chunk = &self.chunks[index];
            if chunk.is_taken.swap(true, Ordering::Acquire) {
                continue;
            }
            place.chunk.store(index, Ordering::Relaxed);
            place.next.store(1, Ordering::Relaxed);
            if let Some(before) = self.chunks.get(before) {
                before.is_taken.store(false, Ordering::Release);
            }
            return Some((chunk, 0));
        }
        None
    }

    /// The last runs in the order of their ends. Fails if there is no memory for them.
    pub fn runs(&self) -> Result<Vec<EndedRun>> {
        let mut runs = Vec::new();
        for chunk in &self.chunks {
            let slots = chunk.slots.iter().zip(&chunk.milestones);
            let found = slots.filter_map(|(slot, milestones)| slot.read(milestones));
            lists::extend(&mut runs, found)?;
        }
        sort_by_number(&mut runs, |run| run.times.end())?;
        runs.drain(..runs.len().saturating_sub(RUNS));
        Ok(runs)
    }

    /// Number of runs that were not kept, because a thread found all shards locked, or there is no memory.
    pub fn left_out(&self) -> u64 {
        self.left_out.load(Ordering::Relaxed)
    }
}

impl Slot {
    /// `None` if it is empty, or changed meanwhile.
    fn read(&self, milestones: &[AtomicU64; MILESTONES]) -> Option<EndedRun> {
        let Self([version, words @ ..]) = self;
        let before = version.load(Ordering::Acquire);
        let [transfer, user_data, bytes, kind, started, duration, _] =
            words.each_ref().map(|word| word.load(Ordering::Relaxed));
        let reached = milestones.each_ref().map(|at| at.load(Ordering::Relaxed));
        fence(Ordering::Acquire);
        if before == 0 || before % 2 == 1 || version.load(Ordering::Relaxed) != before {
            return None;
        }
        let [method, direction, status, has_milestones, ..] = kind.to_le_bytes();
        let reached = if has_milestones == 1 { reached } else { [0; MILESTONES] };
        Some(EndedRun {
            transfer,
            user_data,
            bytes,
            method,
            direction,
            status: Status::from_code(-i32::from(status)),
            times: RunTimes { started, reached, duration },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(number: u64) -> EndedRun {
        let times = RunTimes { started: number, reached: [number % 3 * number; MILESTONES], duration: 1 };
        let status = (number % 2 == 1).then_some(Status::Stale);
        let (method, direction) = ((number % 5) as u8, (number % 7) as u8);
        EndedRun { transfer: number, user_data: !number, bytes: 3 * number, method, direction, status, times }
    }

    #[test]
    fn the_last_runs_are_kept_whichever_shards_have_added_them() {
        let (ring, places) = (Ring::with(3, false), [(); 3].map(|()| Place::default()));
        assert_eq!(ring.runs().unwrap(), []);
        // The last place gets few, so that it keeps a chunk for long.
        let place = |number: u64| &places[if number.is_multiple_of(5000) { 2 } else { number as usize % 2 }];
        let last = 3 * RUNS as u64 + 7;
        for number in 1..=last {
            ring.add(place(number), &run(number));
            if number == 100 {
                assert_eq!(ring.runs().unwrap(), (1..=100).map(run).collect::<Vec<_>>());
            }
        }
        assert_eq!(ring.runs().unwrap(), (last - RUNS as u64 + 1..=last).map(run).collect::<Vec<_>>());
        assert_eq!(ring.left_out(), 0);
        ring.leave_out();
        assert_eq!(ring.left_out(), 1);
    }

    #[test]
    fn a_trace_that_is_off_keeps_no_run_and_has_no_memory() {
        let (ring, place) = (Ring::with(1, true), Place::default());
        ring.add(&place, &run(1));
        ring.leave_out();
        assert_eq!((ring.runs().unwrap(), ring.left_out(), ring.chunks.capacity()), (vec![], 0, 0));
    }

    #[test]
    fn a_run_that_is_replaced_while_it_is_read_is_left_out() {
        const LAST: u64 = 200_000;
        let (ring, is_over) = (Ring::with(2, false), AtomicBool::new(false));
        std::thread::scope(|scope| {
            let writers = [0, 1].map(|parity| {
                let ring = &ring;
                scope.spawn(move || {
                    let place = Place::default();
                    (1..=LAST)
                        .filter(|number| number % 2 == parity)
                        .for_each(|number| ring.add(&place, &run(number)));
                })
            });
            let reader = scope.spawn(|| {
                while !is_over.load(Ordering::Acquire) {
                    ring.runs().unwrap().into_iter().for_each(|found| assert_eq!(found, run(found.transfer)));
                }
            });
            writers.into_iter().for_each(|writer| writer.join().unwrap());
            is_over.store(true, Ordering::Release);
            reader.join().unwrap();
        });
        assert_eq!(ring.runs().unwrap().len(), RUNS);
    }
}
