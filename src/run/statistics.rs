// SPDX-License-Identifier: Apache-2.0
//! Counters of all runs since this process began: how many, their bytes and latencies, by method, direction and status; and the last
//! runs themselves.
//!
//! A run costs two atomic operations, whatever is counted of it. Its counters are in one of a few shards, which its end locks: a
//! plain addition costs less than an atomic one, and there are several. A thread that finds all of them locked changes one more shard,
//! by atomic additions, so that it never waits for a thread that is interrupted.
//!
//! Readers take no lock. A counter never decreases, and a thread that has seen the end of a run reads it as counted. Counters that are
//! read one after the other may differ by the runs that end meanwhile. [`in_flight`] is never more than were in flight at one time, and
//! may be less only if runs end during each of its looks.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::method::TransferMethod;
use super::tallies::Tallies;
use super::trace::{EndedRun, Place, Ring};
use crate::base::reported::{LOCKED, ShardIndex};
use crate::base::{LogId, PerProcess, Result, Status};

/// Requests on raw descriptors, and the methods of transfers.
pub const METHODS: usize = 12;
pub const METHOD_LABELS: [&str; METHODS] = [
    "request",
    "memcpy",
    "cuda_copy",
    "cuda_batch",
    "cuda_2d",
    "cuda_kernel",
    "cuda_staged",
    "uring",
    "pread",
    "nixl",
    "nixl_staged",
    "nixl_served",
];
pub const DIRECTIONS: usize = 8;
pub const DIRECTION_LABELS: [&str; DIRECTIONS] =
    ["host_to_host", "host_to_gpu", "gpu_to_host", "gpu_to_gpu", "read", "write", "pull", "push"];
/// Those from here on are of bytes that an agent can move.
pub const FIRST_AGENT_DIRECTION: usize = Direction::Read as usize;
/// Success, and each status of a failure.
pub const STATUSES: usize = 24;
/// Classes of runs by their bytes: up to each of these sizes, and larger ones.
pub const SIZES: [u64; 4] = [64 << 10, 1 << 20, 16 << 20, 256 << 20];
pub const CLASSES: usize = SIZES.len() + 1;
/// Buckets of latencies: the first has those up to 2 to the power of this in nanoseconds, each other one up to twice that of the bucket
/// before it, and the last one all others.
pub const FIRST_BUCKET: u32 = 10;
pub const BUCKETS: usize = 24;

/// Between which kinds of memory bytes move. Mapped memory of another process is memory here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    HostToHost,
    HostToGpu,
    GpuToHost,
    GpuToGpu,
    /// From files, objects or block storage.
    Read,
    Write,
    /// From a peer.
    Pull,
    Push,
}

/// What kind of memory a side is.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum SideKind {
    Host,
    Gpu,
    Storage,
    Peer,
}

impl CountedAs {
    /// The indices of its method and its direction, as the trace has them.
    pub(super) fn indices(self) -> [u8; 2] {
        [index_of(self.method) as u8, self.direction as u8]
    }

    /// As the trace and NVTX call it.
    pub fn name(self) -> String {
        format!("{} {}", METHOD_LABELS[index_of(self.method)], DIRECTION_LABELS[self.direction as usize])
    }
}

impl Direction {
    pub fn between(source: SideKind, destination: SideKind) -> Self {
        use SideKind::{Gpu, Host, Peer, Storage};
        match (source, destination) {
            (Peer, _) => Self::Pull,
            (_, Peer) => Self::Push,
            (Storage, _) => Self::Read,
            (_, Storage) => Self::Write,
            (Host, Host) => Self::HostToHost,
            (Host, Gpu) => Self::HostToGpu,
            (Gpu, Host) => Self::GpuToHost,
            (Gpu, Gpu) => Self::GpuToGpu,
        }
    }
}

/// As what a run is counted. The runs that kvmem makes for itself, such as those that read blocks to verify them, are not.
#[derive(Clone, Copy, Debug)]
pub struct CountedAs {
    /// `None` for a request on raw descriptors.
    pub method: Option<TransferMethod>,
    pub direction: Direction,
}

/// What has happened by one method.
pub struct MethodRuns {
    /// By direction, and then by status: success, and the negative values of failures.
    pub runs: [[u64; STATUSES]; DIRECTIONS],
    /// Of the runs that have succeeded.
    pub bytes: [u64; DIRECTIONS],
    /// Of the runs that have succeeded, by class.
    pub latencies: [Latencies; CLASSES],
}

/// A histogram of durations.
#[derive(Clone, Copy, Default)]
pub struct Latencies {
    pub counts: [u64; BUCKETS],
    pub nanoseconds: u64,
}

