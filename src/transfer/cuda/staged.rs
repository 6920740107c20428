// SPDX-License-Identifier: Apache-2.0
//! Staged copies: the kernel gathers or scatters inside device memory, and the copy engine moves what lies together
//! between there and the host. The staging memory has parts that take turns, so that both work at the same time, and
//! several of them, because a kernel gets onto a busy device only now and then: there must be enough to copy until the
//! next time.

use super::division::{Division, HostOrder, HostUnit};
use super::engine::{Engine, Staging};
use super::kernel::{Shape, TILE, cut_runs, typical_length};
use super::need::Need;
use super::ring::Slot;
use super::runs::PreparedRuns;
use super::shelf::Taken;
use crate::cuda::copy::Copy;
use crate::cuda::kernel::{Blocks, CopyKernel, Layer, Run};
use crate::cuda::stream::{Active, Stream};
use crate::error::Result;
use crate::layout::{BlockDim, Layout, LayoutKind};
use crate::transfer::plan::{Plan, Slots};

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

/// What goes through a part of the staging memory at a time; addresses in it are offsets.
struct Chunk {
    blocks: Blocks,
    copies: Vec<Copy>,
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
        let chunking = Chunking { host, device, plan, order, division, to_host, most_blocks };
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

/// Device block → place in the order of the host.
fn pack(order: &HostOrder) -> Vec<Run> {
    let mut packed: Vec<Run> = Vec::with_capacity(order.runs.len());
    let mut index = 0;
    for run in &order.runs {
        match packed.last_mut() {
            Some(last) if last.source + last.length == run.source => last.length += run.length,
            _ => packed.push(Run::new(run.source, index, run.length)),
        }
        index += run.length;
    }
    packed
}

struct Chunking<'a> {
    host: &'a Layout,
    device: &'a Layout,
    plan: &'a Plan,
    order: &'a HostOrder,
    division: &'a Division,
    to_host: bool,
    most_blocks: u32,
}

/// A part of the layers and of the blocks, in order of the host.
struct Part {
    layers: std::ops::Range<u64>,
    blocks: std::ops::Range<u64>,
}

