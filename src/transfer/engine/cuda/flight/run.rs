// SPDX-License-Identifier: Apache-2.0
//! One run at the driver: what it needs, what it uses, how far it is, and its end.

use std::sync::Arc;
use std::time::Instant;

use super::super::device::need::{Need, Taking};
use super::super::device::resources::Held;
use super::super::device::state::DeviceState;
use super::super::rates::observer::Passage;
use super::super::work::sequence::Jobs;
use crate::cuda::ending::is_fatal;
use crate::cuda::stream::CallerStream;
use crate::error::{Error, Result};
use crate::guarded::guarded;
use crate::leak;
use crate::transfer::run::disposal;
use crate::transfer::run::{Run, cancelled};

/// One run.
pub struct Flight {
    jobs: Arc<Jobs>,
    engine: Arc<DeviceState>,
    /// The first failure.
    failure: Option<Error>,
    /// What it uses from its start on.
    held: Option<Held>,
    /// Counts it among the runs under way, from its start on.
    passage: Option<Passage>,
    /// What it waits for.
    waits: Option<Need>,
    layers_told: usize,
    /// Started on a stream of its own, with jobs whose runs show something.
    is_observed: bool,
    /// The driver was given some of it.
    has_begun: bool,
    run: Run,
}

impl Flight {
    /// A run that has not begun.
    pub fn new(jobs: &Arc<Jobs>, engine: &Arc<DeviceState>, run: Run) -> Self {
        Self {
            jobs: jobs.clone(),
            engine: engine.clone(),
            failure: None,
            held: None,
            passage: None,
            waits: None,
            layers_told: 0,
            is_observed: false,
            has_begun: false,
            run,
        }
    }

    /// One that was started on a stream of the caller's.
    pub fn started(mut self, held: Held, outcome: Result<()>) -> Self {
        // It waits for what the caller has put there before it, and shows nothing itself.
        self.passage = Some(Passage::begin(&self.engine.traffic));
        self.failure = outcome.err();
        self.held = Some(held);
        self.has_begun = true;
        self
    }

    /// The device that it runs on.
    pub fn engine(&self) -> &Arc<DeviceState> {
        &self.engine
    }

    /// What it can't start without.
    pub fn needs(&self) -> impl Iterator<Item = Need> {
        self.jobs.needs()
    }

    /// Whether runs before it wait for something that it needs.
    pub fn is_behind(&self) -> bool {
        self.needs().any(|need| self.engine.waiting.has(need))
    }

    /// Takes all that it needs, or answers what is in use. Where that fails it is over.
    pub fn take(&mut self) -> std::result::Result<(), Need> {
        let taken = guarded(|| self.jobs.take(&self.engine)).and_then(|taken| taken);
        self.keep(taken)
    }

    /// The same before others that wait, and beyond what runs may use at a time.
    pub fn take_urgently(&mut self) -> std::result::Result<(), Need> {
        let taken = guarded(|| self.jobs.take_urgently(&self.engine)).and_then(|taken| taken);
        self.keep(taken)
    }

    fn keep(&mut self, taken: Taking<Held>) -> std::result::Result<(), Need> {
        match taken {
            Ok(Ok(held)) => self.held = Some(held),
            Ok(Err(need)) => {
                self.wait_for(Some(need));
                return Err(need);
            }
            Err(error) => self.failure = Some(error),
        }
        self.wait_for(None);
        Ok(())
    }

    fn wait_for(&mut self, need: Option<Need>) {
        if need != self.waits {
            need.into_iter().for_each(|need| self.engine.waiting.add(need));
            self.waits.into_iter().for_each(|need| self.engine.waiting.remove(need));
            self.waits = need;
        }
    }

    /// Starts it with what it has taken. What was begun before a failure is waited for.
    pub fn start(&mut self) {
        let Some(held) = &self.held else { return };
        self.has_begun = true;
        self.passage = Some(Passage::begin(&self.engine.traffic));
        let begun = Instant::now();
        // SAFETY: the plan checked all spans against their layouts, which are held until the run is over.
        let started = guarded(|| unsafe { self.jobs.start(held) });
        self.failure = started.and_then(|outcome| outcome).err();
        if let (Some(observer), None) = (self.jobs.observer(), &self.failure) {
            observer.submitted(begun.elapsed());
            self.is_observed = true;
        }
    }

    /// The error of a run that was cancelled, if it has not begun.
    pub fn cancelled(&self) -> Option<Error> {
        (!self.has_begun && self.run.is_cancelled()).then(cancelled)
    }

    /// How it ended; `None` while the driver is at it. Layers are told of until then, and a failure with the end. A
    /// question that the driver did not answer is asked again, and makes no failure of a run that ends well.
    pub fn ended(&mut self) -> Option<Result<()>> {
        self.tell_layers();
        let is_done = self.held.as_ref().is_none_or(|held| held.is_done(&mut self.failure));
        if is_done {
            self.observe_end();
        }
        is_done.then(|| self.failure.take().map_or(Ok(()), Err))
    }

    fn observe_end(&mut self) {
        let took = self.passage.take().and_then(|passage| passage.alone_for());
        if let (true, Some(observer), Some(took), None) =
            (self.is_observed, self.jobs.observer(), took, &self.failure)
        {
            observer.ended_alone(took);
        }
    }

    fn tell_layers(&mut self) {
        let (Some(held), None) = (&self.held, &self.failure) else { return };
        let done = held.layers_done(self.layers_told, &mut self.failure);
        if done > self.layers_told {
            self.layers_told = done;
            self.run.advance(done as u64);
        }
    }

    /// Has what comes later on a stream of the caller's wait for the first `layers`, or for all of it.
    pub fn hold_back(&self, stream: CallerStream, layers: Option<u64>) -> Result<()> {
        match (&self.failure, &self.held) {
            (None, Some(held)) => held.hold_back(&self.engine, stream, layers),
            (Some(error), _) => Err(error.clone()),
            _ => Ok(()),
        }
    }

    /// Reports how it ended, once nothing of the caller's is held any more: a caller that learns of the end may free
    /// memory. The thread that watches all runs frees nothing itself, for that may wait for the device.
    pub fn end(mut self, outcome: Result<()>) {
        self.wait_for(None);
        let Self { jobs, engine, run, held, has_begun, .. } = self;
        if outcome.as_ref().is_err_and(is_fatal) {
            engine.retire();
        }
        let is_sound = outcome.is_ok() || !has_begun;
        disposal::dispose_of(held.and_then(|held| held.give_back(is_sound)).into_iter().collect());
        match (Arc::into_inner(jobs), Arc::into_inner(engine), run.is_last_holder()) {
            (None, None, false) => run.end(outcome),
            (jobs, engine, _) => disposal::dispose_of_then((jobs, engine), move || run.end(outcome)),
        }
    }

    /// Ends one that the driver may be at, with nobody left to ask: what it uses is never let go.
    pub fn give_up(mut self, error: Error) {
        self.wait_for(None);
        let Self { jobs, engine, run, held, .. } = self;
        engine.retire();
        leak::intentionally((jobs, engine, held));
        run.end_for_good(error);
    }
}
