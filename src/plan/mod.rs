// SPDX-License-Identifier: Apache-2.0
//! From two layouts and block pairs to loops, rows and large moves. Pure: addresses in, addresses out.

pub mod alignment;
mod axes;
mod canonical;
mod common_memory;
mod count;
mod description;
mod footprints;
mod heads;
mod linear;
mod matching;
mod matrices;
mod moves;
mod nest;
mod odometer;
mod outline;
pub mod overlap;
mod planned_blocks;
mod progressions;
mod block_runs;
mod selection;
mod shape;
mod side;
mod slice;
mod terms;
mod tiles;
mod tokens;
mod units;
mod wanted;
mod windows;

pub use linear::LinearPlan;
pub use matrices::Matrices;
pub use moves::{BlockRun, Matrix, Move};
pub use nest::{Loop, LoopOrder};
pub use outline::Outline;
pub use planned_blocks::PlannedBlocks;
pub use selection::{Selection, Slots};
pub use shape::Grid;
pub use slice::PlanSlice;
pub use terms::Terms;
pub use tiles::{Loops, Tile};

use std::ops::Range;
use std::sync::Arc;

use self::axes::PairedBlock;
use self::block_runs::BlockRuns;
use self::outline::LayerOutline;
use self::shape::Shape;
pub use self::wanted::{BlockPair, BlockTable, PairedRange, TokenTables, Wanted};
use crate::base::Result;
use crate::layout::{Layout, Unit};

/// What a transfer does, in order of destination. The moves are computed when they are used: a plan of many scattered blocks
/// costs little more than reading their ids. Clones share the blocks.
#[derive(Clone, Debug)]
pub struct Plan {
    outline: Arc<Outline>,
    blocks: Arc<PlannedBlocks>,
    /// The one layer that is moved; `None` for all of the selection.
    layer: Option<usize>,
    bytes: u64,
}

impl Plan {
    /// Plans the move of `pairs`. The memory of `spare`, the blocks of an earlier plan, is used again if no other plan uses
    /// them.
    pub fn new(
        outline: &Arc<Outline>,
        pairs: &[BlockPair],
        spare: Option<Arc<PlannedBlocks>>,
    ) -> Result<Self> {
        Self::filled(outline, spare, |blocks| blocks.fill(outline, pairs))
    }

    /// Plans the move of tokens. Whole blocks are planned as pairs.
    pub fn from_tokens(
        outline: &Arc<Outline>,
        tables: &TokenTables<'_>,
        spare: Option<Arc<PlannedBlocks>>,
    ) -> Result<Self> {
        Self::filled(outline, spare, |blocks| blocks.fill_tokens(outline, tables))
    }

    /// The plan of other tokens between the same layouts.
    pub fn with_tokens(&self, tables: &TokenTables<'_>) -> Result<Self> {
        Self::from_tokens(&self.outline, tables, None)
    }

    fn filled(
        outline: &Arc<Outline>,
        spare: Option<Arc<PlannedBlocks>>,
        fill: impl FnOnce(&mut PlannedBlocks) -> Result<()>,
    ) -> Result<Self> {
        let mut blocks = spare.filter(|spare| Arc::strong_count(spare) == 1).unwrap_or_default();
        if let Some(blocks) = Arc::get_mut(&mut blocks) {
            fill(blocks)?;
        }
        let bytes = blocks.bytes(outline)?;
        Ok(Self { outline: outline.clone(), blocks, layer: None, bytes })
    }

    /// The plan of one list of pairs between two layouts.
    pub fn once(source: &Layout, destination: &Layout, pairs: &[BlockPair], wanted: Wanted) -> Result<Self> {
        Self::new(&Arc::new(Outline::new(source, destination, wanted, false)?), pairs, None)
    }

    /// The part of the plan that moves one of its layers. The outline must have been created by layer.
    pub fn layer(&self, layer: u64) -> Self {
        let layers = self.outline.selection().layers.count;
        Self { layer: Some(layer as usize), bytes: self.bytes / layers, ..self.clone() }
    }

    /// The same with loops in another order. Its blocks are not those of a list of pairs. The part that moves one layer has
    /// no layers of its own then.
    pub fn in_order(&self, order: LoopOrder) -> Result<Self> {
        Ok(Self {
            outline: Arc::new(self.outline.in_order(order, self.layer)?),
            blocks: Arc::new(self.blocks.in_order(order, self.layer)?),
            layer: None,
            bytes: self.bytes,
        })
    }

    /// The blocks, whose memory a later plan can use.
    pub fn shared_blocks(&self) -> Arc<PlannedBlocks> {
        self.blocks.clone()
    }

    /// What is moved at a time, of each part of the layouts.
    fn outlines(&self) -> impl Iterator<Item = &LayerOutline> {
        self.outline.parts.iter().map(|part| part.layer(self.layer))
    }

