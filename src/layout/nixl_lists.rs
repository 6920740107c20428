// SPDX-License-Identifier: Apache-2.0
//! The prepared NIXL lists of a layout: created by the first transfer that needs one, and kept for the life of the layout.

use std::collections::HashMap;
use std::sync::Arc;

use super::{Layout, Unit};
use crate::base::error::Result;
use crate::base::sync::Mutex;
use crate::nixl::{Agent, AgentState, CallOptions, ListId, Released, Span};

/// The lists of one layout, by unit.
#[derive(Default)]
pub(super) struct Lists(Mutex<HashMap<Unit, ListId>>);

impl Layout {
    /// The prepared list of its units, created at first use, and again if NIXL has released it with its peer; on the agent's thread.
    pub fn prepared_list(&self, state: &mut AgentState, unit: Unit) -> Result<ListId> {
        let mut lists = self.lists.0.lock();
        if let Some(id) = lists.get(&unit).filter(|id| state.has_list(**id)) {
            return Ok(*id);
        }
        let spans = (self.memory_type(), spans(self, unit));
        let id = state.prepare_list(&self.request_side(), spans, &CallOptions::default())?;
        lists.insert(unit, id);
        Ok(id)
    }
}

impl Lists {
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

fn spans(layout: &Layout, unit: Unit) -> impl Iterator<Item = Span> {
    let dimensions = layout.geometry().dimensions();
    let (layers, outers) = match unit {
        Unit::Block => (1, 1),
        Unit::Layer => (dimensions.num_layers, 1),
        Unit::Piece => (dimensions.num_layers, dimensions.outer_dim),
    };
    let (blocks, size) = (dimensions.num_blocks, unit.size(layout.geometry()));
    (0..layers).flat_map(move |layer| {
        (0..outers).flat_map(move |outer| {
            (0..blocks).map(move |block| {
                let (region, address) = layout.placement().address(block, layer, outer);
                layout.span(region as u32, address, size)
            })
        })
    })
}
