// SPDX-License-Identifier: Apache-2.0
//! A transfer in flight.

#![forbid(unsafe_code)]

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::{Errands, Prepared};
use crate::error::{Error, Result, Status};
use crate::layout::RemoteMemory;
use crate::leak;
use crate::log::log;
use crate::nixl::AgentState;
use crate::nixl::{AgentTask, RequestId, Step};
use crate::transfer::run::{Run, cancelled};

/// How many requests of one transfer are in flight.
const WINDOW: usize = 4;
/// How often a peer that does not answer is looked at.
const LIVENESS: Duration = Duration::from_millis(250);
/// How long a failure waits for the peer's process to end: its sockets close first.
const DYING: Duration = Duration::from_millis(500);

/// One run, in turns on the agent's thread. It ends when NIXL is done with the memory, however the peer fares.
pub(super) struct Flight {
    /// `None` until the first step has seen to the requests.
    waiting: Option<VecDeque<RequestId>>,
    look: Option<Look>,
    in_flight: Vec<RequestId>,
    failure: Option<(Error, Instant)>,
    /// NIXL reported the failure of a request. The backend may still be busy with parts of it.
    has_failed_request: bool,
    last_progress: Instant,
    /// The outcome was reported while requests were still in flight.
    is_reported: bool,
    /// Dropped before the end of the run is reported, because then the caller may free the memory. Declared before the
    /// run, so that this holds for a flight that is dropped too.
    prepared: Option<Arc<Prepared>>,
    run: Option<Run>,
}

/// Looking at the control block of a peer's elastic memory: before the first request, and after the last.
struct Look {
    request: RequestId,
    state: LookState,
    last: bool,
}

#[derive(PartialEq)]
enum LookState {
    Due,
    InFlight,
    Over,
}

impl AgentTask for Flight {
    fn step(&mut self, state: &mut AgentState) -> Step {
        self.give_up_if_cancelled();
        if self.waiting.is_none() {
            self.begin(state);
            return Step::Progressed;
        }
        if let Some(step) = self.look(state) {
            return step;
        }
        let before = self.left();
        self.poll(state);
        self.post_next(state);
        let left = self.left();
        if left == (0, 0) {
            if self.wants_last_look() {
                return Step::Progressed;
            }
            if self.peer_may_be_dying() {
                return Step::Waiting;
            }
            self.finish(state);
            return Step::Done;
        }
        if before != left {
            self.last_progress = Instant::now();
            return Step::Progressed;
        }
        self.look_after_peer();
        if self.failure.is_some() { Step::Waiting } else { Step::InFlight }
    }

    fn not_begun(&mut self, error: &Error) {
        self.prepared = None;
        if let Some(run) = self.run.take() {
            run.not_begun(error);
        }
    }

    fn abandon(&mut self, error: Error) {
        if let Some(prepared) = &self.prepared {
            prepared.abandon();
        }
        if let Some(run) = self.run.take() {
            run.end_for_good(error);
        }
    }
}

impl Flight {
    pub fn new(prepared: Arc<Prepared>, run: Run) -> Self {
        Self {
            waiting: None,
            look: None,
            in_flight: Vec::new(),
            failure: None,
            has_failed_request: false,
            last_progress: Instant::now(),
            is_reported: false,
            run: Some(run),
            prepared: Some(prepared),
        }
    }

    fn peer(&self) -> Option<&RemoteMemory> {
        self.prepared.as_ref().and_then(|prepared| prepared.peer())
    }

    /// How many requests wait, and how many are in flight.
    fn left(&self) -> (usize, usize) {
        (self.waiting.as_ref().map_or(0, VecDeque::len), self.in_flight.len())
    }

    fn begin(&mut self, state: &mut AgentState) {
        let Some(prepared) = &self.prepared else { return };
        let made = prepared.requests(state);
        self.waiting = Some(VecDeque::new());
        match made {
            Ok(Errands { requests, look }) => {
                self.waiting = Some(requests);
                self.look = look.map(|request| Look { request, state: LookState::Due, last: false });
            }
            Err(error) => self.fail(error),
        }
    }

    /// Takes back what NIXL has not been given where its user wants no more of it; what it has goes on.
    fn give_up_if_cancelled(&mut self) {
        let has_more = self.waiting.as_ref().is_none_or(|waiting| !waiting.is_empty());
        if has_more && self.failure.is_none() && self.run.as_ref().is_some_and(Run::is_cancelled) {
            self.fail(cancelled());
        }
    }

    /// Goes on looking at the peer's control block, if that is to be done now.
    fn look(&mut self, state: &mut AgentState) -> Option<Step> {
        let look = self.look.as_mut().filter(|look| look.state != LookState::Over)?;
        let seen = match look.state {
            LookState::Due => state.post(look.request),
            _ => state.is_done(look.request),
        };
        look.state = if let Ok(false) = seen { LookState::InFlight } else { LookState::Over };
        self.has_failed_request |= seen.is_err();
        let guard = self.prepared.as_ref().and_then(|prepared| prepared.guard.as_ref());
        let outcome = seen.and_then(|done| match guard {
            Some(guard) if done => guard.check().map(|()| true),
            _ => Ok(done),
        });
        match outcome {
            Ok(true) => self.last_progress = Instant::now(),
            Ok(false) => {
                self.look_after_peer();
                return Some(if self.failure.is_some() { Step::Waiting } else { Step::InFlight });
            }
            Err(error) => self.fail(error),
        }
        Some(Step::Progressed)
    }

