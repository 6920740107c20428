// SPDX-License-Identifier: Apache-2.0
//! What a transfer to a peer's elastic memory looks at before its first byte and after its last: whether the owner has
//! taken extents back meanwhile. NIXL does not tell; the owner's control block does, which is read by NIXL too.

use super::recipe::Recipe;
use crate::error::{Result, ensure, fail};
use crate::layout::{Layout, Memory, RemoteElastic};
use crate::nixl::AgentState;
use crate::nixl::request::Side;
use crate::nixl::{Agent, Descriptor, MemoryType, Operation, RequestId, Span};
use crate::region::{Control, Region, Registration, RegistrationHold, SystemConfig};
use std::sync::Arc;

/// Memory of our own for a copy of the control block, and what it must say of the extents that are used.
pub(super) struct Guard {
    copy: RegistrationHold,
    control: Descriptor,
    used: Vec<(usize, u32)>,
}

impl Guard {
    /// For a layout on a peer's elastic memory; `None` for others. Refuses extents that had no memory when the layout
    /// was exported.
    pub fn prepare(agent: &Arc<Agent>, recipe: &Recipe) -> Result<Option<Self>> {
        let Some(elastic) = elastic_of(&recipe.remote) else { return Ok(None) };
        let spans = recipe.plan.moves().map(|each| {
            let address = if recipe.reads { each.source } else { each.destination };
            (address, each.size)
        });
        let used = elastic.used(spans)?;
        let config = SystemConfig { size: elastic.control.size, ..SystemConfig::default() };
        let copy = Registration::create(&Region::system(&config)?, agent)?.hold()?;
        Ok(Some(Self { copy, control: elastic.control, used }))
    }

    /// The request that fetches the block.
    pub fn request(&self, state: &mut AgentState, recipe: &Recipe) -> Result<RequestId> {
        let Memory::Remote(remote) = recipe.remote.memory() else {
            fail!(Panic, "only a peer's memory is guarded");
        };
        let span = |address| Span { address, size: self.control.size, device_id: 0 };
        let here = std::iter::once(span(self.copy.region().address()));
        let there = std::iter::once(span(self.control.address));
        let side = Side::Peer(remote.peer.clone());
        state.create_request(Operation::Read, (MemoryType::Dram, here), (&side, MemoryType::Dram, there))
    }

    /// Refuses what the copy that was fetched last says has changed.
    pub fn check(&self) -> Result<()> {
        let region = self.copy.region();
        for (index, changes) in &self.used {
            // SAFETY: registered host memory of our own, held by this value; NIXL has written it before this is called.
            let now = unsafe { Control::changes_in_copy(region.address(), region.size(), *index) };
            ensure!(
                now == Some(*changes),
                Stale,
                "the owner has taken extent {index} back since it exported the layout; have it export the layout again"
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
