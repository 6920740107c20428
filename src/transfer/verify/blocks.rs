// SPDX-License-Identifier: Apache-2.0
//! Blocks of a layout in memory of any kind, whose checksums are computed any number of times: after the first ones without
//! allocating.
#![forbid(unsafe_code)]

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::copied::CopiedBlocks;
use super::gpu::GpuBlocks;
use super::host::HostBlocks;
use crate::base::error::Result;
use crate::base::lists;
use crate::base::sync::Mutex;
use crate::layout::Layout;
use crate::nixl::MemoryType;
use crate::plan::Slots;

/// Some layers and outer slots of blocks.
pub struct BlockChecksums {
    blocks: Arc<Vec<u32>>,
    slots: Slots,
    reader: Reader,
    /// How long a peer may make no progress.
    stall_timeout: Option<Duration>,
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
    /// Those of blocks that exist.
    pub fn new(layout: &Layout, blocks: Arc<Vec<u32>>, slots: Slots) -> Self {
        let reader = match layout.memory_type() {
            _ if layout.memory().is_remote() => Reader::None,
            MemoryType::Dram => Reader::Host(HostBlocks::new(layout, blocks.clone(), &slots)),
            MemoryType::Vram => GpuBlocks::new(layout, &blocks, &slots).map_or(Reader::None, Reader::Gpu),
            _ => Reader::None,
        };
        Self { blocks, slots, reader, stall_timeout: None, copied: Mutex::default() }
    }

    /// The same with a limit for the time in which a peer makes no progress; `None` for the default.
    pub fn stalling_for(self, stall_timeout: Option<Duration>) -> Self {
        Self { stall_timeout, ..self }
    }

    /// Adds the checksum of each block to a list. The caller holds the layout. The next time this allocates nothing.
    pub fn add_to(&self, layout: &Arc<Layout>, checksums: &mut Vec<u32>) -> Result<()> {
        if self.add_in_place(layout, checksums)? {
            return Ok(());
        }
        let mut kept = self.copied.lock();
        // Not kept after a failure.
        let mut copied = kept.take().map_or_else(|| self.prepare_copies(layout), Ok)?;
        copied.add_to(layout, &self.blocks, checksums)?;
        *kept = Some(copied);
        Ok(())
    }

    /// The same without a next time. Copies end at the deadline.
    pub fn add_once(
        &self,
        layout: &Arc<Layout>,
        checksums: &mut Vec<u32>,
        deadline: Option<Instant>,
    ) -> Result<()> {
        if self.add_in_place(layout, checksums)? {
            return Ok(());
        }
        self.prepare_copies(layout)?.add_once(layout, &self.blocks, checksums, deadline)
    }

    /// Reads blocks without copying them. Returns whether that is possible.
    fn add_in_place(&self, layout: &Arc<Layout>, checksums: &mut Vec<u32>) -> Result<bool> {
        match &self.reader {
            Reader::Host(blocks) => {
                lists::extend(checksums, blocks.compute()?.checksums())?;
                Ok(true)
            }
            Reader::Gpu(blocks) => blocks.add_to(layout, &self.blocks, checksums),
            Reader::None => Ok(false),
        }
    }

    fn prepare_copies(&self, layout: &Layout) -> Result<CopiedBlocks> {
        CopiedBlocks::new(layout, self.blocks.len(), &self.slots, self.stall_timeout)
    }
}
