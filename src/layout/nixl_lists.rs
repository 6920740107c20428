// SPDX-License-Identifier: Apache-2.0
//! The prepared NIXL lists of a layout: created by the first transfer that needs one, and kept for the life of the layout.

use std::collections::HashMap;
use std::sync::Arc;

use super::unit::Unit;
use crate::base::{Mutex, Result};
use crate::nixl::{Agent, AgentState, ListId, Released};

/// The lists of one layout, by unit.
#[derive(Default)]
pub(super) struct Lists(Mutex<HashMap<Unit, ListId>>);

impl Lists {
    /// The list of a unit. `prepare` is called if there is none, or if NIXL has released it with its peer.
    pub(super) fn get_or_prepare(
        &self,
        state: &mut AgentState,
        unit: Unit,
        prepare: impl FnOnce(&mut AgentState) -> Result<ListId>,
    ) -> Result<ListId> {
        let mut lists = self.0.lock();
        if let Some(id) = lists.get(&unit)
            && state.has_list(*id)
        {
            return Ok(*id);
        }
        let id = prepare(state)?;
        lists.insert(unit, id);
        Ok(id)
    }

    /// Releases all lists on the agent's thread.
    pub(super) fn release(&mut self, agent: Option<&Arc<Agent>>) {
        let lists = std::mem::take(self.0.get_mut());
        if let Some(agent) = agent
            && !lists.is_empty()
        {
            agent.defer(Released::Lists(lists.into_values().collect()));
        }
    }
}
