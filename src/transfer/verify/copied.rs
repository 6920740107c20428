// SPDX-License-Identifier: Apache-2.0
//! Checksums of blocks that the CPU can't access directly, such as those of a file or a peer: as many as fit a buffer are copied to
//! host memory at a time.

use std::ops::Range;
use std::sync::Arc;

use super::host::HostBlocks;
use crate::base::{Error, Result, lists};
use crate::engine::single_move::{WaitLimits, move_once};
use crate::layout::{AllocationConfig, Arrangement, Axis, Dimensions, Geometry, Layout, LayoutSource};
use crate::plan::{BlockPair, Outline, PairedRange, Plan, Slots, Wanted};
use crate::region::SystemConfig;

pub const BUFFER: u64 = 16 << 20;

/// Copies what `plan` moves to the first `count` blocks of a buffer, and computes the checksum of each of them. A copy that reports
/// success and moves nothing leaves poison.
pub fn of_copies(
    layout: &Arc<Layout>,
    buffer: &Arc<Layout>,
    plan: Plan,
    count: u32,
    limits: &WaitLimits,
) -> Result<Vec<u32>> {
    let blocks = HostBlocks::new(buffer, lists::collect(0..count)?, &Slots::all(buffer.geometry()))?;
    blocks.poison()?;
    move_once(layout, buffer, plan, limits)?;
    blocks.checksums()
}

/// Adds the checksum of some layers and outer slots of each block, through a buffer.
pub fn add(
    layout: &Arc<Layout>,
    blocks: &[u32],
    slots: &Slots,
    limits: &WaitLimits,
    checksums: &mut Vec<u32>,
) -> Result<()> {
    let geometry = layout.geometry();
    let to_buffer = |range: &Range<u64>| PairedRange {
        source: range.start,
        destination: 0,
        count: range.end - range.start,
    };
    let (layers, outers) = (to_buffer(&slots.layers), to_buffer(&slots.outers));
    // The order of a single block may lack the axis of blocks; it may be asked for several times.
    let most = if geometry.order().has(Axis::Block) { blocks.len() } else { 1 };
    let capacity = capacity_for(geometry, most)?;
    let buffer = buffer_for(layout, capacity, layers.count, outers.count)?;
    let wanted = Wanted { layers: Some(layers), outers: Some(outers), heads: None };
    let outline = Arc::new(Outline::new(layout, &buffer, wanted, false).map_err(copying)?);
    blocks.chunks(capacity as usize).try_for_each(|part| {
        let pair = |(source, destination): (&u32, u32)| BlockPair { source: *source, destination };
        let pairs = lists::collect(part.iter().zip(0..).map(pair))?;
        let plan = Plan::new(&outline, &pairs, None);
        let copied = plan.and_then(|plan| of_copies(layout, &buffer, plan, part.len() as u32, limits));
        lists::extend(checksums, copied.map_err(copying)?)
    })
}

/// How many blocks a buffer has, of those that are to be copied.
pub fn capacity_for(geometry: &Geometry, blocks: usize) -> Result<u64> {
    let block_size = (geometry.total_size()? / geometry.dimensions().num_blocks).max(1);
    Ok((BUFFER / block_size).clamp(1, blocks.max(1) as u64))
}

fn copying(error: Error) -> Error {
    error.context("copy blocks to host memory for their checksums")
}

/// Host memory for some blocks, with the same order and alignment as the layout, so that every method supports the copy: direct
/// I/O needs long ranges that are contiguous on both sides.
pub fn buffer_for(layout: &Layout, num_blocks: u64, num_layers: u64, outer_dim: u64) -> Result<Arc<Layout>> {
    let like = layout.geometry().dimensions();
    let alignment = like.alignment.max(layout.io_alignment());
    let memory = AllocationConfig::System(SystemConfig::default());
    // Strides that were given are of the layout's own memory.
    let arrangement = Arrangement::tight(layout.geometry().order());
    let dimensions = Dimensions { num_blocks, num_layers, outer_dim, alignment, ..like.clone() };
    let geometry = Geometry::new(dimensions, arrangement)?;
    Layout::build(geometry, LayoutSource::Allocate(memory), layout.agent_of_copies())
        .map_err(|error| error.context("allocate memory for copies of blocks"))
}
