// SPDX-License-Identifier: Apache-2.0
//! Moves of equal size with constant strides on both sides as the rows of matrices.

use super::block_runs::BlockRuns;
use super::moves::{BlockRun, Matrix, Move};
use super::progressions::{self, Limits, Progression};
use super::shape::{Grid, Shape};

pub struct Matrices<'a> {
    shape: &'a Shape,
    blocks: &'a BlockRuns,
    grid: Grid,
    max_pitch: u64,
}

enum Rows {
    /// Blocks, or runs of blocks, of one lane and row of the grid.
    Blocks,
    /// The rows of the grid in one block, or in all blocks of a run.
    Grid,
}

impl<'a> Matrices<'a> {
    /// Those of a plan, with rows that are at most `max_pitch` bytes apart.
    pub(super) fn new(shape: &'a Shape, blocks: &'a BlockRuns, max_pitch: u64) -> Self {
        Self { shape, blocks, grid: shape.grid(), max_pitch }
    }

    /// The maximum number of them, unless blocks are too far apart.
    pub fn most(&self) -> u64 {
        self.runs().len() as u64 * self.starts()
    }

    /// The number of them, if not more than `limit`. Runs are counted until there are more: scattered blocks, of which there
    /// may be many, make matrices that are of no use.
    pub fn count(&self, limit: u64) -> Option<u64> {
        let of_grid = self.of_grid();
        let of_blocks = self.of_blocks(of_grid.unwrap_or(u64::MAX).min(limit));
        of_blocks.or(of_grid).filter(|count| *count <= limit)
    }

    /// Whether any of them has more than one row.
    pub fn have_rows(&self) -> bool {
        let apart = !self.grid.blocks_together;
        match self.rows() {
            Rows::Grid => true,
            Rows::Blocks if apart && !self.blocks_are_rows() => false,
            Rows::Blocks => {
                self.progressions().any(|each| each.count > 1 || (apart && each.first.length > 1))
            }
        }
    }

    /// The units that rows consist of.
    pub fn grid(&self) -> &Grid {
        &self.grid
    }

    /// The number of rows of all matrices, if blocks are rows.
    pub fn total_rows(&self) -> u64 {
        let runs = self.runs().len() as u64;
        let of_start = if self.grid.blocks_together { runs } else { self.blocks.blocks() };
        of_start * self.starts()
    }

    /// Passes each to `visit`.
    pub fn for_each(&self, mut visit: impl FnMut(Matrix)) {
        match self.rows() {
            Rows::Blocks => self.each_of_blocks(visit),
            Rows::Grid => self.each_of_grid(&mut visit),
        }
    }

