// SPDX-License-Identifier: Apache-2.0
//! The NIXL engine: requests to peers and to files.
//!
//! A transfer is cut into requests of bounded size. For host memory, NIXL copies within the posting call, so a large
//! request would block the agent. Many small requests also report a failure early.
//!
//! With a peer, many short spans go through an arena instead, in few large ranges: one of this process, or one of the peer
//! that serves the transfer.

mod choice;
mod flow;
mod run_flow;
mod extent_guard;
mod object_transfers;
mod prepared_requests;
mod peer_run;
mod plain;
pub mod served;
mod staged;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use self::choice::{Choice, Choosing};
use self::extent_guard::Guard;
use self::peer_run::NixlRun;
pub use self::peer_run::{DYING, LIVENESS};
use self::plain::request_plan::RequestPlan;
use self::prepared_requests::{CreateRequests, FlowPlan, PreparedRequests};
use self::served::ServedPlan;
use self::staged::StagedPlan;
use super::{Candidate, Engine};
use crate::base::{Error, Result, Status, ensure, error, log};
use crate::engine::cost::outcome;
use crate::engine::cost::requests::Rates;
use crate::engine::preferences::{Ending, Preferences, STALL_TIMEOUT};
use crate::layout::{Layout, Memory};
use crate::nixl::{Agent, Command, MemoryType, RemoteHold};
use crate::plan::Plan;
use crate::run::{ExpectedEpochs, PartSequence, Run, RunPart, Start, Ticket, TransferMethod};

pub struct NixlMove {
    shared: Arc<PreparedRequests>,
    /// The methods that were compared, if it is a transfer with a peer.
    candidates: Vec<Candidate>,
}

/// Requests of a transfer with block storage in flight: the backend counts the descriptors of all.
const BLOCK_WINDOW: usize = 1;

impl NixlMove {
    /// Prepares a transfer. Fails for errors that can be detected without NIXL.
    pub fn prepare(sides: [&Arc<Layout>; 2], plan: Plan, notification: Option<Vec<u8>>) -> Result<Self> {
        let shared = prepare(sides, TransferMethod::Nixl, plan, notification, None)?;
        let candidates = vec![Candidate::new(TransferMethod::Nixl, 0.0)];
        Self::new(shared, candidates)
    }

    /// Prepares a transfer with a peer by the fastest method.
    pub fn with_peer(
        sides: [&Arc<Layout>; 2],
        plan: Plan,
        preferences: &Preferences,
        Ending { verifies, notification, epochs }: Ending,
    ) -> Result<Self> {
        let (reads, [local, remote]) = local_and_remote(sides);
        let agent = shared_agent(local, remote)?.clone();
        let arena_for = |memory| staged::StagingMemory::between(local, memory).memory_type();
        let rates = Rates::new(local, remote, reads, arena_for);
        let choose = |preferences: &Preferences| {
            Choosing { local, remote, reads, plan: &plan, preferences, verifies, rates: &rates }.choose()
        };
        let mut choice = match verifies && preferences.method.is_none() && remote.served().is_some() {
            true => choose_served(preferences, choose)?,
            false => choose(preferences)?,
        };
        let build = |choice: Choice, flow_plan: Option<FlowPlan>| {
            let is_verified =
                matches!(&flow_plan, Some(FlowPlan::Served(served)) if served.division.verifies);
            let notification = notification.filter(|_| is_verified || !verifies);
            let mut shared = prepare(sides, choice.method, plan, notification, epochs)?;
            shared.stall_timeout = preferences.stall_timeout.or(flow_plan.is_some().then_some(STALL_TIMEOUT));
            shared.rates = match &flow_plan {
                // The bytes are read again, too.
                Some(FlowPlan::Served(_)) if is_verified => None,
                Some(FlowPlan::Served(_)) => Some(rates.served),
                Some(FlowPlan::Staged(_)) => Some(rates.staged),
                _ => Some(rates.direct),
            };
            if let Some(flow_plan) = flow_plan {
                shared.flow_plan = flow_plan;
            }
            Self::new(shared, choice.candidates)
        };
        match staging_plan(&mut choice, local, &agent, preferences.poisons_slots) {
            // The caller did not request the method, so its memory is not worth a failure.
            Err(missing) if preferences.method.is_none() && is_of_memory(&missing) => {
                log!(Warn, "a transfer with a peer uses no staging memory: {missing}");
                let chosen = choice.method;
                build(choice.without_arena(&missing), None).map_err(|error| {
                    error.followed_by(format!("before that, method {chosen} failed: {missing}"))
                })
            }
            flow_plan => build(choice, flow_plan?),
        }
    }

