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
/// Layers that one launch takes, with the runs where these lie behind them.
pub const MOST_LAYERS: usize = 240;
/// Tiles of one launch: their numbers are 32-bit integers there.
const MOST_TILES: u64 = 1 << 31;

const PTX: &str = concat!(include_str!("kernels/copy.ptx"), "\0");

/// Blocks that follow each other on both sides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct KernelRun {
    /// First block id in the source.
    pub source: u32,
    /// First block id in the destination.
    pub destination: u32,
    /// How many blocks.
    pub length: u32,
    reserved: u32,
}

impl KernelRun {
    /// So many blocks from these on.
    pub fn new(source: u32, destination: u32, length: u32) -> Self {
        Self { source, destination, length, reserved: 0 }
    }

    /// The same words in the place of a layer.
    fn as_layer(self) -> Layer {
        let words = |low: u32, high: u32| u64::from(low) | u64::from(high) << 32;
        Layer { source: words(self.source, self.destination), destination: words(self.length, self.reserved) }
    }
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
    /// The address of the runs, in memory that the device reaches; 0 where they lie behind the layers.
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

impl Blocks {
    /// The same with its runs behind the layers, if they fit: nothing else need be read then before the first byte moves.
    pub fn with_runs(&self, runs: &[KernelRun]) -> Option<Self> {
        let mut blocks = Self { runs: 0, ..*self };
        let behind = blocks.layers.get_mut(self.num_layers as usize..)?;
        behind.get_mut(..runs.len())?.iter_mut().zip(runs).for_each(|(place, run)| *place = run.as_layer());
        Some(blocks)
    }

    /// Tiles of all runs.
    pub fn total_tiles(&self) -> u64 {
        let blocks = if self.are_joined == 0 { self.most_blocks } else { 1 };
        let counts = [self.num_runs, self.num_layers, self.num_outers, self.tiles, blocks].map(u64::from);
        counts.into_iter().fold(1, u64::saturating_mul)
    }

    /// Fails with a reason if there are more tiles than the kernel can count: it would miss some of them silently.
    pub fn ensure_countable(&self) -> std::result::Result<(), String> {
        match self.total_tiles() {
            tiles if tiles > MOST_TILES => Err(format!("{tiles} tiles are more than one launch takes")),
            _ => Ok(()),
        }
    }

    /// CTAs that have something to do, of as many as `most`. A few tiles go to many of them rather than to all warps of
    /// a few: each multiprocessor moves only so much.
    pub fn ctas(&self, most: u32) -> u32 {
        const TILES: u64 = 4;
        self.total_tiles().div_ceil(TILES).clamp(1, u64::from(most.max(1))) as u32
    }
}

/// The kernel in a context.
pub struct CopyKernel(Function);

impl CopyKernel {
    /// Loads it.
    pub fn load(context: &Arc<Context>) -> Result<Self> {
        let broken = |_| Error::new(Status::Unsupported, "the copy kernels hold a NUL");
        let ptx = CStr::from_bytes_with_nul(PTX.as_bytes()).map_err(broken)?;
        Module::load(context, ptx)?.function(c"kvmem_copy_blocks").map(Self)
    }

    /// Starts it.
    ///
    /// # Safety
    /// All that `blocks` names must be memory that the device reaches, and stay so until the stream is done, also
    /// after a failure here; no byte may be read and written.
    pub unsafe fn launch(&self, on: &Active<'_>, blocks: &Blocks, most_ctas: u32) -> Result<()> {
        // SAFETY: the kernel's parameter; the caller's promise.
        unsafe { self.0.launch(on, blocks.ctas(most_ctas), THREADS, blocks) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_lie_behind_the_layers_while_they_fit() {
        // SAFETY: integers, for which zero is a value.
        let mut blocks: Blocks = unsafe { std::mem::zeroed() };
        blocks.num_layers = 3;
        blocks.layers[2] = Layer { source: 5, destination: 6 };
        let runs: Vec<_> = (0..MOST_LAYERS as u32 - 3).map(|i| KernelRun::new(i, 1000 + i, 1)).collect();
        let with_runs = blocks.with_runs(&runs).unwrap();
        assert_eq!((with_runs.runs, with_runs.layers[2]), (0, blocks.layers[2]));
        assert_eq!(with_runs.layers[3 + 7], Layer { source: 7 | 1007 << 32, destination: 1 });
        assert!(blocks.with_runs(&[&runs[..], &runs[..1]].concat()).is_none());
        blocks.num_layers = MOST_LAYERS as u32;
        assert!(blocks.with_runs(&runs[..1]).is_none());
    }
}
