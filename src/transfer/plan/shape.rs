// SPDX-License-Identifier: Apache-2.0
//! The loops of a plan: what is contiguous on both sides, and the order of the rest.
#![forbid(unsafe_code)]

use super::side::Side;
use super::{BlockRun, Move, Selection};
use crate::layout::{BlockDim, LayoutKind, Placement, Unit};

/// Which loops are left once everything that is always contiguous is one unit. It does not depend on the blocks.
#[derive(Clone, Debug)]
pub struct Shape {
    /// The largest unit that is contiguous in both layouts, and of which all is moved.
    pub unit: Unit,
    /// Bytes of what is contiguous.
    pub unit_size: u64,
    /// Layers, each of which starts somewhere else.
    pub layers: u64,
    /// Outer slots, likewise.
    pub outers: u64,
    /// Adjacent blocks are contiguous on both sides, unit by unit.
    pub blocks_together: bool,
    /// Source and destination.
    pub sides: [Side; 2],
    /// Layers and outer slots of a block that come before those of the next block: as many as the destination has in one
    /// region. What is written is written in order, as far as the layout allows: of two batches of the same copies to the
    /// host, the one out of order took a tenth longer.
    slots_of_block: u64,
}

impl Shape {
    /// Of the moves between two placements.
    pub fn of(source: &Placement, destination: &Placement, selection: &Selection) -> Self {
        let sides = [source.geometry(), destination.geometry()];
        let piece = sides[0].piece_size();
        let (layers, outers) = (selection.layers.count, selection.outers.count);
        let slots = piece * outers;
        let has_all_slots = sides.iter().all(|side| side.dimensions().outer_dim == outers);
        let has_all_layers = sides.iter().all(|side| side.dimensions().num_layers == layers);
        let contiguous = sides.iter().all(|side| side.kind() == LayoutKind::FullyContiguous);

        let slots_together = outers == 1 || sides.iter().all(|side| side.outer_stride() == piece);
        let layers_together = slots_together && contiguous && (has_all_slots || layers == 1);
        // A part of a block's layers or slots is contiguous too, but no prepared list has it as a unit.
        let unit = match (slots_together && has_all_slots, layers_together && has_all_layers) {
            (true, true) => Unit::Block,
            (true, false) => Unit::Layer,
            (false, _) => Unit::Piece,
        };
        let unit_size = match (slots_together, layers_together) {
            (true, true) => slots * layers,
            (true, false) => slots,
            (false, _) => piece,
        };
        let layers = if layers_together { 1 } else { layers };
        let outers = if slots_together { 1 } else { outers };
        Self {
            unit,
            unit_size,
            layers,
            outers,
            blocks_together: sides.iter().all(|side| side.block_stride() == unit_size),
            slots_of_block: match sides[1].kind() {
                LayoutKind::FullyContiguous => layers * outers,
                LayoutKind::LayerSeparate(BlockDim::First) => outers,
                LayoutKind::LayerSeparate(BlockDim::Second) | LayoutKind::Ordered(_) => 1,
            },
            sides: [
                Side::new(source, selection.layers.source, selection.outers.source, layers),
                Side::new(destination, selection.layers.destination, selection.outers.destination, layers),
            ],
        }
    }

    /// The move of one layer and outer slot of adjacent blocks that are contiguous, or of one block.
    pub fn at(&self, blocks: BlockRun, layer: u64, outer: u64) -> Move {
        Lane::of(self, layer, outer).at(self, blocks)
    }
}

/// One layer and outer slot on both sides: from here an address is one product away.
#[derive(Clone, Copy)]
struct Lane {
    source: (u32, u64),
    destination: (u32, u64),
}

impl Lane {
    fn of(shape: &Shape, layer: u64, outer: u64) -> Self {
        let [source, destination] = &shape.sides;
        Self { source: source.at(layer, outer), destination: destination.at(layer, outer) }
    }

