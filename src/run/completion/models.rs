// SPDX-License-Identifier: Apache-2.0
//! Threads that submit, end, watch and await the runs of one transfer, in every order.

use std::num::NonZeroU64;

use super::*;
use crate::base::modelled::{explore, spawn};
use crate::run::deadline::Expires;
use crate::run::statistics;
use crate::run::{Run, Steps, Ticket};

const LAYERS: u64 = 2;

fn transfer(layers: Option<NonZeroU64>) -> (Arc<Queue>, Arc<Completion>) {
    let queue = Queue::create().unwrap();
    let reports = Reports { queue: Some(queue.clone()), layers, release: true, tallies: None };
    (queue, Arc::new(Completion::reporting(LAYERS, reports)))
}

fn account(user_data: u64) -> Account {
    Account { user_data, ..Account::default() }
}

/// What was reported: the kind, the run, the status.
fn taken(queue: &Queue) -> Vec<(EntryKind, u64, Option<Status>)> {
    let mut entries = Vec::new();
    queue.poll(usize::MAX, |entry| entries.push((entry.kind, entry.user_data, entry.status)));
    entries
}

use EntryKind::{LayersMoved, MemoryReleased, RunEnded};

#[test]
fn who_sees_a_success_has_the_bytes_and_the_completion() {
    explore("completion", 3, || {
        let (queue, completion) = transfer(None);
        let bytes = Arc::new(AtomicU64::new(0));
        let run = Ticket::unheld(&completion, account(1)).start();
        let engine = spawn({
            let bytes = bytes.clone();
            move || {
                bytes.store(1, Ordering::Relaxed);
                run.end(Ok(()));
            }
        });
        let waiter = spawn({
            let (completion, bytes) = (completion.clone(), bytes.clone());
            move || {
                completion.wait(None).unwrap();
                assert_eq!(bytes.load(Ordering::Relaxed), 1);
                assert_eq!(taken(&queue), [(RunEnded, 1, None)]);
            }
        });
        if completion.poll().unwrap().is_some() {
            assert_eq!(bytes.load(Ordering::Relaxed), 1);
            assert_eq!(completion.moved().unwrap(), LAYERS);
            assert!(completion.claim(), "the claim ends with the run");
        }
        engine.join().unwrap();
        waiter.join().unwrap();
    });
}

#[test]
fn a_run_that_begins_at_the_end_of_the_last_one_is_reported_after_it() {
    explore("next_run", 3, || {
        let (queue, completion) = transfer(None);
        let run = Ticket::unheld(&completion, account(1)).start();
        let engine = spawn(move || run.end(Ok(())));
        let waiter = spawn({
            let completion = completion.clone();
            move || completion.wait(None).unwrap()
        });
        let has_next = completion.claim();
        if has_next {
            let counted = CountedAs { method: None, direction: statistics::Direction::Pull };
            completion.succeed(0, 2, None, counted);
        }
        engine.join().unwrap();
        waiter.join().unwrap();
        let both = [(RunEnded, 1, None), (RunEnded, 2, None)];
        assert_eq!(taken(&queue), both[..1 + usize::from(has_next)]);
        assert!(!completion.is_claimed());
    });
}

fn begin_limited(completion: &Arc<Completion>, user_data: u64) -> Deadline {
    assert!(completion.claim());
    let limit = Limit { after: Duration::ZERO, what: "it".into(), advice: String::new() };
    let at = Instant::now() + Duration::from_secs(3600);
    let limited = Account { limit: Some(Arc::new(limit)), ..account(user_data) };
    completion.begin(limited, Some((Reservation::of_model(), at)));
    completion.last().deadline.unwrap()
}

#[test]
fn a_deadline_ends_its_own_run_or_none() {
    explore("deadline", 3, || {
        let (queue, completion) = transfer(None);
        let deadline = begin_limited(&completion, 1);
        let watcher = spawn({
            let completion = completion.clone();
            move || {
                Deadlines::get().remove(deadline);
                completion.expire(deadline);
            }
        });
        completion.finish(Some(Ok(())), MemoryUse::Over);
        begin_limited(&completion, 2);
        assert!(!completion.is_cancelled(), "the next run is cancelled");
        completion.finish(Some(Ok(())), MemoryUse::Over);
        watcher.join().unwrap();
        let in_time = vec![(RunEnded, 1, None), (RunEnded, 2, None)];
        let late =
            vec![(RunEnded, 1, Some(Status::TimedOut)), (MemoryReleased, 1, None), (RunEnded, 2, None)];
        let reported = taken(&queue);
        assert!(reported == in_time || reported == late, "{reported:?}");
        assert!(!completion.is_claimed() && completion.has_succeeded());
    });
}