    /// Whether the control block is to be looked at once more: nothing is told before that is done.
    fn wants_last_look(&mut self) -> bool {
        let failed = self.failure.is_some();
        let Some(look) = self.look.as_mut().filter(|look| !look.last && !failed) else { return false };
        look.last = true;
        look.state = LookState::Due;
        true
    }

    fn poll(&mut self, state: &mut AgentState) {
        let mut failure = None;
        self.in_flight.retain(|id| match state.is_done(*id) {
            Ok(done) => !done,
            Err(error) => {
                failure = Some(error);
                false
            }
        });
        if let Some(error) = failure {
            self.fail_request(error);
        }
    }

    /// One request a step: each may take as long as its copy.
    fn post_next(&mut self, state: &mut AgentState) {
        if self.in_flight.len() >= WINDOW {
            return;
        }
        let Some(id) = self.waiting.as_mut().and_then(VecDeque::pop_front) else { return };
        match state.post(id) {
            Ok(true) => {}
            Ok(false) => self.in_flight.push(id),
            Err(error) => self.fail_request(error),
        }
    }

    fn fail_request(&mut self, error: Error) {
        self.has_failed_request = true;
        self.fail(error);
    }

    /// Nothing more is posted; what is in flight is waited for.
    fn fail(&mut self, error: Error) {
        self.waiting = Some(VecDeque::new());
        if self.failure.is_none() {
            self.failure = Some((error, Instant::now()));
        }
    }

    fn peer_may_be_dying(&self) -> bool {
        let recent = self
            .failure
            .as_ref()
            .is_some_and(|(error, since)| error.status() != Status::Cancelled && since.elapsed() < DYING);
        recent && self.peer().is_some_and(|remote| !remote.process.is_gone())
    }

    /// NIXL does not say that a peer died; its process does.
    fn explain(&self, error: Error) -> Error {
        match self.peer() {
            // Whoever invalidated the peer knows already.
            _ if matches!(error.status(), Status::Stale | Status::Cancelled) => error,
            Some(remote) if remote.process.is_gone() => error
                .context(format!(
                    "agent '{}' is lost: its process {} has ended",
                    remote.peer.name(),
                    remote.process.pid
                ))
                .with_status(Status::PeerLost),
            Some(remote) => error.context(format!("with agent '{}'", remote.peer.name())),
            None => error,
        }
    }

    /// A request to a dead peer may never end, whether the run was cancelled or has failed before or not. The outcome is
    /// reported now; the memory stays allocated until NIXL is done with it.
    fn look_after_peer(&mut self) {
        if self.is_reported || self.last_progress.elapsed() < LIVENESS {
            return;
        }
        self.last_progress = Instant::now();
        if !self.peer().is_some_and(|remote| remote.process.is_gone()) {
            return;
        }
        let unfinished = || Error::new(Status::PeerLost, "requests to it are still in flight");
        let failure = self.failure.as_ref().map_or_else(unfinished, |(error, _)| error.clone());
        let explained = self.explain(failure.clone());
        log!(Warn, "{explained}");
        self.is_reported = true;
        if let Some(run) = &mut self.run {
            run.tell_early(Err(explained));
        }
        self.fail(failure);
    }

    /// Ends the run once no request is in flight.
    fn finish(&mut self, state: &mut AgentState) {
        let outcome = match self.failure.take() {
            Some((error, _)) => Err(self.explain(error)),
            None => self.notify(state),
        };
        let released = self.release_failed(state);
        let prepared = self.prepared.take();
        let Some(run) = self.run.take() else { return };
        match (released, outcome) {
            (Ok(()), outcome) => {
                drop(prepared);
                run.end(outcome);
            }
            (Err(unreleased), outcome) => {
                log!(Error, "{unreleased}; the memory of both layouts is never freed");
                leak::intentionally(prepared);
                run.end_for_good(outcome.err().unwrap_or(unreleased));
            }
        }
    }

    /// Releases the requests if NIXL reported a failure of one: until then the backend may use the memory.
    fn release_failed(&self, state: &mut AgentState) -> Result<()> {
        match &self.prepared {
            Some(prepared) if self.has_failed_request => prepared.release_requests(state),
            _ => Ok(()),
        }
    }

    fn notify(&self, state: &mut AgentState) -> Result<()> {
        let message = self.prepared.as_ref().and_then(|prepared| prepared.notification.as_ref());
        match (message, self.peer()) {
            (Some(message), Some(remote)) => state.notify(remote.peer.name(), message).map_err(|error| {
                self.explain(error.context("the blocks have arrived, but the notification was not sent"))
            }),
            _ => Ok(()),
        }
    }
}
