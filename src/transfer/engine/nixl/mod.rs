// SPDX-License-Identifier: Apache-2.0
//! The NIXL engine: requests to peers and to files.
//!
//! A transfer is cut into requests of bounded size. For host memory, NIXL copies within the posting call, so a large
//! request would block the agent. Many small requests also report a failure early.

mod allowed;
mod run;
mod guard;
mod request_plan;
#[cfg(test)]
mod tests;

pub use allowed::ensure_allowed;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use self::guard::Guard;
use self::request_plan::RequestPlan;
use self::run::NixlRun;
use super::{BeginRun, Candidate, Engine};
use crate::error::{Error, Result, Status, ensure};
use crate::layout::{Layout, Memory, RemoteMemory};
use crate::nixl::AgentState;
use crate::nixl::{Agent, RemoteHold, RequestId};
use crate::sync::{Mutex, MutexGuard};
use crate::transfer::path::TransferPath;
use crate::transfer::plan::Plan;
use crate::transfer::run::steps::{Part, PartSequence};
use crate::transfer::run::{Run, Start};

/// A prepared transfer.
pub struct NixlMove {
    shared: Arc<PreparedRequests>,
}

/// The part of a prepared transfer that all its runs share. Released with the last of them.
struct PreparedRequests {
    path: TransferPath,
    agent: Arc<Agent>,
    request_plan: RequestPlan,
    /// Created by the first run, on the agent's thread, so that the caller does not wait.
    made: Mutex<RequestCache>,
    notification: Option<Vec<u8>>,
    /// For a peer's elastic memory.
    guard: Option<Guard>,
}

/// Requests, and the generation of the memory that they were created for.
#[derive(Default)]
struct RequestCache {
    generation: u64,
    requests: Vec<RequestId>,
    /// Reads the peer's control block.
    control_read: Option<RequestId>,
    /// A step of a run has panicked. The state of its requests is unknown, so nothing is released and no run begins.
    is_abandoned: bool,
}

/// The requests of one run.
struct RunRequests {
    requests: VecDeque<RequestId>,
    /// Reads the peer's control block, before and after the requests.
    control_read: Option<RequestId>,
}

impl NixlMove {
    /// Prepares a transfer. Fails for errors that can be detected without NIXL.
    pub fn prepare(
        source: &Arc<Layout>,
        destination: &Arc<Layout>,
        path: TransferPath,
        plan: Plan,
        notification: Option<Vec<u8>>,
    ) -> Result<Self> {
        let reads = matches!(path, TransferPath::NixlRead | TransferPath::NixlFileRead);
        let (local, remote) = if reads { (destination, source) } else { (source, destination) };
        let agent = shared_agent(local, remote)?.clone();
        crate::transfer::plan::alignment::ensure_io_alignment(source, destination, &plan)?;
        let request_plan = RequestPlan { local: local.clone(), remote: remote.clone(), reads, plan };
        let guard = Guard::prepare(&agent, &request_plan)?;
        let shared =
            PreparedRequests { path, agent, request_plan, made: Mutex::default(), notification, guard };
        let this = Self { shared: Arc::new(shared) };
        this.peer_hold()?;
        Ok(this)
    }

    /// Creates the requests now rather than in the first run; waits for the agent's thread.
    pub fn make_requests(&self) -> Result<()> {
        let shared = self.shared.clone();
        self.shared.agent.call(move |state| shared.requests(state).map(drop))
    }

    /// Number of contiguous spans that it moves.
    pub fn moves(&self) -> u64 {
        self.shared.request_plan.plan.moves().count() as u64
    }

    /// Number of requests.
    pub fn requests(&self) -> u64 {
        self.shared.request_plan.count()
    }

    fn peer_hold(&self) -> Result<Option<RemoteHold>> {
        self.shared.peer().map(|remote| remote.peer.hold()).transpose()
    }

    /// Fails if an earlier run was abandoned.
    pub fn ensure_usable(&self) -> Result<()> {
        self.shared.made().ensure_usable()
    }
}

impl Engine for PartSequence<NixlMove> {
    fn path(&self) -> TransferPath {
        self.first().shared.path
    }

    /// Contains no estimate: NIXL does not report how it moves bytes.
    fn candidates(&self) -> Vec<Candidate> {
        vec![Candidate { path: self.path(), seconds: 0.0, reason: None, is_impossible: false }]
    }

