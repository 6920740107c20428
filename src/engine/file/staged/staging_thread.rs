// SPDX-License-Identifier: Apache-2.0
//! The work of a staging ring's thread: it keeps both the file and the GPU busy, and sleeps while it waits for them.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::super::planned::RequestSource;
use super::super::work::{Ending, Work};
use super::chunks::FileChunk;
use super::inbox::{Inbox, IoResult};
use super::staged_run::StagedRun;
use super::staging_ring::{SLOTS, StagingRing};
use crate::base::error::{Error, Result};
use crate::cuda::copy::{Batch, EngineLoad, SourceOrder};
use crate::cuda::ending::{is_fatal, is_over};

/// How long the thread polls the GPU without progress before it sleeps between polls.
const SPIN: Duration = Duration::from_micros(200);
/// How long it then sleeps between polls.
const SLEEP: Duration = Duration::from_micros(20);
/// The longest sleep without work of the GPU: results of I/O and new runs wake the thread.
const LONG: Duration = Duration::from_secs(1);

/// The runs in flight, and the slots of the ring.
#[derive(Default)]
pub struct StagingSession {
    /// Runs and results that were received and not handled yet.
    new: Vec<StagedRun>,
    results: VecDeque<IoResult>,
    runs: BTreeMap<RunNumber, StagedRun>,
    last_number: RunNumber,
    /// Runs with chunks that have not begun, in order of submission.
    waiting: VecDeque<RunNumber>,
    slots: [Slot; SLOTS],
    /// What is in each slot.
    chunks: [FileChunk; SLOTS],
    /// The copies of a chunk, while they are started.
    copies: Batch,
}

/// The state of a slot.
#[derive(Clone, Copy, Default)]
enum Slot {
    #[default]
    Free,
    /// The file is read to it, or written from it.
    AtFile(RunNumber),
    /// The GPU copies from or to it.
    AtDevice(RunNumber),
    /// A copy failed to start, or its event failed. Copies that were started may still run. `behind` is set if the slot's event
    /// was recorded behind them; otherwise the whole stream is waited for, which other runs may keep busy.
    Failing { index: RunNumber, behind: bool },
}

/// A number that no other run of the session has.
type RunNumber = u64;

impl StagingSession {
    /// Serves runs of an inbox until none is in flight.
    pub fn serve(&mut self, inbox: &Inbox) {
        let mut progress = Instant::now();
        while inbox.pass_new(self) {
            if self.step() || self.is_idle() {
                progress = Instant::now();
            } else {
                self.rest(inbox, progress);
            }
        }
    }

    /// Takes new runs and results.
    pub fn receive(&mut self, new: &mut Vec<StagedRun>, results: &mut VecDeque<IoResult>) {
        self.new.append(new);
        self.results.append(results);
    }

    /// Does what can be done now. Returns whether something had arrived or ended.
    fn step(&mut self) -> bool {
        let received = !self.new.is_empty() || !self.results.is_empty();
        self.begin();
        while let Some(result) = self.results.pop_front() {
            self.io_ended(result);
        }
        let copied = self.poll();
        self.fill();
        received || copied
    }

    /// Ends all runs after a panic.
    pub fn abandon(self, error: &Error) {
        let left = self.runs.into_values().chain(self.new);
        left.for_each(|run| run.abandon(error.clone()));
    }

    /// Whether no run is in flight.
    pub fn is_idle(&self) -> bool {
        self.waiting.is_empty() && self.slots.iter().all(|slot| matches!(slot, Slot::Free))
    }

    fn rest(&self, inbox: &Inbox, progress: Instant) {
        let at_device =
            self.slots.iter().any(|slot| matches!(slot, Slot::AtDevice(_) | Slot::Failing { .. }));
        match at_device {
            false => inbox.sleep(LONG),
            true if progress.elapsed() < SPIN => std::thread::yield_now(),
            true => inbox.sleep(SLEEP),
        }
    }

    fn begin(&mut self) {
        for run in self.new.drain(..) {
            self.last_number += 1;
            self.runs.insert(self.last_number, run);
            self.waiting.push_back(self.last_number);
        }
    }

    /// Puts chunks into free slots.
    fn fill(&mut self) {
        for index in &self.waiting {
            if let Some(run) = self.runs.get_mut(index) {
                run.fail_if_cancelled();
            }
        }
        while let Some(index) = self.waiting.front().copied() {
            let Some(run) = self.runs.get_mut(&index).filter(|run| !run.has_begun_all()) else {
                self.waiting.pop_front();
                self.end_if_over(index);
                continue;
            };
            let Some(slot) = self.slots.iter().position(|slot| matches!(slot, Slot::Free)) else { return };
            run.next_chunk(&mut self.chunks[slot]);
            match run.prepared.writes() {
                true => self.copy(slot, index),
                false => self.transfer(slot, index),
            }
        }
    }

