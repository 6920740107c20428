// SPDX-License-Identifier: Apache-2.0
//! CRC32C of blocks: over a block's pieces in the order layer, outer slot, and over nothing else. The same bytes give the
//! same number whatever kind, alignment or memory the layout is of.

#![forbid(unsafe_code)]

use std::sync::Arc;

use super::{gpu, host};
use crate::error::{Result, ensure};
use crate::layout::{AllocationConfig, Dimensions, Layout, Locality};
use crate::nixl::MemoryType;
use crate::region::SystemConfig;
use crate::transfer::engine::contexts::Contexts;
use crate::transfer::engine::select;
use crate::transfer::plan::Slots;
use crate::transfer::request::{BlockPair, PairedRange, Wanted};

/// Host memory that blocks are brought to where the CPU can't read them.
const BUFFER: u64 = 16 << 20;

/// The checksums of all of some blocks, in their order.
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
    of_slots(layout, blocks, Slots::all(have))
}

/// The same for some layers and outer slots. The blocks and those must be there.
pub fn of_slots(layout: &Arc<Layout>, blocks: &[u32], slots: Slots) -> Result<Vec<u32>> {
    ensure_readable(layout)?;
    match layout.memory_type() {
        MemoryType::Dram => host::checksums(layout, blocks.into(), &slots),
        MemoryType::Vram => {
            Contexts::of([&**layout], false).ensure_alive()?;
            match gpu::of_slots(layout, blocks, &slots)? {
                Some(checksums) => Ok(checksums),
                None => by_way_of_host(layout, blocks, slots),
            }
        }
        _ => by_way_of_host(layout, blocks, slots),
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
fn by_way_of_host(layout: &Arc<Layout>, blocks: &[u32], slots: Slots) -> Result<Vec<u32>> {
    let geometry = layout.geometry();
    let here = |there: std::ops::Range<u64>| PairedRange {
        source: there.start,
        destination: 0,
        count: there.end - there.start,
    };
    let (layers, outers) = (here(slots.layers), here(slots.outers));
    let wanted = Wanted { layers: Some(layers), outers: Some(outers) };
    let block_size = (geometry.total_size()? / geometry.dimensions().num_blocks).max(1);
    let room = (BUFFER / block_size).clamp(1, blocks.len() as u64);
    let buffer = buffer_for(layout, room, layers.count, outers.count)?;
    let all = Slots::all(buffer.geometry().dimensions());
    let mut checksums = Vec::with_capacity(blocks.len());
    for part in blocks.chunks(room as usize) {
        fetch(layout, part, wanted, &buffer)?;
        let ids: Arc<[u32]> = (0..part.len() as u32).collect();
        checksums.extend(host::checksums(&buffer, ids, &all)?);
    }
    Ok(checksums)
}

/// Host memory for some blocks, which lie in it as they do in the layout: whatever moves them elsewhere moves them there.
fn buffer_for(layout: &Layout, num_blocks: u64, num_layers: u64, outer_dim: u64) -> Result<Arc<Layout>> {
    let like = layout.geometry().dimensions();
    let io_alignment = layout.memory().regions().iter().map(|region| region.io_alignment()).max();
    let alignment = like.alignment.max(io_alignment.unwrap_or(1));
    let memory = AllocationConfig::System(SystemConfig::default());
    Layout::builder(Dimensions { num_blocks, num_layers, outer_dim, alignment, ..like.clone() })
        .kind(layout.geometry().kind())?
        .allocate(memory)
        .build()
        .map_err(|error| error.context("make room for blocks to checksum"))
}

fn fetch(layout: &Arc<Layout>, blocks: &[u32], wanted: Wanted, buffer: &Arc<Layout>) -> Result<()> {
    let pairs: Vec<_> = blocks
        .iter()
        .zip(0..)
        .map(|(source, destination)| BlockPair { source: *source, destination })
        .collect();
    let fetched = select::move_now(layout, buffer, &pairs, wanted);
    fetched.map_err(|error| error.context("bring blocks to host memory for their checksums"))
}
