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
    /// The address of the runs, in memory that the device reaches.
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
    /// The layers.
    pub layers: [Layer; MOST_LAYERS],
}
const _: () = assert!(size_of::<Blocks>() == 80 + 16 * MOST_LAYERS && size_of::<Blocks>() <= 4096);

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
