// SPDX-License-Identifier: Apache-2.0
//! Detects whether the owner of a peer's memory has decommitted extents or reused blocks: NIXL reads its control block and epochs at
//! the begin of a run and after its last byte, by a request of its own, because the entries of a request are read in any order. The first
//! look at epochs only saves the copy of stale blocks, so short runs have none.

use std::ops::Range;
use std::sync::Arc;

use crate::base::{Result, fail};
use crate::engine::peer::plain::request_plan::RequestPlan;
use crate::layout::{Memory, RemoteElastic};
use crate::nixl::{Agent, AgentState, MemoryType, Operation, RequestId, RequestSide};
use crate::region::WatchedControl;
use crate::run::ExpectedEpochs;

/// The control blocks of all parts of the peer's layout, and the epochs that its blocks are expected to have.
pub(super) struct Guard {
    controls: Vec<WatchedControl>,
    epochs: Option<Arc<ExpectedEpochs>>,
}

impl Guard {
    /// For a layout on a peer's elastic memory, or with expected epochs; `None` for others. Fails for extents that had no memory when
    /// the layout was exported.
    pub fn prepare(
        agent: &Arc<Agent>,
        request_plan: &RequestPlan,
        epochs: Option<Arc<ExpectedEpochs>>,
    ) -> Result<Option<Self>> {
        let watch = |(regions, elastic): (Range<u32>, &RemoteElastic)| {
            // A part of a block is in one extent.
            let footprints = request_plan.plan.footprints(usize::from(!request_plan.reads));
            let spans = footprints.filter(|(region, ..)| regions.contains(region));
            let used = elastic.used(spans.map(|(_, address, size)| (address, size)))?;
            WatchedControl::new(agent, elastic.control, used)
        };
        let controls = request_plan.remote.remote_elastic().map(watch).collect::<Result<Vec<_>>>()?;
        Ok((!controls.is_empty() || epochs.is_some()).then_some(Self { controls, epochs }))
    }

    pub fn request(&self, state: &mut AgentState, request_plan: &RequestPlan) -> Result<RequestId> {
        let Memory::Remote(remote) = request_plan.remote.memory() else {
            fail!(Panic, "the control block of local memory was requested");
        };
        let epochs = self.epochs.iter().flat_map(|epochs| epochs.spans());
        let spans = self.controls.iter().map(WatchedControl::spans).chain(epochs);
        let (here, there) = (spans.clone().map(|(here, _)| here), spans.map(|(_, there)| there));
        let side = RequestSide::Peer(remote.peer.clone());
        state.create_request(Operation::Read, (MemoryType::Dram, here), (&side, MemoryType::Dram, there))
    }

    /// Whether the first look comes before all requests, because memory may be gone. Of epochs only the last look proves the result.
    pub fn precedes_requests(&self) -> bool {
        !self.controls.is_empty()
    }

    /// Forgets the last copies, before others are read.
    pub fn forget(&self) {
        self.controls.iter().for_each(WatchedControl::forget);
        self.epochs.iter().for_each(|epochs| epochs.forget());
    }

    /// Fails if the last copies differ from the expected state.
    pub fn check(&self) -> Result<()> {
        self.controls.iter().try_for_each(WatchedControl::check)?;
        self.epochs.as_ref().map_or(Ok(()), |epochs| epochs.check())
    }
}

/// The reads, one of which may be due or in flight.
pub(super) struct ControlRead {
    request: RequestId,
    state: ControlReadState,
    is_last: bool,
}

#[derive(PartialEq)]
enum ControlReadState {
    Due,
    InFlight,
    Over,
}

impl ControlRead {
    /// The first one is due, unless it would save nothing.
    pub fn new(request: RequestId, has_first: bool) -> Self {
        let state = if has_first { ControlReadState::Due } else { ControlReadState::Over };
        Self { request, state, is_last: false }
    }

    /// Posts a read that is due, or asks whether it has ended. `None` if there is none, or if requests may be in flight beside it and the
    /// flow has some; otherwise whether it has ended with the expected state, and whether NIXL reported a failure.
    pub fn advance(
        &mut self,
        state: &mut AgentState,
        guard: Option<&Guard>,
        is_over: bool,
    ) -> Option<(Result<bool>, bool)> {
        let result = match self.state {
            ControlReadState::Over => return None,
            ControlReadState::Due => {
                guard.inspect(|guard| guard.forget());
                state.post(self.request)
            }
            ControlReadState::InFlight => state.is_done(self.request),
        };
        self.state = if let Ok(false) = result { ControlReadState::InFlight } else { ControlReadState::Over };
        if self.is_in_flight() && !is_over && guard.is_some_and(|guard| !guard.precedes_requests()) {
            return None;
        }
        let has_failed = result.is_err();
        let outcome = result.and_then(|done| match guard {
            Some(guard) if done => guard.check().map(|()| true),
            _ => Ok(done),
        });
        Some((outcome, has_failed))
    }

    pub fn is_in_flight(&self) -> bool {
        self.state == ControlReadState::InFlight
    }

    /// Begins the last read. Returns false if it has begun.
    pub fn begin_last(&mut self) -> bool {
        if self.is_last {
            return false;
        }
        (self.is_last, self.state) = (true, ControlReadState::Due);
        true
    }
}
