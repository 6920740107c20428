// SPDX-License-Identifier: Apache-2.0
//! Runs of one transfer, one after the other, from several threads.

use super::*;
use crate::base::error;
use crate::run::statistics;

const RUNS: u64 = 20_000;
const REQUEST: CountedAs = CountedAs { method: None, direction: statistics::Direction::Pull };
const LIMIT: Option<Duration> = Some(Duration::from_secs(60));

fn taken(queue: &Queue, most: u64) -> Vec<QueueEntry> {
    let mut entries = Vec::new();
    queue.poll(most as usize, |entry| entries.push(entry));
    entries
}

fn failure() -> Error {
    error!(PeerLost, "deliberate")
}

/// Ends a run that was claimed, in one of three ways: complete before it was in flight, or in flight first.
fn end(completion: &Arc<Completion>, number: u64) {
    if number.is_multiple_of(3) {
        return completion.succeed(0, number, None, REQUEST);
    }
    completion.begin(Account { user_data: number, ..Account::default() }, None);
    let outcome = if number % 3 == 1 { Ok(()) } else { Err(failure()) };
    completion.finish(Some(outcome), MemoryUse::Over);
}

#[test]
fn a_run_that_was_never_in_flight_is_reported_like_others() {
    let queue = Queue::create().unwrap();
    let completion = Arc::new(Completion::new(3, Some(queue.clone())));
    for user_data in [7, 8] {
        assert!(completion.claim());
        completion.succeed(5, user_data, None, REQUEST);
        assert_eq!((completion.is_claimed(), completion.poll().unwrap()), (false, Some(())));
        assert_eq!(completion.moved().unwrap(), 3);
        let (kind, status) = (EntryKind::RunEnded, None);
        let end = QueueEntry { kind, user_data, bytes: 5, layers: 3, status, is_released: true };
        assert_eq!(taken(&queue, 2), [end]);
    }
    completion.wait(None).unwrap();
}

#[test]
fn the_outcome_is_that_of_the_last_run_that_was_started() {
    let completion = Arc::new(Completion::new(1, None));
    assert!(completion.claim());
    end(&completion, 2);
    assert_eq!(completion.poll().unwrap_err().status(), Status::PeerLost);
    assert!(completion.claim());
    end(&completion, 0);
    assert_eq!(completion.poll().unwrap(), Some(()));
    assert!(completion.claim());
    completion.begin(Account::default(), None);
    assert_eq!(completion.poll().unwrap(), None);
    completion.outcome().unwrap();
    completion.finish(Some(Ok(())), MemoryUse::Over);
    assert_eq!((completion.poll().unwrap(), completion.is_claimed()), (Some(()), false));
}

/// Threads that each start a run as soon as the run before is over, whichever started that.
#[test]
fn completions_of_one_transfer_are_in_order_of_its_runs() {
    let queue = Queue::create().unwrap();
    let completion = Arc::new(Completion::new(1, Some(queue.clone())));
    let begun = AtomicU64::new(0);
    let start = || {
        while begun.load(Ordering::Relaxed) < RUNS {
            if completion.claim() {
                end(&completion, begun.fetch_add(1, Ordering::Relaxed));
            } else {
                std::thread::yield_now();
            }
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(start);
        start();
    });
    let runs = begun.load(Ordering::Relaxed);
    assert!(taken(&queue, runs).iter().map(|entry| entry.user_data).eq(0..runs));
}

/// A thread that takes the completion of a run starts the next one.
#[test]
fn a_transfer_can_be_started_again_once_its_completion_was_taken() {
    let queue = Queue::create().unwrap();
    let completion = Arc::new(Completion::new(1, Some(queue.clone())));
    let start_again = || {
        let mut number = 0;
        while number < RUNS {
            queue.wait(1, LIMIT, |entry| number = entry.user_data + 1).unwrap();
            assert!(completion.claim(), "run {number}");
            end(&completion, number);
        }
    };
    assert!(completion.claim());
    end(&completion, 0);
    std::thread::scope(|scope| {
        scope.spawn(start_again);
        start_again();
    });
}

/// A thread that waits for each run, while another one starts them.
#[test]
fn a_wait_ends_whether_or_not_the_run_was_in_flight() {
    let completion = Arc::new(Completion::new(1, None));
    let started = AtomicU64::new(0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for number in 0..RUNS {
                while !completion.claim() {
                    std::thread::yield_now();
                }
                end(&completion, number);
                started.store(number + 1, Ordering::Release);
            }
        });
        while started.load(Ordering::Acquire) < RUNS {
            if completion.was_run() {
                let deadline = LIMIT.and_then(|limit| Instant::now().checked_add(limit));
                let outcome = completion.wait(deadline).map_err(|error| error.status());
                assert!(matches!(outcome, Ok(()) | Err(Status::PeerLost)), "{outcome:?}");
            }
        }
    });
}