    fn new(shared: PreparedRequests, candidates: Vec<Candidate>) -> Result<Self> {
        let this = Self { shared: Arc::new(shared), candidates };
        this.peer_hold()?;
        Ok(this)
    }

    pub fn method(&self) -> TransferMethod {
        self.shared.method
    }

    /// Creates the requests now rather than in the first run; waits for the agent's thread.
    pub fn make_requests(&self) -> Result<()> {
        let shared = self.shared.clone();
        self.shared.agent.call(|reply| Command::Start(Box::new(CreateRequests { shared, reply })))
    }

    /// Number of contiguous spans that it moves.
    pub fn moves(&self) -> u64 {
        self.shared.request_plan.plan.count_moves(false)
    }

    pub fn requests(&self) -> Result<u64> {
        self.shared.count()
    }

    /// Bytes that are read and discarded.
    fn excess(&self) -> Result<u64> {
        match &self.shared.flow_plan {
            FlowPlan::Staged(staged) => staged.excess(),
            _ => Ok(0),
        }
    }

    /// Number of requests to an owner that serves it.
    fn sessions(&self) -> u64 {
        match &self.shared.flow_plan {
            FlowPlan::Served(served) => served.division.sessions(),
            _ => 0,
        }
    }

    fn peer_hold(&self) -> Result<Option<RemoteHold>> {
        self.shared.peer().map(|remote| remote.peer.hold()).transpose()
    }
}

/// Chooses the method of a verified transfer with an owner that serves the layout: it computes checksums, so that nothing is read twice.
/// Chooses among all methods if the owner cannot serve it.
fn choose_served(
    preferences: &Preferences,
    choose: impl Fn(&Preferences) -> Result<Choice>,
) -> Result<Choice> {
    match choose(&Preferences { method: Some(TransferMethod::NixlServed), ..preferences.clone() }) {
        Ok(mut choice) => {
            for other in choice.candidates.iter_mut().skip(1) {
                other.reason = Some("the owner serves the transfer, and so computes checksums".into());
            }
            Ok(choice)
        }
        Err(error) if matches!(error.status(), Status::Unsupported | Status::OutOfMemory) => {
            choose(preferences)
        }
        Err(error) => Err(error),
    }
}

/// What moves a transfer by the chosen method if it goes through an arena, which is allocated and registered.
fn staging_plan(
    choice: &mut Choice,
    local: &Arc<Layout>,
    agent: &Arc<Agent>,
    poisons: bool,
) -> Result<Option<FlowPlan>> {
    Ok(match (choice.division.take(), choice.served.take()) {
        (Some(division), _) => {
            Some(FlowPlan::Staged(Arc::new(StagedPlan::new(division, local, agent, poisons)?)))
        }
        (None, Some(division)) => Some(FlowPlan::Served(Arc::new(ServedPlan::new(division, local, agent)?))),
        (None, None) => None,
    })
}

/// Whether a set-up failed because staging memory, its registration or the kernel that copies to it is missing. What fails for
/// another reason, such as the state of the agent, fails without staging memory too.
fn is_of_memory(error: &Error) -> bool {
    use Status::{Cuda, Io, Nixl, OutOfMemory, PermissionDenied, UnavailableCuda, Unsupported};
    matches!(
        error.status(),
        OutOfMemory | Nixl | Cuda | UnavailableCuda | Unsupported | PermissionDenied | Io
    )
}

