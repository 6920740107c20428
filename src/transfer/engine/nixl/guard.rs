// SPDX-License-Identifier: Apache-2.0
//! Detects whether the owner of a peer's elastic memory has decommitted extents, before the first byte of a
//! transfer and after its last. NIXL does not report that. The owner's control block does, and NIXL reads it.

use std::sync::Arc;

use super::request_plan::RequestPlan;
use crate::error::{Result, ensure, fail};
use crate::layout::{Layout, Memory, RemoteElastic};
use crate::nixl::AgentState;
use crate::nixl::request::RequestSide;
use crate::nixl::{Agent, Descriptor, MemoryType, Operation, RequestId, Span};
use crate::region::{Control, Region, Registration, RegistrationHold, SystemConfig};

/// A local copy of the control block, and the expected state of the extents that are used.
pub(super) struct Guard {
    copy: RegistrationHold,
    control: Descriptor,
    used: Vec<(usize, u32)>,
}

impl Guard {
    /// For a layout on a peer's elastic memory; `None` for others. Fails for extents that had no memory when
    /// the layout was exported.
    pub fn prepare(agent: &Arc<Agent>, request_plan: &RequestPlan) -> Result<Option<Self>> {
        let Some(elastic) = elastic_of(&request_plan.remote) else { return Ok(None) };
        let spans = request_plan.plan.moves().map(|each| {
            let address = if request_plan.reads { each.source } else { each.destination };
            (address, each.size)
        });
        let used = elastic.used(spans)?;
        let config = SystemConfig { size: elastic.control.size, ..SystemConfig::default() };
        let copy = Registration::create(&Region::system(&config)?, agent)?.hold()?;
        Ok(Some(Self { copy, control: elastic.control, used }))
    }

    /// The request that reads the block.
    pub fn request(&self, state: &mut AgentState, request_plan: &RequestPlan) -> Result<RequestId> {
        let Memory::Remote(remote) = request_plan.remote.memory() else {
            fail!(Panic, "the control block of local memory was requested");
        };
        let span = |address| Span { address, size: self.control.size, device_id: 0 };
        let here = std::iter::once(span(self.copy.region().address()));
        let there = std::iter::once(span(self.control.address));
        let side = RequestSide::Peer(remote.peer.clone());
        state.create_request(Operation::Read, (MemoryType::Dram, here), (&side, MemoryType::Dram, there))
    }

    /// Fails if the last copy differs from the expected state.
    pub fn check(&self) -> Result<()> {
        let region = self.copy.region();
        for (index, changes) in &self.used {
            // SAFETY: registered host memory that this object holds. NIXL has written it before this is called.
            let now = unsafe { Control::changes_in_copy(region.address(), region.size(), *index) };
            ensure!(
                now == Some(*changes),
                Stale,
                "the owner has decommitted extent {index} since it exported the layout; the owner must export the layout again"
            );
        }
        Ok(())
    }
}

fn elastic_of(layout: &Layout) -> Option<&RemoteElastic> {
    match layout.memory() {
        Memory::Remote(remote) => remote.elastic.as_ref(),
        Memory::Local(_) => None,
    }
}
