// SPDX-License-Identifier: Apache-2.0
//! Counters of all runs since this process began: how many, their bytes and latencies, by method, direction and status.
//!
//! A run costs two atomic operations, whatever is counted of it. Its counters are in one of a few shards, which its end locks: a
//! plain addition costs less than an atomic one, and there are several. A thread that finds all of them locked changes one more shard,
//! by atomic additions, so that it never waits for a thread that is interrupted.
//!
//! Readers take no lock. A counter never decreases, and a thread that has seen the end of a run reads it as counted. Counters that are
//! read one after the other may differ by the runs that end meanwhile. [`in_flight`] is never more than were in flight at one time, and
//! may be less only if runs end during each of its looks.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use super::method::TransferMethod;
use crate::base::{LogId, PerProcess, Status};

/// Requests on raw descriptors, and the methods of transfers.
pub const METHODS: usize = 12;
pub const DIRECTIONS: usize = 8;
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
/// Shards that are locked: few, and more than threads that end runs at the same time usually are.
const LOCKED: usize = 8;

/// In lists, because threads that end runs may have small stacks.
struct Runs {
    /// One by one, because a large piece of memory may be missing. The last one is never locked.
    shards: Vec<Box<Shard>>,
    /// By method.
    failures: Vec<[[AtomicU64; STATUSES]; DIRECTIONS]>,
}

/// Aligned so that no two threads change one cache line, nor the one that is loaded with it.
#[derive(Default)]
#[repr(align(128))]
struct Shard {
    is_locked: AtomicBool,
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

/// Counts a run that has ended and whose start was counted.
#[inline]
pub(super) fn count_end(
    transfer: LogId,
    counted: CountedAs,
    bytes: u64,
    duration: Duration,
    status: Option<Status>,
) {
    let nanoseconds = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
    match status {
        None => all().succeeded(transfer, counted, bytes, Some(nanoseconds)),
        Some(status) => all().failed(counted, status),
    }
}

/// Counts a run that has succeeded before another thread could see it in flight. Its duration is not measured: reading the clock
/// would cost more than counting.
#[inline]
pub(super) fn count_whole(transfer: LogId, counted: CountedAs, bytes: u64) {
    all().succeeded(transfer, counted, bytes, None);
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
        Self {
            shards: (0..=LOCKED).map(|_| Box::default()).collect(),
            failures: (0..METHODS).map(|_| Default::default()).collect(),
        }
    }

    /// The index of the first shard that runs of a transfer use.
    fn first(transfer: LogId) -> usize {
        (transfer.number() % LOCKED as u64) as usize
    }

    #[inline]
    fn start(&self, transfer: LogId) {
        self.shards[Self::first(transfer)].started.fetch_add(1, Ordering::Relaxed);
    }

    /// Locks a shard, unless other threads have locked all.
    #[inline]
    fn lock(&self, transfer: LogId) -> Option<&Shard> {
        let (before, from) = self.shards[..LOCKED].split_at(Self::first(transfer));
        let mut shards = from.iter().chain(before).map(|shard| &**shard);
        shards.find(|shard| !shard.is_locked.swap(true, Ordering::Acquire))
    }

    /// Counts a success, with the duration of a run whose start was counted.
    #[inline]
    fn succeeded(&self, transfer: LogId, counted: CountedAs, bytes: u64, duration: Option<u64>) {
        let (method, locked) = (index_of(counted.method), self.lock(transfer));
        let add = |counter: &AtomicU64, amount| match locked {
            Some(_) => add_locked(counter, amount),
            None => drop(counter.fetch_add(amount, Ordering::Release)),
        };
        let shard = locked.unwrap_or(&self.shards[LOCKED]);
        if let Some(nanoseconds) = duration.filter(|_| counted.method.is_some()) {
            let durations = &shard.latencies[method][class_of(bytes)];
            add(&durations.counts[bucket_of(nanoseconds)], 1);
            add(&durations.nanoseconds, nanoseconds);
        }
        add(&shard.ended, duration.is_some().into());
        let successes = &shard.succeeded[method][counted.direction as usize];
        add(&successes.bytes, bytes);
        add(&successes.runs, 1);
        if let Some(shard) = locked {
            shard.is_locked.store(false, Ordering::Release);
        }
    }

