// SPDX-License-Identifier: Apache-2.0
//! CRC32C of blocks: over a block's pieces, ordered by layer, then by outer slot. Padding is not included, so the same
//! bytes have the same checksum in a layout of any kind, alignment and memory.
#![forbid(unsafe_code)]

use std::sync::Arc;

use super::{gpu, host};
use crate::error::{Result, ensure};
use crate::layout::{AllocationConfig, Arrangement, Axis, Dimensions, Layout, LayoutKind};
use crate::nixl::MemoryType;
use crate::region::SystemConfig;
use crate::transfer::engine::select;
use crate::transfer::plan::{Plan, Slots};
use crate::transfer::request::{BlockPair, PairedRange, Wanted};

/// Size of the host buffer for blocks that the CPU can't access directly.
const BUFFER: u64 = 16 << 20;

/// The checksums of whole blocks, in the order of `blocks`: of all parts of a layout, in the order of their names.
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
    if layout.num_parts() == 0 {
        return of_slots(layout, blocks, Slots::all(layout.geometry()));
    }
    let parts = layout.part_layouts().map(|(name, part)| (name, part, Slots::all(part.geometry())));
    of_parts(parts, blocks)
}

/// The checksums of blocks over several parts, one part of a block after the other.
pub fn of_parts<'a>(
    parts: impl Iterator<Item = (&'a str, &'a Arc<Layout>, Slots)>,
    blocks: &[u32],
) -> Result<Vec<u32>> {
    let mut all = vec![0; blocks.len()];
    for (name, layout, slots) in parts {
        let size = slots.size(layout.geometry());
        let of_part =
            of_slots(layout, blocks, slots).map_err(|error| error.context(format!("part '{name}'")))?;
        for (checksum, next) in all.iter_mut().zip(of_part) {
            *checksum = crc32c::crc32c_combine(*checksum, next, size as usize);
        }
    }
    Ok(all)
}

/// The checksums of some layers and outer slots of blocks. All of them must exist.
pub fn of_slots(layout: &Arc<Layout>, blocks: &[u32], slots: Slots) -> Result<Vec<u32>> {
    ensure_readable(layout)?;
    match layout.memory_type() {
        MemoryType::Dram => host::checksums(layout, blocks.into(), &slots),
        MemoryType::Vram => {
            layout.contexts(false).ensure_alive()?;
            match gpu::of_slots(layout, blocks, &slots)? {
                Some(checksums) => Ok(checksums),
                None => through_host(layout, blocks, slots),
            }
        }
        _ => through_host(layout, blocks, slots),
    }
}

/// Fails for a layout whose memory this process can't access.
pub fn ensure_readable(layout: &Layout) -> Result<()> {
    ensure!(
        !layout.memory().is_remote(),
        Unsupported,
        "the layout is remote; its owner computes checksums of its blocks, or they are moved to a local layout first"
    );
    Ok(())
}

/// Copies as many blocks as fit a buffer to host memory, computes their checksums, and repeats this for the next blocks.
fn through_host(layout: &Arc<Layout>, blocks: &[u32], slots: Slots) -> Result<Vec<u32>> {
    let geometry = layout.geometry();
    let to_buffer = |range: std::ops::Range<u64>| PairedRange {
        source: range.start,
        destination: 0,
        count: range.end - range.start,
    };
    let (layers, outers) = (to_buffer(slots.layers), to_buffer(slots.outers));
    let wanted = Wanted { layers: Some(layers), outers: Some(outers), heads: None };
    let block_size = (geometry.total_size()? / geometry.dimensions().num_blocks).max(1);
    // The order of a single block may lack the axis of blocks; it may be asked for several times.
    let most = if geometry.order().has(Axis::Block) { blocks.len() as u64 } else { 1 };
    let capacity = (BUFFER / block_size).clamp(1, most);
    let buffer = buffer_for(layout, capacity, layers.count, outers.count)?;
    let all = Slots::all(buffer.geometry());
    let mut checksums = Vec::with_capacity(blocks.len());
    for part in blocks.chunks(capacity as usize) {
        fetch(layout, part, wanted, &buffer)?;
        let ids: Arc<[u32]> = (0..part.len() as u32).collect();
        checksums.extend(host::checksums(&buffer, ids, &all)?);
    }
    Ok(checksums)
}

/// Host memory for some blocks, with the same order and alignment as the layout, so that every path supports the copy: direct
/// I/O needs long ranges that are contiguous on both sides.
fn buffer_for(layout: &Layout, num_blocks: u64, num_layers: u64, outer_dim: u64) -> Result<Arc<Layout>> {
    let like = layout.geometry().dimensions();
    let alignment = like.alignment.max(layout.io_alignment());
    let memory = AllocationConfig::System(SystemConfig::default());
    // Strides that were given are of the layout's own memory.
    let kind = match layout.geometry().kind() {
        LayoutKind::Ordered(arrangement) => LayoutKind::Ordered(Arrangement::tight(arrangement.order)),
        kind => kind,
    };
    Layout::builder(Dimensions { num_blocks, num_layers, outer_dim, alignment, ..like.clone() })
        .kind(kind)?
        .allocate(memory)
        .agent(layout.agent_of_copies())
        .build()
        .map_err(|error| error.context("allocate memory for blocks to checksum"))
}

fn fetch(layout: &Arc<Layout>, blocks: &[u32], wanted: Wanted, buffer: &Arc<Layout>) -> Result<()> {
    let pairs: Vec<_> = blocks
        .iter()
        .zip(0..)
        .map(|(source, destination)| BlockPair { source: *source, destination })
        .collect();
    let fetched = Plan::once(layout, buffer, &pairs, wanted);
    let fetched = fetched.and_then(|plan| select::move_now(layout, buffer, plan));
    fetched.map_err(|error| error.context("copy blocks to host memory for their checksums"))
}
