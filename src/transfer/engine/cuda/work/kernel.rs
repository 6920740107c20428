// SPDX-License-Identifier: Apache-2.0
//! Copies by the kernel, which reads and writes both sides itself.

use super::super::device::descriptor_ring::Slot;
use super::descriptors::PreparedRuns;
use crate::cuda::kernel::{Blocks, CopyKernel, Layer, MOST_LAYERS, Run};
use crate::cuda::stream::Active;
use crate::error::Result;
use crate::transfer::plan::{self, Plan};

/// A round of eight 16-byte loads a thread of a warp.
pub const TILE: u64 = 4096;
/// Enough for all warps of a device, with two rounds each.
const LARGE: u64 = 16 << 20;
/// Tiles begin where a device reads a line.
const LINE: u64 = 128;

/// A prepared copy by the kernel.
pub struct KernelCopy {
    /// Runs of blocks.
    pub runs: PreparedRuns,
    /// The runs' address is missing, but where they go along.
    launches: Vec<Blocks>,
    most_ctas: u32,
}

impl KernelCopy {
    /// Prepares it; a reason where it can't be.
    pub fn prepare(plan: &Plan, most_ctas: u32) -> std::result::Result<Self, String> {
        let grid = plan.grid();
        let most_blocks = typical_length(plan.runs().len(), plan.blocks());
        let runs = cut_runs(plan.runs().iter().map(of_plan), most_blocks, u32::MAX);
        let first = plan::Run { source: 0, destination: 0, length: 1 };
        let layers: Vec<_> = (0..grid.layers)
            .map(|layer| {
                let start = plan.unit_move(layer, 0, first);
                Layer { source: start.source, destination: start.destination }
            })
            .collect();
        let shape = Shape {
            unit_size: grid.unit_size,
            outers: grid.outers,
            block_strides: grid.strides,
            outer_strides: grid.outer_strides,
            most_blocks,
            most_tile: most_tile(plan.bytes()),
        };
        let launches: Vec<_> =
            layers.chunks(MOST_LAYERS).map(|layers| shape.blocks(layers, 0, runs.len())).collect();
        launches.iter().try_for_each(Blocks::ensure_countable)?;
        let with_runs = match &launches[..] {
            [launch] => launch.with_runs(&runs),
            _ => None,
        };
        Ok(match with_runs {
            Some(launch) => Self { runs: PreparedRuns::InLaunch, launches: vec![launch], most_ctas },
            None => Self { runs: PreparedRuns::Here(runs), launches, most_ctas },
        })
    }

    /// Starts it.
    ///
    /// # Safety
    /// A slot holds this copy's runs, and what is moved is memory that the device reaches; all of it must stay until
    /// the stream is done, also after a failure here.
    pub unsafe fn enqueue(&self, kernel: &CopyKernel, on: &Active<'_>, slot: Option<&Slot>) -> Result<()> {
        let runs = self.runs.address(slot)?;
        self.launches.iter().try_for_each(|blocks| {
            let blocks = Blocks { runs: runs + blocks.runs, ..*blocks };
            // SAFETY: the caller's promise; the plan checked that nothing is read and written.
            unsafe { kernel.launch(on, &blocks, self.most_ctas) }
        })
    }
}

/// The geometry of a launch.
pub struct Shape {
    /// Bytes of a block in one layer and outer slot.
    pub unit_size: u64,
    /// Outer slots.
    pub outers: u64,
    /// From a block to the next, in source and destination.
    pub block_strides: [u64; 2],
    /// From an outer slot to the next.
    pub outer_strides: [u64; 2],
    /// The most blocks a run has.
    pub most_blocks: u32,
    /// The most bytes of a tile.
    pub most_tile: u64,
}

impl Shape {
    /// What a launch moves in these layers of the runs from `first_run` on.
    pub fn blocks(&self, layers: &[Layer], first_run: usize, num_runs: usize) -> Blocks {
        let are_joined = self.block_strides.iter().all(|stride| *stride == self.unit_size);
        let stretch = self.unit_size * if are_joined { u64::from(self.most_blocks) } else { 1 };
        let (tile_size, tiles) = tile(stretch, self.most_tile);
        let mut table = [Layer::default(); MOST_LAYERS];
        table[..layers.len()].copy_from_slice(layers);
        Blocks {
            runs: (first_run * size_of::<Run>()) as u64,
            unit_size: self.unit_size,
            source_block_stride: self.block_strides[0],
            destination_block_stride: self.block_strides[1],
            source_outer_stride: self.outer_strides[0],
            destination_outer_stride: self.outer_strides[1],
            num_runs: num_runs as u32,
            num_layers: layers.len() as u32,
            num_outers: self.outers as u32,
            most_blocks: self.most_blocks,
            are_joined: are_joined.into(),
            tile_size,
            tiles,
            reserved: 0,
            layers: table,
        }
    }
}

/// What a warp moves at a time, at most, of a launch that moves so much.
pub fn most_tile(bytes: u64) -> u64 {
    if bytes < LARGE { TILE } else { 2 * TILE }
}

/// Cuts a stretch into tiles of about equal size.
fn tile(stretch: u64, most: u64) -> (u32, u32) {
    let wanted = stretch.div_ceil(most);
    let size = stretch.div_ceil(wanted).next_multiple_of(LINE);
    (size as u32, u32::try_from(stretch.div_ceil(size)).unwrap_or(u32::MAX))
}

/// Blocks a run has on average: runs are cut to that, so that a few long ones don't leave most tiles of the others
/// empty.
pub fn typical_length(runs: usize, blocks: u64) -> u32 {
    u32::try_from(blocks / (runs as u64).max(1)).unwrap_or(u32::MAX).max(1)
}

/// Cuts runs to `most` blocks, and where a destination is a multiple of `every`.
pub fn cut_runs(runs: impl Iterator<Item = Run>, most: u32, every: u32) -> Vec<Run> {
    let mut cut = Vec::with_capacity(runs.size_hint().0);
    for mut left in runs {
        while left.length > 0 {
            // Without a division where there is none to be done, for there may be tens of thousands of runs.
            let into = if left.destination < every { left.destination } else { left.destination % every };
            let length = left.length.min(most).min(every - into);
            cut.push(Run::new(left.source, left.destination, length));
            left.source += length;
            left.destination += length;
            left.length -= length;
        }
    }
    cut
}

fn of_plan(run: &plan::Run) -> Run {
    Run::new(run.source, run.destination, run.length)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tiles_cover_a_stretch_and_none_is_empty() {
        for stretch in [1, 15, 480, 4096, 4097, 4608, 16 << 10, 65 << 20, 5_000_001] {
            let (size, tiles) = tile(stretch, TILE);
            assert!(u64::from(size) <= TILE && size % 16 == 0);
            assert!(u64::from(tiles) * u64::from(size) >= stretch);
            assert!(u64::from(tiles - 1) * u64::from(size) < stretch);
        }
    }

    #[test]
    fn runs_are_cut_to_a_length_and_at_bounds() {
        let runs = [Run::new(10, 3, 7), Run::new(90, 20, 1)];
        let cut = cut_runs(runs.into_iter(), 3, 4);
        let expected = [(10, 3, 1), (11, 4, 3), (14, 7, 1), (15, 8, 2), (90, 20, 1)];
        assert_eq!(cut, expected.map(|(source, destination, length)| Run::new(source, destination, length)));
    }

    #[test]
    fn a_few_long_runs_among_many_short_ones_do_not_set_the_length() {
        assert_eq!(typical_length(1000, 1999), 1);
        assert_eq!(typical_length(1, 64), 64);
    }
}
