// SPDX-License-Identifier: Apache-2.0
//! What one entry of a prepared list covers.

use super::geometry::Geometry;

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
    pub fn count(self, geometry: &Geometry) -> u64 {
        let dimensions = geometry.dimensions();
        let of_block = match self {
            Self::Block => 1,
            Self::Layer => dimensions.num_layers,
            Self::Piece => dimensions.num_layers * dimensions.outer_dim,
        };
        dimensions.num_blocks.saturating_mul(of_block)
    }

    /// The index of a unit in the list: blocks run fastest, so that neighbours in memory are neighbours here.
    pub fn index(self, geometry: &Geometry, block: u64, layer: u64, outer: u64) -> u64 {
        let dimensions = geometry.dimensions();
        match self {
            Self::Block => block,
            Self::Layer => layer * dimensions.num_blocks + block,
            Self::Piece => (layer * dimensions.outer_dim + outer) * dimensions.num_blocks + block,
        }
    }

    /// Bytes of one.
    pub fn size(self, geometry: &Geometry) -> u64 {
        let dimensions = geometry.dimensions();
        match self {
            Self::Block => geometry.piece_size() * dimensions.outer_dim * dimensions.num_layers,
            Self::Layer => geometry.piece_size() * dimensions.outer_dim,
            Self::Piece => geometry.piece_size(),
        }
    }
}
