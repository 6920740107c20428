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
use super::phases::RunTimes;
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
struct Runs {
    /// One by one, because a large piece of memory may be missing. The last one is never locked.
    shards: Vec<Box<Shard>>,
    /// By method.
    failures: Vec<[[AtomicU64; STATUSES]; DIRECTIONS]>,
    ring: Ring,
}

/// Aligned so that no two threads change one cache line, nor the one that is loaded with it.
#[derive(Default)]
#[repr(align(128))]
struct Shard {
    index: usize,
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

#[derive(Default)]
struct Durations {
    counts: [AtomicU64; BUCKETS],
    nanoseconds: AtomicU64,
}

fn all() -> &'static Runs {
    static RUNS: PerProcess<Runs> = PerProcess::new();
    RUNS.get(Runs::new)
}

/// Counts the start of a run that other threads see in flight.
#[inline]
pub(super) fn count_start(transfer: LogId) {
    all().start(transfer);
}

/// Counts a run that has ended and whose start was counted, and keeps it among the last ones.
#[inline]
pub(super) fn count_end(
    transfer: LogId,
    counted: CountedAs,
    (bytes, user_data): (u64, u64),
    times: RunTimes,
    status: Option<Status>,
    tallies: Option<&Tallies>,
) {
    let (method, direction) = (index_of(counted.method) as u8, counted.direction as u8);
    let run = EndedRun { transfer: transfer.number(), user_data, bytes, method, direction, status, times };
    all().ended(&run, tallies);
}

/// Counts a run that has succeeded before another thread could see it in flight. Its duration is not measured: reading the clock
/// would cost more than counting.
#[inline]
pub(super) fn count_whole(transfer: LogId, counted: CountedAs, bytes: u64, tallies: Option<&Tallies>) {
    let at = [index_of(counted.method), counted.direction as usize];
    all().with_shard(transfer.number(), |locked| {
        all().succeeded(locked, at, bytes, None);
        if let Some(tallies) = tallies {
            tallies.add(index_in(locked), agent_row(at), bytes, None);
        }
    });
}

/// The last runs in the order of their ends, and how many others were not kept. Fails if there is no memory for them.
pub fn last_runs() -> Result<(Vec<EndedRun>, u64)> {
    Ok((all().ring.runs()?, all().ring.left_out()))
}

/// Number of runs that have started and not ended.
pub fn in_flight() -> u64 {
    all().in_flight()
}

/// What has happened by a method; `None` for requests on raw descriptors, whose latencies are not measured.
pub fn by_method(method: Option<TransferMethod>) -> MethodRuns {
    let (runs, index) = (all(), index_of(method));
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

impl Runs {
    fn new() -> Self {
        let mut shards: Vec<Box<Shard>> = (0..=LOCKED).map(|_| Box::default()).collect();
        (0..).zip(&mut shards).for_each(|(index, shard)| shard.index = index);
        Self { shards, failures: (0..METHODS).map(|_| Default::default()).collect(), ring: Ring::new(LOCKED) }
    }

    /// The index of the first shard that runs of a transfer use.
    fn first(transfer: u64) -> usize {
        (transfer % LOCKED as u64) as usize
    }

    #[inline]
    fn start(&self, transfer: LogId) {
        self.shards[Self::first(transfer.number())].started.fetch_add(1, Ordering::Relaxed);
    }

    /// Locks a shard, unless other threads have locked all.
    #[inline]
    fn lock(&self, transfer: u64) -> Option<&Shard> {
        let (before, from) = self.shards[..LOCKED].split_at(Self::first(transfer));
        let mut shards = from.iter().chain(before).map(|shard| &**shard);
        shards.find(|shard| !shard.is_locked.swap(true, Ordering::Acquire))
    }

    #[inline]
    fn with_shard(&self, transfer: u64, act: impl FnOnce(Option<&Shard>)) {
        let locked = self.lock(transfer);
        act(locked);
        if let Some(shard) = locked {
            shard.is_locked.store(false, Ordering::Release);
        }
    }

    #[inline]
    fn ended(&self, run: &EndedRun, tallies: Option<&Tallies>) {
        let at = [usize::from(run.method), usize::from(run.direction)];
        self.with_shard(run.transfer, |locked| {
            self.ring.add(locked.map(|shard| &shard.place), run);
            match run.status {
                None => self.succeeded(locked, at, run.bytes, Some(run.times.duration)),
                Some(status) => self.failed(at, status),
            }
            if let Some(tallies) = tallies {
                tallies.add(index_in(locked), agent_row(at), run.bytes, run.status);
            }
        });
    }

    /// Counts a success by its method and direction, with the duration of a run whose start was counted.
    #[inline]
    fn succeeded(
        &self,
        locked: Option<&Shard>,
        [method, direction]: [usize; 2],
        bytes: u64,
        duration: Option<u64>,
    ) {
        let index = index_in(locked);
        let add = |counter: &AtomicU64, amount| index.add(counter, amount);
        let shard = locked.unwrap_or(&self.shards[LOCKED]);
        if let Some(nanoseconds) = duration.filter(|_| method != index_of(None)) {
            let durations = &shard.latencies[method][class_of(bytes)];
            add(&durations.counts[bucket_of(nanoseconds)], 1);
            add(&durations.nanoseconds, nanoseconds);
        }
        add(&shard.ended, duration.is_some().into());
        let successes = &shard.succeeded[method][direction];
        add(&successes.bytes, bytes);
        add(&successes.runs, 1);
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

#[inline]
fn index_in(locked: Option<&Shard>) -> ShardIndex {
    ShardIndex::new(locked.map(|shard| shard.index))
}

fn load(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::Acquire)
}

#[cfg(test)]
mod tests;
