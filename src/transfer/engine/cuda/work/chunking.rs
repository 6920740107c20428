// SPDX-License-Identifier: Apache-2.0
//! The chunks of a staged copy: for each, the copies of the kernel, between staging memory and the device's blocks, and those
//! of the copy engine, between staging memory and the host. Pure.
#![forbid(unsafe_code)]

use super::super::launch::{LaunchShape, most_tile};
use super::division::{Division, HostOrder, HostUnit, is_inside_blocks};
use crate::cuda::copy::Copy;
use crate::cuda::kernel::{Blocks, KernelRun, Layer, MOST_LAYERS};
use crate::layout::{Axis, Placement};
use crate::transfer::plan::{Move, Plan, Slots};

/// The bytes that pass through a part of the staging memory at a time. Addresses in the part are offsets.
pub struct Chunk {
    /// The kernel's copies.
    pub blocks: Blocks,
    /// The copy engine's copies.
    pub copies: Vec<Copy>,
}

/// Runs of blocks from device block ids to indices in host order.
pub fn pack(order: &HostOrder) -> Vec<KernelRun> {
    let mut packed: Vec<KernelRun> = Vec::with_capacity(order.runs.len());
    let mut index = 0;
    for run in &order.runs {
        match packed.last_mut() {
            Some(last) if last.source + last.length == run.source => last.length += run.length,
            _ => packed.push(KernelRun::new(run.source, index, run.length)),
        }
        index += run.length;
    }
    packed
}

/// The input for dividing a transfer into chunks.
pub struct Chunking<'a> {
    /// Addresses of blocks on the host.
    pub host: &'a Placement,
    /// Addresses of blocks on the device.
    pub device: &'a Placement,
    /// Bytes from an address of a host region to the end of the memory that the driver sees as one.
    pub left: &'a dyn Fn(u32, u64) -> u64,
    /// The blocks that are moved.
    pub plan: &'a Plan,
    /// The blocks in host order.
    pub order: &'a HostOrder,
    /// The size of a chunk.
    pub division: &'a Division,
    /// Whether blocks go to the host.
    pub to_host: bool,
    /// The maximum number of blocks of a run.
    pub most_blocks: u32,
}

/// Some of the layers and blocks, in host order.
struct Part {
    layers: std::ops::Range<u64>,
    blocks: std::ops::Range<u64>,
}

impl Chunking<'_> {
    /// All chunks in order. `runs` are from device block ids to indices in host order. Fails with a reason if a chunk has
    /// more tiles than one launch supports: each run counts as many tiles as a run of typical length.
    pub fn chunks(&self, runs: &[KernelRun]) -> std::result::Result<Vec<Chunk>, String> {
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
                let blocks = self.gather(&part, runs)?;
                blocks.ensure_countable()?;
                chunks.push(Chunk { blocks, copies: self.copies(&part) });
            }
        }
        Ok(chunks)
    }

    /// Strides in the staging memory, in bytes: of blocks, layers and outer slots.
    fn staged_strides(&self, part: &Part) -> (u64, u64, u64) {
        let geometry = self.host.geometry();
        let (piece, outers) = (geometry.piece_size(), self.plan.outers().count);
        let (layers, blocks) = (part.layers.end - part.layers.start, part.blocks.end - part.blocks.start);
        let is_inside = |axis| is_inside_blocks(geometry, axis);
        match (is_inside(Axis::Layer), is_inside(Axis::Outer)) {
            (true, _) => (layers * outers * piece, outers * piece, piece),
            (false, true) => (outers * piece, blocks * outers * piece, piece),
            (false, false) => (piece, blocks * outers * piece, blocks * piece),
        }
    }

    /// The kernel's copies: between the device's layout and the staging memory.
    fn gather(&self, part: &Part, runs: std::ops::Range<usize>) -> std::result::Result<Blocks, String> {
        let (block_stride, layer_stride, outer_stride) = self.staged_strides(part);
        let geometry = self.device.geometry();
        let (piece, outers) = (geometry.piece_size(), self.plan.outers().count);
        // Slots with regions of their own are listed, like layers.
        let listed = if geometry.region_step(Axis::Outer) > 0 { outers } else { 1 };
        let outers = outers / listed;
        let together = outers == 1 || (geometry.stride(Axis::Outer) == piece && outer_stride == piece);
        let oriented = |device, staged| if self.to_host { [device, staged] } else { [staged, device] };
        let shape = LaunchShape {
            unit_size: if together { piece * outers } else { piece },
            outers: if together { 1 } else { outers },
            block_strides: oriented(geometry.stride(Axis::Block), block_stride),
            outer_strides: oriented(geometry.stride(Axis::Outer), outer_stride),
            most_blocks: self.most_blocks,
            most_tile: most_tile(self.division.part_size.min(self.plan.bytes())),
        };
        let Slots { layers: on_device, outers: slots } = self.slots(self.to_host);
        let layers: Vec<_> = part
            .layers
            .clone()
            .flat_map(|layer| (0..listed).map(move |outer| (layer, outer)))
            .map(|(layer, outer)| {
                let device = self.device.address(0, on_device.start + layer, slots.start + outer).1;
                // Runs count from the first of all blocks; this part of the staging memory starts at
                // `part.blocks`.
                let staged = ((layer - part.layers.start) * layer_stride + outer * outer_stride)
                    .wrapping_sub(part.blocks.start * block_stride);
                let [source, destination] = oriented(device, staged);
                Layer { source, destination }
            })
            .collect();
        if layers.len() > MOST_LAYERS {
            return Err(format!("{} layers and outer slots are more than one launch takes", layers.len()));
        }
        Ok(shape.blocks(&layers, runs.start, runs.len()))
    }

    /// The copy engine's copies: between the staging memory and the host. None may cross the end of a page
    /// lock.
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

    /// Spans that are contiguous on both sides, with the staging memory as source.
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

    /// The selection of the source or of the destination.
    fn slots(&self, of_source: bool) -> Slots {
        let selection = self.plan.selection();
        if of_source { selection.source() } else { selection.destination() }
    }

    /// Index, host block and length of each span of blocks that are contiguous on the host.
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
