// SPDX-License-Identifier: Apache-2.0
//! Positions in nested loops, one after the other.

use std::ops::Deref;

use super::nest::{BLOCK_AXES, Loop};

pub struct Odometer<L> {
    /// Outermost first.
    pub loops: L,
    /// The iteration of each loop.
    pub indices: [u64; BLOCK_AXES],
    /// The sum of all steps.
    pub at: Position,
}

impl<L: Deref<Target = [Loop]>> Odometer<L> {
    /// After this many iterations.
    pub fn new(loops: L, iterations: u64) -> Self {
        let (mut indices, mut at) = ([0; BLOCK_AXES], Position::default());
        let mut left = iterations;
        for (index, each) in indices.iter_mut().zip(loops.iter()).rev() {
            *index = left % each.count;
            left /= each.count;
            at.advance(each, *index);
        }
        Self { loops, indices, at }
    }

    /// Goes to the next iteration. Returns false after the last, and starts again.
    pub fn step(&mut self) -> bool {
        for (index, each) in self.indices.iter_mut().zip(self.loops.iter()).rev() {
            *index += 1;
            if *index < each.count {
                self.at.advance(each, 1);
                return true;
            }
            *index = 0;
            self.at.retreat(each, each.count - 1);
        }
        false
    }
}

/// A place in loops: regions and bytes after their start, in source and destination.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Position {
    pub regions: [u32; 2],
    pub bytes: [u64; 2],
}

impl Position {
    /// One after the other.
    pub fn sum(outer: &Self, inner: &Self) -> Self {
        Self {
            regions: [0, 1].map(|side| outer.regions[side] + inner.regions[side]),
            bytes: [0, 1].map(|side| outer.bytes[side] + inner.bytes[side]),
        }
    }

    /// Goes so many iterations forward.
    pub fn advance(&mut self, each: &Loop, iterations: u64) {
        for side in 0..2 {
            self.regions[side] += each.regions[side] * iterations as u32;
            self.bytes[side] += each.strides[side] * iterations;
        }
    }

    /// Goes so many iterations back.
    pub fn retreat(&mut self, each: &Loop, iterations: u64) {
        for side in 0..2 {
            self.regions[side] -= each.regions[side] * iterations as u32;
            self.bytes[side] -= each.strides[side] * iterations;
        }
    }
}
