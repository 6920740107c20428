// SPDX-License-Identifier: Apache-2.0
//! The copy kernels: their parameter, which src/cuda/kernels/copy.h declares too, and their launch.
#![allow(unsafe_code)]

use std::ops::Range;
use std::sync::Arc;

use super::context::Context;
use super::module::LazyFunction;
use super::patience::Patience;
use super::ptx::Ptx;
use super::stream::Active;
use crate::base::{Result, Status, ensure};

const THREADS: u32 = 512;
/// The maximum number of layers of one launch, with the runs if those follow the layers.
pub const MAX_LAYERS: usize = 240;
/// The maximum number of tiles of one launch: the kernels number them with 32-bit integers.
const MAX_TILES: u64 = 1 << 31;

const BLOCKS: Ptx = Ptx::packed(include_bytes!("kernels/copy.packed"));
const ROWS: Ptx = Ptx::packed(include_bytes!("kernels/rows.packed"));
const TRANSPOSE: Ptx = Ptx::packed(include_bytes!("kernels/transpose.packed"));
const VECTORS: Ptx = Ptx::packed(include_bytes!("kernels/vectors.packed"));

/// Blocks with consecutive ids on both sides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct KernelRun {
    /// First block id in the source.
    pub source: u32,
    /// First block id in the destination.
    pub destination: u32,
    pub length: u32,
    reserved: u32,
}

impl KernelRun {
    /// A run that starts at these blocks.
    pub fn new(source: u32, destination: u32, length: u32) -> Self {
        Self { source, destination, length, reserved: 0 }
    }

    /// The same words as an element of `layers`.
    fn as_layer(self) -> Layer {
        let words = |low: u32, high: u32| u64::from(low) | u64::from(high) << 32;
        Layer { source: words(self.source, self.destination), destination: words(self.length, self.reserved) }
    }
}

/// The addresses of block 0 of a layer, in its first outer slot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Layer {
    /// In the source.
    pub source: u64,
    /// In the destination.
    pub destination: u64,
}

/// The blocks of a run continue each other's rows: a value of `are_joined` if matrices are transposed.
pub const JOINED_ROWS: u32 = 1;
/// The same for columns.
pub const JOINED_COLUMNS: u32 = 2;

/// The parameter of a launch, which copies every block of every run, in every layer: units, rows if these are short, or matrices of
/// elements that are transposed.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Blocks {
    /// The address of the runs, in memory that the device can access; 0 if they follow the layers.
    pub runs: u64,
    /// Bytes of a unit: those of a block in one layer and outer slot, or of a row.
    pub unit_size: u64,
    /// Bytes from a block to the next in the source.
    pub source_block_stride: u64,
    /// The same in the destination.
    pub destination_block_stride: u64,
    /// Bytes from an outer slot to the next in the source.
    pub source_outer_stride: u64,
    /// The same in the destination.
    pub destination_outer_stride: u64,
    pub num_runs: u32,
    pub num_layers: u32,
    pub num_outers: u32,
    /// The number of blocks of the longest run.
    pub max_blocks: u32,
    /// 1 if the blocks of a run are contiguous on both sides; of matrices [`JOINED_ROWS`], [`JOINED_COLUMNS`] or 0.
    pub are_joined: u32,
    /// Bytes that a warp copies at a time, a multiple of 16; or rows.
    pub tile_size: u32,
    /// Tiles of a unit, or of `max_blocks` joined ones; or of all rows or matrices of a block in a layer.
    pub tiles: u32,
    /// Bytes of a word, of which all addresses are multiples, if rows or matrices are copied; 0 if units are. More than an
    /// element where matrices are transposed in vectors.
    pub word_size: u32,
    /// The number of rows within an outer slot.
    pub num_inners: u32,
    /// Bytes from a row to the next in the source.
    pub source_inner_stride: u32,
    /// The same in the destination.
    pub destination_inner_stride: u32,
    /// Words of a row.
    pub num_words: u32,
    /// 2^32 divided by it, rounded up; 0 for 1.
    pub words_inverse: u32,
    /// The same for `num_inners`.
    pub inners_inverse: u32,
    /// The number of columns of each matrix; 0 unless matrices are copied.
    pub num_columns: u32,
    /// Bytes from a column to the next in the source.
    pub source_column_stride: u32,
    /// The same in the destination.
    pub destination_column_stride: u32,
    /// Tiles of a matrix, or of `max_blocks` joined ones, one below the other.
    pub row_tiles: u32,
    /// The same side by side.
    pub column_tiles: u32,
    /// Binary logarithm of the number of rows of a tile.
    pub rows_shift: u32,
    /// The same for its columns.
    pub columns_shift: u32,
    /// The same for the warps that copy a tile together.
    pub warps_shift: u32,
    /// 1 if the elements of a row of the source are contiguous, in whole words of 4 bytes that are aligned.
    pub is_source_wide: u32,
    /// The same for a column of the destination.
    pub is_destination_wide: u32,
    /// The layers, and the runs if they fit.
    pub layers: [Layer; MAX_LAYERS],
}
const _: () = assert!(size_of::<Blocks>() == 144 + 16 * MAX_LAYERS && size_of::<Blocks>() <= 4096);