    fn learns_from_runs(&self) -> bool {
        true
    }

    fn moves(&self) -> u64 {
        self.sum(NixlMove::moves)
    }

    fn requests(&self) -> u64 {
        self.sum(NixlMove::requests)
    }

    /// Fails if an earlier run was abandoned, or if the peer's metadata was invalidated.
    fn hold_peer(&self) -> Result<Option<RemoteHold>> {
        self.parts().iter().try_for_each(NixlMove::ensure_usable)?;
        // All parts have the same layouts.
        self.first().peer_hold()
    }

    fn submit(&self, begin: BeginRun<'_>) -> Result<()> {
        self.start(begin()?)
    }

    /// Does the agent's work for a while, if no other thread does.
    fn assist(&self, deadline: Option<Instant>, is_enough: &dyn Fn() -> bool) {
        self.first().shared.agent.drive(deadline, is_enough);
    }
}

impl Part for NixlMove {
    fn prepare_start(&self, run: Run) -> Start {
        let agent = self.shared.agent.clone();
        let run = NixlRun::new(self.shared.clone(), run.executed_by(agent.clone()));
        Box::new(move || agent.start(Box::new(run)))
    }
}

impl Drop for PreparedRequests {
    fn drop(&mut self) {
        let made = self.made.get_mut();
        let mut requests = std::mem::take(&mut made.requests);
        requests.extend(made.control_read.take());
        if !requests.is_empty() {
            self.agent.defer(move |state| state.release_idle_requests(requests));
        }
    }
}

impl PreparedRequests {
    fn peer(&self) -> Option<&RemoteMemory> {
        match self.request_plan.remote.memory() {
            Memory::Remote(remote) => Some(remote),
            Memory::Local(_) => None,
        }
    }

    fn made(&self) -> MutexGuard<'_, RequestCache> {
        self.made.lock()
    }

    /// The requests, created unless an earlier run did for the current memory.
    fn requests(&self, state: &mut AgentState) -> Result<RunRequests> {
        let mut made = self.made();
        made.ensure_usable()?;
        let generation = self.request_plan.generation();
        if made.requests.is_empty() || made.generation != generation {
            state.release_idle_requests(made.requests.drain(..));
            made.requests = self.request_plan.make(state)?;
            made.generation = generation;
        }
        if let (Some(guard), None) = (&self.guard, made.control_read) {
            made.control_read = Some(guard.request(state, &self.request_plan)?);
        }
        Ok(RunRequests { requests: made.requests.iter().copied().collect(), control_read: made.control_read })
    }

    /// Releases all requests after one has failed; the next run creates new ones. If that fails, NIXL may
    /// still use the memory.
    fn release_requests(&self, state: &mut AgentState) -> Result<()> {
        let mut made = self.made();
        let control_read = made.control_read.take();
        let mut outcome = Ok(());
        for id in made.requests.drain(..).chain(control_read) {
            outcome = outcome.and(state.release_request(id));
        }
        outcome
    }

    /// Prevents further runs.
    fn abandon(&self) {
        self.made().is_abandoned = true;
    }
}

impl RequestCache {
    fn ensure_usable(&self) -> Result<()> {
        ensure!(
            !self.is_abandoned,
            Panic,
            "an earlier run of this transfer hit a bug in kvmem, and NIXL may still move its bytes; create another \
             transfer with other memory"
        );
        Ok(())
    }
}

/// The agent that knows both layouts.
fn shared_agent<'a>(local: &'a Layout, remote: &'a Layout) -> Result<&'a Arc<Agent>> {
    let missing = |what: &str| {
        let message = format!(
            "the {what} layout has no agent, so NIXL can't move its blocks; build it with an agent (for files one that \
             has a POSIX backend)"
        );
        Error::new(Status::InvalidState, message)
    };
    let here = local.agent().ok_or_else(|| missing("host"))?;
    let there = remote.agent().ok_or_else(|| missing("disk"))?;
    ensure!(
        Arc::ptr_eq(here, there),
        InvalidArgument,
        "one layout is known to agent '{}', the other to agent '{}'; one agent must know both",
        here.name(),
        there.name()
    );
    Ok(here)
}
