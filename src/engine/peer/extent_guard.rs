// SPDX-License-Identifier: Apache-2.0
//! Detects whether the owner of a peer's memory has decommitted extents or reused blocks, before the first byte of a transfer and
//! after its last. NIXL does not report that. The owner's control block and epochs do, and NIXL reads them: by a request of its own,
//! because the entries of a request are read in any order.
#![allow(unsafe_code)]

use std::ops::Range;
use std::sync::Arc;

use crate::base::{Result, ensure, fail};
use crate::engine::peer::plain::request_plan::RequestPlan;
use crate::layout::{Memory, RemoteElastic};
use crate::nixl::{Agent, AgentState, Descriptor, MemoryType, Operation, RequestId, RequestSide, Span};
use crate::region::{Control, Region, Registration, RegistrationHold, SystemConfig};
use crate::run::ExpectedEpochs;

/// The control blocks of all parts of the peer's layout, and the epochs that its blocks are expected to have.
pub(super) struct Guard(Vec<WatchedControl>, Option<Arc<ExpectedEpochs>>);

/// A local copy of a control block, and the expected state of the extents that are used.
struct WatchedControl {
    copy: RegistrationHold,
    control: Descriptor,
    used: Vec<(usize, u32)>,
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
            let config = SystemConfig { size: elastic.control.size, ..SystemConfig::default() };
            let copy = Registration::create(&Region::system(&config)?, agent)?.hold()?;
            Ok(WatchedControl { copy, control: elastic.control, used })
        };
        let watched = request_plan.remote.remote_elastic().map(watch).collect::<Result<Vec<_>>>()?;
        Ok((!watched.is_empty() || epochs.is_some()).then_some(Self(watched, epochs)))
    }

    pub fn request(&self, state: &mut AgentState, request_plan: &RequestPlan) -> Result<RequestId> {
        let Memory::Remote(remote) = request_plan.remote.memory() else {
            fail!(Panic, "the control block of local memory was requested");
        };
        let span =
            |address, watched: &WatchedControl| Span { address, size: watched.control.size, device_id: 0 };
        let epochs = self.1.iter().flat_map(|epochs| epochs.spans());
        let here = self.0.iter().map(|watched| span(watched.copy.region().address(), watched));
        let here = here.chain(epochs.clone().map(|(here, _)| here));
        let there = self.0.iter().map(|watched| span(watched.control.address, watched));
        let there = there.chain(epochs.map(|(_, there)| there));
        let side = RequestSide::Peer(remote.peer.clone());
        state.create_request(Operation::Read, (MemoryType::Dram, here), (&side, MemoryType::Dram, there))
    }

    /// Forgets the last copies, before others are read.
    pub fn forget(&self) {
        self.1.iter().for_each(|epochs| epochs.forget());
        for watched in &self.0 {
            let region = watched.copy.region();
            // SAFETY: registered host memory that this object holds, of at least the size of a block. NIXL writes to it later.
            unsafe { Control::forget_copy(region.address()) };
        }
    }

    /// Fails if the last copies differ from the expected state.
    pub fn check(&self) -> Result<()> {
        self.0.iter().try_for_each(WatchedControl::check)?;
        self.1.as_ref().map_or(Ok(()), |epochs| epochs.check())
    }
}

impl WatchedControl {
    fn check(&self) -> Result<()> {
        let region = self.copy.region();
        for (index, changes) in &self.used {
            // SAFETY: registered host memory that this object holds. NIXL has written it before this is called.
            let now = unsafe { Control::changes_in_copy(region.address(), region.size(), *index) };
            ensure!(
                now.is_some(),
                Stale,
                "NIXL has read no control block of the owner: the owner has freed its memory, or nothing was moved"
            );
            ensure!(
                now == Some(*changes),
                Stale,
                "the owner has decommitted extent {index} since it exported the layout; the owner must export the layout again"
            );
        }
        Ok(())
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
    /// The first one is due.
    pub fn new(request: RequestId) -> Self {
        Self { request, state: ControlReadState::Due, is_last: false }
    }

    /// Posts a read that is due, or asks whether it has ended. `None` if there is none; otherwise whether it has ended with the expected
    /// state, and whether NIXL reported a failure.
    pub fn advance(&mut self, state: &mut AgentState, guard: Option<&Guard>) -> Option<(Result<bool>, bool)> {
        let result = match self.state {
            ControlReadState::Over => return None,
            ControlReadState::Due => {
                guard.inspect(|guard| guard.forget());
                state.post(self.request)
            }
            ControlReadState::InFlight => state.is_done(self.request),
        };
        self.state = if let Ok(false) = result { ControlReadState::InFlight } else { ControlReadState::Over };
        let has_failed = result.is_err();
        let outcome = result.and_then(|done| match guard {
            Some(guard) if done => guard.check().map(|()| true),
            _ => Ok(done),
        });
        Some((outcome, has_failed))
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
