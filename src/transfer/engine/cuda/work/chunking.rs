// SPDX-License-Identifier: Apache-2.0
//! What goes through staging memory at a time: the kernel's share of a chunk, between it and the device's blocks, and the
//! copy engine's, between it and the host. Pure.

#![forbid(unsafe_code)]

use super::division::{Division, HostOrder, HostUnit};
use super::kernel::{Shape, most_tile};
use crate::cuda::copy::Copy;
use crate::cuda::kernel::{Blocks, Layer, Run};
use crate::layout::{BlockDim, LayoutKind, Placement};
use crate::transfer::plan::{Move, Plan, Slots};

/// What goes through a part of the staging memory at a time; addresses in it are offsets.
pub struct Chunk {
    /// The kernel's share.
    pub blocks: Blocks,
    /// The copy engine's.
    pub copies: Vec<Copy>,
}

/// Device block → place in the order of the host.
pub fn pack(order: &HostOrder) -> Vec<Run> {
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

/// A transfer on its way through the staging memory.
pub struct Chunking<'a> {
    /// Where blocks lie on the host.
    pub host: &'a Placement,
    /// Where they lie on the device.
    pub device: &'a Placement,
    /// Bytes from an address of a region of the host to the end of the piece that the driver sees.
    pub left: &'a dyn Fn(u32, u64) -> u64,
    /// What is moved.
    pub plan: &'a Plan,
    /// The blocks in order of the host.
    pub order: &'a HostOrder,
    /// What a chunk holds.
    pub division: &'a Division,
    /// Which way.
    pub to_host: bool,
    /// The most blocks a run has.
    pub most_blocks: u32,
}

/// A part of the layers and of the blocks, in order of the host.
struct Part {
    layers: std::ops::Range<u64>,
    blocks: std::ops::Range<u64>,
}

impl Chunking<'_> {
    /// All of it, a chunk after the other; `runs` are from blocks of the device to places in the order of the host. Fails
    /// with a reason if a chunk has more tiles than a launch of the kernel takes: where a few runs are long and most are
    /// short, each run counts as many tiles as the typical one would have.
    pub fn chunks(&self, runs: &[Run]) -> std::result::Result<Vec<Chunk>, String> {
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
                let blocks = self.gather(&part, runs);
                blocks.ensure_countable()?;
                chunks.push(Chunk { blocks, copies: self.copies(&part) });
            }
        }
        Ok(chunks)
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
            most_tile: most_tile(self.division.part_size.min(self.plan.bytes())),
        };
        let Slots { layers: on_device, outers: slots } = self.slots(self.to_host);
        let layers: Vec<_> = part
            .layers
            .clone()
            .map(|layer| {
                let device = self.device.address(0, on_device.start + layer, slots.start).1;
                // The runs count from the first of all blocks, the staging memory's part begins with these.
                let staged = ((layer - part.layers.start) * layer_stride)
                    .wrapping_sub(part.blocks.start * block_stride);
                let [source, destination] = oriented(device, staged);
                Layer { source, destination }
            })
            .collect();
        shape.blocks(&layers, runs.start, runs.len())
    }

    /// The copy engine's share: between the staging memory and the host. No copy of the driver's may reach over the end
    /// of a page lock.
    fn copies(&self, part: &Part) -> Vec<Copy> {
        let spans = self.spans(part);
        let parts = spans.into_iter().flat_map(|span| span.cut(|_, _| u64::MAX, self.left));
        parts
            .map(|Move { source: staged, destination: host, size, .. }| match self.to_host {
                true => Copy { source: staged, destination: host, size },
                false => Copy { source: host, destination: staged, size },
            })
            .collect()
    }

    /// What lies together on both, as if it came from the staging memory.
    fn spans(&self, part: &Part) -> Vec<Move> {
        let outers = self.plan.outers().count;
        let unit = HostUnit::of(self.host.geometry(), part.layers.end - part.layers.start, outers);
        let (block_stride, layer_stride, outer_stride) = self.staged_strides(part);
        let Slots { layers: on_host, outers: slots } = self.slots(!self.to_host);
        let mut spans: Vec<Move> = Vec::new();
        for layer in part.layers.clone().step_by(unit.layers as usize) {
            for outer in (0..outers).step_by(unit.outers as usize) {
                let staged = (layer - part.layers.start) * layer_stride + outer * outer_stride;
                for (index, block, count) in self.stretches(&part.blocks, unit.blocks_together) {
                    let (region, address) =
                        self.host.address(block, on_host.start + layer, slots.start + outer);
                    let next = Move {
                        source: staged + (index - part.blocks.start) * block_stride,
                        destination: address,
                        size: unit.size * count,
                        source_region: 0,
                        destination_region: region as u32,
                    };
                    match spans.last_mut() {
                        Some(last) if last.goes_on_in(&next) => last.size += next.size,
                        _ => spans.push(next),
                    }
                }
            }
        }
        spans
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
}

#[cfg(test)]
mod tests;
