// SPDX-License-Identifier: Apache-2.0
//! Launches that transpose: for elements that are close together along one loop in the source and along another one in the
//! destination, such as those of a head where one side has its tokens innermost. Pure.

use std::ops::Range;

use super::launch::TILE;
use crate::cuda::kernel::{Blocks, JOINED_COLUMNS, JOINED_ROWS, Layer, MAX_LAYERS, Units};
use crate::plan::Loop;

const LARGEST: u64 = 16;
/// What memory reads and writes at once. Elements that are further apart are not close together.
const SECTOR: u64 = 32;
/// Bytes of a tile that a warp copies: 64 by each of its threads.
const OF_WARP: u64 = 2048;
/// Bytes of a tile that are adjacent on a side, if the matrix has as many: what is as fast as the link with the host.
const SPAN: u64 = 128;
/// The same while the tile is not larger than [`LARGE`]: up to 9 % faster within a GPU. Both are the best of 16 to 512 bytes by one
/// to four warps in a program on an H200 (bench/notes/15-reshape.md).
const LONG_SPAN: u64 = 2 * SPAN;
const LARGE: u64 = 4 * OF_WARP;
/// The maximum number of warps that copy a tile together: those of a CTA.
const MAX_WARPS: u64 = 16;
/// Elements of fewer bytes are moved in words of as many.
const WORD: u64 = 4;
/// Smaller elements are moved in words of as many if both sides allow it: in vectors.
const VECTOR: u64 = 16;
/// The kernel computes offsets within a tile, and numbers of rows and columns, with 32-bit integers.
const MAX: u64 = 1 << 32;

/// The loops of a block that one launch goes through by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TransposedLoops {
    /// The loop along which elements are close together in the source.
    columns: Loop,
    /// The same in the destination.
    rows: Loop,
    /// Another loop, if there is one.
    outer: Loop,
    joined: Joined,
}

/// The loop that the blocks of a run continue on both sides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Joined {
    Neither,
    Rows,
    Columns,
}

impl TransposedLoops {
    /// The loops, and those outside them, whose iterations are listed; `None` if nothing is transposed. Runs have up to
    /// `max_blocks` blocks.
    pub fn from_loops(
        unit_size: u64,
        loops: &[Loop],
        block_strides: [u64; 2],
        max_blocks: u64,
    ) -> Option<(Self, Vec<Loop>)> {
        if unit_size > LARGEST || !unit_size.is_power_of_two() {
            return None;
        }
        let blocks = Loop { count: 1, strides: block_strides, regions: [0; 2] };
        let of_block = loops.iter().filter(|each| each.is_within_regions());
        let candidates = || of_block.clone().chain((max_blocks > 1).then_some(&blocks));
        let closest = |side: usize| {
            let closest = candidates().min_by_key(|each| each.strides[side]);
            closest.copied().filter(|each| (1..SECTOR).contains(&each.strides[side]))
        };
        let (columns, rows) = (closest(0)?, closest(1)?);
        if columns == rows {
            return None;
        }
        let is_other = |each: &&Loop| **each != columns && **each != rows;
        let outer = of_block.clone().filter(is_other).max_by_key(|each| each.count).copied();
        let outer = outer.unwrap_or(Loop { count: 1, ..Loop::default() });
        let listed = loops.iter().filter(|each| is_other(each) && **each != outer).copied().collect();
        let is_continued = |each: &Loop| {
            (0..2).all(|side| block_strides[side] == each.count.saturating_mul(each.strides[side]))
        };
        let joined = match max_blocks > 1 {
            true if is_continued(&rows) => Joined::Rows,
            true if is_continued(&columns) => Joined::Columns,
            _ => Joined::Neither,
        };
        let transposed = Self { columns, rows, outer, joined };
        transposed.is_countable(unit_size, max_blocks).then_some((transposed, listed))
    }

