// SPDX-License-Identifier: Apache-2.0
//! Computes checksums of blocks in GPU memory: a kernel computes the remainder of each tile, and combines the remainders of a block.
#![allow(unsafe_code)]

use std::time::Duration;

use super::device::device_state::DeviceState;
use super::device::pool::{Pooled, ResourcePool};
use crate::base::{Error, Result, leak, lists, thread};
use crate::copy::pieces::Pieces;
use crate::copy::remainder::{ENDS, joined, power, product};
use crate::cuda::DeviceBuffer;
use crate::cuda::checksum::{ChecksumKernel, MAX_LAYERS, ROW, Tiles};
use crate::cuda::copy::Copy;
use crate::cuda::deferred::Deferred;
use crate::cuda::ending::{is_fatal, is_over};
use crate::cuda::stream::{Active, Stream};
use crate::region::{PinnedConfig, PinnedMemory};

/// Bytes that a warp processes at a time.
const TILE: u64 = 4096;
/// Maximum number of tiles per block in one launch.
const MAX_TILES: u64 = 1 << 16;
pub const MAX_BLOCKS: u64 = 1 << 18;
/// Maximum number of tiles in one launch: the kernel counts them in 32 bits.
pub const MAX_IN_ALL: u64 = 1 << 30;
/// Maximum number of bytes of a contiguous range in one launch.
const MAX_RANGE: u64 = MAX_TILES * TILE / 2;
/// Bytes of a block id, of a factor, and of a checksum.
const WORD: u64 = 4;
/// How long a waiting thread polls before it sleeps between polls: a GPU processes 1 GiB in less time.
pub const SPIN: Duration = Duration::from_millis(1);
/// How long it then sleeps between polls.
pub const SLEEP: Duration = Duration::from_micros(50);

/// The resources for checksums on one device, used by one thread at a time.
pub struct Checker {
    ordinal: i32,
    kernel: ChecksumKernel,
    stream: Stream,
    /// For each bit of a remainder, the remainder of that bit followed by one row.
    further: [u32; 32],
    /// For each word of a row, the factor of the word and the bytes after it.
    words: [u32; ROW],
    /// Page-locked memory: block ids, checksums, and the factor of each tile of a block.
    host: PinnedMemory,
    /// The same data on the device, so that the kernel does not wait for the link at each tile.
    device: DeviceBuffer,
}

impl Checker {
    fn new(device: &DeviceState) -> Result<Self> {
        let ordinal = device.context().device().ordinal();
        let size = (2 * MAX_BLOCKS + MAX_TILES) * WORD;
        let config =
            PinnedConfig { size, ordinal, threads: 1, no_huge_pages: true, ..PinnedConfig::default() };
        let row = power(ROW as u64 * WORD);
        Ok(Self {
            ordinal,
            kernel: ChecksumKernel::load(device.context())?,
            stream: Stream::new(device.context())?,
            further: std::array::from_fn(|bit| product(1 << bit, row)),
            words: std::array::from_fn(|word| power((ROW - word) as u64 * WORD)),
            host: PinnedMemory::allocate(&config, &mut |_, _| true)?,
            device: DeviceBuffer::new(device.context().device(), size)?,
        })
    }

    /// One of a device that no other thread uses, for a while.
    pub fn take(device: &DeviceState) -> Result<Pooled<Self>> {
        let ordinal = device.context().device().ordinal();
        let checkers = device.attached(|| ResourcePool::<Self>::new(ordinal, usize::MAX))?;
        checkers.take_one_more(|_| true, || Self::new(device))
    }

