// SPDX-License-Identifier: Apache-2.0
//! The blocks of one side of a transfer that is verified, and their checksums.
#![forbid(unsafe_code)]

use std::sync::Arc;

use super::checksum;
use super::host::BlockChecksums;
use crate::error::Result;
use crate::layout::Layout;
use crate::nixl::MemoryType;
use crate::sync::{Mutex, MutexGuard};
use crate::transfer::plan::Slots;

/// Whole blocks of one side.
pub struct VerifiedSide {
    blocks: Arc<[u32]>,
    /// What is moved of each part of the layout, by name; the name is empty if it has none.
    parts: Box<[VerifiedPart]>,
    /// Those of the last run, whose memory the next one uses.
    checksums: Mutex<Vec<u32>>,
}

struct VerifiedPart {
    name: String,
    slots: Slots,
    /// If it is host memory.
    in_host_memory: Option<BlockChecksums>,
}

impl VerifiedSide {
    /// Blocks of a layout.
    pub fn new(
        layout: &Arc<Layout>,
        blocks: Arc<[u32]>,
        parts: impl Iterator<Item = (String, Slots)>,
    ) -> Result<Self> {
        let verified = |(name, slots): (String, Slots)| {
            let part = part(layout, &name)?;
            let is_host = part.memory_type() == MemoryType::Dram;
            let in_host_memory = is_host.then(|| BlockChecksums::new(part, blocks.clone(), &slots));
            Ok(VerifiedPart { name, slots, in_host_memory })
        };
        let parts = parts.map(verified).collect::<Result<_>>()?;
        Ok(Self { blocks, parts, checksums: Mutex::default() })
    }

    /// The blocks.
    pub fn blocks(&self) -> &[u32] {
        &self.blocks
    }

    /// Their checksums, in this order. For host memory, this allocates nothing after the first runs.
    pub fn checksums(&self, layout: &Arc<Layout>) -> Result<MutexGuard<'_, Vec<u32>>> {
        let mut all = self.checksums.lock();
        all.clear();
        for each in &self.parts {
            let part = part(layout, &each.name)?;
            let size = each.slots.size(part.geometry()) as usize;
            match &each.in_host_memory {
                Some(blocks) => add(&mut all, blocks.compute()?.checksums(), size),
                None => add(
                    &mut all,
                    checksum::of_slots(part, &self.blocks, each.slots.clone())?.into_iter(),
                    size,
                ),
            }
        }
        Ok(all)
    }
}

/// A part of a layout; the layout itself, if it has no parts.
pub fn part<'a>(layout: &'a Arc<Layout>, name: &str) -> Result<&'a Arc<Layout>> {
    if name.is_empty() { Ok(layout) } else { layout.part(name) }
}

/// Adds the checksums of the next part of each block, which has so many bytes.
fn add(all: &mut Vec<u32>, next: impl Iterator<Item = u32>, size: usize) {
    if all.is_empty() {
        return all.extend(next);
    }
    all.iter_mut().zip(next).for_each(|(one, next)| *one = crc32c::crc32c_combine(*one, next, size));
}
