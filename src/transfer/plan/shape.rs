// SPDX-License-Identifier: Apache-2.0
//! The loops of a plan: what lies together on both sides, and the order in which the rest is met.

use super::{Move, Run, Selection};
use crate::layout::{BlockDim, LayoutKind, Placement, Unit};

/// More layers and slots than a block of any model has are not met in the order of the destination: it takes memory to
/// know where all of them lie.
const MOST_SLOTS: u64 = 1 << 12;

/// Which loops are left once everything that always lies together is one unit.
#[derive(Clone, Debug)]
pub struct Shape {
    /// The largest unit that lies together in both layouts, and of which all is moved.
    pub unit: Unit,
    /// Bytes of what lies together.
    pub unit_size: u64,
    /// Layers, each of which begins somewhere else.
    pub layers: u64,
    /// Outer slots, likewise.
    pub outers: u64,
    /// Neighbouring blocks lie together on both sides, unit by unit.
    pub blocks_together: bool,
    /// Layers and outer slots of a block that are met one after the other before the next block's: as many as lie in it
    /// where it goes.
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
        // A part of a block's layers or slots lies together too, but no prepared list has it as a unit.
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
                LayoutKind::FullyContiguous if layers * outers <= MOST_SLOTS => layers * outers,
                LayoutKind::LayerSeparate(BlockDim::First) if outers <= MOST_SLOTS => outers,
                _ => 1,
            },
        }
    }

    /// Every unit of every run, or whole runs where their blocks lie together. Neighbours in memory are neighbours
    /// here, so joining each with the one before finds the largest moves. What is written is written in order, as far as
    /// the layout goes: of two batches of the same copies to the host, the one that hopped about took a tenth longer.
    pub fn moves<'a>(
        &'a self,
        source: &'a Placement,
        destination: &'a Placement,
        runs: &'a [Run],
        selection: &'a Selection,
    ) -> impl Iterator<Item = Move> + 'a {
        let lane = |slot| Lane::new(source, destination, selection, slot / self.outers, slot % self.outers);
        let mut walk = Walk { shape: self, runs, first_slot: 0, run: 0, block: 0, slot: 0 };
        let mut lanes: Vec<_> = (0..self.slots_of_block).map(lane).collect();
        std::iter::from_fn(move || {
            let (slot, blocks) = (walk.slot, walk.blocks()?);
            let found = lanes[slot as usize].at(blocks, self.unit_size);
            if walk.step(blocks.length) {
                lanes.clear();
                lanes.extend((walk.first_slot..walk.first_slot + self.slots_of_block).map(lane));
            }
            Some(found)
        })
    }
}

/// Goes over slots of a block, block by block, and again with the next slots of each block.
struct Walk<'a> {
    shape: &'a Shape,
    runs: &'a [Run],
    /// The first of those that all blocks are gone through with now: layers and outer slots by one number.
    first_slot: u64,
    run: usize,
    /// Of the run.
    block: u32,
    /// From the first on.
    slot: u64,
}

impl Walk<'_> {
    /// One block, or all of a run that lie together.
    fn blocks(&self) -> Option<Run> {
        let run = self.runs.get(self.run)?;
        let length = if self.shape.blocks_together { run.length } else { 1 };
        Some(Run { source: run.source + self.block, destination: run.destination + self.block, length })
    }

    /// Past the slot of these blocks. Whether other slots follow, from the first block on.
    fn step(&mut self, blocks: u32) -> bool {
        self.slot += 1;
        if self.slot < self.shape.slots_of_block {
            return false;
        }
        (self.slot, self.block) = (0, self.block + blocks);
        if self.block < self.runs[self.run].length {
            return false;
        }
        (self.block, self.run) = (0, self.run + 1);
        let next = self.first_slot + self.shape.slots_of_block;
        let goes_on = self.run == self.runs.len() && next < self.shape.layers * self.shape.outers;
        if goes_on {
            (self.run, self.first_slot) = (0, next);
        }
        goes_on
    }
}

/// One layer and outer slot on both sides: from here an address is one product away.
#[derive(Clone, Copy)]
pub struct Lane {
    source: (u32, u64, u64),
    destination: (u32, u64, u64),
}

impl Lane {
    /// Of the layer and slot with these numbers among those that are moved.
    pub fn new(
        source: &Placement,
        destination: &Placement,
        Selection { layers, outers }: &Selection,
        layer: u64,
        outer: u64,
    ) -> Self {
        let side = |placement: &Placement, first_layer: u64, first_outer: u64| {
            let (region, start) = placement.address(0, first_layer + layer, first_outer + outer);
            (region as u32, start, placement.geometry().block_stride())
        };
        Self {
            source: side(source, layers.source, outers.source),
            destination: side(destination, layers.destination, outers.destination),
        }
    }

    /// The move of blocks that follow each other on both sides, or of one.
    pub fn at(&self, blocks: Run, unit_size: u64) -> Move {
        let (source_region, source, source_stride) = self.source;
        let (destination_region, destination, destination_stride) = self.destination;
        Move {
            source: source + u64::from(blocks.source) * source_stride,
            destination: destination + u64::from(blocks.destination) * destination_stride,
            size: unit_size * u64::from(blocks.length),
            source_region,
            destination_region,
        }
    }
}
