// SPDX-License-Identifier: Apache-2.0
//! A run of a request on raw descriptors, in steps on the agent's thread.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::resource::Resource;
use crate::error::{Error, Result, Status};
use crate::leak;
use crate::log::log;
use crate::nixl::{AgentState, AgentTask, CallOptions, RequestSide, TaskStep};
use crate::transfer::run::Run;

/// Interval between checks of the process of a peer.
const LIVENESS: Duration = Duration::from_millis(250);

/// Posts the request, and looks until it is complete.
pub(super) struct RequestRun {
    /// Dropped before the end of the run is reported.
    resource: Option<Arc<Resource>>,
    options: Option<CallOptions>,
    is_posted: bool,
    limit: Option<Duration>,
    started: Instant,
    /// When the process of the peer was last seen.
    last_check: Instant,
    /// The outcome was reported while NIXL still executes the run.
    is_reported: bool,
    run: Option<Run>,
}

impl RequestRun {
    /// `limit` is the longest duration of the run, from now on.
    pub fn new(
        resource: Arc<Resource>,
        options: Option<CallOptions>,
        limit: Option<Duration>,
        run: Run,
    ) -> Self {
        let started = run.started();
        Self {
            resource: Some(resource),
            options,
            is_posted: false,
            limit,
            started,
            last_check: started,
            is_reported: false,
            run: Some(run),
        }
    }

    fn advance(&mut self, state: &mut AgentState) -> Result<bool> {
        let Some(resource) = &self.resource else { return Ok(true) };
        if self.is_posted {
            return state.is_done(resource.id);
        }
        self.is_posted = true;
        state.post_raw(resource.id, self.options.as_ref())
    }

    /// Reports the outcome early if the run takes too long, or if the process of its peer has ended: NIXL may never end it.
    /// The request and what it holds remain in use until NIXL has ended the run.
    fn report_if_late(&mut self) {
        let (Some(resource), false) = (&self.resource, self.is_reported) else { return };
        let now = Instant::now();
        let late = self.limit.filter(|limit| now.duration_since(self.started) >= *limit);
        let is_check_due = now.duration_since(self.last_check) >= LIVENESS;
        if late.is_none() && !is_check_due {
            return;
        }
        self.last_check = now;
        let error = match (&resource.side, late) {
            (RequestSide::Peer(remote), _) if remote.is_gone() => {
                remote.explain(Error::new(Status::PeerLost, "the request is still in flight"))
            }
            (side, Some(limit)) => timed_out(side, limit),
            (_, None) => return,
        };
        log!(Warn, "{error}");
        self.is_reported = true;
        if let Some(run) = &mut self.run {
            run.report_early(Err(error));
        }
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
            Ok(false) if was_posted => {
                self.report_if_late();
                if self.is_reported { TaskStep::Waiting } else { TaskStep::InFlight }
            }
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

fn timed_out(side: &RequestSide, limit: Duration) -> Error {
    let (with, advice) = match side {
        RequestSide::Peer(remote) => {
            (format!(" with agent '{}'", remote.name()), "check whether the process of the peer runs")
        }
        RequestSide::Local | RequestSide::Own => (String::new(), "check the file or the object store"),
    };
    let message = format!(
        "the request{with} was not complete after {} ms; {advice}, or increase timeout_ns. NIXL cannot cancel the request: \
         keep its memory until it can be posted again",
        limit.as_millis()
    );
    Error::new(Status::TimedOut, message)
}

fn explain(error: Error, side: &RequestSide) -> Error {
    match side {
        RequestSide::Peer(remote) => remote.explain(error.context(format!("with agent '{}'", remote.name()))),
        RequestSide::Local | RequestSide::Own => error,
    }
}
