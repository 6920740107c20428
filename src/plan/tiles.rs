// SPDX-License-Identifier: Apache-2.0
//! Tiles: parts of a block that fit into a core's cache, and of which each side has long spans.
//!
//! The loops of a nest have the order of the destination. If the source has its elements in another order, each row of the
//! destination takes a little from many lines and pages of the source, and later rows come back for the rest. A tile consists of
//! the units that are close together on both sides, so each line and page is used once, in whatever order its units are copied.

use std::ops::{Deref, Range};

use super::block_runs::{BlockCursor, BlockRuns};
use super::moves::Move;
use super::nest::{BLOCK_AXES, Loop, iterations};
use super::odometer::{Odometer, Position};
use super::shape::Shape;
use crate::base::sorting::sort_few_by_key;

/// The maximum size of a tile of several units. With the destination, it is a small part of the second-level cache.
const BUDGET: u64 = 64 << 10;
/// Larger units are copied as fast one by one, in any order.
const LARGEST_UNIT: u64 = 4 << 10;
/// A source whose iterations are at most so far apart is read in one pass: what is between them is read next.
const NEAR: u64 = 16 << 10;
const LINE: u64 = 64;

/// A few loops, outermost first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Loops {
    all: [Loop; BLOCK_AXES],
    length: usize,
}

impl Loops {
    /// Adds an innermost one. There are at most as many as axes.
    pub fn push(&mut self, each: Loop) {
        self.all[self.length] = each;
        self.length += 1;
    }

    /// Those at other indices than these.
    pub fn without(&self, indices: [usize; 2]) -> Self {
        let mut others = Self::default();
        let is_other = |index: &usize| !indices.contains(index);
        (0..self.length).filter(is_other).for_each(|index| others.push(self.all[index]));
        others
    }

    /// The same, the one with the largest stride of a side first.
    pub fn in_order_of(mut self, side: usize) -> Self {
        sort_few_by_key(&mut self.all[..self.length], |each| {
            std::cmp::Reverse((each.strides[side], each.strides[1 - side]))
        });
        self
    }
}

impl Deref for Loops {
    type Target = [Loop];

    fn deref(&self) -> &[Loop] {
        &self.all[..self.length]
    }
}

/// Units of a block in loops with constant strides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tile {
    /// The first unit.
    pub first: Move,
    /// The loops over its units, within a region on each side.
    pub loops: Loops,
}

impl Tile {
    /// Passes parts of it that are small enough for a tile, in which the spans of both sides are long.
    pub fn divide(self, act: &mut impl FnMut(Self)) {
        let counts = grow(&self.loops, self.first.size, budget_of(self.first.size));
        self.divide_from(0, &counts, act);
    }

