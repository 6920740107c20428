// SPDX-License-Identifier: Apache-2.0
//! CRC32C of blocks: over a block's pieces, ordered by layer, then by outer slot. Padding is not included, so the same
//! bytes have the same checksum in a layout of any kind, alignment and memory.

use std::sync::Arc;
use std::time::Instant;

use super::host::HostBlocks;
use super::{copied, gpu};
use crate::base::{Error, Result, ensure, lists};
use crate::copy::remainder::{joined, power};
use crate::engine::single_move::WaitLimits;
use crate::layout::Layout;
use crate::nixl::{self, MemoryType};
use crate::plan::Slots;

/// Bytes whose checksums are computed between two looks at the clock and at the run.
const STEP: u64 = 64 << 20;
/// The same without a deadline: beginning a step takes a GPU some time.
const LONG_STEP: u64 = 1 << 30;

/// The checksums of whole blocks, in the order of `blocks`: of all parts of a layout, in the order of their names. `None` for no
/// deadline.
pub fn of_blocks(layout: &Arc<Layout>, blocks: &[u32], deadline: Option<Instant>) -> Result<Vec<u32>> {
    let have = layout.geometry().dimensions();
    for (index, block) in blocks.iter().enumerate() {
        ensure!(
            u64::from(*block) < have.num_blocks,
            OutOfRange,
            "blocks[{index}] is {block}; the layout has {} blocks, give ids below that",
            have.num_blocks
        );
    }
    ensure_readable(layout)?;
    let limits = &WaitLimits { deadline, ..WaitLimits::default() };
    // The agent of objects may be in a call of NIXL when memory for copies is registered.
    nixl::within(deadline, || {
        if layout.num_parts() == 0 {
            return of_slots(layout, blocks, &Slots::all(layout.geometry()), limits);
        }
        let parts = layout.part_layouts().map(|(name, part)| (name, part, Slots::all(part.geometry())));
        of_parts(parts, blocks, limits)
    })
}

/// The checksums of blocks over several parts, each with a name and what is read of it, one part of a block after the other.
pub fn of_parts<'a>(
    parts: impl Iterator<Item = (&'a str, &'a Arc<Layout>, Slots)>,
    blocks: &[u32],
    limits: &WaitLimits,
) -> Result<Vec<u32>> {
    let mut all = lists::collect(blocks.iter().map(|_| 0))?;
    for (name, layout, slots) in parts {
        let after = power(slots.size(layout.geometry()));
        let of_part = of_slots(layout, blocks, &slots, limits).map_err(|error| in_part(name, error))?;
        for (checksum, next) in all.iter_mut().zip(of_part) {
            *checksum = joined(*checksum, next, after);
        }
    }
    Ok(all)
}

/// The checksums of some layers and outer slots of blocks. All of them must exist, and the caller holds the layout.
fn of_slots(layout: &Arc<Layout>, blocks: &[u32], slots: &Slots, limits: &WaitLimits) -> Result<Vec<u32>> {
    let bytes = if limits.deadline.is_some() { STEP } else { LONG_STEP };
    let step = (bytes / slots.size(layout.geometry()).max(1)).max(1) as usize;
    let mut checksums = Vec::new();
    for part in blocks.chunks(step) {
        limits.ensure_wanted()?;
        limits.ensure_in_time(|| {
            let (done, all) = (checksums.len(), blocks.len());
            format!("{done} of {all} blocks have checksums; pass a longer one, or fewer blocks")
        })?;
        add_of_slots(layout, part, slots, limits, &mut checksums)?;
    }
    Ok(checksums)
}

/// Reads blocks in place: threads those of host memory, a kernel those of a GPU. Others are copied to host memory.
fn add_of_slots(
    layout: &Arc<Layout>,
    blocks: &[u32],
    slots: &Slots,
    limits: &WaitLimits,
    checksums: &mut Vec<u32>,
) -> Result<()> {
    let is_local = !layout.memory().is_remote();
    match layout.memory_type() {
        MemoryType::Dram if is_local => {
            let blocks = HostBlocks::new(layout, lists::copied(blocks)?, slots)?;
            lists::extend(checksums, blocks.checksums()?)
        }
        MemoryType::Vram if is_local && gpu::add(layout, blocks, slots, limits, checksums)? => Ok(()),
        _ => copied::add(layout, blocks, slots, limits, checksums),
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

/// Adds to an error the part of a layout in which it occurred, if the layout has parts.
pub fn in_part(name: &str, error: Error) -> Error {
    if name.is_empty() { error } else { error.context(format!("part '{name}'")) }
}
