// SPDX-License-Identifier: Apache-2.0
//! Requests between the layouts themselves. Each is created when the ones before it are in flight, so the first begins after
//! one was listed, whatever their number. Later runs use the first ones again, as far as the memory for them is bounded and NIXL can
//! run them again.

use std::sync::Arc;

use super::request_plan::{Place, RequestList, RequestPlan};
use crate::base::{Mutex, Result, ensure, log};
use crate::engine::peer::run_flow::RunFlow;
use crate::nixl::{Agent, AgentState, Released, RequestId};

/// Descriptors of the requests that are kept between runs: NIXL needs about 200 bytes for each.
const MAX_KEPT: u64 = 1 << 16;

/// The requests of a transfer, which all its runs share.
pub struct ListedPlan {
    plan: Arc<RequestPlan>,
    agent: Arc<Agent>,
    kept: Mutex<Kept>,
}

/// The first requests of a plan, and the generation of the memory that they were created for.
#[derive(Default)]
struct Kept {
    generation: u64,
    requests: Vec<KeptRequest>,
    descriptors: u64,
}

#[derive(Clone, Copy)]
struct KeptRequest {
    id: RequestId,
    /// Where the next one begins.
    after: Place,
}

impl Drop for ListedPlan {
    fn drop(&mut self) {
        let requests = self.kept.get_mut().take();
        if !requests.is_empty() {
            let ids = requests.into_iter().map(|request| request.id);
            self.agent.defer(Released::Requests(ids.collect()));
        }
    }
}

impl Kept {
    fn take(&mut self) -> Vec<KeptRequest> {
        self.descriptors = 0;
        std::mem::take(&mut self.requests)
    }
}

impl ListedPlan {
    pub fn new(plan: &Arc<RequestPlan>, agent: &Arc<Agent>) -> Self {
        Self { plan: plan.clone(), agent: agent.clone(), kept: Mutex::default() }
    }

    pub fn count(&self) -> Result<u64> {
        self.plan.count()
    }

    pub fn create_kept(self: &Arc<Self>, state: &mut AgentState) -> Result<()> {
        let mut flow = ListedFlow::new(self.clone(), state);
        while flow.has_more() && !flow.exceeds_kept {
            flow.next(state)?;
        }
        ensure!(!flow.close(state), Nixl, "a request that was created was not released");
        Ok(())
    }

    /// Releases the kept requests after one has failed; the next run creates new ones. If that fails, NIXL may still use the
    /// memory.
    pub fn release(&self, state: &mut AgentState) -> Result<()> {
        let mut outcome = Ok(());
        for request in self.kept.lock().take() {
            outcome = outcome.and(state.release_request(request.id));
        }
        outcome
    }
}

/// The requests of one run.
pub struct ListedFlow {
    listed: Arc<ListedPlan>,
    /// Kept requests that were begun.
    index: usize,
    place: Place,
    list: RequestList,
    /// Requests of this run alone, which are released when they end.
    own: Vec<RequestId>,
    /// No further ones are kept: those that are kept are the first ones.
    exceeds_kept: bool,
    is_stopped: bool,
    has_unreleased: bool,
    counted: Option<CountedBytes>,
}

/// Counts the bytes of requests that have ended.
#[derive(Default)]
struct CountedBytes {
    moved: u64,
    /// Requests that have not ended, and their bytes.
    left: Vec<(RequestId, u64)>,
}

impl ListedFlow {
    /// The requests of a run that begins. Those for memory that has changed since are released.
    pub fn new(listed: Arc<ListedPlan>, state: &mut AgentState) -> Self {
        let mut kept = listed.kept.lock();
        let generation = listed.plan.generation();
        if kept.generation != generation {
            state.release_idle_requests(kept.take().into_iter().map(|request| request.id));
            kept.generation = generation;
        }
        drop(kept);
        Self {
            listed,
            index: 0,
            place: Place::default(),
            list: RequestList::default(),
            own: Vec::new(),
            exceeds_kept: false,
            is_stopped: false,
            has_unreleased: false,
            counted: None,
        }
    }

    /// The requests of another run, with the memory of this one, which is over and closed.
    pub fn restarted(self, state: &mut AgentState) -> Self {
        let Self { listed, list, own, .. } = self;
        Self { list, own, ..Self::new(listed, state) }
    }

    fn begin_next(&mut self, state: &mut AgentState) -> Result<RequestId> {
        let mut kept = self.listed.kept.lock();
        if let Some(next) = kept.requests.get(self.index) {
            (self.index, self.place) = (self.index + 1, next.after);
            return Ok(next.id);
        }
        let id = self.listed.plan.create(state, &mut self.place, &mut self.list)?;
        let descriptors = kept.descriptors + self.list.len();
        self.exceeds_kept |= descriptors > MAX_KEPT || state.is_single_use(id);
        if !self.exceeds_kept {
            kept.requests.push(KeptRequest { id, after: self.place });
            kept.descriptors = descriptors;
            self.index += 1;
        } else {
            self.own.push(id);
        }
        Ok(id)
    }

    fn release_own(&mut self, state: &mut AgentState) {
        while let Some(request) = self.own.pop() {
            self.release_one(state, request);
        }
    }

    fn release_one(&mut self, state: &mut AgentState, request: RequestId) {
        if let Err(error) = state.release_request(request) {
            log!(Error, "{error}; kvmem intentionally leaks the memory that it uses");
            self.has_unreleased = true;
        }
    }
}

impl RunFlow for ListedFlow {
    fn has_more(&self) -> bool {
        !self.is_stopped && self.place.bytes < self.listed.plan.plan.bytes()
    }

    fn stop(&mut self) {
        self.is_stopped = true;
    }

    fn next(&mut self, state: &mut AgentState) -> Result<Option<RequestId>> {
        if !self.has_more() {
            return Ok(None);
        }
        let begun = self.place.bytes;
        let id = self.begin_next(state)?;
        if let Some(counted) = &mut self.counted {
            counted.left.push((id, self.place.bytes - begun));
        }
        Ok(Some(id))
    }

    fn ended(&mut self, state: &mut AgentState, request: RequestId, has_failed: bool) -> Result<bool> {
        if let Some(CountedBytes { moved, left }) = &mut self.counted
            && let Some(index) = left.iter().position(|(id, _)| *id == request)
        {
            let (_, bytes) = left.swap_remove(index);
            *moved += if has_failed { 0 } else { bytes };
        }
        let Some(index) = self.own.iter().position(|own| *own == request) else { return Ok(true) };
        self.own.swap_remove(index);
        self.release_one(state, request);
        Ok(true)
    }

    fn count_bytes(&mut self) {
        self.counted = Some(CountedBytes::default());
    }

    fn moved(&self) -> u64 {
        self.counted.as_ref().map_or(0, |counted| counted.moved)
    }

    fn close(&mut self, state: &mut AgentState) -> bool {
        self.release_own(state);
        self.has_unreleased
    }
}