    #[cold]
    fn failed(&self, counted: CountedAs, status: Status) {
        let statuses = &self.failures[index_of(counted.method)][counted.direction as usize];
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

/// Adds to a counter that no other thread changes meanwhile.
#[inline]
fn add_locked(counter: &AtomicU64, amount: u64) {
    counter.store(counter.load(Ordering::Relaxed).wrapping_add(amount), Ordering::Release);
}

fn load(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::Acquire)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::base::error;
    use crate::run::completion::{Account, Completion};
    use crate::run::ticket::Ticket;

    #[test]
    fn buckets_and_classes_contain_their_bounds() {
        let buckets = [0, 1, 1024, 1025, 2048, 2049, 1 << 32, (1 << 32) + 1, u64::MAX].map(bucket_of);
        assert_eq!(buckets, [0, 0, 0, 1, 1, 2, 22, 23, 23]);
        let classes =
            [0, 64 << 10, (64 << 10) + 1, 16 << 20, (16 << 20) + 1, 1 << 28, u64::MAX].map(class_of);
        assert_eq!(classes, [0, 0, 1, 2, 3, 3, 4]);
    }

    #[test]
    fn every_method_has_an_index_of_its_own() {
        let last = index_of(Some(TransferMethod::NixlServed));
        assert_eq!((last, index_of(None)), (METHODS - 1, 0));
        assert!(((Status::Panic as i32).unsigned_abs() as usize) < STATUSES);
    }

    #[test]
    fn a_direction_names_the_side_that_is_no_memory_of_this_process() {
        use SideKind::{Gpu, Host, Peer, Storage};
        let cases = [
            (Host, Gpu, Direction::HostToGpu),
            (Gpu, Host, Direction::GpuToHost),
            (Storage, Gpu, Direction::Read),
            (Host, Storage, Direction::Write),
            (Peer, Gpu, Direction::Pull),
            (Gpu, Peer, Direction::Push),
        ];
        for (source, destination, direction) in cases {
            assert_eq!(Direction::between(source, destination), direction);
        }
    }

    fn account(direction: Direction, bytes: u64) -> Account {
        let counted = Some(CountedAs { method: Some(TransferMethod::Cuda2d), direction });
        Account { bytes, counted, ..Account::default() }
    }

    const COUNTED: CountedAs = CountedAs { method: None, direction: Direction::Pull };

    #[test]
    fn runs_in_flight_are_never_more_than_there_are_while_threads_end_runs() {
        const THREADS: u64 = 4;
        const RUNS: u64 = 20_000;
        let (counters, running) = (Runs::new(), AtomicU64::new(THREADS));
        std::thread::scope(|scope| {
            for _ in 0..THREADS {
                scope.spawn(|| {
                    for run in 0..RUNS {
                        let transfer = LogId::next();
                        counters.start(transfer);
                        match run % 8 {
                            0 => counters.failed(COUNTED, Status::Stale),
                            _ => counters.succeeded(transfer, COUNTED, 1, Some(1)),
                        }
                        counters.succeeded(transfer, COUNTED, 1, None);
                    }
                    running.fetch_sub(1, Ordering::Release);
                });
            }
            while running.load(Ordering::Acquire) > 0 {
                let found = counters.in_flight();
                assert!(found <= THREADS, "{found} runs of {THREADS} threads");
            }
        });
        assert_eq!(counters.in_flight(), 0);
    }

    /// As by threads that are interrupted.
    #[test]
    fn a_run_is_counted_while_all_shards_are_locked() {
        let (counters, transfer) = (Runs::new(), LogId::next());
        let locked: Vec<_> = std::iter::from_fn(|| counters.lock(transfer)).collect();
        assert_eq!(locked.len(), LOCKED);
        counters.start(transfer);
        assert_eq!(counters.in_flight(), 1);
        counters.succeeded(transfer, COUNTED, 7, Some(1));
        let shard = &counters.shards[LOCKED];
        let successes = &shard.succeeded[0][Direction::Pull as usize];
        assert_eq!((counters.in_flight(), load(&successes.runs), load(&successes.bytes)), (0, 1, 7));
        assert_eq!(load(&shard.latencies[0][0].nanoseconds), 0, "that of a request is not measured");
        locked[3].is_locked.store(false, Ordering::Release);
        assert!(std::ptr::eq(counters.lock(transfer).unwrap(), locked[3]));
    }

    /// No other test has runs of this method, which are in the counters of the process.
    #[test]
    fn runs_are_counted_once_when_they_end() {
        const RUNS: u64 = 1000;
        std::thread::scope(|scope| {
            for thread in 0..4 {
                scope.spawn(move || {
                    let completion = Arc::new(Completion::new(1, None));
                    for run in 0..RUNS {
                        let started = Ticket::unheld(&completion, account(Direction::HostToGpu, 100)).start();
                        assert!(in_flight() > 0, "this run is");
                        match (thread, run % 2) {
                            (0, 0) => started.end(Err(error!(Stale, "deliberate"))),
                            _ => started.end(Ok(())),
                        }
                    }
                });
            }
        });
        let counted = by_method(Some(TransferMethod::Cuda2d));
        let [succeeded, stale] = [0, 18].map(|status| counted.runs[Direction::HostToGpu as usize][status]);
        assert_eq!((succeeded, stale), (4 * RUNS - RUNS / 2, RUNS / 2));
        assert_eq!(counted.bytes[Direction::HostToGpu as usize], succeeded * 100);
        assert_eq!(counted.latencies[0].counts.iter().sum::<u64>(), succeeded);
        assert!(counted.latencies[0].nanoseconds > 0);
        assert_eq!(counted.runs.iter().flatten().sum::<u64>(), 4 * RUNS);
    }
}
