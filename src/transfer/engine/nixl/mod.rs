// SPDX-License-Identifier: Apache-2.0
//! The NIXL engine: requests to peers and to files.
//!
//! A transfer is cut into requests of bounded size. With host memory NIXL copies within the posting call, so a
//! large request would keep the agent from everything else; and many of them can fail early.

mod allowed;
mod flight;
mod guard;
mod recipe;
#[cfg(test)]
mod tests;

pub use allowed::ensure_allowed;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use super::{BeginRun, Candidate, Engine};
use crate::error::{Error, Result, Status, ensure};
use crate::layout::{Layout, Memory, RemoteMemory};
use crate::nixl::AgentState;
use crate::nixl::{Agent, RemoteHold, RequestId};
use crate::sync::{Mutex, MutexGuard};
use crate::transfer::path::Path;
use crate::transfer::plan::Plan;
use crate::transfer::run::steps::{InTurn, Part};
use crate::transfer::run::{Run, Start};
use flight::Flight;
use guard::Guard;
use recipe::Recipe;

/// A prepared transfer.
pub struct NixlMove {
    shared: Arc<Prepared>,
}

/// What all runs of a transfer share; released with the last of them.
struct Prepared {
    path: Path,
    agent: Arc<Agent>,
    recipe: Recipe,
    /// Made by the first run, on the agent's thread: the caller need not wait for that.
    made: Mutex<Made>,
    notification: Option<Vec<u8>>,
    /// For a peer's elastic memory.
    guard: Option<Guard>,
}

/// Requests, and the generation of the memory they were made for.
#[derive(Default)]
struct Made {
    generation: u64,
    requests: Vec<RequestId>,
    look: Option<RequestId>,
    /// A step of a run has panicked. What NIXL does for it since is not known, so nothing is released and no run begins.
    is_abandoned: bool,
}

/// What one run has to do.
struct Errands {
    requests: VecDeque<RequestId>,
    /// The request that has a look at the peer's control block, before and after those.
    look: Option<RequestId>,
}

impl NixlMove {
    /// Checks all that can be checked without NIXL.
    pub fn prepare(
        source: &Arc<Layout>,
        destination: &Arc<Layout>,
        path: Path,
        plan: Plan,
        notification: Option<Vec<u8>>,
    ) -> Result<Self> {
        let reads = matches!(path, Path::NixlRead | Path::NixlFileRead);
        let (local, remote) = if reads { (destination, source) } else { (source, destination) };
        let agent = shared_agent(local, remote)?.clone();
        crate::transfer::plan::alignment::ensure_io_alignment(source, destination, &plan)?;
        let recipe = Recipe { local: local.clone(), remote: remote.clone(), reads, plan };
        let guard = Guard::prepare(&agent, &recipe)?;
        let shared = Prepared { path, agent, recipe, made: Mutex::default(), notification, guard };
        let this = Self { shared: Arc::new(shared) };
        this.peer_hold()?;
        Ok(this)
    }

    /// Makes the requests now rather than in the first run; waits for the agent's thread.
    pub fn make_requests(&self) -> Result<()> {
        let shared = self.shared.clone();
        self.shared.agent.call(move |state| shared.requests(state).map(drop))
    }

    /// How many stretches of memory it moves.
    pub fn moves(&self) -> u64 {
        self.shared.recipe.plan.moves().count() as u64
    }

    /// How many requests it is made of.
    pub fn requests(&self) -> u64 {
        self.shared.recipe.count()
    }

    fn peer_hold(&self) -> Result<Option<RemoteHold>> {
        self.shared.peer().map(|remote| remote.peer.hold()).transpose()
    }

    /// Fails if an earlier run was abandoned.
    pub fn ensure_usable(&self) -> Result<()> {
        self.shared.made().ensure_usable()
    }
}

impl Engine for InTurn<NixlMove> {
    fn path(&self) -> Path {
        self.first().shared.path
    }

    /// NIXL alone knows how it moves bytes, so nothing is estimated.
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
        let flight = Flight::new(self.shared.clone(), run.carried_by(agent.clone()));
        Box::new(move || agent.start(Box::new(flight)))
    }
}

impl Drop for Prepared {
    fn drop(&mut self) {
        let made = self.made.get_mut();
        let mut requests = std::mem::take(&mut made.requests);
        requests.extend(made.look.take());
        if !requests.is_empty() {
            self.agent.defer(move |state| state.release_idle_requests(requests));
        }
    }
}

impl Prepared {
    fn peer(&self) -> Option<&RemoteMemory> {
        match self.recipe.remote.memory() {
            Memory::Remote(remote) => Some(remote),
            Memory::Local(_) => None,
        }
    }

    fn made(&self) -> MutexGuard<'_, Made> {
        self.made.lock()
    }

    /// The requests, made if no run has made them before, or for other memory than there is now.
    fn requests(&self, state: &mut AgentState) -> Result<Errands> {
        let mut made = self.made();
        made.ensure_usable()?;
        let generation = self.recipe.generation();
        if made.requests.is_empty() || made.generation != generation {
            state.release_idle_requests(made.requests.drain(..));
            made.requests = self.recipe.make(state)?;
            made.generation = generation;
        }
        if let (Some(guard), None) = (&self.guard, made.look) {
            made.look = Some(guard.request(state, &self.recipe)?);
        }
        Ok(Errands { requests: made.requests.iter().copied().collect(), look: made.look })
    }

    /// Releases all requests after one has failed; the next run makes new ones. If that fails, NIXL may still use the
    /// memory.
    fn release_requests(&self, state: &mut AgentState) -> Result<()> {
        let mut made = self.made();
        let look = made.look.take();
        let mut outcome = Ok(());
        for id in made.requests.drain(..).chain(look) {
            outcome = outcome.and(state.release_request(id));
        }
        outcome
    }

    /// Has no further run begin.
    fn abandon(&self) {
        self.made().is_abandoned = true;
    }
}

impl Made {
    fn ensure_usable(&self) -> Result<()> {
        ensure!(
            !self.is_abandoned,
            Panic,
            "an earlier run of this transfer hit a bug in kvmem, and NIXL may still move its bytes; create another \
             transfer, over other memory"
        );
        Ok(())
    }
}

/// The one agent that knows both layouts.
fn shared_agent<'a>(local: &'a Layout, remote: &'a Layout) -> Result<&'a Arc<Agent>> {
    let missing = |what: &str| {
        let message = format!(
            "the {what} layout is local only; NIXL moves its blocks once it is built with an agent (for files one \
             that has a POSIX backend)"
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
