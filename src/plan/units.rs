// SPDX-License-Identifier: Apache-2.0
//! Goes through the units of a plan in the order of the destination, a row of units at a time.

use std::ops::Range;

use super::block_runs::{BlockCursor, BlockRuns};
use super::moves::{BlockRun, Matrix, Move};
use super::nest::Loop;
use super::odometer::{Odometer, Position};
use super::shape::Shape;

/// The spans of some bytes of a plan, which are counted in the order of the units: rows with constant strides. A row in
/// which the bytes start or end is cut.
pub fn spans<'a>(
    shape: &'a Shape,
    blocks: &'a BlockRuns,
    bytes: Range<u64>,
) -> impl Iterator<Item = Matrix> + 'a {
    let unit_size = shape.nest.unit_size;
    let (first, skip) = (bytes.start / unit_size, bytes.start % unit_size);
    let units = Units::from(shape, blocks, first);
    Joined { spans: SomeOf { units, skip, left: bytes.end - bytes.start, cut: None }, last: None }
}

/// Passes all units to `visit`, in order. That takes half the time of [`spans`] of all bytes, which can start anywhere.
pub fn each(shape: &Shape, blocks: &BlockRuns, mut visit: impl FnMut(Move)) {
    let mut outside = Odometer::new(shape.nest.outside(), 0);
    loop {
        for run in blocks.runs() {
            let (times, length) = if shape.blocks_together { (1, run.length) } else { (run.length, 1) };
            for block in 0..times {
                each_of_block(shape, &outside.at, run.part(block, length), &mut visit);
            }
        }
        if !outside.step() {
            return;
        }
    }
}

/// The units of one block, or of blocks that are contiguous, in one iteration of the loops outside.
fn each_of_block(shape: &Shape, outside: &Position, blocks: BlockRun, visit: &mut impl FnMut(Move)) {
    let inside = shape.nest.inside();
    if inside.is_empty() {
        return visit(shape.unit(outside, blocks));
    }
    let mut inside = Odometer::new(inside, 0);
    loop {
        visit(shape.unit(&Position::sum(outside, &inside.at), blocks));
        if !inside.step() {
            return;
        }
    }
}

/// Joins each move with the one before if both sides continue.
pub fn join(moves: impl Iterator<Item = Move>) -> impl Iterator<Item = Move> {
    Joined { spans: moves.map(Matrix::single), last: None }.map(|span| span.first)
}

/// The units of all blocks, or of all runs if adjacent blocks are contiguous: block by block through the loops inside, and
/// then from the first block on through the next iteration of the loops outside. Adjacent units in memory are adjacent here,
/// so joining each with the one before gives the largest moves.
struct Units<'a> {
    shape: &'a Shape,
    blocks: BlockCursor<'a>,
    outside: Odometer<&'a [Loop]>,
    inside: Odometer<&'a [Loop]>,
    is_over: bool,
}

impl<'a> Units<'a> {
    /// Starts with the unit of this number.
    fn from(shape: &'a Shape, blocks: &'a BlockRuns, unit: u64) -> Self {
        let inside = shape.units_inside;
        let units_of_pass = blocks.blocks() * inside;
        let within = unit % units_of_pass.max(1);
        let mut blocks = blocks.from(within / inside);
        let mut slot = within % inside;
        // Of a run that is contiguous, one unit is over all of its blocks.
        if shape.blocks_together {
            let of_run = within - (within / inside - u64::from(blocks.block)) * inside;
            let length = blocks.run().map_or(1, |run| u64::from(run.length));
            (blocks.block, slot) = ((of_run % length) as u32, of_run / length);
        }
        let pass = unit / units_of_pass.max(1);
        Self {
            shape,
            blocks,
            outside: Odometer::new(shape.nest.outside(), pass),
            inside: Odometer::new(shape.nest.inside(), slot),
            is_over: pass >= shape.units_of_block() / inside,
        }
    }

    fn unit(&self, run: &BlockRun, length: u32) -> Move {
        let at = Position::sum(&self.outside.at, &self.inside.at);
        self.shape.unit(&at, run.part(self.blocks.block, length))
    }