    fn divide_from(self, axis: usize, counts: &[u64; BLOCK_AXES], act: &mut impl FnMut(Self)) {
        let Some(each) = self.loops.get(axis) else { return act(self) };
        for index in (0..each.count).step_by(counts[axis] as usize) {
            let mut part = self;
            part.first = self.first.further(each.strides.map(|stride| index * stride));
            part.loops.all[axis].count = counts[axis].min(each.count - index);
            part.divide_from(axis + 1, counts, act);
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct Tiling {
    /// Loops that go through all blocks in each iteration.
    outside: Loops,
    /// Loops over the tiles of a block.
    inside: Loops,
    within: Loops,
    /// Of each loop in a tile: the loop over tiles that continues it, and the iterations of both.
    continued: [Option<(usize, u64)>; BLOCK_AXES],
}

impl Tiling {
    /// Divides blocks of a shape into tiles of at most `budget` bytes, or of one unit.
    fn new(shape: &Shape, budget: u64) -> Self {
        let nest = &shape.nest;
        let first_inside = nest.outside().len();
        let is_near = |each: &Loop| each.regions[0] == 0 && each.strides[0] <= NEAR;
        let (mut outside, mut candidates, mut between) =
            (Loops::default(), Loops::default(), Loops::default());
        for (index, each) in nest.loops().iter().enumerate() {
            let to = match (index < first_inside && !is_near(each), each.is_within_regions()) {
                (true, _) => &mut outside,
                (false, true) => &mut candidates,
                (false, false) => &mut between,
            };
            to.push(*each);
        }
        let counts = grow(&candidates, nest.unit_size, budget);
        let mut tiling =
            Self { outside, inside: between, within: Loops::default(), continued: [None; BLOCK_AXES] };
        for (each, count) in candidates.iter().zip(counts) {
            tiling.divide(each, count);
        }
        tiling
    }

    /// Puts so many iterations of a loop into each tile, and the rest into a loop over tiles.
    fn divide(&mut self, each: &Loop, count: u64) {
        let tiles = each.count.div_ceil(count);
        if tiles > 1 {
            if count > 1 {
                self.continued[self.within.len()] = Some((self.inside.len(), each.count));
            }
            let strides = each.strides.map(|stride| stride * count);
            self.inside.push(Loop { count: tiles, strides, ..*each });
        }
        if count > 1 {
            self.within.push(Loop { count, ..*each });
        }
    }

    /// Bytes of a tile that is not at the end of a loop.
    fn tile_size(&self, shape: &Shape) -> u64 {
        iterations(&self.within) * shape.nest.unit_size
    }

    fn count(&self, blocks: u64) -> u64 {
        iterations(&self.outside) * iterations(&self.inside) * blocks
    }

    /// The loops of the tile at some indices of the loops over tiles.
    fn loops_at(&self, indices: &[u64]) -> Loops {
        let mut loops = self.within;
        for (each, continued) in loops.all.iter_mut().zip(&self.continued) {
            if let Some((over, total)) = continued {
                each.count = each.count.min(total - indices[*over] * each.count);
            }
        }
        loops
    }
}

/// The maximum size of a tile of several units of a shape.
pub fn budget(shape: &Shape) -> u64 {
    budget_of(shape.nest.unit_size)
}

fn budget_of(unit_size: u64) -> u64 {
    if unit_size <= 2 { 2 * BUDGET } else { BUDGET }
}

/// Bytes of a tile, if units should be copied in tiles: small ones that are apart, of which a tile has several.
pub fn suitable_size(shape: &Shape) -> Option<u64> {
    let unit_size = shape.nest.unit_size;
    let is_possible = unit_size < LARGEST_UNIT && !shape.blocks_together;
    is_possible.then(|| Tiling::new(shape, budget(shape)).tile_size(shape)).filter(|size| *size > unit_size)
}

/// How many times as long spans are in the source. A processor reads ahead in long spans; a few lines are enough to
/// write. Elements that are transposed are read from many rows at once, so a tile has few rows of them.
/// The ends of destination rows that are not whole cache lines are written through the caches, so a tile has longer rows then.
fn source_length(unit_size: u64, writes_lines: bool) -> u64 {
    match (unit_size, writes_lines) {
        (1, true) => 32,
        (2..=4, true) => 16,
        (2..=4, false) => 4,
        (_, _) => 8,
    }
}

/// How many iterations of each loop a tile has: as many as it takes to make the spans of both sides long.
fn grow(loops: &Loops, unit_size: u64, budget: u64) -> [u64; BLOCK_AXES] {
    let mut counts = [1; BLOCK_AXES];
    let mut orders = [[0, 1, 2, 3, 4]; 2];
    for (side, order) in orders.iter_mut().enumerate() {
        sort_few_by_key(&mut order[..loops.len()], |index| loops[*index].strides[side]);
    }
    let is_line = |each: &Loop| each.strides[1] == unit_size || each.strides[1].is_multiple_of(LINE);
    let source_length = source_length(unit_size, loops.iter().all(is_line));
    let mut size = unit_size;
    loop {
        let span = |side: usize| {
            let mut span = unit_size;
            for index in &orders[side][..loops.len()] {
                if loops[*index].strides[side] != span {
                    break;
                }
                span *= counts[*index];
                if counts[*index] < loops[*index].count {
                    break;
                }
            }
            span
        };
        let shorter = usize::from(span(1) * source_length <= span(0));
        let grown = [shorter, 1 - shorter].into_iter().find_map(|side| {
            let unfinished = |index: &&usize| counts[**index] < loops[**index].count;
            let index = *orders[side][..loops.len()].iter().find(unfinished)?;
            let count = loops[index].count.min(2 * counts[index]);
            let grown = size / counts[index] * count;
            (grown <= budget).then_some((index, count, grown))
        });
        let Some((index, count, grown)) = grown else { return counts };
        (counts[index], size) = (count, grown);
    }
}

/// The number of tiles of at most `budget` bytes of a plan's part.
pub fn count(shape: &Shape, blocks: &BlockRuns, budget: u64) -> u64 {
    Tiling::new(shape, budget).count(blocks.blocks())
}

/// Some tiles of a plan's part, in the order of the destination as far as possible.
pub fn tiles<'a>(
    shape: &'a Shape,
    blocks: &'a BlockRuns,
    range: Range<u64>,
    budget: u64,
) -> impl Iterator<Item = Tile> + 'a {
    Tiles::from(shape, blocks, range.start, budget).take((range.end - range.start) as usize)
}

/// Goes through tiles: of each block, and then from the first block on in the next iteration of the loops outside.
struct Tiles<'a> {
    shape: &'a Shape,
    blocks: BlockCursor<'a>,
    tiling: Tiling,
    outside: Odometer<Loops>,
    inside: Odometer<Loops>,
}

