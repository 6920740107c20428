// SPDX-License-Identifier: Apache-2.0
//! CRC32C of blocks: over a block's pieces in the order layer, outer slot, and over nothing else. The same bytes give the
//! same number whatever kind, alignment or memory the layout is of.

use std::ops::Range;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock};

use super::plan::{BlockPair, Layers};
use super::pool::{Pool, Shared};
use super::{Request, Transfer, cuda};
use crate::error::{Error, Result, ensure};
use crate::guarded::guarded;
use crate::layout::{Allocation, Dimensions, Layout, Locality};
use crate::nixl::MemoryType;
use crate::region::SystemConfig;

/// Host memory that blocks are brought to where the CPU can't read them.
const BUFFER: u64 = 16 << 20;
/// The least a further thread is woken for.
const BYTES_A_THREAD: u64 = 1 << 20;

/// The checksums of all layers of some blocks, in their order.
pub fn of_blocks(layout: &Arc<Layout>, blocks: &[u32]) -> Result<Vec<u32>> {
    let have = layout.geometry().dimensions();
    for (index, block) in blocks.iter().enumerate() {
        ensure!(
            u64::from(*block) < have.num_blocks,
            OutOfRange,
            "block {index} of {} is {block}, the layout has {} blocks",
            blocks.len(),
            have.num_blocks
        );
    }
    of_layers(layout, blocks, 0..have.num_layers)
}

/// The same for some layers. The blocks and layers must be there.
pub fn of_layers(layout: &Arc<Layout>, blocks: &[u32], layers: Range<u64>) -> Result<Vec<u32>> {
    ensure_readable(layout)?;
    match layout.memory_type() {
        MemoryType::Dram => Reading::start(layout, blocks.into(), layers).results(),
        MemoryType::Vram => match cuda::checksum::of_layers(layout, blocks, layers.clone())? {
            Some(checksums) => Ok(checksums),
            None => by_way_of_host(layout, blocks, layers),
        },
        _ => by_way_of_host(layout, blocks, layers),
    }
}

/// Refuses a layout whose bytes are not reached from here.
pub fn ensure_readable(layout: &Layout) -> Result<()> {
    ensure!(
        layout.memory().locality() != Locality::Remote,
        Unsupported,
        "the layout is remote; its owner computes checksums of its blocks, or they are moved to a local layout first"
    );
    Ok(())
}

/// Brings as many blocks as the buffer holds to host memory, and goes on with the next.
fn by_way_of_host(layout: &Arc<Layout>, blocks: &[u32], layers: Range<u64>) -> Result<Vec<u32>> {
    let geometry = layout.geometry();
    let count = layers.end - layers.start;
    let block_size = (geometry.total_size()? / geometry.dimensions().num_blocks).max(1);
    let room = (BUFFER / block_size).clamp(1, blocks.len() as u64);
    let buffer = buffer_for(layout, room, count)?;
    let mut checksums = Vec::with_capacity(blocks.len());
    for part in blocks.chunks(room as usize) {
        let layers = Layers { source: layers.start, destination: 0, count };
        fetch(layout, part, layers, &buffer)?;
        let ids: Arc<[u32]> = (0..part.len() as u32).collect();
        checksums.extend(Reading::start(&buffer, ids, 0..count).results()?);
    }
    Ok(checksums)
}

/// Host memory for some blocks, which lie in it as they do in the layout: whatever moves them elsewhere moves them there.
fn buffer_for(layout: &Layout, num_blocks: u64, num_layers: u64) -> Result<Arc<Layout>> {
    let like = layout.geometry().dimensions();
    let io_alignment = layout.memory().regions().iter().map(|region| region.io_alignment()).max();
    let alignment = like.alignment.max(io_alignment.unwrap_or(1));
    let memory = Allocation::System(SystemConfig::default());
    Layout::builder(Dimensions { num_blocks, num_layers, alignment, ..like.clone() })
        .kind(layout.geometry().kind())?
        .allocate(memory)
        .build()
        .map_err(|error| error.context("make room for blocks to checksum"))
}

