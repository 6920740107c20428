// SPDX-License-Identifier: Apache-2.0
//! Blocks of a layout in memory of any kind, whose checksums are computed any number of times: after the first ones without
//! allocating.
#![forbid(unsafe_code)]

use std::sync::Arc;

use super::copied::CopiedBlocks;
use super::gpu::GpuBlocks;
use super::host::HostBlocks;
use crate::error::Result;
use crate::layout::Layout;
use crate::nixl::MemoryType;
use crate::region::Contexts;
use crate::sync::Mutex;
use crate::transfer::plan::Slots;

/// Some layers and outer slots of blocks.
pub struct BlockChecksums {
    blocks: Arc<[u32]>,
    slots: Slots,
    /// The CUDA contexts of the memory.
    contexts: Contexts,
    reader: Reader,
    /// Copies of blocks that have no other reader, or whose reader can't be used; prepared when first needed.
    copied: Mutex<Option<CopiedBlocks>>,
}

/// What reads blocks in place.
enum Reader {
    /// Threads.
    Host(HostBlocks),
    /// A kernel.
    Gpu(GpuBlocks),
    /// Nothing.
    None,
}

impl BlockChecksums {
    /// Those of blocks that exist, in memory that this process can access.
    pub fn new(layout: &Layout, blocks: Arc<[u32]>, slots: Slots) -> Self {
        let reader = match layout.memory_type() {
            MemoryType::Dram => Reader::Host(HostBlocks::new(layout, blocks.clone(), &slots)),
            MemoryType::Vram => GpuBlocks::new(layout, &blocks, &slots).map_or(Reader::None, Reader::Gpu),
            _ => Reader::None,
        };
        Self { contexts: layout.contexts(false), blocks, slots, reader, copied: Mutex::default() }
    }

    /// Adds the checksum of each block to a list. The caller holds the layout.
    pub fn add_to(&self, layout: &Arc<Layout>, checksums: &mut Vec<u32>) -> Result<()> {
        match &self.reader {
            Reader::Host(blocks) => {
                checksums.extend(blocks.compute()?.checksums());
                return Ok(());
            }
            Reader::Gpu(blocks) => {
                self.contexts.ensure_alive()?;
                if blocks.add_to(layout, &self.blocks, checksums)? {
                    return Ok(());
                }
            }
            Reader::None => self.contexts.ensure_alive()?,
        }
        let mut kept = self.copied.lock();
        // Not kept after a failure.
        let copied = match kept.take() {
            Some(copied) => copied,
            None => CopiedBlocks::new(layout, &self.blocks, &self.slots)?,
        };
        copied.add_to(checksums)?;
        *kept = Some(copied);
        Ok(())
    }
}
