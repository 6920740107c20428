// SPDX-License-Identifier: Apache-2.0
//! A run of a request on raw descriptors, in steps on the agent's thread.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::{Holds, Prepared};
use crate::base::{Error, Result, error, leak, log};
use crate::nixl::{Agent, AgentState, AgentTask, CallOptions, Released, RequestId, RequestSide, TaskStep};
use crate::run::{Milestone, Run, cancelled};

/// Interval between checks of the process of a peer.
const LIVENESS: Duration = Duration::from_millis(250);

/// Posts the request, and looks until it is complete.
pub(super) struct RequestRun {
    /// Dropped before the end of the run is reported.
    resource: Option<Arc<Resource>>,
    posting: Posting,
    /// When the process of the peer was last seen.
    last_check: Instant,
    run: Option<Run>,
}

pub(super) enum Posting {
    /// Not yet; with options for this run, if they differ from those of the request.
    Due(Option<CallOptions>),
    Done,
    Failed(Error),
}

impl RequestRun {
    pub fn new(resource: Arc<Resource>, posting: Posting, run: Run) -> Self {
        Self { resource: Some(resource), posting, last_check: Instant::now(), run: Some(run) }
    }

    fn advance(&mut self, state: &mut AgentState) -> Result<bool> {
        let Some(resource) = &self.resource else { return Ok(true) };
        match std::mem::replace(&mut self.posting, Posting::Done) {
            Posting::Due(options) => {
                self.run.iter().for_each(|run| run.reach(Milestone::Begun));
                state.post_raw(resource.id, options.as_ref())
            }
            Posting::Done => state.is_done(resource.id),
            Posting::Failed(error) => Err(error),
        }
    }

    fn is_due(&self) -> bool {
        matches!(self.posting, Posting::Due(_))
    }

    /// Whether the outcome was reported while NIXL still executes the run: at its deadline, or because the peer is lost.
    fn is_reported(&self) -> bool {
        self.run.as_ref().is_none_or(Run::is_reported)
    }

    /// Reports the outcome early if the process of the peer has ended: NIXL may never end the run. The request and what it holds
    /// remain in use until NIXL has.
    fn report_if_lost(&mut self) {
        let (Some(resource), false) = (&self.resource, self.is_reported()) else { return };
        let RequestSide::Peer(remote) = &resource.side else { return };
        if self.last_check.elapsed() < LIVENESS {
            return;
        }
        self.last_check = Instant::now();
        if !remote.is_gone() {
            return;
        }
        let error = remote.explain(error!(PeerLost, "the request is still in flight"));
        log!(Warn, "{error}");
        if let Some(run) = &mut self.run {
            run.report_early(Err(error));
        }
    }

    fn finish(&mut self, state: &mut AgentState, outcome: Result<()>) {
        let (Some(resource), Some(run)) = (self.resource.take(), self.run.take()) else { return };
        let outcome = outcome.map_err(|error| match &resource.side {
            RequestSide::Peer(remote) => {
                remote.explain_posted(error.context(format!("with agent '{}'", remote.name())))
            }
            RequestSide::Local | RequestSide::Own => state.explain_object(resource.id, error),
        });
        // After a failure the backend may use the memory until the request is released, and it cannot run again.
        let released = match outcome {
            Ok(()) => Ok(()),
            Err(_) => state.release_request(resource.id),
        };
        if outcome.is_err() {
            resource.is_over.store(true, Ordering::Release);
        }
        if let Err(unreleased) = released {
            log!(Error, "{unreleased}; kvmem intentionally leaks what the request holds");
            leak::intentionally(resource);
            return run.abandon(outcome.err().unwrap_or(unreleased));
        }
        if let Some(last) = Arc::into_inner(resource) {
            // The handle was destroyed during the run: what it held is free when the end is reported.
            if !last.is_over.swap(true, Ordering::AcqRel) {
                state.release_idle_requests([last.id]);
            }
            drop(last);
        }
        run.end(outcome);
    }
}

impl AgentTask for RequestRun {
    fn step(&mut self, state: &mut AgentState) -> TaskStep {
        // It has ended at its deadline before it was posted.
        if self.is_due() && self.run.as_ref().is_some_and(Run::is_cancelled) {
            self.resource = None;
            if let Some(run) = self.run.take() {
                run.end(Err(cancelled()));
            }
            return TaskStep::Done;
        }
        let was_due = self.is_due();
        match self.advance(state) {
            Ok(false) if was_due => TaskStep::Progressed,
            Ok(false) => {
                self.report_if_lost();
                if self.is_reported() { TaskStep::Waiting } else { TaskStep::InFlight }
            }
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
            run.end(Err(error.clone()));
        }
    }

    fn abandon(&mut self, error: Error) {
        if let Some(resource) = &self.resource {
            resource.is_over.store(true, Ordering::Release);
        }
        if let Some(run) = self.run.take() {
            run.abandon(error);
        }
    }
}

/// The request of NIXL, and what it uses. It is released before the memory.
pub(super) struct Resource {
    pub agent: Arc<Agent>,
    pub id: RequestId,
    pub side: RequestSide,
    /// No run can begin any more, because one has failed. NIXL has released the request, or never does.
    pub is_over: AtomicBool,
    /// The prepared lists that it was made from.
    #[expect(dead_code, reason = "kept until the request is released")]
    pub prepared: Option<[Arc<Prepared>; 2]>,
    #[expect(dead_code, reason = "kept until the request is released")]
    pub holds: Holds,
}

impl Drop for Resource {
    fn drop(&mut self) {
        if self.is_over.load(Ordering::Acquire) {
            return;
        }
        self.agent.release(Released::Requests(vec![self.id]));
    }
}