/// The units of the blocks of some runs: what all launches have in common.
#[derive(Clone, Copy, Debug)]
pub struct Units {
    pub unit_size: u64,
    /// Bytes from a block to the next, in source and destination.
    pub block_strides: [u64; 2],
    /// The maximum number of blocks of a run.
    pub max_blocks: u32,
}

impl Units {
    /// The parameter of a launch for these layers, at most [`MAX_LAYERS`], for some of the runs, and for so many outer slots with these
    /// strides. What is copied in each block is not set.
    pub fn blocks(
        &self,
        (outers, strides): (u64, [u64; 2]),
        layers: &[Layer],
        runs: &Range<usize>,
    ) -> Blocks {
        let mut blocks = Blocks {
            runs: (runs.start * size_of::<KernelRun>()) as u64,
            unit_size: self.unit_size,
            source_block_stride: self.block_strides[0],
            destination_block_stride: self.block_strides[1],
            source_outer_stride: strides[0],
            destination_outer_stride: strides[1],
            num_runs: runs.len() as u32,
            num_layers: layers.len() as u32,
            num_outers: outers as u32,
            max_blocks: self.max_blocks,
            ..Blocks::NONE
        };
        blocks.layers[..layers.len()].copy_from_slice(layers);
        blocks
    }
}

impl Blocks {
    /// No blocks: what a kernel does not use is 0.
    // SAFETY: integers, and arrays of them.
    pub const NONE: Self = unsafe { std::mem::zeroed() };

    /// Whether as many runs fit behind the layers.
    pub fn has_space_for(&self, runs: usize) -> bool {
        self.num_layers as usize + runs <= MAX_LAYERS
    }

    /// Stores the runs behind the layers, if they fit: the kernel then reads no other memory before it copies. Returns whether
    /// they do.
    pub fn store_runs(&mut self, runs: &[KernelRun]) -> bool {
        let behind =
            self.layers.get_mut(self.num_layers as usize..).and_then(|left| left.get_mut(..runs.len()));
        let Some(behind) = behind else { return false };
        behind.iter_mut().zip(runs).for_each(|(place, run)| *place = run.as_layer());
        self.runs = 0;
        true
    }

    pub fn are_rows(&self) -> bool {
        self.word_size > 0 && !self.are_transposed()
    }

    pub fn are_transposed(&self) -> bool {
        self.num_columns > 0
    }

    /// Whether they are, in vectors.
    fn are_vectors(&self) -> bool {
        self.are_transposed() && u64::from(self.word_size) > self.unit_size
    }

    pub fn total_tiles(&self) -> u64 {
        let blocks = if self.are_joined == 0 { self.max_blocks } else { 1 };
        let outers = if self.word_size > 0 { 1 } else { self.num_outers };
        let counts = [self.num_runs, self.num_layers, outers, self.tiles, blocks].map(u64::from);
        counts.into_iter().fold(1, u64::saturating_mul)
    }

    /// Fails if there are more tiles than the kernel can number: it would silently skip some.
    pub fn ensure_countable(&self) -> Result<()> {
        let tiles = self.total_tiles();
        ensure!(tiles <= MAX_TILES, Unsupported, "{tiles} tiles are more than one launch takes");
        Ok(())
    }

