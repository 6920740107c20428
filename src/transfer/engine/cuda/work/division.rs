// SPDX-License-Identifier: Apache-2.0
//! Divides a transfer into chunks for staging memory: sorts blocks in host order, and determines how many of them, and of
//! their layers, fit a chunk. Pure.
#![forbid(unsafe_code)]

use crate::cuda::kernel::{KernelRun, MOST_LAYERS};
use crate::layout::{Axis, Geometry};
use crate::transfer::plan::Plan;

/// The minimum size of a part; smaller staging memory has fewer parts.
const LEAST_PART: u64 = 1 << 20;

/// The division of a transfer into chunks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Division {
    /// Number of parts of the staging memory.
    pub parts: usize,
    /// Bytes of a part.
    pub part_size: u64,
    /// Layers of a chunk.
    pub layers: u64,
    /// Blocks of a chunk.
    pub blocks: u64,
    /// Number of chunks.
    pub chunks: u64,
    /// Number of copies between staging memory and host, of all chunks.
    pub copies: u64,
}

/// Blocks in host order, and which of them are adjacent there.
pub struct HostOrder {
    /// Device block, host block, number of blocks.
    pub runs: Vec<KernelRun>,
    /// Index of the first, host block, number of blocks.
    pub stretches: Vec<(u64, u64, u64)>,
    /// Number of blocks.
    pub blocks: u64,
}

impl HostOrder {
    /// The order of a plan's blocks.
    pub fn of(plan: &Plan, to_host: bool) -> Self {
        let mut runs: Vec<_> = plan
            .block_runs()
            .unwrap_or_default()
            .iter()
            .map(|run| match to_host {
                true => KernelRun::new(run.source, run.destination, run.length),
                false => KernelRun::new(run.destination, run.source, run.length),
            })
            .collect();
        if !runs.is_sorted_by_key(|run| run.destination) {
            runs.sort_unstable_by_key(|run| run.destination);
        }
        let mut stretches: Vec<(u64, u64, u64)> = Vec::new();
        let mut blocks = 0;
        for run in &runs {
            let (host, length) = (u64::from(run.destination), u64::from(run.length));
            match stretches.last_mut() {
                Some((_, first, count)) if *first + *count == host => *count += length,
                _ => stretches.push((blocks, host, length)),
            }
            blocks += length;
        }
        Self { runs, stretches, blocks }
    }
}

impl Division {
    /// Divides a transfer so that each chunk fits a part, of at most `most_parts` parts of `size` bytes in
    /// all. Fails with a reason.
    pub fn of(
        geometry: &Geometry,
        plan: &Plan,
        order: &HostOrder,
        size: u64,
        most_parts: u64,
    ) -> std::result::Result<Self, String> {
        if plan.unit().is_none() {
            return Err(
                "the bytes of a block's layer are in another order on the other side, or only some are \
                        moved; staging needs equal contents"
                    .to_string(),
            );
        }
        let parts = (size / LEAST_PART).clamp(2, most_parts.max(2));
        let (parts, part_size) = (parts as usize, size / parts);
        let (layers, blocks) = (plan.layers().count, order.blocks);
        let outers = plan.outers().count;
        let layer_size = geometry.piece_size() * outers;
        let fit = part_size / layer_size;
        if fit == 0 {
            return Err(format!(
                "staging_size is too small for two layers of a block, which are {layer_size} bytes each"
            ));
        }
        let (chunk_layers, chunk_blocks) = match is_inside_blocks(geometry, Axis::Layer) {
            true if fit < layers => (fit, 1),
            true => (layers, (fit / layers).min(blocks)),
            false if fit < blocks => (1, fit),
            false => ((fit / blocks).min(layers), blocks),
        };
        let chunk_layers = chunk_layers.min(MOST_LAYERS as u64);
        let chunk_blocks = chunk_blocks.min(u64::from(u32::MAX));
        let chunks = layers.div_ceil(chunk_layers) * blocks.div_ceil(chunk_blocks);
        let unit = HostUnit::of(geometry, chunk_layers, outers);
        let stretches = if unit.blocks_together { order.stretches.len() as u64 } else { blocks };
        let copies = layers.div_ceil(unit.layers) * outers.div_ceil(unit.outers) * stretches;
        let copies = copies.max(chunks);
        Ok(Self { parts, part_size, layers: chunk_layers, blocks: chunk_blocks, chunks, copies })
    }
}

/// The part of a block that is contiguous on the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostUnit {
    /// Number of layers.
    pub layers: u64,
    /// Number of outer slots.
    pub outers: u64,
    /// Their size in bytes.
    pub size: u64,
    /// Adjacent blocks are contiguous too.
    pub blocks_together: bool,
}

impl HostUnit {
    /// The unit, if `layers` layers and `outers` outer slots of a block are moved.
    pub fn of(geometry: &Geometry, layers: u64, outers: u64) -> Self {
        let piece = geometry.piece_size();
        let has_slots = is_inside_blocks(geometry, Axis::Outer) && geometry.stride(Axis::Outer) == piece;
        let (layers, outers) = match has_slots || outers == 1 {
            true if is_inside_blocks(geometry, Axis::Layer)
                && geometry.stride(Axis::Layer) == outers * piece =>
            {
                (layers, outers)
            }
            true => (1, outers),
            false => (1, 1),
        };
        let size = layers * outers * piece;
        Self { layers, outers, size, blocks_together: geometry.stride(Axis::Block) == size }
    }
}

/// Whether a block contains all its indices of an axis, before the next block starts.
pub fn is_inside_blocks(geometry: &Geometry, axis: Axis) -> bool {
    geometry.region_step(axis) == 0 && geometry.stride(axis) < geometry.stride(Axis::Block)
}
