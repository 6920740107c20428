// SPDX-License-Identifier: Apache-2.0
//! The copy kernel: what it is asked for, laid out as src/cuda/kernels/copy.h says, and its launch.

use std::ffi::CStr;
use std::sync::Arc;

use super::context::Context;
use super::module::{Function, Module};
use super::stream::Active;
use crate::error::{Error, Result, Status};

/// Threads of a CTA.
const THREADS: u32 = 512;
/// Layers that one launch takes.
pub const MOST_LAYERS: usize = 240;
/// As many places again in a launch that takes more runs along.
const MORE_PLACES: usize = 779;

const PTX: &str = concat!(include_str!("kernels/copy.ptx"), "\0");

/// Blocks that follow each other on both sides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Run {
    /// First block id in the source.
    pub source: u32,
    /// First block id in the destination.
    pub destination: u32,
    /// How many blocks.
    pub length: u32,
    reserved: u32,
}

impl Run {
    /// So many blocks from these on.
    pub fn new(source: u32, destination: u32, length: u32) -> Self {
        Self { source, destination, length, reserved: 0 }
    }

    /// Its blocks' ids as one word.
    fn ids(self) -> u64 {
        word(self.source, self.destination)
    }
}

fn word(low: u32, high: u32) -> u64 {
    u64::from(low) | u64::from(high) << 32
}

/// Where block 0 of a layer begins on both sides, in its first outer slot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Layer {
    /// In the source.
    pub source: u64,
    /// In the destination.
    pub destination: u64,
}

/// What one launch moves: every block of every run, in every layer and outer slot.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Blocks {
    /// The address of the runs, in memory that the device reaches; 0 where they go with the launch.
    pub runs: u64,
    /// Bytes of a block in one layer and outer slot.
    pub unit_size: u64,
    /// Bytes from a block to the next.
    pub source_block_stride: u64,
    /// The same in the destination.
    pub destination_block_stride: u64,
    /// Bytes from an outer slot to the next.
    pub source_outer_stride: u64,
    /// The same in the destination.
    pub destination_outer_stride: u64,
    /// How many runs.
    pub num_runs: u32,
    /// How many layers.
    pub num_layers: u32,
    /// How many outer slots.
    pub num_outers: u32,
    /// The most blocks a run has.
    pub most_blocks: u32,
    /// 1 where the blocks of a run lie together on both sides.
    pub are_joined: u32,
    /// Bytes a warp moves at a time; a multiple of 16.
    pub tile_size: u32,
    /// Tiles of a unit, or of `most_blocks` joined ones.
    pub tiles: u32,
    /// 0.
    pub reserved: u32,
    /// The layers, and what lies behind them.
    pub layers: [Layer; MOST_LAYERS],
}
const _: () = assert!(size_of::<Blocks>() == 80 + 16 * MOST_LAYERS && size_of::<Blocks>() <= 4096);

/// The same with more places behind the layers. A launch takes longer with so large a parameter, but less long than a
/// kernel takes to read as many runs from host memory.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct LargeBlocks {
    blocks: Blocks,
    more: [Layer; MORE_PLACES],
}
const _: () = assert!(size_of::<LargeBlocks>() == size_of::<Blocks>() + 16 * MORE_PLACES);

/// Blocks whose runs go with the launch: nothing else need be read before the first byte moves.
pub enum WithRuns {
    /// A few.
    Small(Box<Blocks>),
    /// More.
    Large(Box<LargeBlocks>),
}

impl WithRuns {
    /// Puts runs behind the layers of `blocks`, if they fit there, or where that may be in a large one.
    pub fn new(blocks: &Blocks, runs: &[Run], may_be_large: bool) -> Option<Self> {
        let places = if blocks.most_blocks == 1 { runs.len().div_ceil(2) } else { runs.len() };
        let all = blocks.num_layers as usize + places;
        if all > MOST_LAYERS + if may_be_large { MORE_PLACES } else { 0 } {
            return None;
        }
        let mut large =
            LargeBlocks { blocks: Blocks { runs: 0, ..*blocks }, more: [Layer::default(); MORE_PLACES] };
        let behind = large.blocks.layers[blocks.num_layers as usize..].iter_mut().chain(&mut large.more);
        behind.zip(as_places(runs, blocks.most_blocks)).for_each(|(place, filled)| *place = filled);
        Some(if all > MOST_LAYERS {
            Self::Large(Box::new(large))
        } else {
            Self::Small(Box::new(large.blocks))
        })
    }
}

/// Runs as they lie behind the layers: two in a place where all are of one block.
fn as_places(runs: &[Run], most_blocks: u32) -> impl Iterator<Item = Layer> {
    let a_place = if most_blocks == 1 { 2 } else { 1 };
    runs.chunks(a_place).map(move |runs| match *runs {
        [first, second] => Layer { source: first.ids(), destination: second.ids() },
        [single] if a_place == 2 => Layer { source: single.ids(), destination: 0 },
        [run, ..] => Layer { source: run.ids(), destination: word(run.length, run.reserved) },
        [] => Layer::default(),
    })
}

impl Blocks {
    /// Tiles of all runs.
    pub fn total_tiles(&self) -> u64 {
        let blocks = if self.are_joined == 0 { self.most_blocks } else { 1 };
        [self.num_runs, self.num_layers, self.num_outers, self.tiles, blocks].map(u64::from).iter().product()
    }