    /// Past some blocks of a run, all of whose units are done.
    fn leave(&mut self, run: &BlockRun, blocks: u32) {
        if self.blocks.pass(run, blocks) {
            self.is_over = !self.outside.step();
        }
    }
}

impl Iterator for Units<'_> {
    type Item = Matrix;

    #[inline]
    fn next(&mut self) -> Option<Matrix> {
        if self.is_over {
            return None;
        }
        let run = self.blocks.run()?;
        let levels = self.inside.loops.len();
        if self.shape.blocks_together {
            let first = self.unit(&run, run.length - self.blocks.block);
            self.blocks.block = 0;
            if !self.inside.step() {
                self.leave(&run, run.length);
            }
            return Some(Matrix::single(first));
        }
        let first = self.unit(&run, 1);
        let Some((inner, index)) =
            self.inside.loops.last().zip(self.inside.indices[..levels].last().copied())
        else {
            let blocks = run.length - self.blocks.block;
            self.leave(&run, blocks);
            return Some(Matrix { first, strides: self.shape.block_strides(), rows: blocks.into() });
        };
        let rows = if inner.is_within_regions() { inner.count - index } else { 1 };
        let found = Matrix { first, strides: inner.strides, rows };
        self.inside.at.advance(inner, rows - 1);
        self.inside.indices[levels - 1] += rows - 1;
        if !self.inside.step() {
            self.leave(&run, 1);
        }
        Some(found)
    }
}

/// Some bytes of units: without the first `skip`, and no more than are left.
struct SomeOf<'a> {
    units: Units<'a>,
    skip: u64,
    left: u64,
    /// Rows that are left of a matrix whose first row was cut.
    cut: Option<Matrix>,
}

impl SomeOf<'_> {
    /// The last bytes of the first row.
    fn without_start(&mut self, matrix: Matrix, skip: u64) -> Matrix {
        let first = matrix.first;
        self.cut = (matrix.rows > 1).then(|| Matrix {
            first: first.further(matrix.strides),
            rows: matrix.rows - 1,
            ..matrix
        });
        Matrix::single(Move { size: first.size - skip, ..first.further([skip; 2]) })
    }

    /// No more bytes than are left.
    fn without_end(&mut self, matrix: Matrix) -> Matrix {
        let first = matrix.first;
        if matrix.rows.checked_mul(first.size).is_some_and(|bytes| bytes <= self.left) {
            return matrix;
        }
        let rows = self.left / first.size;
        if rows == 0 {
            return Matrix::single(Move { size: self.left, ..first });
        }
        let [here, there] = matrix.strides;
        let next = Matrix { first: first.further([rows * here, rows * there]), rows: 1, ..matrix };
        self.cut = Some(next);
        Matrix { rows, ..matrix }
    }
}

impl Iterator for SomeOf<'_> {
    type Item = Matrix;

    #[inline]
    fn next(&mut self) -> Option<Matrix> {
        if self.left == 0 {
            return None;
        }
        let mut found = match self.cut.take() {
            Some(found) => found,
            None => self.units.next()?,
        };
        if self.skip > 0 {
            let skip = std::mem::take(&mut self.skip);
            found = self.without_start(found, skip);
        }
        let found = self.without_end(found);
        self.left -= found.rows * found.first.size;
        Some(found)
    }
}

/// Joins each single span with the one before if both sides continue.
struct Joined<I> {
    spans: I,
    last: Option<Matrix>,
}

impl<I: Iterator<Item = Matrix>> Iterator for Joined<I> {
    type Item = Matrix;

    #[inline]
    fn next(&mut self) -> Option<Matrix> {
        loop {
            let next = self.spans.next();
            match (&mut self.last, next) {
                (Some(last), Some(next))
                    if last.rows == 1 && next.rows == 1 && last.first.goes_on_in(&next.first) =>
                {
                    last.first.size += next.first.size;
                }
                (last, Some(next)) => match last.replace(next) {
                    Some(done) => return Some(done),
                    None => continue,
                },
                (last, None) => return last.take(),
            }
        }
    }
}
