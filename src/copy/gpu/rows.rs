// SPDX-License-Identifier: Apache-2.0
//! Launches for rows: short units that have other neighbours on each side, such as the heads of a token where heads and tokens
//! change places. Pure.

use std::ops::Range;

use super::launch::TILE;
use crate::cuda::kernel::{Blocks, Layer, MAX_LAYERS, Units};
use crate::plan::Loop;

/// The widest access of a thread.
const MAX_WORD: u64 = 16;
/// Units of more words are long enough for a warp each.
const MAX_WORDS: u64 = 64;
/// The kernel computes offsets within a block, and products of a row's number and a loop's count, with 32-bit integers.
const MAX: u64 = 1 << 32;

/// The two innermost loops of a block, which one launch goes through by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RowLoops {
    /// The outer one of the two; one iteration if there is only one loop.
    pub outer: Loop,
    pub inner: Loop,
}

impl RowLoops {
    /// The loops over rows, and the number of loops outside them; `None` if units are not copied as rows.
    pub fn from_loops(unit_size: u64, loops: &[Loop]) -> Option<(Self, usize)> {
        if unit_size > MAX_WORD * MAX_WORDS {
            return None;
        }
        let fits = |rows: &Self| rows.extent(unit_size).is_some_and(|extent| extent < MAX);
        let (inner, outside) = loops.split_last()?;
        let alone = Self { outer: Loop { count: 1, ..Loop::default() }, inner: *inner };
        if !inner.is_within_regions() || inner.count < 2 || !fits(&alone) {
            return None;
        }
        let both = outside.last().filter(|outer| outer.is_within_regions());
        let both = both.map(|outer| Self { outer: *outer, ..alone });
        let is_countable = |rows: &Self| {
            let count = rows.count().checked_mul(rows.inner.count);
            count.is_some_and(|count| count < MAX)
        };
        match both.filter(|rows| fits(rows) && is_countable(rows)) {
            Some(rows) => Some((rows, outside.len() - 1)),
            None => is_countable(&alone).then_some((alone, outside.len())),
        }
    }

    /// How often a warp loads as many words as it has in flight, for a block in a layer, if addresses are aligned as sizes are.
    /// `None` if the rows are too long.
    pub fn moves(&self, unit_size: u64) -> Option<u64> {
        let word = 1 << unit_size.trailing_zeros().min(MAX_WORD.trailing_zeros());
        let words = self.count().saturating_mul(unit_size / word);
        (unit_size / word <= MAX_WORDS).then_some(words.div_ceil(TILE / MAX_WORD))
    }

    /// Rows of a block in a layer.
    fn count(&self) -> u64 {
        self.outer.count.saturating_mul(self.inner.count)
    }

    /// Bytes from the first to behind the last, on the side where they are further apart.
    fn extent(&self, unit_size: u64) -> Option<u64> {
        let last = |each: &Loop, side: usize| (each.count - 1).checked_mul(each.strides[side]);
        let of =
            |side| last(&self.outer, side)?.checked_add(last(&self.inner, side)?)?.checked_add(unit_size);
        Some(of(0)?.max(of(1)?))
    }

    /// The parameters of a launch for rows that are the units, in these layers, and for some of the runs. The layers are relative to an
    /// address that is a multiple of `alignment`. `None` if the words would be so short that units are copied faster one by one.
    pub fn blocks(
        &self,
        units: &Units,
        layers: &[Layer],
        alignment: u64,
        runs: &Range<usize>,
    ) -> Option<Blocks> {
        let word_size = self.word_size(units, layers, alignment);
        let num_words = units.unit_size / word_size;
        if num_words > MAX_WORDS || layers.len() > MAX_LAYERS {
            return None;
        }
        let Self { outer, inner } = self;
        let rows = self.count();
        let tiles = (rows * units.unit_size).div_ceil(TILE).clamp(1, rows);
        let rows_per_tile = rows.div_ceil(tiles);
        Some(Blocks {
            are_joined: 0,
            tile_size: rows_per_tile as u32,
            tiles: rows.div_ceil(rows_per_tile) as u32,
            word_size: word_size as u32,
            num_inners: inner.count as u32,
            source_inner_stride: inner.strides[0] as u32,
            destination_inner_stride: inner.strides[1] as u32,
            num_words: num_words as u32,
            words_inverse: inverse(num_words),
            inners_inverse: inverse(inner.count),
            ..units.blocks((outer.count, outer.strides), layers, runs)
        })
    }

    /// The widest word that all addresses and sizes are multiples of.
    fn word_size(&self, units: &Units, layers: &[Layer], alignment: u64) -> u64 {
        let strides = [self.outer.strides, self.inner.strides, units.block_strides].concat();
        let starts = layers.iter().flat_map(|layer| [layer.source, layer.destination]);
        let bits =
            strides.into_iter().chain(starts).fold(units.unit_size | alignment, |bits, each| bits | each);
        1 << bits.trailing_zeros().min(MAX_WORD.trailing_zeros())
    }
}

