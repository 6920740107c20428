// SPDX-License-Identifier: Apache-2.0
//! Counters of runs that threads end at the same time.

use std::sync::Arc;

use super::*;
use crate::base::error;
use crate::run::completion::{Account, Completion};
use crate::run::phases::RunTimes;
use crate::run::ticket::Ticket;

#[test]
fn buckets_and_classes_contain_their_bounds() {
    let buckets = [0, 1, 1024, 1025, 2048, 2049, 1 << 32, (1 << 32) + 1, u64::MAX].map(bucket_of);
    assert_eq!(buckets, [0, 0, 0, 1, 1, 2, 22, 23, 23]);
    let classes = [0, 64 << 10, (64 << 10) + 1, 16 << 20, (16 << 20) + 1, 1 << 28, u64::MAX].map(class_of);
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

#[test]
fn an_agent_counts_requests_and_what_nixl_moves() {
    let row = |method: Option<TransferMethod>, direction| agent_row([index_of(method), direction as usize]);
    use TransferMethod::{Memcpy, Nixl, NixlServed, NixlStaged, Pread, Uring};
    for method in [None, Some(Nixl), Some(NixlStaged), Some(NixlServed)] {
        let directions = [Direction::Read, Direction::Write, Direction::Pull, Direction::Push];
        assert_eq!(directions.map(|direction| row(method, direction)), [0, 1, 2, 3].map(Some));
        assert_eq!(row(method, Direction::HostToGpu), None);
    }
    let others = [Memcpy, Uring, Pread].map(|method| row(Some(method), Direction::Read));
    assert_eq!(others, [None; 3]);
}

fn account(direction: Direction, bytes: u64) -> Account {
    let counted = Some(CountedAs { method: Some(TransferMethod::Cuda2d), direction });
    Account { bytes, counted, ..Account::default() }
}

const PULL: CountedAs = CountedAs { method: None, direction: Direction::Pull };

/// A run of one nanosecond that pulls by a request.
fn pull(transfer: LogId, bytes: u64, status: Option<Status>) -> EndedRun {
    let times = RunTimes { duration: 1, ..RunTimes::default() };
    let [method, direction] = PULL.indices();
    EndedRun { transfer: transfer.number(), user_data: 0, bytes, method, direction, status, times }
}

#[test]
fn runs_in_flight_are_never_more_than_there_are_while_threads_end_runs() {
    const THREADS: u64 = 4;
    const RUNS: u64 = 20_000;
    let (counters, running) = (Counters::new(), AtomicU64::new(THREADS));
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                for run in 0..RUNS {
                    let transfer = LogId::next();
                    counters.start(transfer);
                    counters.end(&pull(transfer, 1, (run % 8 == 0).then_some(Status::Stale)), None);
                    counters.add_whole(transfer, PULL, 1, None);
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
    let (counters, transfer) = (Counters::new(), LogId::next());
    let locked: Vec<_> = std::iter::from_fn(|| counters.lock(transfer.number())).collect();
    assert_eq!(locked.len(), LOCKED);
    counters.start(transfer);
    assert_eq!(counters.in_flight(), 1);
    counters.end(&pull(transfer, 7, None), None);
    let shard = &counters.shards[LOCKED];
    let successes = &shard.succeeded[0][Direction::Pull as usize];
    assert_eq!((counters.in_flight(), load(&successes.runs), load(&successes.bytes)), (0, 1, 7));
    assert_eq!(load(&shard.latencies[0][0].nanoseconds), 0, "that of a request is not measured");
    counters.shards[locked[3]].is_locked.store(false, Ordering::Release);
    assert_eq!(counters.lock(transfer.number()), Some(locked[3]));
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
