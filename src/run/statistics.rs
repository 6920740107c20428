// SPDX-License-Identifier: Apache-2.0
//! Counters of all runs since this process began: how many, their bytes and latencies, by method, direction and status.
//!
//! A run costs two atomic operations, whatever is counted of it. Its counters are in one of a few shards, which its end locks: a
//! plain addition costs less than an atomic one, and there are four. Readers take no lock.

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
/// Few, and more than threads that end runs at the same time usually are.
const SHARDS: u64 = 8;

/// In lists, because threads that end runs may have small stacks.
struct Runs {
    /// One by one, because a large piece of memory may be missing.
    shards: Vec<Box<Shard>>,
    /// By method.
    failures: Vec<[[AtomicU64; STATUSES]; DIRECTIONS]>,
}

/// Aligned so that no two threads change one cache line, nor the one that is loaded with it.
#[derive(Default)]
#[repr(align(128))]
struct Shard {
    is_locked: AtomicBool,
    /// Incremented without the lock.
    started: AtomicU64,
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
    RUNS.get(|| Runs {
        shards: (0..SHARDS).map(|_| Box::default()).collect(),
        failures: (0..METHODS).map(|_| Default::default()).collect(),
    })
}

/// Counts the start of a run that other threads see in flight.
#[inline]
pub(super) fn count_start(transfer: LogId) {
    all().shard(transfer.number()).started.fetch_add(1, Ordering::Relaxed);
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
        None => all().succeeded(transfer, counted, bytes, Some(nanoseconds), 0),
        Some(status) => all().failed(counted, status),
    }
}

/// Counts a run that has succeeded before another thread could see it in flight. Its duration is not measured: reading the clock
/// would cost more than counting.
#[inline]
pub(super) fn count_whole(transfer: LogId, counted: CountedAs, bytes: u64) {
    all().succeeded(transfer, counted, bytes, None, 1);
}

/// Number of runs that have started and not ended. Runs that begin and end during a look are counted, too, so it is repeated until there
/// were none, some times: a thread that is interrupted in the middle of a look would count all runs of that time.
pub fn in_flight() -> u64 {
    let mut fewest = u64::MAX;
    for _ in 0..MAX_LOOKS {
        let (ended_before, started) = (all().ended(), all().started());
        fewest = fewest.min(started.saturating_sub(ended_before));
        if all().ended() == ended_before {
            break;
        }
    }
    fewest
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
    fn shard(&self, number: u64) -> &Shard {
        &self.shards[(number % SHARDS) as usize]
    }

    /// A shard that no other thread changes. One that is interrupted within its few additions keeps at most its own.
    #[inline]
    fn locked(&self, transfer: LogId) -> &Shard {
        let mut number = transfer.number();
        loop {
            let shard = self.shard(number);
            if !shard.is_locked.swap(true, Ordering::Acquire) {
                return shard;
            }
            number = number.wrapping_add(1);
        }
    }

    #[inline]
    fn succeeded(&self, transfer: LogId, counted: CountedAs, bytes: u64, taken: Option<u64>, starts: u64) {
        let (method, shard) = (index_of(counted.method), self.locked(transfer));
        if starts > 0 {
            shard.started.fetch_add(starts, Ordering::Relaxed);
        }
        if let Some(nanoseconds) = taken {
            let durations = &shard.latencies[method][class_of(bytes)];
            add(&durations.counts[bucket_of(nanoseconds)], 1);
            add(&durations.nanoseconds, nanoseconds);
        }
        let successes = &shard.succeeded[method][counted.direction as usize];
        add(&successes.bytes, bytes);
        add(&successes.runs, 1);
        shard.is_locked.store(false, Ordering::Release);
    }

    #[cold]
    fn failed(&self, counted: CountedAs, status: Status) {
        let statuses = &self.failures[index_of(counted.method)][counted.direction as usize];
        let status = (status as i32).unsigned_abs() as usize;
        if let Some(count) = statuses.get(status) {
            count.fetch_add(1, Ordering::Release);
        }
    }

    fn started(&self) -> u64 {
        self.shards.iter().map(|shard| shard.started.load(Ordering::Acquire)).sum()
    }

    fn ended(&self) -> u64 {
        let succeeded = self.shards.iter().flat_map(|shard| shard.succeeded.iter().flatten());
        let failed = self.failures.iter().flatten().flatten();
        succeeded.map(|successes| load(&successes.runs)).sum::<u64>() + failed.map(load).sum::<u64>()
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
fn add(counter: &AtomicU64, amount: u64) {
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
