// SPDX-License-Identifier: Apache-2.0
//! Checksums of blocks that the CPU can't access directly, such as those of a file or a peer: as many as fit a buffer are copied to host memory at a time.
//! Copies can be kept, so that computing the checksums again allocates nothing.
#![forbid(unsafe_code)]

use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::host::{HostBlocks, Reading};
use crate::base::error::{Error, Result};
use crate::base::lists;
use crate::engine::repeated::{RepeatedMove, WaitLimits};
use crate::layout::{AllocationConfig, Arrangement, Axis, Dimensions, Layout, LayoutKind};
use crate::plan::{BlockPair, PairedRange, Wanted};
use crate::plan::{Outline, Plan, Slots};
use crate::region::SystemConfig;

/// Size of the host buffer.
pub const BUFFER: u64 = 16 << 20;

/// Blocks or tokens that are copied to a buffer together, and read there.
pub struct Copied {
    copy: RepeatedMove,
    /// Those of the buffer.
    blocks: HostBlocks,
}

impl Copied {
    /// Copies that `plan` makes to the first `count` blocks of a buffer.
    pub fn new(
        layout: &Arc<Layout>,
        buffer: &Arc<Layout>,
        plan: Plan,
        count: u32,
        limits: WaitLimits,
    ) -> Result<Self> {
        let ids = Arc::new(lists::collect(0..count)?);
        let blocks = HostBlocks::new(buffer, ids, &Slots::all(buffer.geometry()));
        Ok(Self { copy: RepeatedMove::prepare(layout, buffer, plan, limits)?, blocks })
    }

    /// Copies them and computes the checksum of each block of the buffer. A copy that reports success and moves nothing leaves
    /// poison.
    pub fn checksums(&self, deadline: Option<Instant>) -> Result<Arc<Reading>> {
        self.blocks.poison()?;
        self.copy.run(deadline)?;
        self.blocks.compute()
    }
}

/// Some layers and outer slots of blocks, whose checksums are computed through a buffer.
pub struct CopiedBlocks {
    buffer: Arc<Layout>,
    outline: Arc<Outline>,
    /// Blocks that fit the buffer.
    capacity: usize,
    /// How long a peer may make no progress.
    stall_timeout: Option<Duration>,
    /// The copies that were kept, in the order of the blocks.
    kept: Vec<Copied>,
}

impl CopiedBlocks {
    /// Allocates the buffer, for at most `most` blocks.
    pub fn new(layout: &Layout, most: usize, slots: &Slots, stall_timeout: Option<Duration>) -> Result<Self> {
        let geometry = layout.geometry();
        let to_buffer = |range: &Range<u64>| PairedRange {
            source: range.start,
            destination: 0,
            count: range.end - range.start,
        };
        let (layers, outers) = (to_buffer(&slots.layers), to_buffer(&slots.outers));
        let block_size = (geometry.total_size()? / geometry.dimensions().num_blocks).max(1);
        // The order of a single block may lack the axis of blocks; it may be asked for several times.
        let most = if geometry.order().has(Axis::Block) { most.max(1) as u64 } else { 1 };
        let capacity = (BUFFER / block_size).clamp(1, most);
        let buffer = buffer_for(layout, capacity, layers.count, outers.count)?;
        let wanted = Wanted { layers: Some(layers), outers: Some(outers), heads: None };
        let outline = Arc::new(Outline::new(layout, &buffer, wanted, false).map_err(copying)?);
        Ok(Self { buffer, outline, capacity: capacity as usize, stall_timeout, kept: Vec::new() })
    }

    /// Adds the checksum of each block. Keeps the copies for the next time, which is for the same blocks.
    pub fn add_to(&mut self, layout: &Arc<Layout>, blocks: &[u32], checksums: &mut Vec<u32>) -> Result<()> {
        for (index, part) in blocks.chunks(self.capacity).enumerate() {
            if index == self.kept.len() {
                self.kept.push(self.copied(layout, part, false)?);
            }
            lists::extend(checksums, self.kept[index].checksums(None).map_err(copying)?.checksums())?;
        }
        Ok(())
    }

    /// The same without keeping copies, whose memory is in proportion to the blocks.
    pub fn add_once(
        &self,
        layout: &Arc<Layout>,
        blocks: &[u32],
        checksums: &mut Vec<u32>,
        deadline: Option<Instant>,
    ) -> Result<()> {
        blocks.chunks(self.capacity).try_for_each(|part| {
            let copied = self.copied(layout, part, deadline.is_some())?;
            lists::extend(checksums, copied.checksums(deadline).map_err(copying)?.checksums())
        })
    }

    fn copied(&self, layout: &Arc<Layout>, part: &[u32], is_limited: bool) -> Result<Copied> {
        let pair = |(source, destination): (&u32, u32)| BlockPair { source: *source, destination };
        let pairs = lists::collect(part.iter().zip(0..).map(pair))?;
        let plan = Plan::new(&self.outline, &pairs, None);
        let limits = WaitLimits { is_limited, stall_timeout: self.stall_timeout };
        let copied = plan.and_then(|plan| Copied::new(layout, &self.buffer, plan, part.len() as u32, limits));
        copied.map_err(copying)
    }
}

fn copying(error: Error) -> Error {
    error.context("copy blocks to host memory for their checksums")
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