    /// The checksum of contiguous memory of a device, after bytes that have the checksum `before`. Waits for the device.
    ///
    /// # Safety
    /// The memory is of the device, and the caller holds it.
    pub unsafe fn of_range(device: &DeviceState, before: u32, address: u64, size: u64) -> Result<u32> {
        let checker = Self::take(device)?;
        let (mut all, mut found) = (before, Vec::new());
        for at in (0..size).step_by(MAX_RANGE as usize) {
            let size = (size - at).min(MAX_RANGE);
            let pieces =
                Pieces { layers: vec![address + at], outers: 1, outer_stride: 0, size, block_stride: 0 };
            found.clear();
            if let Err(error) = checker.compute(&[0], &pieces, &mut found, &|| Ok(())) {
                return Err(spoil(checker, device, (), error));
            }
            all = found.iter().fold(all, |all, next| joined(all, *next, power(size)));
        }
        Ok(all)
    }

    /// Adds the checksums of blocks whose memory is held. Waits for the device as long as `may_wait` succeeds; after a failure the device
    /// may still use the memory.
    pub fn compute(
        &self,
        blocks: &[u32],
        pieces: &Pieces,
        checksums: &mut Vec<u32>,
        may_wait: &dyn Fn() -> Result<()>,
    ) -> Result<()> {
        if let Err(error) = self.start(blocks, pieces, may_wait) {
            // What was started may still complete.
            let _ = self.wait(may_wait);
            return Err(error);
        }
        self.wait(may_wait)?;
        // SAFETY: the device has written `blocks.len()` checksums.
        let computed = unsafe { std::slice::from_raw_parts(CHECKSUMS.address_in(self.host()), blocks.len()) };
        let ends = product(ENDS, power(pieces.block_size())) ^ ENDS;
        lists::extend(checksums, computed.iter().map(|checksum| checksum ^ ends))
    }

    /// Starts the kernel for all layers of the blocks, as many per launch as it supports, and the copy of the
    /// results.
    fn start(&self, blocks: &[u32], pieces: &Pieces, may_wait: &dyn Fn() -> Result<()>) -> Result<()> {
        let bytes = blocks.len() as u64 * WORD;
        // SAFETY: no caller passes more blocks than the part has words, and only this thread uses the memory.
        unsafe { std::ptr::copy_nonoverlapping(blocks.as_ptr(), IDS.address_in(self.host()), blocks.len()) };
        {
            let on = self.stream.activate()?;
            // SAFETY: memory of this object, which is kept until the stream has completed.
            unsafe { on.clear(CHECKSUMS.at(self.device.address()), bytes)? };
            self.upload(&on, IDS, bytes)?;
        }
        let mut behind = pieces.block_size();
        for (index, layers) in pieces.layers.chunks(max_layers(pieces) as usize).enumerate() {
            if index > 0 {
                // The previous launch still reads the factors of its tiles.
                self.wait(may_wait)?;
            }
            behind -= layers.len() as u64 * pieces.outers * pieces.size;
            self.launch(blocks.len() as u32, pieces, layers, behind)?;
        }
        let (source, destination) = (CHECKSUMS.at(self.device.address()), CHECKSUMS.at(self.host()));
        // SAFETY: as above.
        unsafe { self.stream.activate()?.copy(Copy { source, destination, size: bytes }) }
    }

    /// Launches the kernel for some layers, which are followed by `behind` bytes of the block.
    fn launch(&self, num_blocks: u32, pieces: &Pieces, layers: &[u64], behind: u64) -> Result<()> {
        let count = tiles_of_layers(pieces, layers.len() as u64);
        // SAFETY: a launch has no more tiles than the part has words, and only this thread uses the memory.
        let powers =
            unsafe { std::slice::from_raw_parts_mut(BEHIND.address_in(self.host()), count as usize) };
        fill_behind_tiles(powers, pieces, behind);
        let mut starts = [0; MAX_LAYERS];
        starts[..layers.len()].copy_from_slice(layers);
        let tiles = Tiles {
            blocks: IDS.at(self.device.address()),
            behind: BEHIND.at(self.device.address()),
            checksums: CHECKSUMS.at(self.device.address()),
            piece_size: pieces.size,
            block_stride: pieces.block_stride,
            outer_stride: pieces.outer_stride,
            num_blocks,
            num_layers: layers.len() as u32,
            num_outers: pieces.outers as u32,
            tiles: pieces.size.div_ceil(TILE) as u32,
            tile_size: TILE as u32,
            reserved: 0,
            further: self.further,
            words: self.words,
            layers: starts,
        };
        let on = self.stream.activate()?;
        self.upload(&on, BEHIND, count * WORD)?;
        // SAFETY: the caller has checked that the device can access the blocks, and holds them. The other memory belongs to
        // this object, which is kept until the stream has completed.
        unsafe { self.kernel.launch(&on, &tiles) }
    }