    /// How often a warp loads as much as it has in flight: for a block in an iteration of the listed loops, or for all blocks of a
    /// run that are joined.
    pub fn moves(&self, unit_size: u64, max_blocks: u64) -> u64 {
        let tile = Tile::new(unit_size, self.counts(max_blocks));
        let warps = self.tiles(&tile, max_blocks).saturating_mul(1 << tile.warps_shift);
        warps.saturating_mul(OF_WARP).div_ceil(TILE)
    }

    /// Whether all blocks of a run are transposed as one matrix.
    pub fn are_joined(&self) -> bool {
        self.joined != Joined::Neither
    }

    /// Rows and columns of a matrix.
    fn counts(&self, max_blocks: u64) -> [u64; 2] {
        let times = |joined| if self.joined == joined { max_blocks } else { 1 };
        [
            self.rows.count.saturating_mul(times(Joined::Rows)),
            self.columns.count.saturating_mul(times(Joined::Columns)),
        ]
    }

    /// Tiles of all matrices of a block, or of all blocks of a run that are joined.
    fn tiles(&self, tile: &Tile, max_blocks: u64) -> u64 {
        tile.tiles(self.counts(max_blocks)).into_iter().fold(self.outer.count, u64::saturating_mul)
    }

    /// Whether the kernel can compute all numbers and offsets.
    fn is_countable(&self, unit_size: u64, max_blocks: u64) -> bool {
        let counts = self.counts(max_blocks);
        let tile = Tile::new(unit_size, counts);
        let loops = [&self.rows, &self.columns];
        let fits = |side: usize| {
            let strides = loops.map(|each| each.strides[side]);
            let last = |index: usize| strides[index].checked_mul(counts[index].min(tile.counts()[index]) - 1);
            let extent = last(0)?.checked_add(last(1)?)?.checked_add(unit_size)?;
            Some(extent < MAX && strides.into_iter().all(|stride| stride < MAX))
        };
        let are_small = counts.into_iter().chain([self.outer.count]).all(|count| count < MAX / 2);
        are_small && (0..2).all(|side| fits(side).unwrap_or(false))
    }
}

/// The size of a tile: powers of two of rows and columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Tile {
    rows_shift: u32,
    columns_shift: u32,
    warps_shift: u32,
}

impl Tile {
    /// The tiles of matrices of so many rows and columns: both sides get spans of [`SPAN`] bytes, or longer ones until a tile is
    /// [`LARGE`], if there are as many, and a warp at least what its threads hold.
    fn new(unit_size: u64, counts: [u64; 2]) -> Self {
        let most = counts.map(|count| count.min(MAX).next_power_of_two());
        let least = WORD.div_ceil(unit_size);
        let mut sizes = [least; 2];
        loop {
            let bytes = sizes[0] * sizes[1] * unit_size;
            let shorter = usize::from(sizes[1] < sizes[0]);
            let grows = |index: &usize| sizes[*index] < most[*index];
            let is_shorter =
                |span: u64| move |index: &usize| grows(index) && sizes[*index] * unit_size < span;
            let sides = [shorter, 1 - shorter];
            let next = match bytes {
                // The tiles of a small matrix are partly empty.
                ..OF_WARP => Some(sides.into_iter().find(grows).unwrap_or(shorter)),
                OF_WARP..LARGE => sides.into_iter().find(is_shorter(LONG_SPAN)),
                _ if bytes < OF_WARP * MAX_WARPS => sides.into_iter().find(is_shorter(SPAN)),
                _ => None,
            };
            let Some(next) = next else {
                let [rows_shift, columns_shift] = sizes.map(u64::ilog2);
                return Self { rows_shift, columns_shift, warps_shift: (bytes / OF_WARP).ilog2() };
            };
            sizes[next] *= 2;
        }
    }

    fn counts(&self) -> [u64; 2] {
        [1 << self.rows_shift, 1 << self.columns_shift]
    }

