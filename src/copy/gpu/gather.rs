// SPDX-License-Identifier: Apache-2.0
//! The kernel's share of a chunk: between the device's blocks and staging memory. Pure.

use std::ops::Range;

use super::staged_axes::{AxisKind, DEVICE, StagedAxes};
use super::unit_launches::{UnitLoops, iterations};
use crate::base::sorting::sort_few_by_key;
use crate::base::{Result, lists};
use crate::cuda::kernel::{Blocks, Layer, MAX_LAYERS, Units};
use crate::plan::{Loop, PlanPart};

/// What the kernels copy of some indices of each axis.
pub struct Gather {
    /// Bytes that are contiguous on the device and in staging memory.
    unit_size: u64,
    /// The loops, with strides on the device and in staging memory.
    loops: Vec<Loop>,
    /// Regions and bytes from a block's first byte to that of the chunk.
    first: (u32, u64),
    /// Bytes from a block to the next, on the device and in staging memory.
    block_strides: [u64; 2],
    /// Index of the first block.
    first_block: u64,
}

impl Gather {
    /// That of some indices of each axis.
    pub fn new(axes: &StagedAxes, ranges: &[Range<u64>]) -> Self {
        let counts: Vec<_> = ranges.iter().map(|range| range.end - range.start).collect();
        let strides = StagedAxes::staged_strides(&counts);
        let mut gather =
            Self { unit_size: 1, loops: Vec::new(), first: (0, 0), block_strides: [0; 2], first_block: 0 };
        for ((axis, range), (count, staged)) in axes.all().iter().zip(ranges).zip(counts.iter().zip(strides))
        {
            if axis.kind == AxisKind::Blocks {
                gather.block_strides = [axis.strides[DEVICE], staged];
                gather.first_block = range.start;
                continue;
            }
            gather.first.0 += axis.regions[DEVICE] * range.start as u32;
            gather.first.1 += axis.strides[DEVICE] * range.start;
            if *count > 1 {
                let (strides, regions) = ([axis.strides[DEVICE], staged], [axis.regions[DEVICE], 0]);
                gather.loops.push(Loop { count: *count, strides, regions });
            }
        }
        gather.lengthen_unit();
        // The longest loops within regions become the innermost ones, so that the fewest addresses are listed.
        sort_few_by_key(&mut gather.loops, |each| (each.is_within_regions(), each.count));
        gather
    }

    /// Adds loops to the unit as long as one continues it on both sides.
    fn lengthen_unit(&mut self) {
        let continues = |unit: u64| move |each: &Loop| each.is_within_regions() && each.strides == [unit; 2];
        while let Some(index) = self.loops.iter().position(continues(self.unit_size)) {
            self.unit_size *= self.loops.remove(index).count;
        }
    }

    /// Its loops with strides in source and destination.
    fn unit_loops<'a>(&self, loops: &'a [Loop], max_blocks: u32, to_host: bool) -> UnitLoops<'a> {
        let block_strides = oriented(self.block_strides, to_host);
        UnitLoops { units: Units { unit_size: self.unit_size, block_strides, max_blocks }, loops }
    }

    /// Number of launches, if the alignment allows to transpose elements and to copy short units as rows.
    pub fn num_launches(&self) -> u64 {
        // Of blocks that may have adjacent ones, or not.
        let listed = |max_blocks| self.unit_loops(&self.loops, max_blocks, true).listed();
        listed(1).max(listed(2)).div_ceil(MAX_LAYERS as u64)
    }

    /// The launches for some runs, from device block ids to indices in host order. Addresses in staging memory are offsets from
    /// a multiple of `alignment`. Fails if a launch does not support them.
    pub fn launches(
        &self,
        part: &PlanPart<'_>,
        runs: Range<usize>,
        to_host: bool,
        max_blocks: u32,
        [max_tile, alignment]: [u64; 2],
    ) -> Result<Vec<Blocks>> {
        let turned = |each: &Loop| Loop { strides: oriented(each.strides, to_host), ..*each };
        let loops: Vec<_> = self.loops.iter().map(turned).collect();
        let starts = |listed: &[Loop]| lists::collect(self.layers(part, listed, to_host));
        self.unit_loops(&loops, max_blocks, to_host).launches(runs, [max_tile, alignment], starts)
    }

    /// Where block 0 starts in each iteration of some loops.
    fn layers(&self, part: &PlanPart<'_>, listed: &[Loop], to_host: bool) -> impl Iterator<Item = Layer> {
        let side = if to_host { 0 } else { 1 };
        let layer = move |iteration: u64| {
            let (mut left, (mut region, mut bytes), mut staged) = (iteration, self.first, 0);
            for each in listed.iter().rev() {
                let index = left % each.count;
                left /= each.count;
                let [on_device, in_staging] = oriented(each.strides, to_host);
                region += each.regions[0] * index as u32;
                bytes += on_device * index;
                staged += in_staging * index;
            }
            // Runs count from the first of all blocks; the chunk begins with its own first block.
            let staged = u64::wrapping_sub(staged, self.first_block * self.block_strides[1]);
            let [source, destination] = oriented([part.at(side, region, bytes).1, staged], to_host);
            Layer { source, destination }
        };
        (0..iterations(listed)).map(layer)
    }
}

/// Source and destination, from device and staging memory, or the opposite.
fn oriented([device, staged]: [u64; 2], to_host: bool) -> [u64; 2] {
    if to_host { [device, staged] } else { [staged, device] }
}