    /// Starts a chunk's I/O.
    fn transfer(&mut self, slot: usize, index: RunNumber) {
        let Some(run) = self.runs.get_mut(&index) else { return };
        let (chunk, base) = (&self.chunks[slot], run.ring.slot(slot));
        let requests = Arc::new(run.prepared.requests(chunk, base));
        run.requests += requests.len() as u64;
        let (requests, stop) = (RequestSource::listed(requests), run.stop());
        let ending = Ending::OfSlot { to: run.ring.inbox.clone(), slot };
        self.slots[slot] = Slot::AtFile(index);
        run.prepared.io.start(Work { requests, stop, ending });
    }

    /// Handles the end of a chunk's I/O.
    fn io_ended(&mut self, IoResult { slot, outcome }: IoResult) {
        let Slot::AtFile(index) = self.slots[slot] else { return };
        match outcome {
            Ok(()) if !self.writes(index) => self.copy(slot, index),
            outcome => self.free_slot(slot, index, outcome),
        }
    }

    /// Starts a chunk's copies.
    fn copy(&mut self, slot: usize, index: RunNumber) {
        let outcome = self.enqueue(slot, index);
        self.slots[slot] = match outcome {
            Ok(()) => Slot::AtDevice(index),
            Err(error) => {
                let behind = self.record_behind(slot, index);
                self.fail(index, error);
                Slot::Failing { index, behind }
            }
        };
    }

    /// Records the event of a slot behind the copies that were started. Returns whether that worked.
    fn record_behind(&self, slot: usize, index: RunNumber) -> bool {
        let Some(StagedRun { ring, .. }) = self.runs.get(&index) else { return false };
        ring.stream.activate().and_then(|on| on.record(&ring.copied[slot])).is_ok()
    }

    fn enqueue(&mut self, slot: usize, index: RunNumber) -> Result<()> {
        let Some(StagedRun { prepared, ring, .. }) = self.runs.get(&index) else { return Ok(()) };
        self.copies.clear();
        for copy in self.chunks[slot].on_device(ring.slot(slot), !prepared.writes()) {
            self.copies.push(copy)?;
        }
        // Bytes from the file are already in the slot, so the driver may read them at submission.
        let reading = if prepared.writes() { SourceOrder::Stream } else { SourceOrder::Any };
        let on = ring.stream.activate()?;
        // SAFETY: the plan checked the GPU's spans against their layout, which the run holds. Only this chunk uses the slot
        // until the copies have completed.
        unsafe { on.copy_all(&self.copies, reading, EngineLoad::Idle)? };
        on.record(&ring.copied[slot])
    }

    /// Handles slots whose copies have completed or failed. Returns whether there were any.
    fn poll(&mut self) -> bool {
        let mut any = false;
        for slot in 0..SLOTS {
            let mut failure = None;
            let (index, done) = match self.slots[slot] {
                Slot::AtDevice(index) => {
                    (index, self.query(index, &mut failure, |ring| ring.copied[slot].is_done()))
                }
                Slot::Failing { index, behind } => {
                    let is_done = |ring: &StagingRing| match behind {
                        true => ring.copied[slot].is_done(),
                        false => ring.stream.is_done(),
                    };
                    (index, self.query(index, &mut failure, is_done))
                }
                _ => continue,
            };
            let is_failing = matches!(self.slots[slot], Slot::Failing { .. });
            match failure {
                // Events may be wrong after a failure of the device, so the thread waits for the whole stream.
                Some(error) if !is_failing => {
                    self.slots[slot] = Slot::Failing { index, behind: false };
                    self.fail(index, error);
                }
                _ if done => self.copied(slot, index),
                _ => continue,
            }
            any = true;
        }
        any
    }

    fn query(
        &self,
        index: RunNumber,
        failure: &mut Option<Error>,
        is_done: impl Fn(&StagingRing) -> Result<bool>,
    ) -> bool {
        let run = self.runs.get(&index);
        run.is_none_or(|run| is_over(|| is_done(&run.ring), failure))
    }

    fn writes(&self, index: RunNumber) -> bool {
        self.runs.get(&index).is_some_and(|run| run.prepared.writes())
    }

    fn copied(&mut self, slot: usize, index: RunNumber) {
        let is_failing = matches!(self.slots[slot], Slot::Failing { .. });
        match self.writes(index) && !is_failing {
            true => self.transfer(slot, index),
            false => self.free_slot(slot, index, Ok(())),
        }
    }

    fn fail(&mut self, index: RunNumber, error: Error) {
        if let Some(run) = self.runs.get_mut(&index) {
            if is_fatal(&error) {
                run.ring.retire();
            }
            run.fail(error);
        }
    }

    /// Frees the slot of a chunk that has ended.
    fn free_slot(&mut self, slot: usize, index: RunNumber, outcome: Result<()>) {
        self.slots[slot] = Slot::Free;
        if let Some(run) = self.runs.get_mut(&index) {
            run.in_slots -= 1;
            match outcome {
                Ok(()) => run.count(self.chunks[slot].size),
                Err(error) => run.fail(error),
            }
        }
        self.end_if_over(index);
    }

    fn end_if_over(&mut self, index: RunNumber) {
        let is_over = |run: &StagedRun| run.in_slots == 0 && run.has_begun_all();
        if self.runs.get(&index).is_some_and(is_over)
            && let Some(run) = self.runs.remove(&index)
        {
            run.end();
        }
    }
}
