// SPDX-License-Identifier: Apache-2.0
//! The checksum kernel: its parameter, which src/cuda/kernels/checksum.h declares too, and its launch.
#![allow(unsafe_code)]

use std::sync::Arc;

use super::context::Context;
use super::module::LazyFunction;
use super::patience::Patience;
use super::ptx::Ptx;
use super::quiet::PATIENCE;
use super::stream::Active;
use crate::base::Result;

const THREADS: u32 = 512;
/// Tiles that a CTA divides at a time.
const TILES: u32 = THREADS / 32;
const CTAS: u32 = 3;
/// The maximum number of layers of one launch.
pub const MAX_LAYERS: usize = 240;
/// Words of a row: the words that the threads of a warp read at a time.
pub const ROW: usize = 32;

const PTX: Ptx = Ptx::packed(include_bytes!("kernels/checksum.packed"));

/// The tiles that one launch processes: those of every block, in every layer and outer slot.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Tiles {
    /// The address of the block ids, in memory that the device can read.
    pub blocks: u64,
    /// The address of a power of x for each tile of a block: the exponent is the number of bits behind the tile. In memory
    /// that the device can read.
    pub behind: u64,
    /// The address to which each block's remainder is added, in memory of the device.
    pub checksums: u64,
    /// Bytes of a block in one layer and outer slot.
    pub piece_size: u64,
    /// Bytes from a block to the next.
    pub block_stride: u64,
    /// Bytes from an outer slot to the next.
    pub outer_stride: u64,
    pub num_blocks: u32,
    pub num_layers: u32,
    pub num_outers: u32,
    /// Tiles of a block's part in one layer and outer slot.
    pub tiles: u32,
    pub tile_size: u32,
    /// Must be 0.
    pub reserved: u32,
    /// For each bit of a remainder, starting with the lowest, the remainder of that bit followed by one row.
    pub further: [u32; 32],
    /// A power of x for each word of a row: the exponent is the number of bits from the word to the end of the row.
    pub words: [u32; ROW],
    /// The address of block 0 in each layer, in its first outer slot.
    pub layers: [u64; MAX_LAYERS],
}
const _: () = assert!(size_of::<Tiles>() == 72 + 4 * 32 + 4 * ROW + 8 * MAX_LAYERS);

impl Tiles {
    pub fn total(&self) -> u32 {
        self.num_blocks * self.num_layers * self.num_outers * self.tiles
    }
}

pub struct ChecksumKernel {
    function: LazyFunction,
    max_ctas: u32,
}

impl ChecksumKernel {
    pub fn load(context: &Arc<Context>) -> Result<Self> {
        let function = LazyFunction::new(context, PTX, c"kvmem_checksum_blocks");
        function.get(&Patience::needed(PATIENCE))?;
        let max_ctas = CTAS * context.device().multiprocessors();
        Ok(Self { function, max_ctas })
    }

    /// Starts it.
    ///
    /// # Safety
    /// All addresses in `tiles` must be of memory that the device can access, and must remain valid until the stream is
    /// idle, also if this fails. Nothing else may access the checksums until then.
    pub unsafe fn launch(&self, on: &Active<'_>, tiles: &Tiles) -> Result<()> {
        let ctas = tiles.total().div_ceil(TILES).clamp(1, self.max_ctas);
        // SAFETY: the kernel's parameter; the caller's promise.
        unsafe { self.function.get_loaded()?.launch(on, ctas, THREADS, tiles) }
    }
}
