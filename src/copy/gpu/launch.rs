// SPDX-License-Identifier: Apache-2.0
//! The geometry of kernel launches: tiles, runs of blocks, and the number of CTAs. Pure.

use std::ops::Range;

use super::direction::CopyDirection;
use crate::base::{Result, lists};
use crate::cuda::{Blocks, KernelRun, Layer, Units};

/// Size of a tile: one round of eight 16-byte loads by each thread of a warp.
pub const TILE: u64 = 4096;
/// Bytes from which all warps of a device have two rounds each.
const LARGE: u64 = 16 << 20;
/// Tiles start at a cache line of the device.
const LINE: u64 = 128;

/// The parameters of a launch that copies each unit by itself, in tiles of at most `max_tile` bytes, for these layers and outer slots, and
/// for some of the runs.
pub fn single_units(
    units: &Units,
    outer: (u64, [u64; 2]),
    max_tile: u64,
    layers: &[Layer],
    runs: &Range<usize>,
) -> Blocks {
    let are_joined = units.block_strides.iter().all(|stride| *stride == units.unit_size);
    let stretch = units.unit_size * if are_joined { u64::from(units.max_blocks) } else { 1 };
    let (tile_size, tiles) = tile(stretch, max_tile);
    Blocks { are_joined: are_joined.into(), tile_size, tiles, ..units.blocks(outer, layers, runs) }
}

/// The maximum size of a tile in a launch that moves `bytes` bytes.
pub fn max_tile(bytes: u64) -> u64 {
    if bytes < LARGE { TILE } else { 2 * TILE }
}

/// Divides a contiguous span into tiles of about equal size.
fn tile(stretch: u64, most: u64) -> (u32, u32) {
    let wanted = stretch.div_ceil(most);
    let size = stretch.div_ceil(wanted).next_multiple_of(LINE);
    (size as u32, u32::try_from(stretch.div_ceil(size)).unwrap_or(u32::MAX))
}

/// Average number of blocks per run. Runs are cut to it: the grid has tiles for the longest run in each, so a few long runs
/// would leave most tiles of the others empty.
pub fn typical_length(runs: usize, blocks: u64) -> u32 {
    u32::try_from(blocks / (runs as u64).max(1)).unwrap_or(u32::MAX).max(1)
}

/// Adds runs to a list, cut to `most` blocks, and at destinations that are multiples of `every`.
pub fn add_runs(
    list: &mut Vec<KernelRun>,
    runs: impl Iterator<Item = KernelRun>,
    most: u32,
    every: u32,
) -> Result<()> {
    lists::reserve(list, runs.size_hint().0)?;
    for mut left in runs {
        while left.length > 0 {
            // Avoids a division in the common case, because there may be tens of thousands of runs.
            let into = if left.destination < every { left.destination } else { left.destination % every };
            let length = left.length.min(most).min(every - into);
            lists::push(list, KernelRun::new(left.source, left.destination, length))?;
            left.source += length;
            left.destination += length;
            left.length -= length;
        }
    }
    Ok(())
}

/// Number of CTAs for moves of `move_size` bytes, if the caller sets no limit.
pub fn ctas(direction: CopyDirection, computes: bool, multiprocessors: u32, move_size: u64) -> u32 {
    match (direction, computes) {
        (CopyDirection::OnDevice, _) => 4 * multiprocessors,
        (_, false) | (CopyDirection::FromPeer | CopyDirection::ToPeer, true) => multiprocessors.div_ceil(2),
        (CopyDirection::ToDevice, true) => 6,
        (CopyDirection::ToHost, true) => UNNOTICED + u32::from(move_size < SMALL),
    }
}

/// Number of CTAs that write to the host almost without slowing down concurrent compute. One more costs compute 5% of its
/// throughput, two more 12%, and four times as many most of it.
pub const UNNOTICED: u32 = 4;
/// Bytes of a move below which these CTAs leave a quarter of the link idle. Then one more CTA saturates it.
pub const SMALL: u64 = 8 << 10;

/// Number of CTAs that gather or scatter for staged copies: enough to saturate the link, but no more, because they compete
/// with the copy engine for device memory. Concurrently with compute, three times as many: they all start when a large
/// kernel ends, and the next kernel waits for them.
pub fn staging_ctas(computes: bool) -> u32 {
    if computes { 96 } else { 32 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tiles_cover_a_span_and_none_is_empty() {
        for stretch in [1, 15, 480, 4096, 4097, 4608, 16 << 10, 65 << 20, 5_000_001] {
            let (size, tiles) = tile(stretch, TILE);
            assert!(u64::from(size) <= TILE && size % 16 == 0);
            assert!(u64::from(tiles) * u64::from(size) >= stretch);
            assert!(u64::from(tiles - 1) * u64::from(size) < stretch);
        }
    }

    #[test]
    fn runs_are_cut_to_a_length_and_at_bounds() {
        let runs = [KernelRun::new(10, 3, 7), KernelRun::new(90, 20, 1)];
        let mut cut = Vec::new();
        add_runs(&mut cut, runs.into_iter(), 3, 4).unwrap();
        let expected = [(10, 3, 1), (11, 4, 3), (14, 7, 1), (15, 8, 2), (90, 20, 1)];
        assert_eq!(
            cut,
            expected.map(|(source, destination, length)| KernelRun::new(source, destination, length))
        );
    }

    #[test]
    fn a_few_long_runs_among_many_short_ones_do_not_determine_the_length() {
        assert_eq!(typical_length(1000, 1999), 1);
        assert_eq!(typical_length(1, 64), 64);
    }
}
