// SPDX-License-Identifier: Apache-2.0
//! Checksums of blocks in GPU memory: a kernel divides them tile by tile, the host puts the remainders together.

use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::engine::Engine;
use crate::cuda::checksum::{ChecksumKernel, MOST_LAYERS, Tiles};
use crate::cuda::ending::is_over;
use crate::cuda::ipc::Place;
use crate::cuda::stream::Stream;
use crate::error::Result;
use crate::layout::Layout;
use crate::log::log;
use crate::region::{ExtentHold, PinnedConfig, PinnedMemory};
use crate::transfer::remainder::{ENDS, power, powers, product};

/// What a warp divides at a time.
const TILE: u64 = 4096;
/// Remainders of one launch.
const MOST_TILES: u64 = 1 << 16;
/// Blocks of one launch.
const MOST_BLOCKS: u64 = 1 << 14;
/// Bytes of a remainder, and of an id.
const WORD: u64 = 4;
/// How long the thread that waits looks all the time.
const PATIENCE: Duration = Duration::from_micros(200);
const SLEEP: Duration = Duration::from_micros(50);

/// What computing checksums takes; one is used by one thread at a time.
pub struct Checker {
    kernel: ChecksumKernel,
    stream: Stream,
    /// Page-locked: block ids, and remainders behind them.
    memory: PinnedMemory,
}

impl Checker {
    /// Makes one for an engine's device.
    pub fn new(engine: &Engine) -> Result<Self> {
        let config = PinnedConfig {
            size: (MOST_BLOCKS + MOST_TILES) * WORD,
            ordinal: engine.context().device().ordinal(),
            threads: 1,
            no_huge_pages: true,
            ..PinnedConfig::default()
        };
        Ok(Self {
            kernel: ChecksumKernel::load(engine.context())?,
            stream: Stream::new(engine.context())?,
            memory: PinnedMemory::allocate(&config, &mut |_, _| true)?,
        })
    }

    fn ids(&self) -> u64 {
        self.memory.memory().address() as u64
    }

    fn remainders(&self) -> u64 {
        self.ids() + MOST_BLOCKS * WORD
    }

    /// The remainders of what is asked for, of blocks whose memory is held.
    fn divide(&self, blocks: &[u32], tiles: &Tiles) -> Result<Vec<u32>> {
        let mut remainders = vec![0u32; tiles.total() as usize];
        // SAFETY: there is room for as many ids, and nobody else uses the memory.
        unsafe { std::ptr::copy_nonoverlapping(blocks.as_ptr(), self.ids() as *mut u32, blocks.len()) };
        let launched = self.launch(tiles);
        // Also after a failure: it may be of something earlier, and the kernel under way.
        let ended = self.wait();
        launched.and(ended)?;
        // SAFETY: the kernel has written them.
        unsafe {
            let from = self.remainders() as *const u32;
            std::ptr::copy_nonoverlapping(from, remainders.as_mut_ptr(), remainders.len());
        }
        Ok(remainders)
    }

    fn launch(&self, tiles: &Tiles) -> Result<()> {
        let on = self.stream.activate()?;
        // SAFETY: whoever asks has seen that the device reaches the blocks, and holds them until the stream is done, as
        // it holds this value; there is room for as many remainders.
        unsafe { self.kernel.launch(&on, tiles) }
    }

    fn wait(&self) -> Result<()> {
        let begun = Instant::now();
        let mut failure = None;
        while !is_over(|| self.stream.is_done(), &mut failure) {
            if begun.elapsed() < PATIENCE { std::thread::yield_now() } else { std::thread::sleep(SLEEP) }
        }
        failure.map_or(Ok(()), Err)
    }
}

