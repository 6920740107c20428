// SPDX-License-Identifier: Apache-2.0
//! A run of a request on raw descriptors, in steps on the agent's thread.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::resource::Resource;
use crate::error::{Error, Result};
use crate::leak;
use crate::log::log;
use crate::nixl::{AgentState, AgentTask, CallOptions, RequestSide, TaskStep};
use crate::transfer::run::Run;

/// Posts the request, and looks until it is complete.
pub(super) struct RequestRun {
    /// Dropped before the end of the run is reported.
    resource: Option<Arc<Resource>>,
    options: Option<CallOptions>,
    is_posted: bool,
    run: Option<Run>,
}

impl RequestRun {
    pub fn new(resource: Arc<Resource>, options: Option<CallOptions>, run: Run) -> Self {
        Self { resource: Some(resource), options, is_posted: false, run: Some(run) }
    }

    fn advance(&mut self, state: &mut AgentState) -> Result<bool> {
        let Some(resource) = &self.resource else { return Ok(true) };
        if self.is_posted {
            return state.is_done(resource.id);
        }
        self.is_posted = true;
        state.post_raw(resource.id, self.options.as_ref())
    }

    fn finish(&mut self, state: &mut AgentState, outcome: Result<()>) {
        let (Some(resource), Some(run)) = (self.resource.take(), self.run.take()) else { return };
        let outcome = outcome.map_err(|error| explain(error, &resource.side));
        // After a failure the backend may use the memory until the request is released, and it cannot run again.
        let released = match outcome {
            Ok(()) => Ok(()),
            Err(_) => state.release_request(resource.id),
        };
        if outcome.is_err() {
            resource.is_released.store(true, Ordering::Release);
        }
        if let Err(unreleased) = released {
            log!(Error, "{unreleased}; kvmem intentionally leaks what the request holds");
            leak::intentionally(resource);
            return run.abandon(outcome.err().unwrap_or(unreleased));
        }
        if let Some(last) = Arc::into_inner(resource) {
            // The handle was destroyed during the run: what it held is free when the end is reported.
            if !last.is_released.swap(true, Ordering::AcqRel) {
                state.release_idle_requests([last.id]);
            }
            drop(last);
        }
        run.end(outcome);
    }
}

impl AgentTask for RequestRun {
    fn step(&mut self, state: &mut AgentState) -> TaskStep {
        let was_posted = self.is_posted;
        match self.advance(state) {
            Ok(false) if was_posted => TaskStep::InFlight,
            Ok(false) => TaskStep::Progressed,
            Ok(true) => {
                self.finish(state, Ok(()));
                TaskStep::Done
            }
            Err(error) => {
                self.finish(state, Err(error));
                TaskStep::Done
            }
        }
    }

    fn not_begun(&mut self, error: &Error) {
        self.resource = None;
        if let Some(run) = self.run.take() {
            run.not_begun(error);
        }
    }

    fn abandon(&mut self, error: Error) {
        if let Some(run) = self.run.take() {
            run.abandon(error);
        }
    }
}

fn explain(error: Error, side: &RequestSide) -> Error {
    match side {
        RequestSide::Peer(remote) => remote.explain(error.context(format!("with agent '{}'", remote.name()))),
        RequestSide::Local | RequestSide::Own => error,
    }
}