#[test]
fn layers_are_reported_in_order_and_before_the_end() {
    explore("layers", 2, || {
        let (queue, completion) = transfer(NonZeroU64::new(1));
        let run = Ticket::unheld(&completion, account(1)).start();
        let waiter = spawn({
            let completion = completion.clone();
            move || completion.wait_layers(1, None).unwrap()
        });
        let reader = spawn(move || {
            let mut reported = Vec::new();
            while !reported.iter().any(|(kind, _)| *kind == RunEnded) {
                queue.wait(1, None, |entry| reported.push((entry.kind, entry.layers))).unwrap();
            }
            reported
        });
        run.advance(1);
        run.end(Ok(()));
        let reported = reader.join().unwrap();
        waiter.join().unwrap();
        let all = [(LayersMoved, 1), (LayersMoved, LAYERS), (RunEnded, LAYERS)];
        assert!(reported == all || reported == all[1..], "{reported:?}");
    });
}

#[test]
fn a_transfer_has_one_ticket_and_a_dropped_one_reports_nothing() {
    explore("tickets", 3, || {
        let (queue, completion) = transfer(None);
        // What a run writes without synchronization of its own.
        let runs = Arc::new(AtomicU64::new(0));
        let try_to_run = |is_started: bool| {
            let (completion, runs) = (completion.clone(), runs.clone());
            move || {
                let has_claim = completion.claim();
                if has_claim {
                    let ticket =
                        Ticket::new(completion, account(1), crate::run::RunHolds::default()).unwrap();
                    let before = runs.load(Ordering::Relaxed);
                    runs.store(before + 1, Ordering::Relaxed);
                    if is_started { ticket.start().end(Ok(())) } else { drop(ticket) }
                }
                has_claim
            }
        };
        let dropper = spawn(try_to_run(false));
        let starter = spawn(try_to_run(true));
        let first = try_to_run(true)();
        let (dropped, started) = (dropper.join().unwrap(), starter.join().unwrap());
        let reported = usize::from(first) + usize::from(started);
        assert_eq!(taken(&queue), vec![(RunEnded, 1, None); reported]);
        assert_eq!(runs.load(Ordering::Relaxed), (reported + usize::from(dropped)) as u64);
        assert_eq!((completion.was_run(), completion.is_claimed()), (reported > 0, false));
    });
}

/// Parts that end when they begin, and are counted.
struct Parts(AtomicU64);

impl Steps for Parts {
    fn count(&self) -> u64 {
        LAYERS
    }

    fn start(self: Arc<Self>, _: u64, run: Run) {
        self.0.fetch_add(1, Ordering::Relaxed);
        drop(self);
        run.end(Ok(()));
    }
}

#[test]
fn a_cancelled_run_begins_no_further_part() {
    explore("parts", 3, || {
        let (queue, completion) = transfer(None);
        let parts = Arc::new(Parts(AtomicU64::new(0)));
        let run = Ticket::unheld(&completion, account(1)).start();
        let has_cancelled = Arc::new(AtomicBool::new(false));
        let canceller = spawn({
            let (completion, has_cancelled) = (completion.clone(), has_cancelled.clone());
            move || {
                completion.cancel().unwrap();
                has_cancelled.store(true, Ordering::Release);
            }
        });
        let was_cancelled = has_cancelled.load(Ordering::Acquire);
        run.in_steps(parts.clone());
        canceller.join().unwrap();
        let begun = parts.0.load(Ordering::Relaxed);
        let outcome = completion.wait(None).map_err(|error| error.status());
        match outcome {
            Ok(()) => {
                assert!(!was_cancelled);
                assert_eq!((begun, completion.moved().unwrap()), (LAYERS, LAYERS));
            }
            Err(status) => assert_eq!((status, begun), (Status::Cancelled, 1)),
        }
        assert_eq!(taken(&queue), [(RunEnded, 1, outcome.err())]);
    });
}