    /// The number of tiles of a matrix, one below the other and side by side.
    fn tiles(&self, counts: [u64; 2]) -> [u64; 2] {
        let [rows, columns] = self.counts();
        [counts[0].div_ceil(rows), counts[1].div_ceil(columns)]
    }
}

impl TransposedLoops {
    /// The parameters of a launch that transposes elements, which are the units, in these layers, and for some of the runs. The layers are
    /// relative to an address that is a multiple of `alignment`. `None` if elements are not aligned to their size.
    pub fn blocks(
        &self,
        units: &Units,
        layers: &[Layer],
        alignment: u64,
        runs: &Range<usize>,
    ) -> Option<Blocks> {
        let Units { unit_size, block_strides, max_blocks } = *units;
        let starts = |side: usize| {
            let of = move |layer: &Layer| [layer.source, layer.destination][side];
            layers.iter().map(of).fold(alignment, |bits, each| bits | each)
        };
        let Self { columns, rows, outer, joined } = self;
        let bits = [0, 1].map(|side| {
            let strides = [columns, rows, outer].map(|each| each.strides[side]);
            strides.into_iter().fold(starts(side) | block_strides[side], |bits, each| bits | each)
        });
        if !bits.iter().all(|bits| bits.is_multiple_of(unit_size)) || layers.len() > MAX_LAYERS {
            return None;
        }
        let counts = self.counts(max_blocks.into());
        let tile = Tile::new(unit_size, counts);
        let [row_tiles, column_tiles] = tile.tiles(counts);
        let tiles = self.tiles(&tile, max_blocks.into());
        let are_whole = |word| {
            [
                self.are_whole(units, word, columns, 0, [starts(0), rows.strides[0]]),
                self.are_whole(units, word, rows, 1, [starts(1), columns.strides[1]]),
            ]
        };
        let are_vectors = suits_vectors(unit_size, &tile) && are_whole(VECTOR) == [true; 2];
        let [is_source_wide, is_destination_wide] = are_whole(WORD).map(u32::from);
        Some(Blocks {
            are_joined: match joined {
                Joined::Neither => 0,
                Joined::Rows => JOINED_ROWS,
                Joined::Columns => JOINED_COLUMNS,
            },
            tiles: u32::try_from(tiles).ok()?,
            word_size: if are_vectors { VECTOR } else { unit_size } as u32,
            num_inners: rows.count as u32,
            source_inner_stride: rows.strides[0] as u32,
            destination_inner_stride: rows.strides[1] as u32,
            num_columns: columns.count as u32,
            source_column_stride: columns.strides[0] as u32,
            destination_column_stride: columns.strides[1] as u32,
            row_tiles: row_tiles as u32,
            column_tiles: column_tiles as u32,
            rows_shift: tile.rows_shift,
            columns_shift: tile.columns_shift,
            warps_shift: tile.warps_shift,
            is_source_wide,
            is_destination_wide,
            ..units.blocks((outer.count, outer.strides), layers, runs)
        })
    }

    /// Whether elements along a loop are whole aligned words on a side, on which the matrix has these starts and strides.
    fn are_whole(&self, units: &Units, word: u64, along: &Loop, side: usize, others: [u64; 2]) -> bool {
        let others = others.into_iter().chain([units.block_strides[side], self.outer.strides[side]]);
        let are_adjacent =
            along.strides[side] == units.unit_size && (along.count * units.unit_size).is_multiple_of(word);
        are_adjacent && others.fold(0, |bits, each| bits | each).is_multiple_of(word)
    }
}

