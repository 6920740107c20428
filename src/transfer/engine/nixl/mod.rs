// SPDX-License-Identifier: Apache-2.0
//! The NIXL engine: requests to peers and to files.
//!
//! A transfer is cut into requests of bounded size. For host memory, NIXL copies within the posting call, so a large
//! request would block the agent. Many small requests also report a failure early.

mod allowed;
mod guard;
mod prepared;
mod request_plan;
mod run;
#[cfg(test)]
mod tests;

pub use allowed::ensure_allowed;

use std::sync::Arc;
use std::time::Instant;

use self::guard::Guard;
use self::prepared::PreparedRequests;
use self::request_plan::RequestPlan;
use self::run::NixlRun;
use super::{BeginRun, Candidate, Engine};
use crate::error::{Error, Result, Status, ensure};
use crate::layout::Layout;
use crate::nixl::{Agent, RemoteHold};
use crate::transfer::path::TransferPath;
use crate::transfer::plan::Plan;
use crate::transfer::run::steps::{PartSequence, RunPart};
use crate::transfer::run::{Run, Start};

/// A prepared transfer.
pub struct NixlMove {
    shared: Arc<PreparedRequests>,
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
        let shared = PreparedRequests::new(path, agent, request_plan, notification, guard);
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
        self.shared.ensure_usable()
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

impl RunPart for NixlMove {
    fn prepare_start(&self, run: Run) -> Start {
        let agent = self.shared.agent.clone();
        let run = NixlRun::new(self.shared.clone(), run.executed_by(agent.clone()));
        Box::new(move || agent.start(Box::new(run)))
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
