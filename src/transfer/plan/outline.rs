// SPDX-License-Identifier: Apache-2.0
//! What all plans between the same two layouts have in common, whatever the blocks: computed once.
#![forbid(unsafe_code)]

use super::axes::{PairedBlock, ensure_same_elements};
use super::common_memory::have_common_memory;
use super::runs::BlockRuns;
use super::selection::Selection;
use super::shape::Shape;
use super::side::Side;
use crate::error::{Error, Result, Status, ensure};
use crate::layout::{Axis, Geometry, Layout, Placement};
use crate::transfer::request::{BlockPair, Wanted};

/// Two layouts that blocks can move between, what is moved of each block, and the loops over it.
#[derive(Clone, Debug)]
pub struct Outline {
    pub(super) whole: Part,
    /// Each layer by itself; empty unless layers are moved one by one.
    pub(super) layers: Vec<Part>,
    /// Bytes of what is moved of a block.
    pub(super) block_size: u64,
    /// Source and destination.
    geometries: [Geometry; 2],
    /// The first byte of each side.
    starts: [Side; 2],
    /// Both layouts have some memory in common.
    pub(super) has_common_memory: bool,
}

/// What is moved of each block at a time.
#[derive(Clone, Debug)]
pub(super) struct Part {
    pub selection: Selection,
    pub block: PairedBlock,
    pub shape: Shape,
}

impl Outline {
    /// The outline of moves between two layouts, as a whole or layer by layer.
    pub fn new(source: &Layout, destination: &Layout, wanted: Wanted, by_layer: bool) -> Result<Self> {
        let outline = Self::between(source.placement(), destination.placement(), wanted, by_layer)?;
        Ok(Self { has_common_memory: have_common_memory(source, destination), ..outline })
    }

    /// The same for two placements: all checks and arithmetic, no layout.
    pub fn between(
        source: &Placement,
        destination: &Placement,
        wanted: Wanted,
        by_layer: bool,
    ) -> Result<Self> {
        let placements = [source, destination];
        let sides = placements.map(Placement::geometry);
        ensure_same_elements(sides, wanted.heads.is_some())?;
        for (name, side) in ["source", "destination"].into_iter().zip(sides) {
            ensure!(
                side.region_step(Axis::Block) == 0,
                Unsupported,
                "each block of the {name} layout has a region of its own; blocks that share regions can be moved"
            );
        }
        let selection = Selection::of(sides, wanted)?;
        let tokens = sides.map(|side| side.count(Axis::Token));
        let tokens = tokens[0].min(tokens[1]);
        let starts =
            placements.map(|side| Side::new(side.bases().into(), side.geometry().stride(Axis::Block)));
        let part = |selection: Selection| {
            let block = PairedBlock::of(sides, &selection, tokens);
            Part { selection, shape: Shape::of(&starts, &block), block }
        };
        let layers = if by_layer { selection.layers.count } else { 0 };
        let whole = part(selection);
        Ok(Self {
            block_size: whole.block.size().ok_or_else(too_large)?,
            whole,
            layers: (0..layers).map(|layer| part(selection.layer(layer))).collect(),
            geometries: sides.map(Geometry::clone),
            starts,
            has_common_memory: false,
        })
    }

    /// What is moved of each block.
    pub fn selection(&self) -> &Selection {
        &self.whole.selection
    }

    /// Finds the runs of some blocks, all of which must exist and have the same number of tokens on both sides.
    pub(super) fn fill(&self, blocks: &mut BlockRuns, pairs: &[BlockPair]) -> Result<()> {
        let [source, destination] = self.page_sizes();
        ensure!(
            source == destination,
            InvalidArgument,
            "page_size is {source} in the source layout and {destination} in the destination; blocks of different sizes are \
             moved by block tables"
        );
        let [sources, destinations] = [0, 1].map(|side| self.geometry(side).count(Axis::Block));
        blocks.fill(pairs, sources, destinations)
    }

    /// One of the two shapes.
    pub(super) fn geometry(&self, side: usize) -> &Geometry {
        &self.geometries[side]
    }

    /// The first byte of one side.
    pub(super) fn start(&self, side: usize) -> &Side {
        &self.starts[side]
    }

    /// Tokens of a block, in source and destination.
    pub(super) fn page_sizes(&self) -> [u64; 2] {
        [0, 1].map(|side| self.geometry(side).count(Axis::Token))
    }

    /// What is moved of as many tokens of a block: of one of the layers, or of all.
    pub(super) fn block(&self, layer: Option<u64>, tokens: u64) -> PairedBlock {
        let selection = match layer {
            Some(layer) => self.whole.selection.layer(layer),
            None => self.whole.selection,
        };
        PairedBlock::of(self.geometries.each_ref(), &selection, tokens)
    }
}

/// The error for a transfer that exceeds the address space.
pub(super) fn too_large() -> Error {
    Error::new(Status::InvalidArgument, "the transfer is of more than 2^64 - 1 bytes")
}