const MAX_LOOKS: usize = 16;

/// In lists, because threads that end runs may have small stacks.
pub(super) struct Counters {
    /// One by one, because a large piece of memory may be missing. The last one is never locked.
    shards: [Box<Shard>; LOCKED + 1],
    /// By method.
    failures: Vec<[[AtomicU64; STATUSES]; DIRECTIONS]>,
    ring: Ring,
}

/// Aligned so that no two threads change one cache line, nor the one that is loaded with it.
#[derive(Default)]
#[repr(align(128))]
struct Shard {
    is_locked: AtomicBool,
    place: Place,
    /// Runs that other threads saw in flight. Incremented without the lock.
    started: AtomicU64,
    /// Those of them that have ended.
    ended: AtomicU64,
    succeeded: [[Successes; DIRECTIONS]; METHODS],
    latencies: [[Durations; CLASSES]; METHODS],
}

#[derive(Default)]
struct Successes {
    runs: AtomicU64,
    bytes: AtomicU64,
}

/// In whole cache lines and in this order, so that a run of some microseconds changes one.
#[derive(Default)]
#[repr(C, align(64))]
struct Durations {
    nanoseconds: AtomicU64,
    /// The buckets, and what is left of the last line.
    counts: [AtomicU64; 31],
}

/// The last runs in the order of their ends, and how many others were not kept. Fails if there is no memory for them.
pub fn last_runs() -> Result<(Vec<EndedRun>, u64)> {
    Ok((Counters::get().ring.runs()?, Counters::get().ring.left_out()))
}

/// Number of runs that have started and not ended.
pub fn in_flight() -> u64 {
    Counters::get().in_flight()
}

/// What has happened by a method; `None` for requests on raw descriptors, whose latencies are not measured.
pub fn by_method(method: Option<TransferMethod>) -> MethodRuns {
    let (runs, index) = (Counters::get(), index_of(method));
    let shards = &runs.shards;
    let sum = |of: &dyn Fn(&Shard) -> u64| shards.iter().map(|shard| of(shard)).sum::<u64>();
    let latencies = |class: usize| Latencies {
        counts: std::array::from_fn(|at| sum(&|shard| load(&shard.latencies[index][class].counts[at]))),
        nanoseconds: sum(&|shard| load(&shard.latencies[index][class].nanoseconds)),
    };
    MethodRuns {
        runs: std::array::from_fn(|direction| {
            let mut by_status: [u64; STATUSES] =
                std::array::from_fn(|status| load(&runs.failures[index][direction][status]));
            by_status[0] = sum(&|shard| load(&shard.succeeded[index][direction].runs));
            by_status
        }),
        bytes: std::array::from_fn(|direction| sum(&|shard| load(&shard.succeeded[index][direction].bytes))),
        latencies: std::array::from_fn(latencies),
    }
}

/// How a run has ended: what is counted of it.
struct Ended {
    /// The indices of its method and its direction.
    at: [usize; 2],
    bytes: u64,
    status: Option<Status>,
    /// Of a run whose start was counted.
    duration: Option<u64>,
}

