// SPDX-License-Identifier: Apache-2.0
//! Divides a transfer into chunks for staging memory. Pure.

use super::gather::Gather;
use super::host_order::HostOrder;
use super::staged_axes::{AxisKind, StagedAxes};
use crate::base::{Result, ensure};
use crate::plan::{Plan, PlanPart};

/// The minimum size of a part; smaller staging memory has fewer parts.
const MIN_PART: u64 = 1 << 20;

/// The maximum number of chunks: each has the parameters of its launches, which are 4 KiB or more.
const MAX_CHUNKS: u64 = 1 << 18;

#[derive(Clone, Debug)]
pub struct Division {
    pub parts: usize,
    pub part_size: u64,
    /// The blocks, for each set of loops.
    pub blocks: Vec<StagedBlocks>,
    pub chunks: u64,
    /// Number of kernel launches, of all chunks.
    pub launches: u64,
    /// Number of copies between staging memory and host, of all chunks.
    pub copies: u64,
}

/// Blocks with the same loops, in host order.
#[derive(Clone, Debug)]
pub struct StagedBlocks {
    pub order: HostOrder,
    pub axes: StagedAxes,
    /// The maximum number of indices of each axis in a chunk.
    pub counts: Vec<u64>,
    pub chunks: u64,
}

impl Division {
    /// Divides a transfer so that each chunk fits a part, of at most `max_parts` parts of `size` bytes in all.
    pub fn new(plan: &Plan, to_host: bool, size: u64, max_parts: u64) -> Result<Self> {
        let parts = (size / MIN_PART).clamp(2, max_parts.max(2));
        let (parts, part_size) = (parts as usize, size / parts);
        ensure!(
            part_size > 0,
            Unsupported,
            "staging_size is {size} bytes; at least one byte for each of 2 parts is needed"
        );
        let blocks = plan.parts().map(|part| StagedBlocks::new(&part, to_host, part_size));
        let blocks: Vec<_> = blocks.collect::<Result<_>>()?;
        let sum = |of: fn(&StagedBlocks) -> u64| blocks.iter().map(of).fold(0, u64::saturating_add);
        let (chunks, launches) = (sum(|blocks| blocks.chunks), sum(StagedBlocks::launches));
        ensure!(
            chunks <= MAX_CHUNKS,
            Unsupported,
            "with a staging_size of {size} bytes the transfer has {chunks} chunks; {MAX_CHUNKS} are the most"
        );
        Ok(Self { parts, part_size, chunks, launches, copies: sum(StagedBlocks::copies), blocks })
    }
}

impl StagedBlocks {
    fn new(part: &PlanPart<'_>, to_host: bool, part_size: u64) -> Result<Self> {
        let axes = StagedAxes::new(part, to_host);
        let counts = axes.chunk(part_size);
        let order = HostOrder::new(part, to_host)?;
        Ok(Self { order, chunks: axes.num_chunks(&counts), counts, axes })
    }

    pub fn blocks_per_chunk(&self) -> u64 {
        let axes = self.axes.all().iter().zip(&self.counts);
        axes.filter(|(axis, _)| axis.kind == AxisKind::Blocks).map(|(_, count)| *count).next().unwrap_or(1)
    }

    fn launches(&self) -> u64 {
        let each = Gather::new(&self.axes, &self.axes.ranges(&self.counts, 0)).num_launches();
        each.saturating_mul(self.chunks)
    }

    /// Number of copies between staging memory and host.
    fn copies(&self) -> u64 {
        let span = self.axes.host_span(&self.counts);
        let outside = self.axes.all()[..span.outside].iter().map(|axis| match axis.kind {
            AxisKind::Blocks if span.blocks_together => self.order.num_spans(),
            _ => axis.count,
        });
        outside.fold(1, u64::saturating_mul).max(self.chunks)
    }
}
