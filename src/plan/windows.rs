// SPDX-License-Identifier: Apache-2.0
//! Divides a plan into windows, so that its moves are listed window by window. Each window has the moves of some blocks, in
//! the order of the plan, and of the same blocks in every part of the layouts.

use std::ops::Range;

use super::moves::{Matrix, Move};
use super::nest::iterations;
use super::{Plan, PlanPart, units};

impl Plan {
    /// The number of windows of about so many moves and bytes; a block is not divided.
    pub fn windows(&self, max_moves: u64, max_bytes: u64) -> u64 {
        let wanted = self.max_moves().div_ceil(max_moves).max(self.bytes().div_ceil(max_bytes));
        let passes = self.parts().map(|part| part.passes()).max();
        wanted.clamp(1, passes.unwrap_or(1).max(1))
    }

    /// The moves of a window, if there are `count` of them. Neighbours are joined, unless they are in different windows.
    pub fn moves_in_window(&self, window: u64, count: u64) -> impl Iterator<Item = Move> {
        let rows = self.parts().flat_map(move |part| {
            let bytes = part.bytes_of_window(window, count);
            units::spans(part.shape, part.blocks, bytes)
        });
        units::join(rows.flat_map(Matrix::moves))
    }

    /// Whether all moves are of multiples of a size, from multiples of it to multiples of it, if that follows from the loops:
    /// without listing the moves. Addresses of a side count if `counted`.
    pub fn is_surely_aligned(&self, alignment: u64, counted: [bool; 2]) -> bool {
        self.parts().all(|PlanPart { shape, .. }| {
            let strides_are = |side: usize| {
                let loops = shape.nest.loops().iter().map(|each| each.strides[side]);
                let mut strides = loops.chain([shape.block_strides()[side]]);
                strides.all(|stride| stride.is_multiple_of(alignment))
                    && shape.sides[side].starts().all(|start| start.is_multiple_of(alignment))
            };
            shape.nest.unit_size.is_multiple_of(alignment)
                && (0..2).all(|side| !counted[side] || strides_are(side))
        })
    }
}

impl PlanPart<'_> {
    /// How often a block is passed: once in each iteration of the loops outside of blocks.
    pub(super) fn passes(&self) -> u64 {
        self.blocks.blocks() * iterations(self.shape.nest.outside())
    }

    pub(super) fn bytes_of_window(&self, window: u64, count: u64) -> Range<u64> {
        let of_pass = self.shape.units_inside * self.shape.nest.unit_size;
        let passes = u128::from(self.passes());
        let start = |window: u64| (passes * u128::from(window) / u128::from(count)) as u64 * of_pass;
        start(window)..start(window + 1)
    }
}