impl Chunking<'_> {
    fn chunks(&self, runs: &[Run]) -> Vec<Chunk> {
        let (layers, blocks) = (self.plan.layers().count, self.order.blocks);
        let mut chunks = Vec::new();
        for first_layer in (0..layers).step_by(self.division.layers as usize) {
            for first_block in (0..blocks).step_by(self.division.blocks as usize) {
                let part = Part {
                    layers: first_layer..(first_layer + self.division.layers).min(layers),
                    blocks: first_block..(first_block + self.division.blocks).min(blocks),
                };
                let at = |index: u64| runs.partition_point(|run| u64::from(run.destination) < index);
                let runs = at(part.blocks.start)..at(part.blocks.end);
                chunks.push(Chunk { blocks: self.gather(&part, runs), copies: self.copies(&part) });
            }
        }
        chunks
    }

    /// How it lies in the staging memory: bytes from a block, a layer and an outer slot to the next.
    fn staged_strides(&self, part: &Part) -> (u64, u64, u64) {
        let geometry = self.host.geometry();
        let (piece, outers) = (geometry.piece_size(), self.plan.outers().count);
        let (layers, blocks) = (part.layers.end - part.layers.start, part.blocks.end - part.blocks.start);
        match geometry.kind() {
            LayoutKind::FullyContiguous => (layers * outers * piece, outers * piece, piece),
            LayoutKind::LayerSeparate(BlockDim::First) => (outers * piece, blocks * outers * piece, piece),
            LayoutKind::LayerSeparate(BlockDim::Second) => (piece, blocks * outers * piece, blocks * piece),
        }
    }

    /// The kernel's share: between the device's layout and the staging memory.
    fn gather(&self, part: &Part, runs: std::ops::Range<usize>) -> Blocks {
        let (block_stride, layer_stride, outer_stride) = self.staged_strides(part);
        let geometry = self.device.geometry();
        let (piece, outers) = (geometry.piece_size(), self.plan.outers().count);
        let together = outers == 1 || (geometry.outer_stride() == piece && outer_stride == piece);
        let oriented = |device, staged| if self.to_host { [device, staged] } else { [staged, device] };
        let shape = Shape {
            unit_size: if together { piece * outers } else { piece },
            outers: if together { 1 } else { outers },
            block_strides: oriented(geometry.block_stride(), block_stride),
            outer_strides: oriented(geometry.outer_stride(), outer_stride),
            most_blocks: self.most_blocks,
            most_tile: TILE,
        };
        let Slots { layers: on_device, outers: slots } = self.slots(self.to_host);
        let layers: Vec<_> = part
            .layers
            .clone()
            .map(|layer| {
                let device = self.device.placement().address(0, on_device.start + layer, slots.start).1;
                // The runs count from the first of all blocks, the staging memory's part begins with these.
                let staged = ((layer - part.layers.start) * layer_stride)
                    .wrapping_sub(part.blocks.start * block_stride);
                let [source, destination] = oriented(device, staged);
                Layer { source, destination }
            })
            .collect();
        shape.blocks(&layers, runs.start, runs.len())
    }

    /// The copy engine's share: between the staging memory and the host.
    fn copies(&self, part: &Part) -> Vec<Copy> {
        let outers = self.plan.outers().count;
        let unit = HostUnit::of(self.host, part.layers.end - part.layers.start, outers);
        let (block_stride, layer_stride, outer_stride) = self.staged_strides(part);
        let Slots { layers: on_host, outers: slots } = self.slots(!self.to_host);
        let mut copies = Vec::new();
        for layer in part.layers.clone().step_by(unit.layers as usize) {
            for outer in (0..outers).step_by(unit.outers as usize) {
                let staged = (layer - part.layers.start) * layer_stride + outer * outer_stride;
                for (index, block, count) in self.stretches(&part.blocks, unit.blocks_together) {
                    let (region, address) =
                        self.host.placement().address(block, on_host.start + layer, slots.start + outer);
                    let at = staged + (index - part.blocks.start) * block_stride;
                    self.cut(region as u32, address, at, unit.size * count, &mut copies);
                }
            }
        }
        copies
    }

    /// What is moved of each block at the source, or at the destination.
    fn slots(&self, of_source: bool) -> Slots {
        let selection = self.plan.selection();
        if of_source { selection.source() } else { selection.destination() }
    }

    /// Index, host block and length of what lies together on the host.
    fn stretches(
        &self,
        blocks: &std::ops::Range<u64>,
        joined: bool,
    ) -> impl Iterator<Item = (u64, u64, u64)> {
        let stretches = &self.order.stretches;
        let first = stretches.partition_point(|(index, _, count)| index + count <= blocks.start);
        let blocks = blocks.clone();
        let inside = stretches[first..].iter().take_while({
            let end = blocks.end;
            move |(index, _, _)| *index < end
        });
        inside.flat_map(move |(index, host, count)| {
            let from = (*index).max(blocks.start);
            let until = (index + count).min(blocks.end);
            let (host, step) = (host + (from - index), if joined { until - from } else { 1 });
            (from..until).step_by(step as usize).map(move |at| (at, host + (at - from), step))
        })
    }

    /// No copy of the driver's may reach over the end of a page lock.
    fn cut(&self, region: u32, mut host: u64, mut staged: u64, mut left: u64, copies: &mut Vec<Copy>) {
        while left > 0 {
            let size = left.min(self.host.bytes_in_piece(region, host));
            copies.push(match self.to_host {
                true => Copy { source: staged, destination: host, size },
                false => Copy { source: host, destination: staged, size },
            });
            host += size;
            staged += size;
            left -= size;
        }
    }
}
