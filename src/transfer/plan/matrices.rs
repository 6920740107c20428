// SPDX-License-Identifier: Apache-2.0
//! Moves of equal size at regular distances on both sides, taken together: the rows of a matrix.
#![forbid(unsafe_code)]

use super::progressions::{self, Limits, Progression};
use super::{BlockRun, Grid, Move, Plan};

/// Rows of equal size at regular distances.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Matrix {
    /// The first row.
    pub first: Move,
    /// Bytes from a row to the next, in source and destination; of no meaning for a single row.
    pub strides: [u64; 2],
    /// How many rows.
    pub rows: u64,
}

/// A plan as matrices.
pub struct Matrices<'a> {
    plan: &'a Plan,
    grid: Grid,
    most_pitch: u64,
}

/// What the rows of a matrix are. Outer slots are two at most, which makes no matrix worth having; and layers that have
/// regions of their own may lie in memory that is not one piece.
enum Rows {
    /// Blocks, or runs of blocks, of a layer and outer slot.
    Blocks,
    /// The layers of a block, or of all blocks of a run.
    Layers,
}

impl Plan {
    /// The plan as matrices whose rows are at most `most_pitch` bytes apart.
    pub fn matrices(&self, most_pitch: u64) -> Matrices<'_> {
        Matrices { plan: self, grid: self.grid(), most_pitch }
    }
}

impl Matrices<'_> {
    /// More there can't be, but where blocks are too far apart.
    pub fn most(&self) -> u64 {
        self.plan.runs().len() as u64 * self.lanes()
    }

    /// How many there are, if not more than `limit`. Runs are looked at until there are more: scattered blocks, of which
    /// there may be many, make matrices that nobody wants.
    pub fn count(&self, limit: u64) -> Option<u64> {
        let of_layers = self.of_layers();
        let of_blocks = self.of_blocks(of_layers.unwrap_or(u64::MAX).min(limit));
        of_blocks.or(of_layers).filter(|count| *count <= limit)
    }

    /// The units that rows are made of.
    pub fn grid(&self) -> &Grid {
        &self.grid
    }

    /// How many rows they have together, by blocks.
    pub fn total_rows(&self) -> u64 {
        let runs = self.plan.runs().len() as u64;
        let of_lane = if self.grid.blocks_together { runs } else { self.plan.blocks() };
        of_lane * self.lanes()
    }

    /// Tells of each.
    pub fn for_each(&self, mut tell: impl FnMut(Matrix)) {
        match self.rows() {
            Rows::Blocks => self.each_of_blocks(tell),
            Rows::Layers => self.each_of_layers(&mut tell),
        }
    }

    /// Layers, where that makes fewer.
    fn rows(&self) -> Rows {
        match self.of_layers() {
            Some(count) if self.of_blocks(count).is_none() => Rows::Layers,
            _ => Rows::Blocks,
        }
    }

    /// How many there are with layers as rows, where they can be.
    fn of_layers(&self) -> Option<u64> {
        let strides = self.layer_strides()?;
        Some(if self.is_chained(strides) { self.plan.runs().len() as u64 } else { self.plan.blocks() })
    }

    /// How many there are with blocks as rows, if not more than `limit`.
    fn of_blocks(&self, limit: u64) -> Option<u64> {
        let most = limit / self.lanes();
        let count = match self.grid.blocks_together || self.blocks_are_rows() {
            true => self.progressions().take((most as usize).saturating_add(1)).count() as u64,
            false => self.plan.blocks(),
        };
        (count <= most).then(|| count * self.lanes())
    }

    /// Layers and outer slots that begin somewhere else.
    fn lanes(&self) -> u64 {
        self.grid.layers * self.grid.outers
    }

    /// Whether the layers of a block follow those of the block before at the same distance.
    fn is_chained(&self, strides: [u64; 2]) -> bool {
        (0..2).all(|side| self.grid.strides[side] == self.grid.layers * strides[side])
    }

    /// Bytes from a layer to the next, where layers can be rows.
    fn layer_strides(&self) -> Option<[u64; 2]> {
        let strides = self.grid.layer_strides;
        let fit = strides.iter().all(|stride| (1..=self.most_pitch).contains(stride));
        (fit && self.grid.layers > 1 && self.grid.outers == 1).then_some(strides)
    }

    /// Whether neighbouring blocks are rows.
    fn blocks_are_rows(&self) -> bool {
        !self.grid.blocks_together && self.grid.strides.iter().all(|stride| *stride <= self.most_pitch)
    }

    fn progressions(&self) -> impl Iterator<Item = Progression> {
        let limits = Limits {
            // A run of several blocks that lie apart is a matrix by itself.
            length: if self.grid.blocks_together { u64::MAX } else { 1 },
            steps: self.grid.strides.map(|stride| self.most_pitch / stride),
        };
        progressions::find(self.plan.runs(), limits)
    }

    fn each_of_blocks(&self, mut tell: impl FnMut(Matrix)) {
        for layer in 0..self.grid.layers {
            for outer in 0..self.grid.outers {
                self.progressions().for_each(|each| self.rows_of(layer, outer, each, &mut tell));
            }
        }
    }

    fn rows_of(&self, layer: u64, outer: u64, each: Progression, tell: &mut impl FnMut(Matrix)) {
        let Progression { first, count, steps } = each;
        let [here, there] = self.grid.strides;
        let unit = self.unit(layer, outer, first);
        if self.grid.blocks_together {
            let first = Move { size: unit.size * u64::from(first.length), ..unit };
            return tell(Matrix { first, strides: [steps[0] * here, steps[1] * there], rows: count });
        }
        if count > 1 {
            return tell(Matrix { first: unit, strides: [steps[0] * here, steps[1] * there], rows: count });
        }
        if self.blocks_are_rows() {
            return tell(Matrix { first: unit, strides: self.grid.strides, rows: u64::from(first.length) });
        }
        for block in 0..u64::from(first.length) {
            let first = unit.further([block * here, block * there]);
            tell(Matrix { first, strides: self.grid.strides, rows: 1 });
        }
    }

    fn each_of_layers(&self, tell: &mut impl FnMut(Matrix)) {
        let Some(strides) = self.layer_strides() else { return };
        let [here, there] = self.grid.strides;
        for run in self.plan.runs() {
            let first = self.unit(0, 0, *run);
            let length = u64::from(run.length);
            if self.is_chained(strides) {
                tell(Matrix { first, strides, rows: length * self.grid.layers });
                continue;
            }
            for block in 0..length {
                let first = first.further([block * here, block * there]);
                tell(Matrix { first, strides, rows: self.grid.layers });
            }
        }
    }

    fn unit(&self, layer: u64, outer: u64, run: BlockRun) -> Move {
        self.plan.unit_move(layer, outer, run)
    }
}

