// SPDX-License-Identifier: Apache-2.0
//! From block pairs to the fewest moves. Pure: addresses in, addresses out.

pub mod alignment;
mod cut;
mod matrices;
pub mod overlap;
mod progressions;
mod runs;
mod selection;
mod shape;

pub use matrices::{Matrices, Matrix};
pub use selection::{PairedRange, Selection, Slots, Wanted};

use std::sync::Arc;

use self::shape::{Lane, Shape};
use crate::error::{Error, Result, Status};
use crate::layout::{Layout, Placement, Unit};

/// A block of the source and the block of the destination it goes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(C)]
pub struct BlockPair {
    /// Block id in the source layout.
    pub source: u32,
    /// Block id in the destination layout.
    pub destination: u32,
}

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
/// scattered blocks costs its user little more than reading their ids.
#[derive(Clone, Debug)]
pub struct Plan {
    runs: Arc<[Run]>,
    blocks: u64,
    selection: Selection,
    shape: Shape,
    pieces: u64,
    bytes: u64,
}

impl Plan {
    /// Plans the move of `pairs` between two layouts.
    pub fn new(source: &Layout, destination: &Layout, pairs: &[BlockPair], wanted: Wanted) -> Result<Self> {
        Self::between(source.placement(), destination.placement(), pairs, wanted)
    }

    /// The same for two placements: all checks and arithmetic, no layout.
    pub fn between(
        source: &Placement,
        destination: &Placement,
        pairs: &[BlockPair],
        wanted: Wanted,
    ) -> Result<Self> {
        source.geometry().ensure_same_pieces(destination.geometry())?;
        let selection = Selection::of(source, destination, wanted)?;
        let runs = runs::find(pairs, blocks_of(source), blocks_of(destination))?.into();
        let blocks = pairs.len() as u64;
        let pieces = product(&[blocks, selection.layers.count, selection.outers.count])?;
        let bytes = product(&[pieces, source.geometry().piece_size()])?;
        let shape = Shape::of(source, destination, &selection);
        Ok(Self { runs, blocks, selection, shape, pieces, bytes })
    }

    /// The part of the plan that moves one of its layers.
    pub fn layer(&self, source: &Layout, destination: &Layout, layer: u64) -> Self {
        let selection = self.selection.layer(layer);
        let layers = self.selection.layers.count;
        Self {
            runs: self.runs.clone(),
            blocks: self.blocks,
            selection,
            shape: Shape::of(source.placement(), destination.placement(), &selection),
            pieces: self.pieces / layers,
            bytes: self.bytes / layers,
        }
    }

    /// The runs of blocks, in order of destination.
    pub fn runs(&self) -> &[Run] {
        &self.runs
    }

    /// How many blocks are moved.
    pub fn blocks(&self) -> u64 {
        self.blocks
    }

    /// What is moved of each block.
    pub fn selection(&self) -> &Selection {
        &self.selection
    }

    /// The layers moved of each block.
    pub fn layers(&self) -> PairedRange {
        self.selection.layers
    }

    /// The outer slots moved of each layer.
    pub fn outers(&self) -> PairedRange {
        self.selection.outers
    }

    /// The largest unit that lies together in both layouts for every block, and of which all is moved.
    pub fn unit(&self) -> Unit {
        self.shape.unit
    }

    /// The units it is made of.
    pub fn grid(&self, source: &Placement, destination: &Placement) -> Grid {
        Grid {
            unit_size: self.shape.unit_size,
            layers: self.shape.layers,
            outers: self.shape.outers,
            blocks_together: self.shape.blocks_together,
            strides: [source.geometry().block_stride(), destination.geometry().block_stride()],
        }
    }

    /// The first unit of a run in one of the grid's layers and outer slots.
    pub fn unit_move(
        &self,
        source: &Placement,
        destination: &Placement,
        layer: u64,
        outer: u64,
        run: Run,
    ) -> Move {
        let lane = Lane::new(source, destination, &self.selection, layer, outer);
        lane.at(Run { length: 1, ..run }, self.shape.unit_size)
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
        let per_layer = if self.shape.blocks_together { self.runs.len() as u64 } else { self.blocks };
        per_layer * self.shape.layers * self.shape.outers
    }

    /// Room for a list of the moves: a list that grows is copied again and again.
    pub fn room(&self) -> usize {
        self.most_moves().min(MOST_ROOM) as usize
    }

    /// The moves between the placements that were planned for, as a list.
    pub fn collect_moves(&self, source: &Placement, destination: &Placement) -> Vec<Move> {
        let mut moves = Vec::with_capacity(self.room());
        moves.extend(self.moves(source, destination));
        moves
    }

    /// The moves between the placements that were planned for. No two neighbours can be joined.
    pub fn moves<'a>(
        &'a self,
        source: &'a Placement,
        destination: &'a Placement,
    ) -> impl Iterator<Item = Move> + 'a {
        Joined { moves: self.shape.moves(source, destination, &self.runs, &self.selection), last: None }
    }
}

/// Room that is made for moves before it is known how many there are.
const MOST_ROOM: u64 = 1 << 20;

/// What is left of a geometry once everything that always lies together is one unit: units by block, layer and outer
/// slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grid {
    /// Bytes of a unit.
    pub unit_size: u64,
    /// Layers, each of which begins somewhere else.
    pub layers: u64,
    /// Outer slots, likewise.
    pub outers: u64,
    /// Neighbouring blocks lie together on both sides.
    pub blocks_together: bool,
    /// Bytes from a block to the next, in source and destination.
    pub strides: [u64; 2],
}

fn blocks_of(placement: &Placement) -> u64 {
    placement.geometry().dimensions().num_blocks
}

fn product(factors: &[u64]) -> Result<u64> {
    let product = factors.iter().try_fold(1u64, |product, factor| product.checked_mul(*factor));
    product.ok_or_else(|| Error::new(Status::InvalidArgument, "the transfer is of more than 2^64 - 1 bytes"))
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