impl Engine for PartSequence<NixlMove> {
    fn method(&self) -> TransferMethod {
        self.first().method()
    }

    /// The estimates follow from the costs of requests that were measured. Those of a method without a choice are unknown: NIXL
    /// does not report how it moves bytes.
    fn candidates(&self) -> Vec<Candidate> {
        let mut candidates = self.first().candidates.clone();
        outcome::repeat(&mut candidates, self.parts().len() as u64);
        // What cannot be listed is not known.
        let (excess, sessions) = (self.excess().unwrap_or_default(), self.sum(NixlMove::sessions));
        let remark = if excess > 0 {
            format!("it reads {excess} bytes in excess, rather than a range for each row")
        } else if sessions > self.parts().len() as u64 {
            format!("its spans of blocks need {sessions} requests to the owner, one after the other")
        } else {
            return candidates;
        };
        if let Some(taken) = candidates.first_mut() {
            taken.reason = Some(remark.into());
        }
        candidates
    }

    fn learns_from_runs(&self) -> bool {
        true
    }

    fn verifies(&self) -> bool {
        self.parts().iter().all(
            |part| matches!(&part.shared.flow_plan, FlowPlan::Served(served) if served.division.verifies),
        )
    }

    fn moves(&self) -> Result<u64> {
        Ok(self.sum(NixlMove::moves))
    }

    fn requests(&self) -> Result<u64> {
        self.parts().iter().map(NixlMove::requests).sum()
    }

    fn excess(&self) -> Result<u64> {
        self.parts().iter().map(NixlMove::excess).sum()
    }

    /// Fails if an earlier run was abandoned, or if the peer's metadata was invalidated.
    fn hold_peer(&self) -> Result<Option<RemoteHold>> {
        self.parts().iter().try_for_each(|part| part.shared.ensure_usable())?;
        // All parts have the same layouts.
        self.first().peer_hold()
    }

    fn submit(&self, ticket: Ticket) -> Result<()> {
        self.start(ticket.start());
        Ok(())
    }

    /// Does the agent's work for a while, if no other thread does. A call of NIXL may not return: a thread that waits until a
    /// deadline makes none.
    fn assist(&self, deadline: Option<Instant>, is_enough: &dyn Fn() -> bool) {
        if deadline.is_none() {
            self.first().shared.agent.drive(is_enough);
        }
    }
}

impl RunPart for NixlMove {
    fn start(&self, run: Run) {
        let agent = self.shared.agent.clone();
        // A call of NIXL may not return: a run with a deadline must not keep the thread that submits it.
        let begins_here = self.shared.is_short() && !run.is_limited();
        let run = NixlRun::boxed(&self.shared, run.executed_by(agent.clone()));
        // If the agent's thread has ended, the run gets that as its end.
        let _ = if begins_here { agent.begin(run) } else { agent.start(run) };
    }

    fn prepare_start(&self, run: Run) -> Start {
        let agent = self.shared.agent.clone();
        let run = NixlRun::boxed(&self.shared, run.executed_by(agent.clone()));
        Box::new(move || {
            let _ = agent.start(run);
        })
    }
}

/// Whether NIXL reads, and the sides in the order of NIXL: memory of this process, and that of a peer or a storage.
fn local_and_remote([source, destination]: [&Arc<Layout>; 2]) -> (bool, [&Arc<Layout>; 2]) {
    let reads = source.memory().is_remote() || source.memory_type().is_storage();
    (reads, if reads { [destination, source] } else { [source, destination] })
}

