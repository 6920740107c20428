// SPDX-License-Identifier: Apache-2.0
//! Preparing the NIXL lists of a layout.

use super::{Layout, Unit};
use crate::base::Result;
use crate::nixl::{AgentState, CallOptions, ListId, Span};

impl Layout {
    /// The prepared list of its units, created at first use; on the agent's thread.
    pub fn prepared_list(&self, state: &mut AgentState, unit: Unit) -> Result<ListId> {
        self.lists.get_or_prepare(state, unit, |state| {
            let spans = (self.memory_type(), spans(self, unit));
            state.prepare_list(&self.request_side(), spans, &CallOptions::default())
        })
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
