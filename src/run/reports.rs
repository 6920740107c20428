// SPDX-License-Identifier: Apache-2.0
//! What a transfer reports to its queue besides the ends of its runs: layers that have moved, and memory that is released after
//! the end of its run.

use std::num::NonZeroU64;
use std::sync::Arc;

use super::queue::{EntryKind, Place, Queue, QueueEntry};
use super::tallies::Tallies;
use crate::base::Status;

/// Where the runs of a transfer are reported, and what is.
#[derive(Clone, Default)]
pub struct Reports {
    pub queue: Option<Arc<Queue>>,
    /// A completion whenever this many more layers have moved; `None` for none.
    pub layers: Option<NonZeroU64>,
    /// A completion when the memory of a run is released after its end.
    pub release: bool,
    /// Whose counters a run adds to.
    pub tallies: Option<Arc<Tallies>>,
}

/// Those of the last run.
#[derive(Default)]
pub(super) struct Reported {
    layers: u64,
    /// Where their completion was added. One that was not taken yet is replaced, so that a run has at most one in the queue.
    place: Option<Place>,
    /// The end, if the memory was in use then and its release is to be reported.
    end: Option<QueueEntry>,
}

impl Reported {
    /// Reports that `moved` of `all` layers have moved, unless a completion waits for more of them.
    pub fn layers(&mut self, reports: &Reports, user_data: u64, moved: u64, all: u64) {
        let (Some(queue), Some(each)) = (&reports.queue, reports.layers) else { return };
        let layers = if moved == all { all } else { moved - moved % each };
        if layers > self.layers {
            self.layers = layers;
            let entry = QueueEntry { layers, ..QueueEntry::news(EntryKind::LayersMoved, user_data) };
            self.place = Some(queue.replace(self.place, entry));
        }
    }

    /// Notes the end of the run, after which its memory may still be in use.
    pub fn end(&mut self, reports: &Reports, end: QueueEntry) {
        *self = Self { end: (reports.release && !end.is_released).then_some(end), ..Self::default() };
    }

