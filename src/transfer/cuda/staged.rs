// SPDX-License-Identifier: Apache-2.0
//! Staged copies: the kernel gathers or scatters inside device memory, and the copy engine moves what lies together
//! between there and the host. The staging memory has parts that take turns, so that both work at the same time, and
//! several of them, because a kernel gets onto a busy device only now and then: there must be enough to copy until the
//! next time.

use super::chunking::{Chunk, Chunking, pack};
use super::division::{Division, HostOrder};
use super::engine::{Engine, Staging};
use super::kernel::{cut_runs, typical_length};
use super::need::Need;
use super::ring::Slot;
use super::runs::PreparedRuns;
use super::shelf::Taken;
use crate::cuda::copy::Copy;
use crate::cuda::kernel::{Blocks, CopyKernel};
use crate::cuda::stream::{Active, Stream};
use crate::error::Result;
use crate::layout::Layout;
use crate::transfer::plan::Plan;

/// A prepared staged copy.
pub struct StagedCopy {
    /// From blocks of the device to places in the staging memory, or the other way.
    pub runs: PreparedRuns,
    chunks: Vec<Chunk>,
    parts: usize,
    part_size: u64,
    to_host: bool,
    most_ctas: u32,
}

impl StagedCopy {
    /// Prepares it; a reason where it can't be.
    pub fn prepare(
        [host, device]: [&Layout; 2],
        plan: &Plan,
        order: &HostOrder,
        division: &Division,
        to_host: bool,
        most_ctas: u32,
    ) -> std::result::Result<Self, String> {
        let packed = pack(order);
        let most_blocks = typical_length(packed.len(), order.blocks);
        let mut runs = cut_runs(packed.into_iter(), most_blocks, division.blocks as u32);
        let left = |region, address| host.bytes_in_piece(region, address);
        let (host, device) = (host.placement(), device.placement());
        let chunking = Chunking { host, device, left: &left, plan, order, division, to_host, most_blocks };
        let chunks = chunking.chunks(&runs);
        if !to_host {
            for run in &mut runs {
                std::mem::swap(&mut run.source, &mut run.destination);
            }
        }
        let runs = PreparedRuns::Here(runs);
        Ok(Self { runs, chunks, parts: division.parts, part_size: division.part_size, to_host, most_ctas })
    }

    /// Leaves its runs to another copy that reads the same, and goes through staging memory alike; whether that is so.
    pub fn share_runs(&mut self, other: &Self) -> bool {
        (self.parts, self.part_size) == (other.parts, other.part_size) && self.runs.leave_to(&other.runs)
    }

    /// Its staging memory; `None` while it is in use.
    pub fn staging(&self, engine: &Engine) -> Result<Option<Taken<Staging>>> {
        engine.staging(self.parts as u64 * self.part_size, self.to_host)
    }

    /// The same as what others may be using.
    pub fn need(&self) -> Need {
        if self.to_host { Need::StagingToHost } else { Need::StagingToDevice }
    }

    /// About as many driver calls as it takes.
    pub fn calls(&self) -> usize {
        self.chunks.iter().map(|chunk| 6 + chunk.copies.len()).sum()
    }

    /// Starts it: it begins when what is on `on` now is over, and what comes there later finds it done.
    ///
    /// # Safety
    /// As for the kernel's copy; the staging memory and the stream `gather` are this run's alone.
    pub unsafe fn enqueue(
        &self,
        kernel: &CopyKernel,
        on: &Active<'_>,
        gather: &Stream,
        slot: &Slot,
        staging: &Staging,
    ) -> Result<()> {
        let gather = gather.activate()?;
        let copier = staging.copier.activate()?;
        on.record(&staging.begun)?;
        gather.wait_for(&staging.begun)?;
        copier.wait_for(&staging.begun)?;
        let (fills, drains) = if self.to_host { (&gather, &copier) } else { (&copier, &gather) };
        for (index, chunk) in self.chunks.iter().enumerate() {
            let (address, part) = staging.part(index, self.parts, self.part_size);
            if index >= self.parts {
                fills.wait_for(&part.drained)?;
            }
            // SAFETY: the caller's promise; the part is empty when its filling begins, and full when its draining does.
            unsafe {
                self.start(kernel, chunk, slot, address, (fills, true))?;
                fills.record(&part.filled)?;
                drains.wait_for(&part.filled)?;
                self.start(kernel, chunk, slot, address, (drains, false))?;
            }
            drains.record(&part.drained)?;
        }
        let last = self.chunks.len().saturating_sub(1);
        on.wait_for(&staging.part(last, self.parts, self.part_size).1.drained)
    }

    /// The half of a chunk's work that fills the staging memory, or the one that drains it.
    unsafe fn start(
        &self,
        kernel: &CopyKernel,
        chunk: &Chunk,
        slot: &Slot,
        part: u64,
        (on, fills): (&Active<'_>, bool),
    ) -> Result<()> {
        if fills == self.to_host {
            let blocks = chunk.placed(slot.address(), part, self.to_host);
            // SAFETY: the caller's promise.
            return unsafe { kernel.launch(on, &blocks, self.most_ctas) };
        }
        let placed = chunk.copies.iter().map(|copy| match self.to_host {
            true => Copy { source: part + copy.source, ..*copy },
            false => Copy { destination: part + copy.destination, ..*copy },
        });
        // One by one: in batches an H200 once left out a block, and why is not known.
        // SAFETY: the caller's promise.
        placed.into_iter().try_for_each(|copy| unsafe { on.copy(copy) })
    }
}

impl Chunk {
    /// The kernel's share, with the part of the staging memory at its place.
    fn placed(&self, runs: u64, part: u64, to_host: bool) -> Blocks {
        let mut blocks = Blocks { runs: runs + self.blocks.runs, ..self.blocks };
        for layer in &mut blocks.layers[..self.blocks.num_layers as usize] {
            let staged = if to_host { &mut layer.destination } else { &mut layer.source };
            *staged = staged.wrapping_add(part);
        }
        blocks
    }
}
