// SPDX-License-Identifier: Apache-2.0
//! What one entry of a prepared list covers.

use super::geometry::Geometry;

/// What one entry of a list is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Unit {
    /// A whole block: all layers and outer slots, contiguous.
    Block,
    /// The part of a block in one layer: all outer slots, contiguous.
    Layer,
    /// The part of a block in one layer and outer slot.
    Piece,
}

impl Unit {
    pub fn count(self, geometry: &Geometry) -> u64 {
        let dimensions = geometry.dimensions();
        let of_block = match self {
            Self::Block => 1,
            Self::Layer => dimensions.num_layers,
            Self::Piece => dimensions.num_layers * dimensions.outer_dim,
        };
        dimensions.num_blocks.saturating_mul(of_block)
    }

    /// The index of a unit in the list: the block index varies fastest, so that neighbours in memory are neighbours in the
    /// list.
    pub fn index(self, geometry: &Geometry, block: u64, layer: u64, outer: u64) -> u64 {
        let dimensions = geometry.dimensions();
        match self {
            Self::Block => block,
            Self::Layer => layer * dimensions.num_blocks + block,
            Self::Piece => (layer * dimensions.outer_dim + outer) * dimensions.num_blocks + block,
        }
    }

    pub fn size(self, geometry: &Geometry) -> u64 {
        let dimensions = geometry.dimensions();
        match self {
            Self::Block => geometry.piece_size() * dimensions.outer_dim * dimensions.num_layers,
            Self::Layer => geometry.piece_size() * dimensions.outer_dim,
            Self::Piece => geometry.piece_size(),
        }
    }
}