/// 2^32 divided by a count, rounded up; 0 for 1, which does not fit. The kernel divides by multiplying with it.
fn inverse(count: u64) -> u32 {
    if count == 1 { 0 } else { MAX.div_ceil(count) as u32 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn within(count: u64, strides: [u64; 2]) -> Loop {
        Loop { count, strides, regions: [0; 2] }
    }

    /// The launch for rows of one run.
    fn launch(unit_size: u64, [outer, inner]: [Loop; 2], layers: &[Layer], alignment: u64) -> Option<Blocks> {
        let units = Units { unit_size, block_strides: [1 << 15; 2], max_blocks: 3 };
        RowLoops { outer, inner }.blocks(&units, layers, alignment, &(0..1))
    }

    #[test]
    fn heads_and_tokens_that_change_places_are_rows_of_one_launch() {
        let layers = Loop { count: 4, strides: [0; 2], regions: [1; 2] };
        let (heads, tokens) = (within(8, [256, 4096]), within(16, [2048, 256]));
        let expected = RowLoops { outer: heads, inner: tokens };
        assert_eq!(RowLoops::from_loops(256, &[layers, heads, tokens]), Some((expected, 1)));
        assert_eq!(RowLoops::from_loops(256, &[layers, tokens]).unwrap().1, 1);
        assert_eq!(RowLoops::from_loops(256, &[tokens, layers]), None);
        assert_eq!(RowLoops::from_loops(256, &[]), None);
    }

    #[test]
    fn offsets_that_exceed_32_bits_are_not_rows() {
        let (far, near) = (within(2, [1 << 32, 512]), within(16, [512, 256]));
        assert_eq!(RowLoops::from_loops(256, &[far, near]).unwrap().1, 1);
        assert_eq!(RowLoops::from_loops(256, &[near, far]), None);
        assert_eq!(RowLoops::from_loops(256, &[within(2, [(1 << 32) - 256, 512])]), None);
        assert!(RowLoops::from_loops(256, &[within(2, [(1 << 32) - 512, 512])]).is_some());
        assert!(RowLoops::from_loops(1, &[within(3, [1, 2]), within((1 << 16) - 1, [2, 1])]).unwrap().1 == 1);
    }

    #[test]
    fn tiles_have_all_rows_once_and_none_is_empty() {
        for (unit, outers, inners) in [(256, 8, 16), (2, 1, 3), (1024, 7, 5), (132, 61, 64), (8, 1000, 999)] {
            let loops = [within(outers, [1 << 20, 64]), within(inners, [1024, 16])];
            let Some(blocks) = launch(unit, loops, &[Layer::default()], 0) else { panic!("{unit}") };
            let (rows, tiles, size) = (outers * inners, u64::from(blocks.tiles), u64::from(blocks.tile_size));
            assert!((tiles - 1) * size < rows && rows <= tiles * size);
            assert!(size * unit <= TILE.max(unit) + unit);
        }
    }

    #[test]
    fn words_are_as_wide_as_all_addresses_allow() {
        let of = |unit, start, alignment| {
            let loops = [within(2, [1 << 14; 2]), within(16, [2048, 256])];
            let layers = [Layer { source: 0x1000, destination: start }];
            launch(unit, loops, &layers, alignment).map(|blocks| (blocks.word_size, blocks.num_words))
        };
        assert_eq!(of(256, 0x2000, 0), Some((16, 16)));
        assert_eq!(of(256, 0x2008, 0), Some((8, 32)));
        assert_eq!(of(256, 0x2000, 4), Some((4, 64)));
        assert_eq!(of(132, 0x2000, 128), Some((4, 33)));
        assert_eq!(of(2, 0x2000, 128), Some((2, 1)));
        // A warp copies these faster one by one.
        assert_eq!(of(256, 0x2002, 0), None);
        assert_eq!(of(1040, 0x2000, 0), None);
    }

    #[test]
    fn products_with_an_inverse_are_quotients() {
        for divisor in (1..200u64).chain([255, 256, 999, 1 << 12, (1 << 16) - 1]) {
            let by = inverse(divisor);
            let quotient = |value: u64| if by == 0 { value } else { (value * u64::from(by)) >> 32 };
            let most = (MAX - 1) / divisor;
            let near =
                [most, most - 1, most / divisor * divisor, (most / divisor * divisor).saturating_sub(1)];
            for value in (0..5000.min(most)).chain(near) {
                assert_eq!(quotient(value), value / divisor, "{value} / {divisor}");
            }
        }
    }
}