/// The requests of a transfer, which are not created yet.
fn prepare(
    sides: [&Arc<Layout>; 2],
    method: TransferMethod,
    plan: Plan,
    notification: Option<Vec<u8>>,
    epochs: Option<Arc<ExpectedEpochs>>,
) -> Result<PreparedRequests> {
    let (reads, [local, remote]) = local_and_remote(sides);
    let agent = shared_agent(local, remote)?.clone();
    let request_plan = RequestPlan::new([local, remote], reads, plan);
    let guard = Guard::prepare(&agent, &request_plan, epochs)?;
    let is_block = request_plan.is_to_blocks();
    if is_block {
        ensure_shares_backend(&agent, &request_plan)?;
    }
    let mut requests = PreparedRequests::new(method, agent, request_plan, notification, guard);
    if is_block {
        requests.window = BLOCK_WINDOW;
    }
    Ok(requests)
}

/// Fails if no backend has both the storage and the memory that is moved: NIXL reports that when the transfer runs.
fn ensure_shares_backend(agent: &Agent, request_plan: &RequestPlan) -> Result<()> {
    let RequestPlan { local, remote, reads, plan, .. } = request_plan;
    let mut used = BTreeMap::new();
    for (region, address, size) in plan.footprints(usize::from(*reads)) {
        used.entry(region).or_insert_with(|| local.span(region, address, size));
    }
    let (memory_type, storage) = (local.memory_type(), remote.descriptors().to_vec());
    let used: Vec<_> = used.into_values().collect();
    agent.call(|reply| Command::EnsureSharesBackend(memory_type, used, storage, reply))
}

/// Fails if NIXL can move no blocks between the layouts.
pub fn ensure_possible(sides: [&Arc<Layout>; 2], preferences: &Preferences) -> Result<()> {
    if !sides.iter().any(|side| side.memory_type() == MemoryType::File) {
        ensure_allowed(sides, preferences)?;
    }
    let (_, [local, remote]) = local_and_remote(sides);
    shared_agent(local, remote).map(drop)
}

/// Fails if the caller's flags exclude NIXL, or if it is unknown whether they do.
fn ensure_allowed(sides: [&Arc<Layout>; 2], preferences: &Preferences) -> Result<()> {
    let is_excluded = preferences.zero_copy || preferences.no_host_bounce;
    ensure!(
        sides.iter().any(|side| side.memory().is_remote()) || !is_excluded,
        Unsupported,
        "NIXL's backend may copy the bytes of storage through its own memory without reporting it, so \
         KVMEM_TRANSFER_ZERO_COPY and KVMEM_TRANSFER_NO_HOST_BOUNCE can't be guaranteed; omit these flags"
    );
    ensure!(
        !is_excluded,
        Unsupported,
        "NIXL and UCX choose the method to a peer, and may copy through their own memory without reporting it, so \
         KVMEM_TRANSFER_ZERO_COPY and KVMEM_TRANSFER_NO_HOST_BOUNCE can't be guaranteed; omit these flags, or share the \
         memory if the peer runs on this machine"
    );
    Ok(())
}

/// The agent that knows both layouts.
fn shared_agent<'a>(local: &'a Layout, remote: &'a Layout) -> Result<&'a Arc<Agent>> {
    let missing = |what: &str| {
        let remedy = match remote.memory() {
            Memory::Remote(memory) => format!(
                "build it with agent '{}', which has imported the layout of agent '{}'",
                memory.agent.name(),
                memory.peer.name()
            ),
            Memory::Local(_) => "build it with an agent that has a POSIX backend for files, an OBJ backend for objects, or one \
                                 that accepts block storage"
                .to_string(),
        };
        error!(InvalidState, "the {what} layout has no agent, so NIXL can't move its blocks; {remedy}")
    };
    // The storage first: memory that kvmem allocates to copy its blocks has the same agent, or none either.
    let there = remote.agent().ok_or_else(|| missing(remote.memory().tier().name()))?;
    let here = local.agent().ok_or_else(|| missing(local.memory().tier().name()))?;
    ensure!(
        Arc::ptr_eq(here, there),
        InvalidArgument,
        "one layout is known to agent '{}', the other to agent '{}'; one agent must know both",
        here.name(),
        there.name()
    );
    Ok(here)
}
