// SPDX-License-Identifier: Apache-2.0
//! The loops of a plan: what lies together on both sides, and the order in which the rest is met.

use super::{Move, Run, Selection};
use crate::layout::{BlockDim, LayoutKind, Placement, Unit};

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
    /// Units of a block that are met one after the other before the next block's: as many as lie in it where it goes.
    units_of_block: u64,
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
            units_of_block: match sides[1].kind() {
                LayoutKind::FullyContiguous => layers * outers,
                LayoutKind::LayerSeparate(BlockDim::First) => outers,
                LayoutKind::LayerSeparate(BlockDim::Second) => 1,
            },
        }
    }

    /// Every unit of every run, or whole runs where their blocks lie together. Neighbours in memory are neighbours
    /// here, so joining each with the one before finds the largest moves. What is written is written in order, as far as
    /// the layout goes: of two batches of the same copies to the host, the one that hopped about took a tenth longer.
    pub fn moves<'a>(
        &self,
        source: &Placement,
        destination: &Placement,
        runs: &'a [Run],
        selection: &Selection,
    ) -> Moves<'a> {
        let lane = |slot| Lane::new(source, destination, selection, slot / self.outers, slot % self.outers);
        Moves {
            lanes: (0..self.layers * self.outers).map(lane).collect(),
            lanes_of_block: self.units_of_block as usize,
            runs,
            blocks_together: self.blocks_together,
            unit_size: self.unit_size,
            first_lane: 0,
            run: 0,
            block: 0,
            lane: 0,
        }
    }
}

/// Goes over units: lanes of a block, blocks, and again with the next lanes.
pub struct Moves<'a> {
    lanes: Vec<Lane>,
    lanes_of_block: usize,
    runs: &'a [Run],
    blocks_together: bool,
    unit_size: u64,
    /// Of those that are gone through with all blocks now.
    first_lane: usize,
    run: usize,
    /// Of the run.
    block: u32,
    /// From the first on.
    lane: usize,
}

impl Iterator for Moves<'_> {
    type Item = Move;

    fn next(&mut self) -> Option<Move> {
        let run = *self.runs.get(self.run)?;
        let length = if self.blocks_together { run.length } else { 1 };
        let blocks =
            Run { source: run.source + self.block, destination: run.destination + self.block, length };
        let lane = self.lanes[self.first_lane + self.lane];
        self.step(run.length, length);
        Some(lane.at(blocks, self.unit_size))
    }
}

impl Moves<'_> {
    /// To the next lane, block or run; after the last run to the next lanes, if there are any.
    fn step(&mut self, run_length: u32, length: u32) {
        self.lane += 1;
        if self.lane < self.lanes_of_block {
            return;
        }
        (self.lane, self.block) = (0, self.block + length);
        if self.block < run_length {
            return;
        }
        (self.block, self.run) = (0, self.run + 1);
        if self.run == self.runs.len() && self.first_lane + self.lanes_of_block < self.lanes.len() {
            (self.run, self.first_lane) = (0, self.first_lane + self.lanes_of_block);
        }
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