    /// CTAs that have something to do, of as many as `most`. A few tiles go to many of them rather than to all warps of
    /// a few: each multiprocessor moves only so much.
    pub fn ctas(&self, most: u32) -> u32 {
        const TILES: u64 = 4;
        self.total_tiles().div_ceil(TILES).clamp(1, u64::from(most.max(1))) as u32
    }
}

/// The kernel in a context.
pub struct CopyKernel {
    blocks: Function,
    large_blocks: Function,
}

impl CopyKernel {
    /// Loads it.
    pub fn load(context: &Arc<Context>) -> Result<Self> {
        let broken = |_| Error::new(Status::Unsupported, "the copy kernels hold a NUL");
        let ptx = CStr::from_bytes_with_nul(PTX.as_bytes()).map_err(broken)?;
        let module = Module::load(context, ptx)?;
        Ok(Self {
            blocks: module.function(c"kvmem_copy_blocks")?,
            large_blocks: module.function(c"kvmem_copy_blocks_large")?,
        })
    }

    /// Starts it.
    ///
    /// # Safety
    /// All that `blocks` names must be memory that the device reaches, and stay so until the stream is done, also
    /// after a failure here; no byte may be read and written.
    pub unsafe fn launch(&self, on: &Active<'_>, blocks: &Blocks, most_ctas: u32) -> Result<()> {
        // SAFETY: the kernel's parameter; the caller's promise.
        unsafe { self.blocks.launch(on, blocks.ctas(most_ctas), THREADS, blocks) }
    }

    /// The same with the runs in the launch.
    ///
    /// # Safety
    /// As above.
    pub unsafe fn launch_with_runs(&self, on: &Active<'_>, blocks: &WithRuns, most_ctas: u32) -> Result<()> {
        // SAFETY: the kernels' parameters; the caller's promise.
        unsafe {
            match blocks {
                WithRuns::Small(blocks) => self.launch(on, blocks, most_ctas),
                WithRuns::Large(large) => {
                    self.large_blocks.launch(on, large.blocks.ctas(most_ctas), THREADS, &**large)
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn blocks(num_layers: u32, most_blocks: u32) -> Blocks {
        // SAFETY: integers, for which zero is a value.
        let mut blocks: Blocks = unsafe { std::mem::zeroed() };
        (blocks.runs, blocks.num_layers, blocks.most_blocks) = (77, num_layers, most_blocks);
        blocks.layers[num_layers as usize - 1] = Layer { source: 5, destination: 6 };
        blocks
    }

    fn runs(count: usize, length: u32) -> Vec<Run> {
        (0..count as u32).map(|i| Run::new(i, 100_000 + i, length)).collect()
    }

    /// All places of a launch.
    fn places(with_runs: &WithRuns) -> Vec<Layer> {
        match with_runs {
            WithRuns::Small(blocks) => blocks.layers.to_vec(),
            WithRuns::Large(large) => [&large.blocks.layers[..], &large.more[..]].concat(),
        }
    }

    #[test]
    fn runs_lie_behind_the_layers_in_the_smallest_launch_that_takes_them() {
        const FEW: usize = MOST_LAYERS - 3;
        const MANY: usize = FEW + MORE_PLACES;
        for (count, is_large) in [(1, false), (FEW, false), (FEW + 1, true), (MANY, true)] {
            let with_runs = WithRuns::new(&blocks(3, 9), &runs(count, 9), true).unwrap();
            assert_eq!(matches!(with_runs, WithRuns::Large(_)), is_large, "{count}");
            let places = places(&with_runs);
            assert_eq!(places[2], Layer { source: 5, destination: 6 });
            for (i, place) in places[3..3 + count].iter().enumerate() {
                assert_eq!(*place, Layer { source: word(i as u32, 100_000 + i as u32), destination: 9 });
            }
        }
        assert!(WithRuns::new(&blocks(3, 9), &runs(MANY + 1, 9), true).is_none());
        assert!(WithRuns::new(&blocks(3, 9), &runs(FEW, 9), false).is_some());
        assert!(WithRuns::new(&blocks(3, 9), &runs(FEW + 1, 9), false).is_none());
    }

    #[test]
    fn runs_of_one_block_take_half_a_place() {
        const FEW: usize = 2 * (MOST_LAYERS - 3);
        const MANY: usize = FEW + 2 * MORE_PLACES;
        for (count, is_large) in
            [(1, false), (2, false), (FEW, false), (FEW + 1, true), (MANY - 1, true), (MANY, true)]
        {
            let with_runs = WithRuns::new(&blocks(3, 1), &runs(count, 1), true).unwrap();
            assert_eq!(matches!(with_runs, WithRuns::Large(_)), is_large, "{count}");
            let halves: Vec<_> =
                places(&with_runs)[3..].iter().flat_map(|place| [place.source, place.destination]).collect();
            for (i, half) in halves[..count].iter().enumerate() {
                assert_eq!(*half, word(i as u32, 100_000 + i as u32));
            }
            assert!(halves[count..].iter().all(|half| *half == 0));
        }
        assert!(WithRuns::new(&blocks(3, 1), &runs(MANY + 1, 1), true).is_none());
    }

    #[test]
    fn what_goes_with_a_launch_is_not_looked_for_elsewhere() {
        let WithRuns::Small(small) = WithRuns::new(&blocks(1, 1), &runs(5, 1), true).unwrap() else {
            panic!("too large")
        };
        assert_eq!(small.runs, 0);
    }
}
