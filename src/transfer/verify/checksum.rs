// SPDX-License-Identifier: Apache-2.0
//! CRC32C of blocks: over a block's pieces, ordered by layer, then by outer slot. Padding is not included, so the same
//! bytes have the same checksum in a layout of any kind, alignment and memory.
#![forbid(unsafe_code)]

use std::sync::Arc;

use super::blocks::BlockChecksums;
use crate::error::{Result, ensure};
use crate::layout::Layout;
use crate::lists;
use crate::transfer::plan::Slots;

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
    let mut all = lists::collect(blocks.iter().map(|_| 0))?;
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
    let mut checksums = Vec::new();
    let blocks = lists::collect(blocks.iter().copied())?;
    BlockChecksums::new(layout, Arc::new(blocks), slots).add_once(layout, &mut checksums)?;
    Ok(checksums)
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