impl Matrix {
    /// Matrices that no end of a piece of memory goes through; a row that one does is cut. `source` and `destination` are
    /// as for [`Move::cut`].
    pub fn cut(
        self,
        source: impl Fn(u32, u64) -> u64,
        destination: impl Fn(u32, u64) -> u64,
        mut tell: impl FnMut(Self),
    ) {
        let Self { mut first, strides, rows: mut left } = self;
        while left > 0 {
            let here = source(first.source_region, first.source);
            let there = destination(first.destination_region, first.destination);
            let fit = rows_in(here, first.size, strides[0]).min(rows_in(there, first.size, strides[1]));
            let rows = fit.min(left);
            if rows == 0 {
                first.cut(&source, &destination).for_each(|first| tell(Self { first, strides, rows: 1 }));
            } else {
                tell(Self { first, strides, rows });
            }
            let done = rows.max(1);
            left -= done;
            if left > 0 {
                first = first.further([done * strides[0], done * strides[1]]);
            }
        }
    }
}

impl Move {
    /// The same so many bytes further.
    fn further(self, bytes: [u64; 2]) -> Self {
        Self { source: self.source + bytes[0], destination: self.destination + bytes[1], ..self }
    }
}

/// Whole rows in the first `bytes`.
fn rows_in(bytes: u64, size: u64, stride: u64) -> u64 {
    bytes.checked_sub(size).map_or(0, |rest| (rest / stride.max(1)).saturating_add(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_end_with_the_piece_they_lie_in() {
        assert_eq!(rows_in(99, 100, 200), 0);
        assert_eq!(rows_in(100, 100, 200), 1);
        assert_eq!(rows_in(299, 100, 200), 1);
        assert_eq!(rows_in(300, 100, 200), 2);
        assert_eq!(rows_in(u64::MAX, 100, 100), (u64::MAX - 100) / 100 + 1);
    }
}
