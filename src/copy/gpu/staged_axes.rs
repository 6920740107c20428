// SPDX-License-Identifier: Apache-2.0
//! The axes of blocks that are staged, in the order of the host. In staging memory they have the same order without padding,
//! so the copy engine copies long spans, and the kernel does whatever reorders the blocks. Pure.

use std::cmp::Reverse;
use std::ops::Range;

use crate::base::sorting::sort_few_by_key;
use crate::plan::PlanPart;

/// Index of the host's side of an axis.
pub const HOST: usize = 0;
/// Index of the device's side.
pub const DEVICE: usize = 1;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AxisKind {
    /// The iterations of a loop within each block.
    Loop,
    /// The blocks, in host order.
    Blocks,
    /// The bytes that are contiguous on both sides.
    Bytes,
}

/// An axis of blocks with the same loops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StagedAxis {
    pub kind: AxisKind,
    pub count: u64,
    /// Regions from an index to the next, on host and device.
    pub regions: [u32; 2],
    /// Bytes from an index to the next, on host and device; of blocks, from an id to the next.
    pub strides: [u64; 2],
}

/// The axes of some blocks, outermost first.
#[derive(Clone, Debug)]
pub struct StagedAxes(Vec<StagedAxis>);

/// A span of the staging memory that is contiguous on the host too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostSpan {
    /// Its size in bytes, in each block.
    pub size: u64,
    pub outside: usize,
    /// Adjacent blocks are contiguous too; then blocks are the last axis outside.
    pub blocks_together: bool,
}

impl StagedAxes {
    /// Those of blocks with the same loops.
    pub fn new(part: &PlanPart<'_>, to_host: bool) -> Self {
        let loops = part.loops().iter().map(|each| StagedAxis {
            kind: AxisKind::Loop,
            count: each.count,
            regions: oriented(each.regions, to_host),
            strides: oriented(each.strides, to_host),
        });
        let blocks = StagedAxis {
            kind: AxisKind::Blocks,
            count: part.blocks(),
            regions: [0; 2],
            strides: oriented(part.block_strides(), to_host),
        };
        let mut axes: Vec<_> = loops.chain([blocks]).collect();
        sort_few_by_key(&mut axes, |axis| Reverse((axis.regions[HOST], axis.strides[HOST])));
        let count = part.grid().unit_size;
        axes.push(StagedAxis { kind: AxisKind::Bytes, count, regions: [0; 2], strides: [1; 2] });
        Self(axes)
    }

    pub fn all(&self) -> &[StagedAxis] {
        &self.0
    }

    /// Bytes from an index of each axis to the next in staging memory, if it has `counts` indices there.
    pub fn staged_strides(counts: &[u64]) -> Vec<u64> {
        let mut strides = vec![1; counts.len()];
        for axis in (1..counts.len()).rev() {
            strides[axis - 1] = strides[axis] * counts[axis];
        }
        strides
    }

    /// The largest span that is contiguous on the host and in staging memory, if that has `counts` indices of each axis.
    pub fn host_span(&self, counts: &[u64]) -> HostSpan {
        let mut span = HostSpan { size: 1, outside: self.0.len(), blocks_together: false };
        for (axis, count) in self.0.iter().zip(counts).rev() {
            let continues = axis.regions[HOST] == 0 && axis.strides[HOST] == span.size;
            if axis.kind == AxisKind::Blocks {
                return HostSpan { blocks_together: continues, ..span };
            }
            if *count > 1 && !continues {
                return span;
            }
            span.outside -= 1;
            span.size *= count;
        }
        span
    }

    /// The number of indices per chunk: as many bytes as fit `part_size`. Chunks have all indices of the innermost axes, some
    /// of the next one, and one of those outside.
    pub fn chunk(&self, part_size: u64) -> Vec<u64> {
        let mut left = part_size;
        let mut counts = vec![1; self.0.len()];
        for (axis, count) in self.0.iter().zip(&mut counts).rev() {
            *count = axis.count.min(left);
            if axis.kind == AxisKind::Bytes && *count < axis.count && *count > ALIGNMENT {
                *count -= *count % ALIGNMENT;
            }
            if *count < axis.count {
                *count = (*count).max(1);
                break;
            }
            left /= axis.count;
        }
        counts
    }

    /// Number of chunks with so many indices of each axis.
    pub fn num_chunks(&self, counts: &[u64]) -> u64 {
        self.0.iter().zip(counts).map(|(axis, count)| axis.count.div_ceil(*count)).product()
    }

    /// The indices of each axis that a chunk has.
    pub fn ranges(&self, counts: &[u64], chunk: u64) -> Vec<Range<u64>> {
        let mut left = chunk;
        let mut ranges: Vec<_> = self
            .0
            .iter()
            .zip(counts)
            .rev()
            .map(|(axis, count)| {
                let steps = axis.count.div_ceil(*count);
                let first = left % steps * count;
                left /= steps;
                first..(first + count).min(axis.count)
            })
            .collect();
        ranges.reverse();
        ranges
    }
}

/// Host and device, from source and destination.
fn oriented<T>([source, destination]: [T; 2], to_host: bool) -> [T; 2] {
    if to_host { [destination, source] } else { [source, destination] }
}

/// Units that do not fit a chunk are cut at multiples of it, so that the parts are copied in wide words.
const ALIGNMENT: u64 = 128;
