// SPDX-License-Identifier: Apache-2.0
//! From block pairs to the fewest moves. Pure: addresses in, addresses out.

pub mod alignment;
mod cut;
mod matrices;
mod outline;
pub mod overlap;
mod progressions;
mod runs;
mod selection;
mod shape;
mod side;

pub use matrices::{Matrices, Matrix};
pub use outline::Outline;
pub use runs::BlockRuns;
pub use selection::{Selection, Slots};

use std::ops::Range;
use std::sync::Arc;

use self::outline::Part;
use self::shape::{Place, Shape, Units};
use self::side::Side;
use super::request::{BlockPair, PairedRange, Wanted};
use crate::error::{Error, Result, Status};
use crate::layout::{Layout, Unit};

/// One stretch of bytes that lies together on both sides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Move {
    /// Where it comes from.
    pub source: u64,
    /// Where it goes.
    pub destination: u64,
    /// Bytes.
    pub size: u64,
    /// The source layout's region it lies in.
    pub source_region: u32,
    /// The destination layout's.
    pub destination_region: u32,
}

/// Blocks that follow each other on both sides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// First block id in the source layout.
    pub source: u32,
    /// First block id in the destination layout.
    pub destination: u32,
    /// How many blocks.
    pub length: u32,
}

/// What a transfer does, in order of destination. The moves are computed as they are asked for: a plan of many
/// scattered blocks costs its user little more than reading their ids. Clones share the blocks.
#[derive(Clone, Debug)]
pub struct Plan {
    outline: Arc<Outline>,
    blocks: Arc<BlockRuns>,
    /// The one layer that is moved; none for all of the selection.
    layer: Option<usize>,
    pieces: u64,
    bytes: u64,
}

impl Plan {
    /// Plans the move of `pairs`. The memory of `spare`, the blocks of an earlier plan, is used again if no other plan has
    /// them any more.
    pub fn new(outline: &Arc<Outline>, pairs: &[BlockPair], spare: Option<Arc<BlockRuns>>) -> Result<Self> {
        let mut blocks = spare.filter(|spare| Arc::strong_count(spare) == 1).unwrap_or_default();
        if let Some(blocks) = Arc::get_mut(&mut blocks) {
            outline.fill(blocks, pairs)?;
        }
        let Selection { layers, outers } = outline.whole.selection;
        let pieces = product(&[blocks.blocks(), layers.count, outers.count])?;
        let bytes = product(&[pieces, outline.piece_size])?;
        Ok(Self { outline: outline.clone(), blocks, layer: None, pieces, bytes })
    }

    /// The plan of one list of pairs between two layouts.
    pub fn once(source: &Layout, destination: &Layout, pairs: &[BlockPair], wanted: Wanted) -> Result<Self> {
        Self::new(&Arc::new(Outline::new(source, destination, wanted, false)?), pairs, None)
    }

    /// The part of the plan that moves one of its layers; the outline is one by layer.
    pub fn layer(&self, layer: u64) -> Self {
        let layers = self.outline.whole.selection.layers.count;
        Self {
            layer: Some(layer as usize),
            pieces: self.pieces / layers,
            bytes: self.bytes / layers,
            ..self.clone()
        }
    }

    /// The blocks, whose memory the next plan can use once this one is gone.
    pub fn shared_blocks(&self) -> Arc<BlockRuns> {
        self.blocks.clone()
    }

    fn part(&self) -> &Part {
        let layer = self.layer.and_then(|layer| self.outline.layers.get(layer));
        layer.unwrap_or(&self.outline.whole)
    }

    fn shape(&self) -> &Shape {
        &self.part().shape
    }

    /// The runs of blocks, in order of destination.
    pub fn runs(&self) -> &[Run] {
        self.blocks.runs()
    }

    /// How many blocks are moved.
    pub fn blocks(&self) -> u64 {
        self.blocks.blocks()
    }

    /// What is moved of each block.
    pub fn selection(&self) -> &Selection {
        &self.part().selection
    }

    /// The layers moved of each block.
    pub fn layers(&self) -> PairedRange {
        self.selection().layers
    }

    /// The outer slots moved of each layer.
    pub fn outers(&self) -> PairedRange {
        self.selection().outers
    }

    /// Whether both layouts have some memory in common.
    pub fn has_common_memory(&self) -> bool {
        self.outline.has_common_memory
    }

    /// The largest unit that is contiguous in both layouts for every block, and of which all is moved.
    pub fn unit(&self) -> Unit {
        self.shape().unit
    }

