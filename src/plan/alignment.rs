// SPDX-License-Identifier: Apache-2.0
//! The alignment that direct I/O requires of a plan.

use super::Plan;
use crate::base::{Result, ensure};
use crate::layout::Layout;
use crate::nixl::MemoryType;

/// Fails if an offset, a size or an address of host memory is no multiple of what the file system requires for direct I/O.
/// Memory of a GPU is copied through other memory, and may have any address.
pub fn ensure_io_alignment(source: &Layout, destination: &Layout, plan: &Plan, by_layer: bool) -> Result<()> {
    let alignment = source.io_alignment().max(destination.io_alignment());
    if alignment == 1 {
        return Ok(());
    }
    if !by_layer {
        return ensure_aligned(source, destination, plan, alignment);
    }
    // Moves of several layers may be aligned where those of one are not.
    let mut layers = (0..plan.layers().count).map(|layer| plan.layer(layer));
    layers.try_for_each(|layer| ensure_aligned(source, destination, &layer, alignment))
}

fn ensure_aligned(source: &Layout, destination: &Layout, plan: &Plan, alignment: u64) -> Result<()> {
    let is_counted = |layout: &Layout| layout.memory_type() != MemoryType::Vram;
    if plan.is_surely_aligned(alignment, [source, destination].map(is_counted)) {
        return Ok(());
    }
    let has_file = [source, destination].iter().any(|layout| layout.memory_type() == MemoryType::File);
    let remedy = match has_file {
        true => "open the file, or the store that it belongs to, with KVMEM_DISK_BUFFERED",
        false => "create the block region with a smaller alignment, if the device permits it",
    };
    let counted = |layout: &Layout, address: u64| if is_counted(layout) { address } else { 0 };
    for each in plan.moves() {
        // Padding separates pieces, but makes none longer.
        ensure!(
            each.size.is_multiple_of(alignment),
            InvalidArgument,
            "direct I/O reads and writes multiples of {alignment} bytes, and {} contiguous bytes are to be moved; an alignment \
             of the layouts does not change that; give both layouts the same order within a block, so that more bytes are \
             contiguous, or {remedy}",
            each.size
        );
        let both = counted(source, each.source) | counted(destination, each.destination);
        ensure!(
            both.is_multiple_of(alignment),
            InvalidArgument,
            "direct I/O starts at multiples of {alignment} bytes, and bytes at {:#x} are to be moved to {:#x}; build both \
             layouts with that alignment, or {remedy}",
            each.source,
            each.destination
        );
    }
    Ok(())
}