    /// The number of CTAs to launch, up to `most`. Few tiles are spread over many CTAs rather than over all warps of a few,
    /// because the throughput of each multiprocessor is limited.
    pub fn ctas(&self, most: u32) -> u32 {
        const WARPS: u64 = 4;
        let tiles = (WARPS >> self.warps_shift).max(1);
        self.total_tiles().div_ceil(tiles).clamp(1, u64::from(most.max(1))) as u32
    }
}

pub struct CopyKernel {
    blocks: LazyFunction,
    rows: LazyFunction,
    transpose: LazyFunction,
    vectors: LazyFunction,
}

impl CopyKernel {
    /// The kernels of a context, each loaded when it is first needed.
    pub fn new(context: &Arc<Context>) -> Self {
        Self {
            blocks: LazyFunction::new(context, BLOCKS, c"kvmem_copy_blocks"),
            rows: LazyFunction::new(context, ROWS, c"kvmem_copy_rows"),
            transpose: LazyFunction::new(context, TRANSPOSE, c"kvmem_transpose_blocks"),
            vectors: LazyFunction::new(context, VECTORS, c"kvmem_transpose_vectors"),
        }
    }

    /// Loads those that launches need, so that no submission has to.
    pub fn provide<'a>(
        &self,
        mut launches: impl Iterator<Item = &'a Blocks>,
        patience: &Patience,
    ) -> Result<()> {
        launches.try_for_each(|blocks| self.kernel_for(blocks).get(patience).map(drop))
    }

    /// Loads the one for units. Fails with BUSY if that takes longer than `patience`.
    pub fn provide_blocks(&self, patience: &Patience) -> Result<()> {
        self.blocks.get(patience).map(drop)
    }

    /// Loads the one for rows. Returns whether it is loaded within `patience`.
    pub fn provide_rows(&self, patience: &Patience) -> Result<bool> {
        match self.rows.get(patience) {
            Err(error) if error.status() == Status::Busy => Ok(false),
            loaded => loaded.map(|_| true),
        }
    }

    /// The one that a launch is for.
    fn kernel_for(&self, blocks: &Blocks) -> &LazyFunction {
        match blocks {
            _ if blocks.are_vectors() => &self.vectors,
            _ if blocks.are_transposed() => &self.transpose,
            _ if blocks.are_rows() => &self.rows,
            _ => &self.blocks,
        }
    }

    /// Starts the one that a launch is for.
    ///
    /// # Safety
    /// All addresses in `blocks` must be of memory that the device can access, and must remain valid until the stream is
    /// idle, also if this fails. No byte may be in both source and destination.
    pub unsafe fn launch(&self, on: &Active<'_>, blocks: &Blocks, max_ctas: u32) -> Result<()> {
        let kernel = self.kernel_for(blocks).get_loaded()?;
        // SAFETY: the parameter of all kernels; the caller's promise.
        unsafe { kernel.launch(on, blocks.ctas(max_ctas), THREADS, blocks) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_stored_behind_the_layers_if_they_fit() {
        let mut blocks = Blocks { num_layers: 3, ..Blocks::NONE };
        blocks.layers[2] = Layer { source: 5, destination: 6 };
        let runs: Vec<_> = (0..MAX_LAYERS as u32 - 3).map(|i| KernelRun::new(i, 1000 + i, 1)).collect();
        blocks.runs = 64;
        assert!(
            !blocks.has_space_for(runs.len() + 1) && !blocks.store_runs(&[&runs[..], &runs[..1]].concat())
        );
        assert_eq!(
            (blocks.runs, blocks.layers[3]),
            (64, Layer::default()),
            "nothing is stored if some do not fit"
        );
        assert!(blocks.has_space_for(runs.len()) && blocks.store_runs(&runs));
        assert_eq!((blocks.runs, blocks.layers[2]), (0, Layer { source: 5, destination: 6 }));
        assert_eq!(blocks.layers[3 + 7], Layer { source: 7 | 1007 << 32, destination: 1 });
        blocks.num_layers = MAX_LAYERS as u32;
        assert!(!blocks.store_runs(&runs[..1]));
    }
}