impl Counters {
    /// Those of this process. A transfer keeps them, because a forked child may not use it.
    pub fn get() -> &'static Self {
        static COUNTERS: PerProcess<Counters> = PerProcess::new();
        COUNTERS.get(Self::new)
    }

    fn new() -> Self {
        let (shards, failures) = (Default::default(), (0..METHODS).map(|_| Default::default()).collect());
        Self { shards, failures, ring: Ring::new(LOCKED) }
    }

    /// The index of the first shard that runs of a transfer use.
    fn first(transfer: u64) -> usize {
        (transfer % LOCKED as u64) as usize
    }

    /// Counts the start of a run that other threads see in flight.
    #[inline]
    pub fn start(&self, transfer: LogId) {
        self.shards[Self::first(transfer.number())].started.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a run that has ended and whose start was counted, and keeps it among the last ones.
    #[inline]
    pub fn end(&self, run: &EndedRun, tallies: Option<&Tallies>) {
        let at = [usize::from(run.method), usize::from(run.direction)];
        let duration = Some(run.times.duration);
        let ended = Ended { at, bytes: run.bytes, status: run.status, duration };
        match self.lock(run.transfer) {
            Some(index) => {
                self.ring.add(&self.shards[index].place, run);
                self.add_and_unlock(index, &ended, tallies);
            }
            None => {
                self.ring.leave_out();
                self.add_unlocked(&ended, tallies);
            }
        }
    }

    /// Counts a run that has succeeded before another thread could see it in flight. Its duration is not measured: reading the clock
    /// would cost more than counting.
    #[inline]
    pub fn add_whole(&self, transfer: LogId, counted: CountedAs, bytes: u64, tallies: Option<&Tallies>) {
        let at = counted.indices().map(usize::from);
        let ended = Ended { at, bytes, status: None, duration: None };
        match self.lock(transfer.number()) {
            Some(index) => self.add_and_unlock(index, &ended, tallies),
            None => self.add_unlocked(&ended, tallies),
        }
    }

    /// Locks a shard, and returns its index; `None` if other threads have locked all.
    #[inline]
    fn lock(&self, transfer: u64) -> Option<usize> {
        let mut indices = (0..LOCKED).map(|next| (Self::first(transfer) + next) % LOCKED);
        indices.find(|index| !self.shards[*index].is_locked.swap(true, Ordering::Acquire))
    }

    #[inline]
    fn add_and_unlock(&self, index: usize, ended: &Ended, tallies: Option<&Tallies>) {
        self.add(ShardIndex::locked(index), ended, tallies);
        self.shards[index].is_locked.store(false, Ordering::Release);
    }

    #[cold]
    #[inline(never)]
    fn add_unlocked(&self, ended: &Ended, tallies: Option<&Tallies>) {
        self.add(ShardIndex::NEVER_LOCKED, ended, tallies);
    }

    #[inline]
    fn add<const IS_LOCKED: bool>(
        &self,
        index: ShardIndex<IS_LOCKED>,
        &Ended { at, bytes, status, duration }: &Ended,
        tallies: Option<&Tallies>,
    ) {
        match status {
            None => self.succeeded(index, at, bytes, duration),
            Some(status) => self.failed(at, status),
        }
        if let Some(tallies) = tallies {
            tallies.add(index, || agent_row(at), bytes, status);
        }
    }

    #[inline]
    fn succeeded<const IS_LOCKED: bool>(
        &self,
        index: ShardIndex<IS_LOCKED>,
        [method, direction]: [usize; 2],
        bytes: u64,
        duration: Option<u64>,
    ) {
        let shard = &self.shards[index.index()];
        if let Some(nanoseconds) = duration {
            if method != index_of(None) {
                let durations = &shard.latencies[method][class_of(bytes)];
                index.add(&durations.counts[bucket_of(nanoseconds)], 1);
                index.add(&durations.nanoseconds, nanoseconds);
            }
            index.add(&shard.ended, 1);
        }
        let successes = &shard.succeeded[method][direction];
        index.add(&successes.bytes, bytes);
        index.add(&successes.runs, 1);
    }

    #[cold]
    fn failed(&self, [method, direction]: [usize; 2], status: Status) {
        let statuses = &self.failures[method][direction];
        let status = (status as i32).unsigned_abs() as usize;
        if let Some(count) = statuses.get(status) {
            count.fetch_add(1, Ordering::Release);
        }
        self.shards[LOCKED].ended.fetch_add(1, Ordering::Release);
    }

    /// A run that ends during a look may be missing in the result, so the look is repeated until none has ended, some times.
    fn in_flight(&self) -> u64 {
        let sum = |of: fn(&Shard) -> &AtomicU64| self.shards.iter().map(|shard| load(of(shard))).sum::<u64>();
        let (mut most, mut before) = (0, sum(|shard| &shard.ended));
        for _ in 0..MAX_LOOKS {
            let started = sum(|shard| &shard.started);
            let ended = sum(|shard| &shard.ended);
            most = most.max(started.saturating_sub(ended));
            if ended == std::mem::replace(&mut before, ended) {
                break;
            }
        }
        most
    }
}

/// The index of a method; 0 for requests on raw descriptors.
fn index_of(method: Option<TransferMethod>) -> usize {
    method.map_or(0, |method| method as usize + 1)
}

fn class_of(bytes: u64) -> usize {
    SIZES.iter().filter(|size| bytes > **size).count()
}

fn bucket_of(nanoseconds: u64) -> usize {
    let bits = u64::BITS - nanoseconds.saturating_sub(1).leading_zeros();
    (bits.saturating_sub(FIRST_BUCKET) as usize).min(BUCKETS - 1)
}

/// The row that counts a run of a method and direction for an agent: the directions of what NIXL moves are the last ones. `None` for
/// a run whose bytes no agent moves.
#[inline]
fn agent_row([method, direction]: [usize; 2]) -> Option<usize> {
    let is_by_agent = method == index_of(None) || method >= index_of(Some(TransferMethod::Nixl));
    direction.checked_sub(FIRST_AGENT_DIRECTION).filter(|_| is_by_agent)
}

fn load(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::Acquire)
}

#[cfg(test)]
mod tests;