    /// Blocks with the same loops: one set of them per part of the layouts, or per section.
    pub fn parts(&self) -> Parts<'_> {
        Parts { plan: self, next: 0 }
    }

    /// The runs of whole blocks, in order of destination; none if tokens are moved.
    pub fn block_runs(&self) -> Option<&[BlockRun]> {
        self.blocks.runs().map(BlockRuns::runs)
    }

    /// Whether whole blocks are moved: all heads of all tokens of each.
    pub fn has_whole_pieces(&self) -> bool {
        self.blocks.runs().is_some() && self.outlines().all(|part| part.block.axes[3].is_whole)
    }

    /// Number of blocks that are moved of one part, or of spans of tokens in a block of any part.
    #[cfg(test)]
    fn blocks(&self) -> u64 {
        match self.blocks.runs() {
            Some(runs) => runs.blocks(),
            None => self.blocks.sections().iter().map(|section| section.spans.blocks()).sum(),
        }
    }

    /// Number of runs of blocks, or of spans of tokens: a request to an owner lists each.
    pub fn spans(&self) -> u64 {
        self.parts().map(|part| part.runs().len() as u64).sum()
    }

    /// What is moved of each block, of the first part of the layouts.
    pub fn selection(&self) -> &Selection {
        &self.outline.parts[0].layer(self.layer).selection
    }

    /// The parts of the layouts that are moved: their names, and what is moved of each block.
    pub fn selections(&self) -> impl Iterator<Item = (&str, &Selection)> {
        self.outline.selections()
    }

    /// The layers that are moved of each block.
    pub fn layers(&self) -> PairedRange {
        self.selection().layers
    }

    /// Whether both layouts have some memory in common.
    pub fn has_common_memory(&self) -> bool {
        self.outline.has_common_memory
    }

    /// The largest unit of a prepared list that is contiguous in both layouts for every block, and of which all is moved.
    /// `None` if even the bytes of a block in one layer and outer slot are in another order on the other side, or only some
    /// of them are moved.
    pub fn unit(&self) -> Option<Unit> {
        let mut parts = self.outlines();
        let unit = parts.next().and_then(|part| part.shape.nest.unit);
        self.blocks.runs().and(unit).filter(|_| parts.next().is_none())
    }

    /// Number of (block, layer, outer slot) that are moved.
    pub fn pieces(&self) -> u64 {
        let slots = |block: &PairedBlock| {
            let [layers, outers, ..] = &block.axes;
            if self.layer.is_some() { outers.count } else { layers.count * outers.count }
        };
        self.parts().map(|part| part.blocks.blocks() * slots(part.block)).sum()
    }

    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The maximum number of moves, without computing them.
    pub fn max_moves(&self) -> u64 {
        self.parts().map(|part| part.max_moves()).sum()
    }

    /// The maximum number of contiguous ranges on one side alone, without computing them.
    pub fn max_ranges_on(&self, side: usize) -> u64 {
        self.parts().map(|part| part.blocks() * part.shape.nest.ranges_on(side)).sum()
    }

    /// Capacity for a list of the moves: a list that grows is copied again and again.
    pub fn capacity(&self) -> usize {
        self.max_moves().min(MAX_CAPACITY) as usize
    }

    /// The moves. No two neighbours can be joined.
    pub fn moves(&self) -> impl Iterator<Item = Move> {
        self.moves_in(0..self.bytes)
    }

    /// Passes the moves to `visit`, in the same order.
    pub fn each_move(&self, mut visit: impl FnMut(Move)) {
        let mut last = None::<Move>;
        for PlanPart { shape, blocks, .. } in self.parts() {
            units::each(shape, blocks, |unit| match &mut last {
                Some(last) if last.goes_on_in(&unit) => last.size += unit.size,
                _ => last.replace(unit).into_iter().for_each(&mut visit),
            });
        }
        last.into_iter().for_each(visit);
    }

    /// The number of moves, if layers are moved one by one or not.
    pub fn count_moves(&self, by_layer: bool) -> u64 {
        match by_layer {
            true => (0..self.layers().count).map(|layer| self.layer(layer).count_moves(false)).sum(),
            false => count::moves(self.parts().map(|part| (part.shape, part.blocks))),
        }
    }

    /// The moves of some of the bytes, which are counted in the order of [`Self::moves`].
    pub fn moves_in(&self, bytes: Range<u64>) -> impl Iterator<Item = Move> {
        units::join(self.rows_in(bytes).flat_map(Matrix::moves))
    }

    /// The same as rows of equal size with constant strides.
    pub fn rows_in(&self, bytes: Range<u64>) -> impl Iterator<Item = Matrix> {
        let (mut skip, mut left) = (bytes.start, bytes.end - bytes.start);
        self.parts().flat_map(move |PlanPart { shape, blocks, .. }| {
            let size = blocks.blocks() * shape.block_size();
            let first = skip.min(size);
            let end = first + left.min(size - first);
            (skip, left) = (skip - first, left - (end - first));
            units::spans(shape, blocks, first..end)
        })
    }

    /// The tiles of the plan, if copying it in tiles is faster than in the order of the destination.
    pub fn tiling(&self) -> Option<TileCount> {
        let largest = self.parts().max_by_key(|part| part.blocks() * part.shape.block_size())?;
        let size = tiles::suitable_size(largest.shape)?;
        let count =
            self.parts().map(|part| tiles::count(part.shape, part.blocks, tiles::budget(part.shape))).sum();
        Some(TileCount { size, count })
    }

    /// Some of the tiles, each of which has units that no other has.
    pub fn tiles_in(&self, tiles: Range<u64>) -> impl Iterator<Item = Tile> {
        let (mut skip, mut left) = (tiles.start, tiles.end - tiles.start);
        self.parts().flat_map(move |PlanPart { shape, blocks, .. }| {
            let count = tiles::count(shape, blocks, tiles::budget(shape));
            let first = skip.min(count);
            let end = first + left.min(count - first);
            (skip, left) = (skip - first, left - (end - first));
            tiles::tiles(shape, blocks, first..end, tiles::budget(shape))
        })
    }

    /// The plan as matrices whose rows are at most `max_pitch` bytes apart, for each set of blocks with the same loops.
    pub fn matrices(&self, max_pitch: u64) -> impl Iterator<Item = Matrices<'_>> {
        self.parts().map(move |PlanPart { shape, blocks, .. }| Matrices::new(shape, blocks, max_pitch))
    }
}

