// SPDX-License-Identifier: Apache-2.0
//! The requests of a prepared transfer. The first run creates them, and later runs use them again, unless the bytes pass
//! through an arena.
#![forbid(unsafe_code)]

use std::sync::Arc;
use std::time::Duration;

use super::cost::RequestRates;
use super::flow::Flow;
use super::guard::Guard;
use super::request_plan::RequestPlan;
use super::served::{ServedFlow, ServedPlan};
use super::staged::{StagedFlow, StagedPlan};
use crate::error::{Result, ensure};
use crate::layout::{Memory, RemoteMemory};
use crate::nixl::{Agent, AgentState, RequestId};
use crate::sync::{Mutex, MutexGuard};
use crate::transfer::path::TransferPath;

/// The part of a prepared transfer that all its runs share. Released with the last of them.
pub(super) struct PreparedRequests {
    pub path: TransferPath,
    pub agent: Arc<Agent>,
    pub request_plan: RequestPlan,
    /// Created by the first run, on the agent's thread, so that the caller does not wait.
    cache: Mutex<RequestCache>,
    /// Sent to the peer after the last byte.
    pub notification: Option<Vec<u8>>,
    /// For a peer's elastic memory.
    pub guard: Option<Guard>,
    /// The arena that the bytes pass through, if they do.
    pub staged: Option<Arc<StagedPlan>>,
    /// The owner's service, if it gathers or scatters.
    pub served: Option<Arc<ServedPlan>>,
    /// The measured costs of requests to the peer, if there is one.
    pub rates: Option<Arc<RequestRates>>,
    /// How long a run may make no progress; `None` for no limit.
    pub patience: Option<Duration>,
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
pub(super) struct RunRequests {
    pub flow: Flow,
    /// Reads the peer's control block, before and after the requests.
    pub control_read: Option<RequestId>,
}

impl Drop for PreparedRequests {
    fn drop(&mut self) {
        let cache = self.cache.get_mut();
        let mut requests = std::mem::take(&mut cache.requests);
        requests.extend(cache.control_read.take());
        if !requests.is_empty() {
            self.agent.defer(move |state| state.release_idle_requests(requests));
        }
    }
}

impl PreparedRequests {
    /// The input for the requests, which are not created yet.
    pub fn new(
        path: TransferPath,
        agent: Arc<Agent>,
        request_plan: RequestPlan,
        notification: Option<Vec<u8>>,
        guard: Option<Guard>,
    ) -> Self {
        Self {
            path,
            agent,
            request_plan,
            cache: Mutex::default(),
            notification,
            guard,
            staged: None,
            served: None,
            rates: None,
            patience: None,
        }
    }

    /// The peer, if the other side is remote.
    pub fn peer(&self) -> Option<&RemoteMemory> {
        match self.request_plan.remote.memory() {
            Memory::Remote(remote) => Some(remote),
            Memory::Local(_) => None,
        }
    }

    fn cache(&self) -> MutexGuard<'_, RequestCache> {
        self.cache.lock()
    }

    /// The requests. Creates them if there are none, or if the memory has changed since. Those of a transfer through an
    /// arena are created chunk by chunk.
    pub fn requests(&self, state: &mut AgentState) -> Result<RunRequests> {
        let mut cache = self.cache();
        cache.ensure_usable()?;
        let generation = self.request_plan.generation();
        let is_listed = self.staged.is_none() && self.served.is_none();
        if is_listed && (cache.requests.is_empty() || cache.generation != generation) {
            state.release_idle_requests(cache.requests.drain(..));
            cache.requests = self.request_plan.make(state)?;
            cache.generation = generation;
        }
        if let (Some(guard), None) = (&self.guard, cache.control_read) {
            cache.control_read = Some(guard.request(state, &self.request_plan)?);
        }
        let flow = match (&self.staged, &self.served) {
            (Some(staged), _) => Flow::Staged(StagedFlow::new(staged.clone())),
            (None, Some(served)) => Flow::Served(Box::new(ServedFlow::new(served.clone()))),
            (None, None) => Flow::Listed(cache.requests.iter().copied().collect()),
        };
        Ok(RunRequests { flow, control_read: cache.control_read })
    }

    /// Releases all requests after one has failed; the next run creates new ones. If that fails, NIXL may
    /// still use the memory.
    pub fn release_requests(&self, state: &mut AgentState) -> Result<()> {
        let mut cache = self.cache();
        let control_read = cache.control_read.take();
        let mut outcome = Ok(());
        for id in cache.requests.drain(..).chain(control_read) {
            outcome = outcome.and(state.release_request(id));
        }
        outcome
    }

    /// Prevents further runs.
    pub fn abandon(&self) {
        self.cache().is_abandoned = true;
    }

    /// Fails if an earlier run was abandoned.
    pub fn ensure_usable(&self) -> Result<()> {
        self.staged.as_ref().map_or(Ok(()), |staged| staged.ensure_usable())?;
        self.served.as_ref().map_or(Ok(()), |served| served.ensure_usable())?;
        self.cache().ensure_usable()
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
