// SPDX-License-Identifier: Apache-2.0
//! The blocks of one side of a transfer that is verified, and their checksums.
#![forbid(unsafe_code)]

use std::sync::Arc;
use std::time::Duration;

use super::blocks::BlockChecksums;
use crate::base::error::Result;
use crate::base::lists;
use crate::base::sync::{Mutex, MutexGuard};
use crate::layout::Layout;
use crate::plan::Slots;

/// Whole blocks of one side.
pub struct VerifiedSide {
    blocks: Arc<Vec<u32>>,
    /// What is moved of each part of the layout, by name; the name is empty if it has none.
    parts: Box<[VerifiedPart]>,
    /// Those of the last run, whose memory the next one uses.
    checksums: Mutex<Vec<u32>>,
}

struct VerifiedPart {
    name: String,
    /// Bytes of a block in it.
    size: usize,
    blocks: BlockChecksums,
    /// As above, over this part.
    checksums: Mutex<Vec<u32>>,
}

impl VerifiedSide {
    /// Blocks of a layout.
    pub fn new(
        layout: &Arc<Layout>,
        blocks: Arc<Vec<u32>>,
        parts: impl Iterator<Item = (String, Slots)>,
        stall_timeout: Option<Duration>,
    ) -> Result<Self> {
        let verified = |(name, slots): (String, Slots)| {
            let part = part(layout, &name)?;
            let size = slots.size(part.geometry()) as usize;
            let blocks = BlockChecksums::new(part, blocks.clone(), slots).stalling_for(stall_timeout);
            Ok(VerifiedPart { name, size, blocks, checksums: Mutex::default() })
        };
        let parts = parts.map(verified).collect::<Result<_>>()?;
        Ok(Self { blocks, parts, checksums: Mutex::default() })
    }

    /// The blocks.
    pub fn blocks(&self) -> &[u32] {
        &self.blocks
    }

    /// Their checksums, in this order. Allocates nothing after the first runs.
    pub fn checksums(&self, layout: &Arc<Layout>) -> Result<MutexGuard<'_, Vec<u32>>> {
        let mut all = self.checksums.lock();
        all.clear();
        for each in &self.parts {
            let mut of_part = each.checksums.lock();
            of_part.clear();
            each.blocks.add_to(part(layout, &each.name)?, &mut of_part)?;
            append(&mut all, &of_part, each.size)?;
        }
        Ok(all)
    }
}

/// A part of a layout; the layout itself, if it has no parts.
pub fn part<'a>(layout: &'a Arc<Layout>, name: &str) -> Result<&'a Arc<Layout>> {
    if name.is_empty() { Ok(layout) } else { layout.part(name) }
}

/// Appends the next part of each block, which has so many bytes, to its checksum.
fn append(all: &mut Vec<u32>, next: &[u32], size: usize) -> Result<()> {
    if all.is_empty() {
        return lists::extend(all, next.iter().copied());
    }
    all.iter_mut().zip(next).for_each(|(one, next)| *one = crc32c::crc32c_combine(*one, *next, size));
    Ok(())
}
