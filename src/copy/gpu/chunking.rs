// SPDX-License-Identifier: Apache-2.0
//! The chunks of a staged copy: for each, the copies of the kernel, between staging memory and the device's blocks, and those
//! of the copy engine, between staging memory and the host. Pure.

use std::ops::Range;

use super::division::{Division, StagedBlocks};
use super::gather::Gather;
use super::launch::{add_runs, max_tile, typical_length};
use super::staged_axes::{AxisKind, HOST, HostSpan, StagedAxes};
use crate::base::{Result, lists};
use crate::cuda::{Blocks, Copy, KernelRun};
use crate::plan::{Move, Plan, PlanPart};

/// The bytes that pass through a part of the staging memory at a time. Addresses in the part are offsets.
pub struct Chunk {
    /// The kernel's copies: one launch, or several if a block has many rows.
    pub launches: Vec<Blocks>,
    pub copies: Vec<Copy>,
}

/// The chunks of a plan in order, and their runs from device block ids to indices in host order. `left` returns the bytes from
/// an address of a host region to the end of the memory that the driver sees as one. Fails if a chunk has more
/// tiles than one launch supports: each run counts as many tiles as a run of typical length.
pub fn chunks(
    plan: &Plan,
    division: &Division,
    to_host: bool,
    left: &dyn Fn(u32, u64) -> u64,
) -> Result<(Vec<Chunk>, Vec<KernelRun>)> {
    let max_tile = max_tile(division.part_size.min(plan.bytes()));
    // The staging memory starts at a multiple of any word, each of its parts at a multiple of its size.
    let alignment = division.part_size;
    let (mut chunks, mut runs) = (Vec::new(), Vec::new());
    lists::reserve(&mut chunks, division.chunks as usize)?;
    for (part, blocks) in plan.parts().zip(&division.blocks) {
        let packed = blocks.order.pack()?;
        let max_blocks = typical_length(packed.len(), blocks.order.blocks());
        let first_run = runs.len();
        add_runs(&mut runs, packed.into_iter(), max_blocks, blocks.blocks_per_chunk() as u32)?;
        let chunking = Chunking { part, blocks, left, to_host };
        for chunk in 0..blocks.chunks {
            let ranges = blocks.axes.ranges(&blocks.counts, chunk);
            let own = chunking.runs(&runs[first_run..], &ranges);
            let own = first_run + own.start..first_run + own.end;
            let gather = Gather::new(&blocks.axes, &ranges);
            let launches =
                gather.launches(&chunking.part, own, to_host, max_blocks, [max_tile, alignment])?;
            lists::push(&mut chunks, Chunk { launches, copies: chunking.copies(&ranges)? })?;
        }
    }
    Ok((chunks, runs))
}

/// The input for the chunks of blocks with the same loops.
struct Chunking<'a> {
    part: PlanPart<'a>,
    blocks: &'a StagedBlocks,
    left: &'a dyn Fn(u32, u64) -> u64,
    to_host: bool,
}

/// A place in the staging memory and on the host, for block 0 or for a block.
#[derive(Clone, Copy, Default)]
struct Place {
    staged: u64,
    regions: u32,
    bytes: u64,
}

impl Chunking<'_> {
    fn runs(&self, runs: &[KernelRun], ranges: &[Range<u64>]) -> Range<usize> {
        let at = |index: u64| runs.partition_point(|run| u64::from(run.destination) < index);
        let axes = self.blocks.axes.all().iter().zip(ranges);
        let blocks = axes.filter(|(axis, _)| axis.kind == AxisKind::Blocks).map(|(_, range)| range).next();
        blocks.map_or(0..0, |blocks| at(blocks.start)..at(blocks.end))
    }

    /// The copy engine's copies: between the staging memory and the host. None may cross the end of a page
    /// lock.
    fn copies(&self, ranges: &[Range<u64>]) -> Result<Vec<Copy>> {
        let spans = self.spans(ranges)?;
        let parts = spans.into_iter().flat_map(|span| span.cut(|_, _| u64::MAX, self.left));
        lists::collect(parts.map(|Move { source: staged, destination: host, size, .. }| match self.to_host {
            true => Copy { source: staged, destination: host, size },
            false => Copy { source: host, destination: staged, size },
        }))
    }

    /// Spans that are contiguous on both sides, with the staging memory as source.
    fn spans(&self, ranges: &[Range<u64>]) -> Result<Vec<Move>> {
        let counts: Vec<_> = ranges.iter().map(|range| range.end - range.start).collect();
        let strides = StagedAxes::staged_strides(&counts);
        let span = self.blocks.axes.host_span(&counts);
        let mut first = Place::default();
        for (axis, range) in self.blocks.axes.all().iter().zip(ranges).skip(span.outside) {
            first.regions += axis.regions[HOST] * range.start as u32;
            first.bytes += axis.strides[HOST] * range.start;
        }
        let mut walk = SpanWalk { chunking: self, span, ranges, strides, spans: Vec::new() };
        walk.visit(0, first, span.size)?;
        Ok(walk.spans)
    }
}

/// Goes through the axes of a chunk, in host order.
struct SpanWalk<'a> {
    chunking: &'a Chunking<'a>,
    span: HostSpan,
    ranges: &'a [Range<u64>],
    /// Of the axes, in staging memory.
    strides: Vec<u64>,
    spans: Vec<Move>,
}

impl SpanWalk<'_> {
    /// Adds the spans of the axes from `index` on, which are of `size` bytes per block.
    fn visit(&mut self, index: usize, at: Place, size: u64) -> Result<()> {
        if index == self.span.outside {
            return self.add(at, size);
        }
        let blocks = self.chunking.blocks;
        let (axis, range, stride) = (&blocks.axes.all()[index], &self.ranges[index], self.strides[index]);
        let together = self.span.blocks_together;
        // Of blocks, the host's index is the id.
        let mut next = |index_of: u64, on_host: u64, size: u64| {
            let at = Place {
                staged: at.staged + (index_of - range.start) * stride,
                regions: at.regions + axis.regions[HOST] * on_host as u32,
                bytes: at.bytes + axis.strides[HOST] * on_host,
            };
            self.visit(index + 1, at, size)
        };
        match axis.kind {
            AxisKind::Blocks => {
                let mut spans = blocks.order.spans(range, together);
                spans.try_for_each(|(first, block, count)| next(first, block, size * count))
            }
            _ => range.clone().try_for_each(|index| next(index, index, size)),
        }
    }

    /// Adds a span, or lengthens the one before it.
    fn add(&mut self, at: Place, size: u64) -> Result<()> {
        let side = if self.chunking.to_host { 1 } else { 0 };
        let (region, address) = self.chunking.part.at(side, at.regions, at.bytes);
        let next = Move {
            source: at.staged,
            destination: address,
            size,
            source_region: 0,
            destination_region: region,
        };
        match self.spans.last_mut() {
            Some(last) if last.goes_on_in(&next) => last.size += next.size,
            _ => lists::push(&mut self.spans, next)?,
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