    fn at(&self, shape: &Shape, blocks: BlockRun) -> Move {
        let [source, destination] = &shape.sides;
        Move {
            source: self.source.1 + u64::from(blocks.source) * source.block_stride(),
            destination: self.destination.1 + u64::from(blocks.destination) * destination.block_stride(),
            size: shape.unit_size * u64::from(blocks.length),
            source_region: self.source.0,
            destination_region: self.destination.0,
        }
    }
}

/// The units of all blocks, or of all runs if adjacent blocks are contiguous: block by block through some slots, and then
/// from the first block on through the next slots. Adjacent units in memory are adjacent here, so joining each with the one
/// before gives the largest moves.
pub(super) struct Units<'a> {
    shape: &'a Shape,
    runs: &'a [BlockRun],
    run: usize,
    /// Of the run.
    block: u32,
    /// The first slot of those that all blocks go through now.
    first: Slot,
    slot: Slot,
    lane: Lane,
    /// Slots of the block that are left, with this one.
    left: u64,
}

/// A layer and an outer slot.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Slot {
    layer: u64,
    outer: u64,
}

impl Slot {
    fn numbered(shape: &Shape, number: u64) -> Self {
        Self { layer: number / shape.outers, outer: number % shape.outers }
    }

    fn next(self, shape: &Shape) -> Self {
        match self.outer + 1 < shape.outers {
            true => Self { outer: self.outer + 1, ..self },
            false => Self { layer: self.layer + 1, outer: 0 },
        }
    }
}

impl<'a> Units<'a> {
    /// From one of the units on: `slots` whole passes over all blocks, then as many blocks, then as many slots of a block.
    pub fn from(shape: &'a Shape, runs: &'a [BlockRun], place: Place) -> Self {
        let first = Slot::numbered(shape, place.pass * shape.slots_of_block);
        let slot = Slot::numbered(shape, place.pass * shape.slots_of_block + place.slot);
        Self {
            shape,
            runs,
            run: place.run,
            block: place.block,
            first,
            slot,
            lane: Lane::of(shape, slot.layer, slot.outer),
            left: shape.slots_of_block - place.slot,
        }
    }

    fn go_to(&mut self, slot: Slot) {
        if slot != self.slot {
            self.slot = slot;
            self.lane = Lane::of(self.shape, slot.layer, slot.outer);
        }
    }

    /// Past the slot of these blocks.
    fn step(&mut self, run: &BlockRun, blocks: u32) {
        self.left -= 1;
        if self.left > 0 {
            return self.go_to(self.slot.next(self.shape));
        }
        self.left = self.shape.slots_of_block;
        self.block += blocks;
        if self.block < run.length {
            return self.go_to(self.first);
        }
        (self.block, self.run) = (0, self.run + 1);
        if self.run < self.runs.len() {
            return self.go_to(self.first);
        }
        let next = self.slot.next(self.shape);
        if next.layer < self.shape.layers {
            (self.run, self.first) = (0, next);
            self.go_to(next);
        }
    }
}

impl Iterator for Units<'_> {
    type Item = Move;

    fn next(&mut self) -> Option<Move> {
        let run = self.runs.get(self.run)?;
        let length = if self.shape.blocks_together { run.length - self.block } else { 1 };
        let blocks =
            BlockRun { source: run.source + self.block, destination: run.destination + self.block, length };
        let found = self.lane.at(self.shape, blocks);
        self.step(run, length);
        Some(found)
    }
}

/// One of the units.
pub(super) struct Place {
    pass: u64,
    pub run: usize,
    pub block: u32,
    slot: u64,
}

impl Place {
    /// The unit of this number, where `find` returns the run of a block and its place there.
    pub fn of(shape: &Shape, blocks: u64, unit: u64, find: impl FnOnce(u64) -> (usize, u32)) -> Self {
        let pass_size = blocks * shape.slots_of_block;
        let within = unit % pass_size;
        let (run, block) = find(within / shape.slots_of_block);
        Self { pass: unit / pass_size, run, block, slot: within % shape.slots_of_block }
    }
}
