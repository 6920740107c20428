// SPDX-License-Identifier: Apache-2.0
//! The work of a staging ring's thread: it keeps both the file and the GPU busy, and sleeps while it waits for them.
#![allow(unsafe_code)]

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::super::planned::RequestSource;
use super::super::work::{Ending, FileJob, Work, end_each};
use super::chunks::FileChunk;
use super::inbox::{Inbox, IoResult};
use super::staged_run::StagedRun;
use super::staging_ring::SLOTS;
use crate::base::{Error, Result};
use crate::copy::gpu::CopiesInFlight;
use crate::cuda::{Batch, EngineLoad, SourceOrder};

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
    chunks: [FileChunk; SLOTS],
    /// The copies of a chunk, while they are started.
    copies: Batch,
}

#[derive(Default)]
enum Slot {
    #[default]
    Free,
    /// The file is read to it, or written from it.
    AtFile(RunNumber, Arc<FileJob>),
    AtDevice(RunNumber, CopiesInFlight<()>),
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
        end_each(self.runs.into_values().chain(self.new), |run| run.abandon(error.clone()));
    }

    /// Whether no run is in flight.
    pub fn is_idle(&self) -> bool {
        self.waiting.is_empty() && self.slots.iter().all(|slot| matches!(slot, Slot::Free))
    }

    fn rest(&self, inbox: &Inbox, progress: Instant) {
        match self.slots.iter().any(|slot| matches!(slot, Slot::AtDevice(..))) {
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
        self.end_cancelled();
        while let Some(index) = self.waiting.front().copied() {
            let Some(run) = self.runs.get_mut(&index).filter(|run| !run.has_begun_all()) else {
                self.waiting.pop_front();
                self.end_if_over(index);
                continue;
            };
            let Some(slot) = self.slots.iter().position(|slot| matches!(slot, Slot::Free)) else { return };
            if let Err(error) = run.next_chunk(&mut self.chunks[slot]) {
                run.fail(&error);
                continue;
            }
            match run.prepared.writes() {
                true => self.copy(slot, index),
                false => self.transfer(slot, index),
            }
        }
    }

    /// Ends what was cancelled and has not begun, also chunks whose I/O waits for a file system that does not respond.
    fn end_cancelled(&mut self) {
        for index in &self.waiting {
            if let Some(run) = self.runs.get_mut(index) {
                run.fail_if_cancelled();
            }
        }
        for slot in &self.slots {
            if let Slot::AtFile(_, job) = slot {
                job.end_if_cancelled();
            }
        }
    }

    /// Starts a chunk's I/O.
    fn transfer(&mut self, slot: usize, index: RunNumber) {
        let Some(run) = self.runs.get_mut(&index) else { return };
        let (chunk, base) = (&self.chunks[slot], run.ring.slot(slot));
        let requests = match run.prepared.requests(chunk, base) {
            Ok(requests) => Arc::new(requests),
            Err(error) => return self.free_slot(slot, index, Err(error)),
        };
        run.requests += requests.len() as u64;
        let (requests, stop) = (RequestSource::listed(requests), run.stop());
        let ending = Ending::OfSlot { to: run.ring.inbox.clone(), slot };
        let job = FileJob::new(Work { requests, stop, ending });
        self.slots[slot] = Slot::AtFile(index, job.clone());
        run.prepared.io.start(&job);
    }

    /// Handles the end of a chunk's I/O.
    fn io_ended(&mut self, IoResult { slot, outcome }: IoResult) {
        let Slot::AtFile(index, _) = self.slots[slot] else { return };
        match outcome {
            Ok(()) if !self.writes(index) => self.copy(slot, index),
            outcome => self.free_slot(slot, index, outcome),
        }
    }

    /// Starts a chunk's copies.
    fn copy(&mut self, slot: usize, index: RunNumber) {
        let Some(StagedRun { prepared, ring, .. }) = self.runs.get(&index) else { return };
        let copies = &mut self.copies;
        copies.clear();
        let listed = self.chunks[slot]
            .on_device(ring.slot(slot), !prepared.writes())
            .try_for_each(|copy| copies.push(copy));
        // Bytes from the file are already in the slot, so the driver may read them at submission.
        let reading = if prepared.writes() { SourceOrder::Stream } else { SourceOrder::Any };
        let started = listed.and_then(|()| {
            // SAFETY: the plan checked the GPU's spans against their layout, which the run holds. Only this chunk uses the slot
            // until the copies have completed.
            CopiesInFlight::start(&ring.device, None, (), |on| unsafe {
                on.copy_all(copies, reading, EngineLoad::Idle)
            })
        });
        match started {
            Ok(copies) => {
                self.slots[slot] = Slot::AtDevice(index, copies);
                self.note_failure(slot);
            }
            Err(error) => self.free_slot(slot, index, Err(error)),
        }
    }

    /// Prevents further chunks of a run whose copies have failed, of which some may still be in progress.
    fn note_failure(&mut self, slot: usize) {
        if let Slot::AtDevice(index, copies) = &self.slots[slot]
            && let (Some(run), Some(error)) = (self.runs.get_mut(index), copies.failure())
        {
            run.fail(error);
        }
    }

    /// Handles slots whose copies have ended. Returns whether there were any.
    fn poll(&mut self) -> bool {
        let mut any = false;
        for slot in 0..SLOTS {
            let Slot::AtDevice(index, copies) = &mut self.slots[slot] else { continue };
            let (index, ended) = (*index, copies.is_done().then(|| copies.failure().cloned()));
            self.note_failure(slot);
            match ended {
                None => continue,
                Some(None) if self.writes(index) => self.transfer(slot, index),
                Some(failure) => self.free_slot(slot, index, failure.map_or(Ok(()), Err)),
            }
            any = true;
        }
        any
    }

    fn writes(&self, index: RunNumber) -> bool {
        self.runs.get(&index).is_some_and(|run| run.prepared.writes())
    }

    /// Frees the slot of a chunk that has ended.
    fn free_slot(&mut self, slot: usize, index: RunNumber, outcome: Result<()>) {
        self.slots[slot] = Slot::Free;
        if let Some(run) = self.runs.get_mut(&index) {
            run.in_slots -= 1;
            match outcome {
                Ok(()) => run.count(self.chunks[slot].size),
                Err(error) => run.fail(&error),
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