    fn runs(&self) -> &'a [BlockRun] {
        self.blocks.runs()
    }

    /// Rows of the grid, if that makes fewer.
    fn rows(&self) -> Rows {
        match self.of_grid() {
            Some(count) if self.of_blocks(count).is_none() => Rows::Grid,
            _ => Rows::Blocks,
        }
    }

    /// The number of matrices if rows of the grid are their rows, if those can be.
    fn of_grid(&self) -> Option<u64> {
        let strides = self.row_strides()?;
        let of_lane = if self.is_chained(strides) { self.runs().len() as u64 } else { self.blocks.blocks() };
        Some(of_lane * self.grid.lanes)
    }

    /// The number of matrices if blocks are their rows, if not more than `limit`.
    fn of_blocks(&self, limit: u64) -> Option<u64> {
        let most = limit / self.starts();
        let count = match self.grid.blocks_together || self.blocks_are_rows() {
            true => self.progressions().take((most as usize).saturating_add(1)).count() as u64,
            false => self.blocks.blocks(),
        };
        (count <= most).then(|| count * self.starts())
    }

    /// Units of a block, each of which starts at an address of its own.
    fn starts(&self) -> u64 {
        self.grid.lanes * self.grid.rows
    }

    /// Whether the rows of a block continue those of the block before, with the same stride.
    fn is_chained(&self, strides: [u64; 2]) -> bool {
        (0..2).all(|side| self.grid.strides[side] == self.grid.rows * strides[side])
    }

    /// Bytes from a row of the grid to the next, if they can be rows of a matrix. Two rows, such as keys and values, make no
    /// matrix that is worth a call.
    fn row_strides(&self) -> Option<[u64; 2]> {
        let strides = self.grid.row_strides;
        let fit = strides.iter().all(|stride| (1..=self.max_pitch).contains(stride));
        (fit && self.grid.rows > 2).then_some(strides)
    }

    fn blocks_are_rows(&self) -> bool {
        !self.grid.blocks_together && self.grid.strides.iter().all(|stride| *stride <= self.max_pitch)
    }

    fn progressions(&self) -> impl Iterator<Item = Progression> {
        let limits = Limits {
            // A run of several blocks that are apart is a matrix by itself.
            length: if self.grid.blocks_together { u64::MAX } else { 1 },
            steps: self.grid.strides.map(|stride| self.max_pitch / stride),
        };
        progressions::find(self.runs(), limits)
    }

    fn each_of_blocks(&self, mut visit: impl FnMut(Matrix)) {
        let [here, there] = self.grid.row_strides;
        for lane in self.shape.starts(self.shape.lanes().0) {
            for unit in (0..self.grid.rows).map(|row| lane.further([row * here, row * there])) {
                self.progressions().for_each(|each| self.rows_of(unit, each, &mut visit));
            }
        }
    }

    /// The rows that are blocks, from a unit of block 0 on.
    fn rows_of(&self, unit: Move, each: Progression, visit: &mut impl FnMut(Matrix)) {
        let Progression { first, count, steps } = each;
        let [here, there] = self.grid.strides;
        let unit = self.in_block(unit, &first);
        if self.grid.blocks_together {
            let first = Move { size: unit.size * u64::from(first.length), ..unit };
            return visit(Matrix { first, strides: [steps[0] * here, steps[1] * there], rows: count });
        }
        if count > 1 {
            return visit(Matrix { first: unit, strides: [steps[0] * here, steps[1] * there], rows: count });
        }
        if self.blocks_are_rows() {
            return visit(Matrix { first: unit, strides: self.grid.strides, rows: u64::from(first.length) });
        }
        for block in 0..u64::from(first.length) {
            let first = unit.further([block * here, block * there]);
            visit(Matrix { first, strides: self.grid.strides, rows: 1 });
        }
    }

    fn each_of_grid(&self, visit: &mut impl FnMut(Matrix)) {
        let Some(strides) = self.row_strides() else { return };
        let [here, there] = self.grid.strides;
        for lane in self.shape.starts(self.shape.lanes().0) {
            for run in self.runs() {
                let first = self.in_block(lane, run);
                let length = u64::from(run.length);
                if self.is_chained(strides) {
                    visit(Matrix { first, strides, rows: length * self.grid.rows });
                    continue;
                }
                for block in 0..length {
                    let first = first.further([block * here, block * there]);
                    visit(Matrix { first, strides, rows: self.grid.rows });
                }
            }
        }
    }

    /// A unit of block 0 in the first block of a run.
    fn in_block(&self, unit: Move, run: &BlockRun) -> Move {
        let [here, there] = self.grid.strides;
        unit.further([u64::from(run.source) * here, u64::from(run.destination) * there])
    }
}

impl Matrix {
    /// Its parts, none of which crosses the end of a mapping; a row that does is cut. `source` and `destination` are as for
    /// [`Move::cut`].
    pub fn cut(
        self,
        source: impl Fn(u32, u64) -> u64,
        destination: impl Fn(u32, u64) -> u64,
        mut visit: impl FnMut(Self),
    ) {
        let Self { mut first, strides, rows: mut left } = self;
        while left > 0 {
            let here = source(first.source_region, first.source);
            let there = destination(first.destination_region, first.destination);
            let fit = rows_in(here, first.size, strides[0]).min(rows_in(there, first.size, strides[1]));
            let rows = fit.min(left);
            if rows == 0 {
                first.cut(&source, &destination).for_each(|first| visit(Self { first, strides, rows: 1 }));
            } else {
                visit(Self { first, strides, rows });
            }
            let done = rows.max(1);
            left -= done;
            if left > 0 {
                first = first.further([done * strides[0], done * strides[1]]);
            }
        }
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
    fn rows_end_with_their_piece() {
        assert_eq!(rows_in(99, 100, 200), 0);
        assert_eq!(rows_in(100, 100, 200), 1);
        assert_eq!(rows_in(299, 100, 200), 1);
        assert_eq!(rows_in(300, 100, 200), 2);
        assert_eq!(rows_in(u64::MAX, 100, 100), (u64::MAX - 100) / 100 + 1);
    }
}