    fn host(&self) -> u64 {
        self.host.memory().address() as u64
    }

    fn upload(&self, on: &Active<'_>, part: Part, size: u64) -> Result<()> {
        let (source, destination) = (part.at(self.host()), part.at(self.device.address()));
        // SAFETY: memory of this object, which is kept until the stream has completed.
        unsafe { on.copy(Copy { source, destination, size }) }
    }

    fn is_over(&self, failure: &mut Option<Error>) -> bool {
        is_over(|| self.stream.is_done(), failure)
    }

    fn wait(&self, may_wait: &dyn Fn() -> Result<()>) -> Result<()> {
        let mut failure = None;
        thread::poll(SPIN, SLEEP, || match self.is_over(&mut failure) {
            true => Ok(true),
            false => may_wait().map(|()| false),
        })?;
        failure.map_or(Ok(()), Err)
    }
}

/// Ends a computation that has failed, and returns why. The device may still use the checker and what `held` keeps: both are dropped when
/// it has finished.
pub fn spoil<H: Send + Sync + 'static>(
    mut checker: Pooled<Checker>,
    device: &DeviceState,
    held: H,
    error: Error,
) -> Error {
    checker.spoil();
    if is_fatal(&error) {
        device.retire();
    }
    let bytes = checker.device.size();
    drop(Deferred::new(device.context(), Unfinished(Some((checker, held))), bytes));
    error
}

struct Unfinished<H: Send + 'static>(Option<(Pooled<Checker>, H)>);

impl<H: Send + 'static> Drop for Unfinished<H> {
    fn drop(&mut self) {
        // Known before this only with drivers that report the work of a context.
        let Some((checker, held)) = self.0.take() else { return };
        if !checker.is_over(&mut None) {
            let memory = (checker.ordinal, checker.device.size());
            leak::with_memory((checker, held), [memory]);
        }
    }
}

/// A part of a checker's memory: its offset in words.
#[derive(Clone, Copy)]
struct Part(u64);

const IDS: Part = Part(0);
const CHECKSUMS: Part = Part(MAX_BLOCKS);
const BEHIND: Part = Part(2 * MAX_BLOCKS);

impl Part {
    fn at(self, memory: u64) -> u64 {
        memory + self.0 * WORD
    }

    fn address_in(self, memory: u64) -> *mut u32 {
        self.at(memory) as *mut u32
    }
}

/// Number of tiles of `layers` layers of a block.
pub fn tiles_of_layers(pieces: &Pieces, layers: u64) -> u64 {
    pieces.size.div_ceil(TILE).saturating_mul(pieces.outers).saturating_mul(layers)
}

/// The number of layers per launch; 0 if one layer has too many tiles.
pub fn max_layers(pieces: &Pieces) -> u64 {
    let layers = MAX_TILES / tiles_of_layers(pieces, 1).max(1);
    layers.min(MAX_LAYERS as u64).min(pieces.layers.len() as u64)
}

/// Fills in for each tile of some layers the factor by which the bytes behind it multiply its remainder. `after` bytes are
/// behind the last tile.
fn fill_behind_tiles(powers: &mut [u32], pieces: &Pieces, after: u64) {
    let tiles = pieces.size.div_ceil(TILE);
    let (whole, last) = (power(TILE), power(pieces.size - (tiles - 1) * TILE));
    let mut behind = power(after);
    for (tile, this) in powers.iter_mut().enumerate().rev() {
        *this = behind;
        behind = product(behind, if tile as u64 % tiles + 1 == tiles { last } else { whole });
    }
}
