// SPDX-License-Identifier: Apache-2.0
//! One run of a served transfer, on the requester's side: its sessions, one after the other.
#![forbid(unsafe_code)]

use std::sync::Arc;
use std::time::Instant;

use super::plan::ServedPlan;
use super::session_flow::SessionFlow;
use crate::base::error::{Error, Result};
use crate::nixl::{AgentState, RequestId};

/// The sessions of one run.
pub struct ServedFlow {
    plan: Arc<ServedPlan>,
    /// The one that runs.
    session: SessionFlow,
    /// Bytes of those before it.
    moved: u64,
    started: Instant,
}

impl ServedFlow {
    /// The sessions of a run that begins.
    pub fn new(plan: Arc<ServedPlan>) -> Self {
        Self { session: SessionFlow::new(plan.clone(), 0), plan, moved: 0, started: Instant::now() }
    }

    /// Whether all sessions are complete, and nothing is in flight.
    pub fn is_over(&self) -> bool {
        self.session.is_over() && !self.has_more()
    }

    /// Whether bytes have not been moved.
    pub fn has_more(&self) -> bool {
        let is_last = self.session.index() + 1 == self.plan.sessions().len();
        self.session.has_more() || !(is_last || self.session.is_stopped())
    }

    /// The minimum of bytes that have moved.
    pub fn moved(&self) -> u64 {
        self.moved + self.session.moved()
    }

    /// Begins nothing more. What is in flight ends.
    pub fn stop(&mut self) {
        self.session.stop();
    }

    /// Seconds since the run began.
    pub fn seconds(&self) -> f64 {
        self.started.elapsed().as_secs_f64()
    }

    /// Number of sessions.
    pub fn sessions(&self) -> u64 {
        self.plan.sessions().len() as u64
    }

    /// Adds to an error the request during which it occurred, if there are several.
    pub fn located(&self, error: Error) -> Error {
        match self.sessions() {
            1 => error,
            count => error.context(format!("request {} of {count} to the owner", self.session.index() + 1)),
        }
    }

    /// Whether NIXL may still use memory of the layout, because a request was not released.
    pub fn has_unreleased(&self) -> bool {
        self.session.has_unreleased()
    }

    /// Whether it waits for staging memory.
    pub fn lacks_memory(&self) -> bool {
        self.session.lacks_memory()
    }

    /// After a panic: never frees staging memory that NIXL may still use.
    pub fn abandon(&mut self) {
        self.session.abandon();
    }

    /// Advances the session, or begins the next one. Returns whether there was anything to do.
    pub fn advance(&mut self, state: &mut AgentState) -> Result<bool> {
        if !(self.session.is_over() && self.has_more()) {
            return self.session.advance(state);
        }
        self.moved += self.session.moved();
        self.session.close(state);
        self.session = SessionFlow::new(self.plan.clone(), self.session.index() + 1);
        Ok(true)
    }

    /// The next request to post, if there is one.
    pub fn next(&mut self, state: &mut AgentState) -> Result<Option<RequestId>> {
        self.session.next(state)
    }

    /// Whether a request reads the control block.
    pub fn is_control_read(&self, request: RequestId) -> bool {
        self.session.is_control_read(request)
    }

    /// Handles the end of a request. Returns whether the run has progressed.
    pub fn ended(&mut self, state: &mut AgentState, request: RequestId, has_failed: bool) -> Result<bool> {
        self.session.ended(state, request, has_failed)
    }

    /// Closes the session. Nothing is in flight.
    pub fn close(&mut self, state: &mut AgentState) {
        self.session.close(state);
    }
}
