// SPDX-License-Identifier: Apache-2.0
//! One run of a served transfer, on the requester's side: its sessions, one after the other.

use std::sync::Arc;
use std::time::Instant;

use super::plan::ServedPlan;
use super::session_flow::SessionFlow;
use crate::base::error::{Error, Result};
use crate::engine::peer::run_flow::{Awaited, RunFlow};
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

    /// Seconds since the run began.
    pub fn seconds(&self) -> f64 {
        self.started.elapsed().as_secs_f64()
    }

    pub fn sessions(&self) -> u64 {
        self.plan.sessions().len() as u64
    }
}

impl RunFlow for ServedFlow {
    fn is_over(&self) -> bool {
        self.session.is_over() && !self.has_more()
    }

    fn has_more(&self) -> bool {
        let is_last = self.session.index() + 1 == self.plan.sessions().len();
        self.session.has_more() || !(is_last || self.session.is_stopped())
    }

    fn stop(&mut self) {
        self.session.stop();
    }

    fn next(&mut self, state: &mut AgentState) -> Result<Option<RequestId>> {
        self.session.next(state)
    }

    fn is_poll(&self, request: RequestId) -> bool {
        self.session.is_control_read(request)
    }

    fn advance(&mut self, state: &mut AgentState) -> Result<bool> {
        if !(self.session.is_over() && self.has_more()) {
            return self.session.advance(state);
        }
        self.moved += self.session.moved();
        self.session.close(state);
        self.session = SessionFlow::new(self.plan.clone(), self.session.index() + 1);
        Ok(true)
    }

    fn ended(&mut self, state: &mut AgentState, request: RequestId, has_failed: bool) -> Result<bool> {
        self.session.ended(state, request, has_failed)
    }

    fn awaited(&self) -> Option<Awaited<'_>> {
        self.session.awaited()
    }

    fn note_moved(&self, at: Instant) {
        self.plan.arenas().for_each(|arena| arena.note_moved(at));
    }

    fn abandon(&mut self) {
        self.session.abandon();
    }

    fn moved(&self) -> u64 {
        self.moved + self.session.moved()
    }

    fn located(&self, error: Error) -> Error {
        match self.sessions() {
            1 => error,
            count => error.context(format!("request {} of {count} to the owner", self.session.index() + 1)),
        }
    }

    fn close(&mut self, state: &mut AgentState) -> bool {
        self.session.close(state);
        self.session.has_unreleased()
    }
}