    /// The units it is made of.
    pub fn grid(&self) -> Grid {
        let shape = self.shape();
        let stride = |of: fn(&Side) -> u64| [of(&shape.sides[0]), of(&shape.sides[1])];
        Grid {
            unit_size: shape.unit_size,
            layers: shape.layers,
            outers: shape.outers,
            blocks_together: shape.blocks_together,
            strides: stride(Side::block_stride),
            layer_strides: stride(Side::layer_stride),
            outer_strides: stride(Side::outer_stride),
        }
    }

    /// The first unit of a run in one of the grid's layers and outer slots.
    pub fn unit_move(&self, layer: u64, outer: u64, run: Run) -> Move {
        self.shape().at(Run { length: 1, ..run }, layer, outer)
    }

    /// How many (block, layer, outer) are moved.
    pub fn pieces(&self) -> u64 {
        self.pieces
    }

    /// Bytes moved.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// How many moves there are at most, without computing them.
    pub fn most_moves(&self) -> u64 {
        let shape = self.shape();
        let per_layer = if shape.blocks_together { self.runs().len() as u64 } else { self.blocks() };
        per_layer * shape.layers * shape.outers
    }

    /// Room for a list of the moves: a list that grows is copied again and again.
    pub fn room(&self) -> usize {
        self.most_moves().min(MOST_ROOM) as usize
    }

    /// The moves. No two neighbours can be joined.
    pub fn moves(&self) -> impl Iterator<Item = Move> {
        self.moves_in(0..self.bytes)
    }

    /// How many moves there are, if layers are moved one by one or not.
    pub fn count_moves(&self, by_layer: bool) -> u64 {
        match by_layer {
            true => (0..self.layers().count).map(|layer| self.layer(layer).count_moves(false)).sum(),
            false => self.moves().count() as u64,
        }
    }

    /// The moves of some of the bytes, which are counted in the order of [`Self::moves`].
    pub fn moves_in(&self, bytes: Range<u64>) -> impl Iterator<Item = Move> {
        let shape = self.shape();
        let place =
            Place::of(shape, self.blocks(), bytes.start / shape.unit_size, |block| self.blocks.find(block));
        let units = Units::from(shape, self.runs(), place);
        Joined {
            moves: SomeOf { units, skip: bytes.start % shape.unit_size, left: bytes.end - bytes.start },
            last: None,
        }
    }
}

/// Room that is made for moves before it is known how many there are.
const MOST_ROOM: u64 = 1 << 20;

/// What is left of a geometry once everything that is always contiguous is one unit: units by block, layer and outer
/// slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grid {
    /// Bytes of a unit.
    pub unit_size: u64,
    /// Layers, each of which starts somewhere else.
    pub layers: u64,
    /// Outer slots, likewise.
    pub outers: u64,
    /// Adjacent blocks are contiguous on both sides.
    pub blocks_together: bool,
    /// Bytes from a block to the next, in source and destination.
    pub strides: [u64; 2],
    /// Bytes from a layer to the next; 0 if layers have regions of their own.
    pub layer_strides: [u64; 2],
    /// Bytes from an outer slot to the next.
    pub outer_strides: [u64; 2],
}

fn product(factors: &[u64]) -> Result<u64> {
    let product = factors.iter().try_fold(1u64, |product, factor| product.checked_mul(*factor));
    product.ok_or_else(|| Error::new(Status::InvalidArgument, "the transfer is of more than 2^64 - 1 bytes"))
}

/// Some bytes of units: without the first `skip`, and no more than are left.
struct SomeOf<'a> {
    units: Units<'a>,
    skip: u64,
    left: u64,
}

impl Iterator for SomeOf<'_> {
    type Item = Move;

    fn next(&mut self) -> Option<Move> {
        if self.left == 0 {
            return None;
        }
        let unit = self.units.next()?;
        let skip = std::mem::take(&mut self.skip);
        let size = (unit.size - skip).min(self.left);
        self.left -= size;
        Some(Move { source: unit.source + skip, destination: unit.destination + skip, size, ..unit })
    }
}

/// Joins each move with the one before where both sides go on.
struct Joined<I> {
    moves: I,
    last: Option<Move>,
}

impl<I: Iterator<Item = Move>> Iterator for Joined<I> {
    type Item = Move;

    fn next(&mut self) -> Option<Move> {
        loop {
            let next = self.moves.next();
            match (&mut self.last, next) {
                (Some(last), Some(next)) if last.goes_on_in(&next) => last.size += next.size,
                (last, Some(next)) => match last.replace(next) {
                    Some(done) => return Some(done),
                    None => continue,
                },
                (last, None) => return last.take(),
            }
        }
    }
}

impl Move {
    /// Whether another one begins on both sides where this one ends.
    pub fn goes_on_in(&self, next: &Self) -> bool {
        self.source + self.size == next.source
            && self.destination + self.size == next.destination
            && self.source_region == next.source_region
            && self.destination_region == next.destination_region
    }
}

#[cfg(test)]
mod tests;