/// The checksums of some layers of blocks; `None` where no kernel reaches them, or takes as many tiles as a block has.
pub fn of_layers(layout: &Arc<Layout>, blocks: &[u32], layers: Range<u64>) -> Result<Option<Vec<u32>>> {
    let geometry = layout.geometry();
    let tiles_a_layer = geometry.piece_size().div_ceil(TILE).saturating_mul(geometry.dimensions().outer_dim);
    let Some(ordinal) = own_device(layout).filter(|_| tiles_a_layer <= MOST_TILES) else { return Ok(None) };
    let engine = Engine::of(ordinal)?;
    layout.keep(engine.clone());
    let mut checker = match engine.checker() {
        Ok(checker) => checker,
        Err(error) => {
            log!(Warn, "checksums of device {ordinal} are computed by the host: {error}");
            return Ok(None);
        }
    };
    let held = hold(layout, blocks, &layers)?;
    let most_layers = (MOST_TILES / tiles_a_layer).min(MOST_LAYERS as u64);
    let a_launch = most_layers.min(layers.end - layers.start);
    let most_blocks = (MOST_TILES / (tiles_a_layer * a_launch)).min(MOST_BLOCKS) as usize;
    let mut checksums = Vec::with_capacity(blocks.len());
    for part in blocks.chunks(most_blocks) {
        let mut states = vec![ENDS; part.len()];
        for first in layers.clone().step_by(a_launch as usize) {
            let tiles = tiles(layout, part, first..layers.end.min(first + a_launch), &checker);
            let divided = checker.divide(part, &tiles).inspect_err(|_| {
                checker.spoil();
                engine.retire();
            });
            let remainders = divided.map_err(|error| error.context("compute checksums on the GPU"))?;
            append(&mut states, &remainders, &tiles);
        }
        checksums.extend(states.into_iter().map(|state| state ^ ENDS));
    }
    held.iter().try_for_each(ExtentHold::ensure_unchanged)?;
    Ok(Some(checksums))
}

/// The device that a layout lies on, where its kernels reach it without further ado.
fn own_device(layout: &Layout) -> Option<i32> {
    let owner = layout.memory().regions().first()?.ordinal()?;
    let is_own = |place: Option<Place>| place == Some(Place::on(owner));
    layout.memory().regions().iter().all(|region| is_own(region.place())).then_some(owner)
}

/// Extents stay where they are while the kernel reads them.
fn hold(layout: &Layout, blocks: &[u32], layers: &Range<u64>) -> Result<Vec<ExtentHold>> {
    let (placement, geometry) = (layout.placement(), layout.geometry());
    let outers = geometry.dimensions().outer_dim;
    let pieces = blocks.iter().flat_map(|block| {
        layers.clone().flat_map(move |layer| (0..outers).map(move |outer| (u64::from(*block), layer, outer)))
    });
    let spans = pieces.map(|(block, layer, outer)| {
        let (region, address) = placement.address(block, layer, outer);
        (region as u32, address, geometry.piece_size())
    });
    layout.touched_extents(spans).hold()
}

fn tiles(layout: &Layout, blocks: &[u32], layers: Range<u64>, checker: &Checker) -> Tiles {
    let geometry = layout.geometry();
    let mut starts = [0; MOST_LAYERS];
    let num_layers = (layers.end - layers.start) as u32;
    for (start, layer) in starts.iter_mut().zip(layers) {
        *start = layout.placement().address(0, layer, 0).1;
    }
    Tiles {
        blocks: checker.ids(),
        remainders: checker.remainders(),
        piece_size: geometry.piece_size(),
        block_stride: geometry.block_stride(),
        outer_stride: geometry.outer_stride(),
        num_blocks: blocks.len() as u32,
        num_layers,
        num_outers: geometry.dimensions().outer_dim as u32,
        tiles: geometry.piece_size().div_ceil(TILE) as u32,
        tile_size: TILE as u32,
        reserved: 0,
        powers: powers(),
        layers: starts,
    }
}

/// Goes on with each block's checksum over its tiles.
fn append(states: &mut [u32], remainders: &[u32], tiles: &Tiles) {
    let last_size = tiles.piece_size - u64::from(tiles.tiles - 1) * TILE;
    let (whole, last) = (power(TILE), power(last_size));
    let tiles_a_block = remainders.len() / states.len().max(1);
    for (state, of_block) in states.iter_mut().zip(remainders.chunks(tiles_a_block.max(1))) {
        for of_piece in of_block.chunks(tiles.tiles as usize) {
            for (index, remainder) in of_piece.iter().enumerate() {
                let behind = if index + 1 == of_piece.len() { last } else { whole };
                *state = product(*state, behind) ^ remainder;
            }
        }
    }
}