/// Whether vectors are faster than words. A thread that writes vectors of several columns, one after the other, writes a part of
/// a sector at a time if these are short: 0.81 to 0.87 of the speed of words.
fn suits_vectors(unit_size: u64, tile: &Tile) -> bool {
    let [rows, _] = tile.counts();
    unit_size < VECTOR && (unit_size >= WORD || rows * unit_size >= SECTOR)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn within(count: u64, strides: [u64; 2]) -> Loop {
        Loop { count, strides, regions: [0; 2] }
    }

    /// Elements of a head and tokens, from NHC to HCN.
    fn to_tokens(tokens: u64, unit_size: u64) -> [Loop; 2] {
        let elements = within(1024, [unit_size, tokens * unit_size]);
        [elements, within(tokens, [1024 * unit_size, unit_size])]
    }

    /// The launch that transposes a block of them.
    fn to_tokens_at(tokens: u64, unit_size: u64, starts: [u64; 2], alignment: u64) -> Option<Blocks> {
        let block_strides = [1024 * tokens * unit_size; 2];
        let (loops, _) =
            TransposedLoops::from_loops(unit_size, &to_tokens(tokens, unit_size), block_strides, 1).unwrap();
        let units = Units { unit_size, block_strides, max_blocks: 1 };
        loops.blocks(&units, &[Layer { source: starts[0], destination: starts[1] }], alignment, &(0..1))
    }

    #[test]
    fn elements_whose_neighbours_differ_are_transposed() {
        let layers = Loop { count: 4, strides: [0; 2], regions: [1; 2] };
        let [elements, tokens] = to_tokens(16, 2);
        let outers = within(2, [1 << 20, 1 << 21]);
        let (loops, listed) =
            TransposedLoops::from_loops(2, &[layers, outers, elements, tokens], [1 << 15; 2], 1).unwrap();
        assert_eq!(
            (loops.columns, loops.rows, loops.outer, listed),
            (elements, tokens, outers, vec![layers])
        );
        assert_eq!(loops.moves(2, 1), 16);
        let back = [elements, tokens].map(|each| within(each.count, [each.strides[1], each.strides[0]]));
        let (loops, _) = TransposedLoops::from_loops(2, &back, [1 << 15; 2], 1).unwrap();
        assert_eq!((loops.columns, loops.rows), (back[1], back[0]));
    }

    #[test]
    fn rows_and_elements_with_equal_neighbours_are_not_transposed() {
        let [elements, tokens] = to_tokens(16, 2);
        for (unit_size, loops) in [
            (2, vec![within(16, [6, 2])]),
            (2, vec![within(16, [4, 8]), within(8, [1024, 64])]),
            (32, vec![within(16, [32, 1024]), within(8, [1024, 32])]),
            (6, vec![elements, tokens]),
            (2, vec![elements, within(16, [1 << 33, 2])]),
        ] {
            assert_eq!(TransposedLoops::from_loops(unit_size, &loops, [1 << 30; 2], 8), None, "{loops:?}");
        }
    }

    #[test]
    fn blocks_that_continue_rows_or_columns_are_joined() {
        // From BNHC to HCBN, and back: the tokens of adjacent blocks are adjacent.
        let [elements, tokens] = [within(1024, [2, 1 << 20]), within(16, [2048, 2])];
        let of =
            |loops: &[Loop], strides, most| TransposedLoops::from_loops(2, loops, strides, most).unwrap().0;
        let to = of(&[elements, tokens], [16 * 2048, 32], 4);
        assert_eq!((to.joined, to.counts(4)), (Joined::Rows, [64, 1024]));
        let from = of(&[within(16, [2, 2048]), within(1024, [1 << 20, 2])], [32, 16 * 2048], 4);
        assert_eq!((from.joined, from.counts(4)), (Joined::Columns, [1024, 64]));
        assert_eq!(of(&[elements, tokens], [16 * 2048, 32], 1).joined, Joined::Neither);
        // Blocks of one token.
        let single = of(&[elements], [2048, 2], 4);
        assert_eq!((single.joined, single.counts(4)), (Joined::Rows, [4, 1024]));
        assert_eq!(TransposedLoops::from_loops(2, &[elements], [2048, 2], 1), None);
    }

    #[test]
    fn tiles_are_as_large_as_their_warps_hold_and_cover_a_matrix() {
        for unit_size in [1, 2, 4, 8, 16] {
            for rows in [1, 2, 3, 8, 16, 17, 64, 100, 4096] {
                for columns in [1, 5, 16, 64, 80, 1024, 1 << 20] {
                    let tile = Tile::new(unit_size, [rows, columns]);
                    let sizes = tile.counts();
                    assert_eq!(sizes[0] * sizes[1] * unit_size, OF_WARP << tile.warps_shift);
                    assert!(1 << tile.warps_shift <= MAX_WARPS);
                    assert!(sizes.iter().all(|size| (size * unit_size).is_multiple_of(WORD)));
                    let tiles = tile.tiles([rows, columns]);
                    assert!(tiles[0] * sizes[0] >= rows && (tiles[0] - 1) * sizes[0] < rows);
                    assert!(tiles[1] * sizes[1] >= columns && (tiles[1] - 1) * sizes[1] < columns);
                    let is_long =
                        |index: usize, count: u64| sizes[index] * unit_size >= SPAN || sizes[index] >= count;
                    assert!(is_long(0, rows) && is_long(1, columns), "{tile:?} of {rows} x {columns}");
                }
            }
        }
    }

    #[test]
    fn small_elements_are_moved_in_words_where_all_addresses_allow() {
        let of = |tokens: u64, unit_size: u64, starts: [u64; 2], alignment: u64| {
            let blocks = to_tokens_at(tokens, unit_size, starts, alignment);
            blocks.map(|blocks| (blocks.is_source_wide, blocks.is_destination_wide))
        };
        assert_eq!(of(16, 2, [0x1000, 0x2000], 0), Some((1, 1)));
        assert_eq!(of(16, 2, [0x1002, 0x2000], 0), Some((0, 1)));
        assert_eq!(of(16, 1, [0x1000, 0x2001], 128), Some((1, 0)));
        assert_eq!(of(15, 2, [0x1000, 0x2000], 0), Some((1, 0)), "15 tokens are not whole words");
        assert_eq!(of(16, 2, [0x1001, 0x2000], 0), None);
        assert_eq!(of(16, 8, [0x1004, 0x2000], 0), None);
        assert_eq!(of(16, 2, [0x1000, 0x2000], 2), Some((0, 0)));
    }

    #[test]
    fn elements_are_moved_in_vectors_where_both_sides_allow_and_destination_spans_are_long() {
        let of = |tokens: u64, unit_size: u64, starts: [u64; 2]| {
            to_tokens_at(tokens, unit_size, starts, 0).is_some_and(|blocks| blocks.word_size == 16)
        };
        for unit_size in [1, 2, 4, 8] {
            assert!(of(64, unit_size, [0x1000, 0x2010]), "{unit_size} bytes");
            assert!(!of(64, unit_size, [0x1000, 0x2008]) && !of(64, unit_size, [0x1008, 0x2000]));
            assert!(!of(63, unit_size, [0x1000, 0x2000]), "63 tokens are not whole vectors");
        }
        assert!(of(32, 1, [0; 2]) && of(16, 2, [0; 2]));
        assert!(!of(16, 1, [0; 2]) && !of(8, 2, [0; 2]), "a vector is half of a sector");
        assert!(of(4, 4, [0; 2]) && of(2, 8, [0; 2]), "a thread writes vectors of one column");
    }

    #[test]
    fn a_tile_of_vectors_has_whole_ones_on_both_sides() {
        for unit_size in [1, 2, 4, 8] {
            let vector = VECTOR / unit_size;
            for counts in [[1, 1], [1, 64], [64, 1], [2, 5], [9, 1024], [4096, 3]] {
                let tile = Tile::new(unit_size, counts.map(|vectors| vectors * vector));
                assert!(tile.counts().iter().all(|count| *count >= vector), "{tile:?} of {counts:?}");
            }
        }
    }
}
