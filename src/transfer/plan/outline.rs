// SPDX-License-Identifier: Apache-2.0
//! What all plans between the same two layouts have in common, whatever the blocks: computed once.
#![forbid(unsafe_code)]

use super::runs::BlockRuns;
use super::shape::Shape;
use super::{Selection, overlap};
use crate::error::Result;
use crate::layout::{Layout, Placement};
use crate::transfer::request::{BlockPair, Wanted};

/// Two layouts that blocks can move between, what is moved of each block, and the loops over it.
#[derive(Clone, Debug)]
pub struct Outline {
    pub(super) whole: Part,
    /// Each layer by itself; empty unless layers are moved one by one.
    pub(super) layers: Vec<Part>,
    pub(super) piece_size: u64,
    /// Blocks of source and destination.
    num_blocks: [u64; 2],
    /// Both layouts have some memory in common.
    pub(super) has_common_memory: bool,
}

/// What is moved of each block at a time.
#[derive(Clone, Debug)]
pub(super) struct Part {
    pub selection: Selection,
    pub shape: Shape,
}

impl Outline {
    /// Of the moves between two layouts, as a whole or layer by layer.
    pub fn new(source: &Layout, destination: &Layout, wanted: Wanted, by_layer: bool) -> Result<Self> {
        let outline = Self::between(source.placement(), destination.placement(), wanted, by_layer)?;
        Ok(Self { has_common_memory: overlap::have_common_memory(source, destination), ..outline })
    }

    /// The same for two placements: all checks and arithmetic, no layout.
    pub fn between(
        source: &Placement,
        destination: &Placement,
        wanted: Wanted,
        by_layer: bool,
    ) -> Result<Self> {
        source.geometry().ensure_same_pieces(destination.geometry())?;
        let selection = Selection::of(source, destination, wanted)?;
        let part = |selection| Part { selection, shape: Shape::of(source, destination, &selection) };
        let layers = if by_layer { selection.layers.count } else { 0 };
        Ok(Self {
            whole: part(selection),
            layers: (0..layers).map(|layer| part(selection.layer(layer))).collect(),
            piece_size: source.geometry().piece_size(),
            num_blocks: [source, destination].map(|side| side.geometry().dimensions().num_blocks),
            has_common_memory: false,
        })
    }

    /// What is moved of each block.
    pub fn selection(&self) -> &Selection {
        &self.whole.selection
    }

    /// Finds the runs of some blocks, all of which must be there.
    pub(super) fn fill(&self, blocks: &mut BlockRuns, pairs: &[BlockPair]) -> Result<()> {
        let [sources, destinations] = self.num_blocks;
        blocks.fill(pairs, sources, destinations)
    }
}
