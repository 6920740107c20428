// SPDX-License-Identifier: Apache-2.0
//! The loops of a plan at addresses: what does not depend on the blocks.

use super::axes::PairedBlock;
use super::moves::{BlockRun, Move};
use super::nest::{Loop, LoopOrder, Nest, iterations};
use super::odometer::{Odometer, Position};
use super::side::Side;

/// The loops over what is moved of each block, and where they start.
#[derive(Clone, Debug)]
pub struct Shape {
    pub nest: Nest,
    /// Blocks with consecutive ids are contiguous on both sides, unit by unit.
    pub blocks_together: bool,
    pub sides: [Side; 2],
    /// Units of a block that come before those of the next block.
    pub units_inside: u64,
}

/// A part of a block as a kernel or the driver copies it: units by lane, row and block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grid {
    pub unit_size: u64,
    /// Iterations of all loops but the innermost: each starts at an address of its own.
    pub lanes: u64,
    /// The innermost loop, within a region on each side.
    pub rows: u64,
    /// Bytes from a row to the next, in source and destination.
    pub row_strides: [u64; 2],
    /// Blocks with consecutive ids are contiguous on both sides.
    pub blocks_together: bool,
    /// Bytes from a block to the next.
    pub strides: [u64; 2],
}

impl Shape {
    /// The shape of what is moved of blocks of two sides.
    pub fn new(sides: &[Side; 2], block: &PairedBlock) -> Self {
        Self::in_order(LoopOrder::Destination, sides, block)
    }

    /// The same with loops in the order of one of the sides.
    pub fn in_order(order: LoopOrder, sides: &[Side; 2], block: &PairedBlock) -> Self {
        let block_stride = block.page_strides[order.leader()];
        let nest = Nest::in_order(order, &block.axes, block.element_size, block_stride);
        let sides = [0, 1].map(|side| sides[side].starting_at(block.start(side)));
        Self {
            blocks_together: sides.iter().all(|side| side.block_stride == nest.unit_size),
            units_inside: iterations(nest.inside()),
            nest,
            sides,
        }
    }

    /// Units of all loops, for each block.
    pub fn units_of_block(&self) -> u64 {
        iterations(self.nest.loops())
    }

    /// Bytes of all loops, for each block.
    pub fn block_size(&self) -> u64 {
        self.units_of_block() * self.nest.unit_size
    }

    /// The units as lanes and rows.
    pub fn grid(&self) -> Grid {
        let (lanes, rows) = self.lanes();
        Grid {
            unit_size: self.nest.unit_size,
            lanes: iterations(lanes),
            rows: rows.count,
            row_strides: rows.strides,
            blocks_together: self.blocks_together,
            strides: self.block_strides(),
        }
    }

    /// The first unit of block 0 in each iteration of some of the outermost loops.
    pub fn starts(&self, loops: &[Loop]) -> impl ExactSizeIterator<Item = Move> {
        let mut odometer = Odometer::new(loops, 0);
        (0..iterations(loops) as usize).map(move |_| {
            let start = self.unit(&odometer.at, BlockRun { source: 0, destination: 0, length: 1 });
            odometer.step();
            start
        })
    }

    /// The loops of lanes, and that of rows.
    pub fn lanes(&self) -> (&[Loop], Loop) {
        match self.nest.loops() {
            [lanes @ .., rows] if rows.is_within_regions() => (lanes, *rows),
            lanes => (lanes, Loop { count: 1, ..Loop::default() }),
        }
    }

    /// Bytes from a block to the next.
    pub fn block_strides(&self) -> [u64; 2] {
        [self.sides[0].block_stride, self.sides[1].block_stride]
    }

    /// The unit at a position, of blocks that are contiguous or of one block.
    #[inline]
    pub fn unit(&self, at: &Position, blocks: BlockRun) -> Move {
        let [source, destination] = &self.sides;
        let (source_region, from) = source.at(at.regions[0], at.bytes[0]);
        let (destination_region, to) = destination.at(at.regions[1], at.bytes[1]);
        Move {
            source: from + u64::from(blocks.source) * source.block_stride,
            destination: to + u64::from(blocks.destination) * destination.block_stride,
            size: self.nest.unit_size * u64::from(blocks.length),
            source_region,
            destination_region,
        }
    }
}