    /// Calls `then`, after which a run can begin, and reports that the last one no longer uses its memory; or that nothing will
    /// detect when.
    pub fn release(&mut self, reports: &Reports, is_released: bool, then: impl FnOnce()) {
        let (Some(queue), Some(end)) = (&reports.queue, self.end.take()) else { return then() };
        let status = (!is_released).then_some(Status::Busy);
        let entry = QueueEntry { kind: EntryKind::MemoryReleased, bytes: 0, status, is_released, ..end };
        queue.push_and(entry, then);
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;
    use crate::base::error;
    use crate::run::completion::{Account, Completion, MemoryUse, Outcome};
    use crate::run::queue::OpenQueue;

    const LAYERS: u64 = 7;

    fn transfer(layers: u64) -> (Arc<Queue>, Arc<Completion>) {
        let queue = Queue::create().unwrap();
        let layers = NonZeroU64::new(layers);
        let reports = Reports { queue: Some(queue.clone()), layers, release: true, tallies: None };
        (queue, Arc::new(Completion::reporting(LAYERS, reports)))
    }

    fn begin(completion: &Arc<Completion>, user_data: u64) {
        assert!(completion.claim(), "run {user_data}");
        completion.begin(Account { user_data, ..Account::default() }, None);
    }

    fn end(completion: &Completion, outcome: Option<Outcome>, memory: MemoryUse) {
        completion.finish(outcome, memory);
    }

    fn failure() -> Outcome {
        Err(error!(TimedOut, "deliberate"))
    }

    /// What was reported: the kind, the run, its layers, its status, and whether its memory is released.
    fn taken(queue: &Queue) -> Vec<(EntryKind, u64, u64, Option<Status>, bool)> {
        let mut all = Vec::new();
        queue.poll(usize::MAX, |entry| {
            all.push((entry.kind, entry.user_data, entry.layers, entry.status, entry.is_released))
        });
        all
    }

    use EntryKind::{LayersMoved, MemoryReleased, RunEnded};

    #[test]
    fn a_release_after_the_end_is_reported_once() {
        let (queue, completion) = transfer(0);
        begin(&completion, 1);
        completion.advance(2);
        end(&completion, Some(failure()), MemoryUse::GoesOn);
        assert_eq!(taken(&queue), [(RunEnded, 1, 2, Some(Status::TimedOut), false)]);
        assert!(!completion.claim(), "its memory is in use");
        completion.advance(3);
        assert_eq!(taken(&queue), []);
        end(&completion, None, MemoryUse::Over);
        assert_eq!(taken(&queue), [(MemoryReleased, 1, 2, None, true)]);

        begin(&completion, 2);
        end(&completion, Some(failure()), MemoryUse::Over);
        assert_eq!(taken(&queue), [(RunEnded, 2, 0, Some(Status::TimedOut), true)]);
        begin(&completion, 3);
        end(&completion, Some(Ok(())), MemoryUse::Over);
        assert_eq!(taken(&queue), [(RunEnded, 3, LAYERS, None, true)]);
    }

    #[test]
    fn memory_that_stays_in_use_is_reported_as_busy() {
        let (queue, completion) = transfer(0);
        let busy = |run| (MemoryReleased, run, 0, Some(Status::Busy), false);
        begin(&completion, 1);
        end(&completion, Some(failure()), MemoryUse::Unknown);
        assert_eq!(taken(&queue), [(RunEnded, 1, 0, Some(Status::TimedOut), false), busy(1)]);
        begin(&completion, 2);
        end(&completion, Some(failure()), MemoryUse::GoesOn);
        assert_eq!(taken(&queue), [(RunEnded, 2, 0, Some(Status::TimedOut), false)]);
        end(&completion, Some(failure()), MemoryUse::Unknown);
        assert_eq!(taken(&queue), [busy(2)]);
        assert!(completion.claim());
    }

    #[test]
    fn only_ends_are_reported_unless_more_is_asked_for() {
        let queue = Queue::create().unwrap();
        let completion = Arc::new(Completion::new(LAYERS, Some(queue.clone())));
        begin(&completion, 1);
        completion.advance(2);
        end(&completion, Some(failure()), MemoryUse::GoesOn);
        end(&completion, None, MemoryUse::Over);
        assert_eq!(taken(&queue), [(RunEnded, 1, 2, Some(Status::TimedOut), false)]);
        assert!(completion.claim());
    }

    #[test]
    fn a_completion_has_as_many_more_layers_as_were_asked_for() {
        let (queue, completion) = transfer(3);
        let moved = |run, layers| (LayersMoved, run, layers, None, false);
        begin(&completion, 1);
        for layers in 1..LAYERS {
            completion.advance(layers);
            let expected = if layers % 3 == 0 { vec![moved(1, layers)] } else { vec![] };
            assert_eq!(taken(&queue), expected);
        }
        end(&completion, Some(Ok(())), MemoryUse::Over);
        assert_eq!(taken(&queue), [moved(1, LAYERS), (RunEnded, 1, LAYERS, None, true)]);

        begin(&completion, 2);
        completion.advance(5);
        end(&completion, Some(failure()), MemoryUse::Over);
        assert_eq!(taken(&queue), [moved(2, 3), (RunEnded, 2, 5, Some(Status::TimedOut), true)]);
    }

    #[test]
    fn a_run_has_one_completion_of_layers_in_the_queue() {
        let (queue, completion) = transfer(1);
        for run in 1..=2 {
            begin(&completion, run);
            (1..=5).for_each(|layers| completion.advance(layers));
            end(&completion, Some(failure()), MemoryUse::GoesOn);
            end(&completion, None, MemoryUse::Over);
        }
        let of = |run| {
            let ended = (RunEnded, run, 5, Some(Status::TimedOut), false);
            [(LayersMoved, run, 5, None, false), ended, (MemoryReleased, run, 5, None, true)]
        };
        assert_eq!(taken(&queue), [of(1), of(2)].concat());
    }

    /// A reader that starts the next run as soon as it has the release, and one that only starts runs.
    #[test]
    fn completions_of_runs_are_in_order_for_a_reader_of_any_speed() {
        const RUNS: u64 = 3000;
        let (queue, completion) = transfer(2);
        let deadline = Instant::now() + Duration::from_secs(60);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for run in 0..RUNS {
                    begin(&completion, run);
                    (1..LAYERS).for_each(|layers| completion.advance(layers));
                    let ends = [Some(Ok(())), Some(failure())];
                    let memory = if run % 2 == 0 { MemoryUse::Over } else { MemoryUse::GoesOn };
                    end(&completion, ends[run as usize % 2].clone(), memory);
                    if memory == MemoryUse::GoesOn {
                        end(&completion, None, MemoryUse::Over);
                    }
                }
            });
            let (mut run, mut layers, mut has_ended) = (0, 0, false);
            while run < RUNS {
                let left = deadline.saturating_duration_since(Instant::now());
                let count = 1 + (run % 3) as usize;
                queue
                    .wait(count, Some(left), |entry| {
                        assert_eq!(entry.user_data, run, "{entry:?}");
                        match entry.kind {
                            LayersMoved => {
                                assert!(!has_ended && entry.layers > layers, "{entry:?} after {layers}");
                                layers = entry.layers;
                            }
                            RunEnded => {
                                assert!(!has_ended, "{entry:?}");
                                let reported = if run.is_multiple_of(2) { LAYERS } else { LAYERS - 1 };
                                assert_eq!((entry.layers, layers), (reported, reported));
                                has_ended = true;
                            }
                            _ => assert!(has_ended && entry.is_released, "{entry:?}"),
                        }
                        if entry.is_released {
                            (run, layers, has_ended) = (run + 1, 0, false);
                        }
                    })
                    .unwrap();
            }
        });
        assert_eq!(taken(&queue), []);
    }

    #[test]
    fn a_transfer_whose_queue_is_destroyed_can_be_submitted_again() {
        let (queue, completion) = transfer(1);
        begin(&completion, 1);
        completion.advance(1);
        drop(OpenQueue(queue.clone()));
        completion.advance(2);
        end(&completion, Some(failure()), MemoryUse::GoesOn);
        end(&completion, None, MemoryUse::Over);
        begin(&completion, 2);
        end(&completion, Some(Ok(())), MemoryUse::Unknown);
        assert!(completion.claim());
        assert_eq!(taken(&queue), []);
    }
}