/// The parts of a plan, one after the other.
#[derive(Clone)]
pub struct Parts<'a> {
    plan: &'a Plan,
    next: usize,
}

impl<'a> Iterator for Parts<'a> {
    type Item = PlanPart<'a>;

    /// Not inlined: creating a transfer goes through the parts half a dozen times, and there is mostly one.
    #[inline(never)]
    fn next(&mut self) -> Option<PlanPart<'a>> {
        let Plan { outline, blocks, layer, .. } = self.plan;
        let index = self.next;
        self.next += 1;
        if let Some(blocks) = blocks.runs() {
            let part = outline.parts.get(index)?;
            let LayerOutline { shape, block, .. } = part.layer(*layer);
            return Some(PlanPart { name: part.name(), shape, block, blocks });
        }
        let section = blocks.sections().get(index)?;
        Some(PlanPart {
            name: outline.parts[section.part].name(),
            shape: layer.and_then(|layer| section.layers.get(layer)).unwrap_or(&section.shape),
            block: &section.block,
            blocks: &section.spans,
        })
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TileCount {
    /// Bytes of most of them.
    pub size: u64,
    pub count: u64,
}

/// Blocks with the same loops.
#[derive(Clone, Copy)]
pub struct PlanPart<'a> {
    /// Of the part of the layouts; empty if they have none.
    name: &'a str,
    shape: &'a Shape,
    /// Of all layers.
    block: &'a PairedBlock,
    blocks: &'a BlockRuns,
}

impl<'a> PlanPart<'a> {
    /// The runs of blocks, in order of destination.
    pub fn runs(&self) -> &'a [BlockRun] {
        self.blocks.runs()
    }

    pub fn blocks(&self) -> u64 {
        self.blocks.blocks()
    }

    /// The units that it consists of.
    pub fn grid(&self) -> Grid {
        self.shape.grid()
    }

    /// The first unit of block 0 in each iteration of some of the loops.
    pub fn starts(&self, loops: &[Loop]) -> impl ExactSizeIterator<Item = Move> {
        self.shape.starts(loops)
    }

    /// The loops over the units of a block.
    pub fn loops(&self) -> &'a [Loop] {
        self.shape.nest.loops()
    }

    /// Bytes from a block to the next, in source and destination.
    pub fn block_strides(&self) -> [u64; 2] {
        self.shape.block_strides()
    }

    /// Region and address of block 0 of a side, so many regions and bytes after its first unit.
    pub fn at(&self, side: usize, regions: u32, bytes: u64) -> (u32, u64) {
        self.shape.sides[side].at(regions, bytes)
    }

    /// Passes the bytes of one block of a side to `visit`, in the order of (token, layer, outer slot, head): the same on both
    /// sides, whatever their order in memory.
    pub fn each_in_canonical_order(&self, side: usize, id: u32, visit: impl FnMut(u64, u64)) {
        canonical::each_span(&self.shape.sides[side], self.block, side, id, visit);
    }

    pub fn max_moves(&self) -> u64 {
        let spans = if self.shape.blocks_together { self.runs().len() as u64 } else { self.blocks() };
        spans * self.shape.units_of_block()
    }

    pub fn bytes(&self) -> u64 {
        self.blocks() * self.shape.block_size()
    }

    /// The maximum number of contiguous spans on one side alone. Blocks of a run that continue each other there share
    /// spans.
    pub fn max_spans_on(&self, side: usize) -> u64 {
        let spans = self.shape.nest.ranges_on(side);
        let are_continued = self.block_strides()[side] == self.shape.block_size() / spans;
        let times = if are_continued { self.runs().len() as u64 } else { self.blocks() };
        times * spans
    }
}

/// Capacity that is allocated for moves before their number is known.
const MAX_CAPACITY: u64 = 1 << 20;

#[cfg(test)]
pub(crate) mod tests;