impl<'a> Tiles<'a> {
    fn from(shape: &'a Shape, blocks: &'a BlockRuns, tile: u64, budget: u64) -> Self {
        let tiling = Tiling::new(shape, budget);
        let of_block = iterations(&tiling.inside);
        let of_pass = (of_block * blocks.blocks()).max(1);
        Self {
            shape,
            blocks: blocks.from(tile % of_pass / of_block),
            outside: Odometer::new(tiling.outside, tile / of_pass),
            inside: Odometer::new(tiling.inside, tile % of_block),
            tiling,
        }
    }
}

impl Iterator for Tiles<'_> {
    type Item = Tile;

    #[inline]
    fn next(&mut self) -> Option<Tile> {
        let run = self.blocks.run()?;
        let block = run.part(self.blocks.block, 1);
        let first = self.shape.unit(&Position::sum(&self.outside.at, &self.inside.at), block);
        let tile = Tile { first, loops: self.tiling.loops_at(&self.inside.indices) };
        if !self.inside.step() && self.blocks.pass(&run, 1) {
            self.outside.step();
        }
        Some(tile)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn loops(list: &[(u64, [u64; 2])]) -> Loops {
        let mut loops = Loops::default();
        list.iter().for_each(|(count, strides)| {
            loops.push(Loop { count: *count, strides: *strides, regions: [0; 2] });
        });
        loops
    }

    fn grown(list: &[(u64, [u64; 2])], unit_size: u64, budget: u64) -> Vec<u64> {
        grow(&loops(list), unit_size, budget)[..list.len()].to_vec()
    }

    #[test]
    fn a_tile_has_all_of_a_block_that_is_small() {
        let transposed = [(8, [256, 4096]), (16, [2048, 256])];
        assert_eq!(grown(&transposed, 256, BUDGET), [8, 16]);
    }

    #[test]
    fn spans_of_both_sides_are_long_if_not_all_fits() {
        let transposed = [(4096, [2, 2048]), (1024, [8192, 2])];
        assert_eq!(grown(&transposed, 2, 128 << 10), [1024, 64]);
        assert_eq!(grown(&transposed, 2, 64 << 10), [512, 64]);
        assert_eq!(grown(&transposed, 2, 16 << 10), [256, 32]);
        assert_eq!(grown(&[(5, [2, 2000]), (1000, [10, 2])], 2, 32), [5, 2], "the source first");
    }

    #[test]
    fn rows_that_are_not_whole_lines_are_longer() {
        let transposed = |tokens: u64, size: u64| [(4096, [size, tokens * size]), (tokens, [8192, size])];
        assert_eq!(grown(&transposed(1024, 1), 1, 128 << 10), [2048, 64]);
        assert_eq!(grown(&transposed(1040, 1), 1, 128 << 10), [1024, 128]);
        assert_eq!(grown(&transposed(1040, 2), 2, 128 << 10), [512, 128]);
        assert_eq!(grown(&transposed(1040, 4), 4, 64 << 10), [512, 32]);
        assert_eq!(grown(&transposed(1000, 4), 4, 64 << 10), [256, 64]);
    }

    #[test]
    fn both_halves_of_a_packed_row_are_in_one_tile() {
        let packed = [(2, [128, 32768]), (16, [256, 1024]), (8, [4096, 128])];
        assert_eq!(grown(&packed, 128, BUDGET), [2, 16, 8]);
        assert_eq!(grown(&packed, 128, 2048)[0], 2);
    }
}