fn fetch(layout: &Arc<Layout>, blocks: &[u32], layers: Layers, buffer: &Arc<Layout>) -> Result<()> {
    let pairs: Vec<_> = blocks
        .iter()
        .zip(0..)
        .map(|(source, destination)| BlockPair { source: *source, destination })
        .collect();
    let request = Request { pairs: &pairs, layers: Some(layers), ..Request::default() };
    let fetched = Transfer::create(layout, buffer, request).and_then(|transfer| {
        transfer.submit()?;
        transfer.wait(None)
    });
    fetched.map_err(|error| error.context("bring blocks to host memory for their checksums"))
}

/// Blocks of host memory that threads read one after the other.
struct Reading {
    layout: Arc<Layout>,
    blocks: Arc<[u32]>,
    layers: Range<u64>,
    next: AtomicUsize,
    checksums: Box<[AtomicU32]>,
    failure: OnceLock<Error>,
    left: Mutex<usize>,
    done: Condvar,
}

impl Reading {
    /// Has others take part where that is worth it.
    fn start(layout: &Arc<Layout>, blocks: Arc<[u32]>, layers: Range<u64>) -> Arc<Self> {
        let geometry = layout.geometry();
        let pieces = (layers.end - layers.start) * geometry.dimensions().outer_dim * blocks.len() as u64;
        let worth = pieces.saturating_mul(geometry.piece_size()) / BYTES_A_THREAD;
        let threads = (worth as usize).min(blocks.len()).min(Pool::parallelism());
        let reading = Arc::new(Self {
            layout: layout.clone(),
            layers,
            next: AtomicUsize::new(0),
            checksums: blocks.iter().map(|_| AtomicU32::new(0)).collect(),
            failure: OnceLock::new(),
            left: Mutex::new(blocks.len()),
            blocks,
            done: Condvar::new(),
        });
        if threads > 1 {
            Pool::get().run(&(reading.clone() as Arc<dyn Shared>), threads - 1);
        }
        reading
    }

    /// Takes part, and waits for those who do.
    fn results(self: Arc<Self>) -> Result<Vec<u32>> {
        self.run();
        let mut left = self.left();
        while *left > 0 {
            left = self.done.wait(left).unwrap_or_else(|poisoned| poisoned.into_inner());
        }
        match self.failure.get() {
            Some(error) => Err(error.clone()),
            None => Ok(self.checksums.iter().map(|checksum| checksum.load(Ordering::Acquire)).collect()),
        }
    }

    fn of(&self, block: u32) -> u32 {
        let (placement, size) = (self.layout.placement(), self.layout.geometry().piece_size() as usize);
        let outers = self.layout.geometry().dimensions().outer_dim;
        let slots = self.layers.clone().flat_map(|layer| (0..outers).map(move |outer| (layer, outer)));
        slots.fold(0, |checksum, (layer, outer)| {
            let (_, address) = placement.address(u64::from(block), layer, outer);
            // SAFETY: a piece of the layout, which is host memory and held; users who write to it meanwhile get a
            // checksum of neither what was there nor what will be.
            let piece = unsafe { std::slice::from_raw_parts(address as *const u8, size) };
            crc32c::crc32c_append(checksum, piece)
        })
    }

    fn left(&self) -> MutexGuard<'_, usize> {
        self.left.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

impl Shared for Reading {
    fn run(&self) {
        loop {
            let index = self.next.fetch_add(1, Ordering::Relaxed);
            let Some(block) = self.blocks.get(index) else { return };
            match guarded(|| self.of(*block)) {
                Ok(checksum) => self.checksums[index].store(checksum, Ordering::Release),
                Err(panic) => drop(self.failure.set(panic)),
            }
            let mut left = self.left();
            *left -= 1;
            if *left == 0 {
                self.done.notify_all();
            }
        }
    }
}
