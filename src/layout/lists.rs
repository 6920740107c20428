// SPDX-License-Identifier: Apache-2.0
//! The prepared NIXL lists of a layout: made at the first transfer that wants one, kept as long as the layout.

use std::collections::HashMap;
use std::sync::Arc;

use super::{Layout, Memory};
use crate::error::Result;
use crate::nixl::driver::Driver;
use crate::nixl::request::Side;
use crate::nixl::{Agent, ListId, MemoryType, Span};
use crate::sync::Mutex;

/// What one entry of a list is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Unit {
    /// A whole block: all layers and outer slots, in one stretch.
    Block,
    /// A block's share of one layer: all outer slots, in one stretch.
    Layer,
    /// A block's share of one layer and outer slot.
    Piece,
}

impl Unit {
    /// How many there are in a layout.
    pub fn count(self, layout: &Layout) -> u64 {
        let dimensions = layout.geometry().dimensions();
        let of_block = match self {
            Self::Block => 1,
            Self::Layer => dimensions.num_layers,
            Self::Piece => dimensions.num_layers * dimensions.outer_dim,
        };
        dimensions.num_blocks.saturating_mul(of_block)
    }

    /// The index of a unit in the list: blocks run fastest, so that neighbours in memory are neighbours here.
    pub fn index(self, layout: &Layout, block: u64, layer: u64, outer: u64) -> u64 {
        let dimensions = layout.geometry().dimensions();
        match self {
            Self::Block => block,
            Self::Layer => layer * dimensions.num_blocks + block,
            Self::Piece => (layer * dimensions.outer_dim + outer) * dimensions.num_blocks + block,
        }
    }

    /// Bytes of one.
    pub fn size(self, layout: &Layout) -> u64 {
        let (geometry, dimensions) = (layout.geometry(), layout.geometry().dimensions());
        match self {
            Self::Block => geometry.piece_size() * dimensions.outer_dim * dimensions.num_layers,
            Self::Layer => geometry.piece_size() * dimensions.outer_dim,
            Self::Piece => geometry.piece_size(),
        }
    }
}

/// The lists of one layout, by unit.
#[derive(Default)]
pub(super) struct Lists(Mutex<HashMap<Unit, ListId>>);

impl Lists {
    pub(super) fn get(&self, layout: &Layout, driver: &mut Driver, unit: Unit) -> Result<ListId> {
        let mut lists = self.0.lock();
        if let Some(id) = lists.get(&unit)
            && driver.has_list(*id)
        {
            return Ok(*id);
        }
        let id = driver.prepare_list(&side(layout), layout.memory_type(), spans(layout, unit))?;
        lists.insert(unit, id);
        Ok(id)
    }

    pub(super) fn release(&mut self, agent: Option<&Arc<Agent>>) {
        let lists = std::mem::take(self.0.get_mut());
        if let Some(agent) = agent
            && !lists.is_empty()
        {
            agent.defer(move |driver| lists.into_values().for_each(|id| driver.release_list(id)));
        }
    }
}

/// The side a layout stands on in a request.
fn side(layout: &Layout) -> Side {
    match layout.memory() {
        Memory::Remote(remote) => Side::Peer(remote.peer.clone()),
        Memory::Local(_) if layout.memory_type() == MemoryType::File => Side::Own,
        Memory::Local(_) => Side::Local,
    }
}

fn spans(layout: &Layout, unit: Unit) -> impl Iterator<Item = Span> {
    let dimensions = layout.geometry().dimensions();
    let (layers, outers) = match unit {
        Unit::Block => (1, 1),
        Unit::Layer => (dimensions.num_layers, 1),
        Unit::Piece => (dimensions.num_layers, dimensions.outer_dim),
    };
    let (blocks, size, descriptors) = (dimensions.num_blocks, unit.size(layout), layout.descriptors());
    (0..layers).flat_map(move |layer| {
        (0..outers).flat_map(move |outer| {
            (0..blocks).map(move |block| {
                let (region, address) = layout.placement().address(block, layer, outer);
                Span { address, size, device_id: descriptors[region].device_id }
            })
        })
    })
}
