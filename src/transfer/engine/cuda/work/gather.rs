// SPDX-License-Identifier: Apache-2.0
//! The kernel's share of a chunk: between the device's blocks and staging memory. Pure.
#![forbid(unsafe_code)]

use std::ops::Range;

use super::super::launch::LaunchShape;
use super::staged_axes::{AxisKind, DEVICE, StagedAxes};
use crate::cuda::kernel::{Blocks, Layer, MOST_LAYERS};
use crate::transfer::plan::{Loop, PlanPart};

/// What the kernel copies of some indices of each axis.
pub struct Gather {
    /// Bytes that are contiguous on the device and in staging memory.
    unit_size: u64,
    /// The loop that a launch goes through by itself.
    rows: Loop,
    /// The other loops: each of their iterations is listed in a launch.
    lanes: Vec<Loop>,
    /// Regions and bytes from a block's first byte to that of the chunk.
    first: (u32, u64),
    /// Bytes from a block to the next, on the device and in staging memory.
    block_strides: [u64; 2],
    /// Index of the first block.
    first_block: u64,
}

impl Gather {
    /// That of some indices of each axis.
    pub fn of(axes: &StagedAxes, ranges: &[Range<u64>]) -> Self {
        let counts: Vec<_> = ranges.iter().map(|range| range.end - range.start).collect();
        let strides = StagedAxes::staged_strides(&counts);
        let mut gather = Self {
            unit_size: 1,
            rows: Loop { count: 1, ..Loop::default() },
            lanes: Vec::new(),
            first: (0, 0),
            block_strides: [0; 2],
            first_block: 0,
        };
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
                gather.lanes.push(Loop { count: *count, strides, regions });
            }
        }
        gather.lengthen_unit();
        gather.choose_rows();
        gather
    }

    /// Adds loops to the unit as long as one continues it on both sides.
    fn lengthen_unit(&mut self) {
        let continues = |unit: u64| move |each: &Loop| each.is_within_regions() && each.strides == [unit; 2];
        while let Some(index) = self.lanes.iter().position(continues(self.unit_size)) {
            self.unit_size *= self.lanes.remove(index).count;
        }
    }

    /// The longest loop within regions becomes the rows, so that the fewest addresses are listed.
    fn choose_rows(&mut self) {
        let within = self.lanes.iter().enumerate().filter(|(_, each)| each.is_within_regions());
        if let Some((index, _)) = within.max_by_key(|(_, each)| each.count) {
            self.rows = self.lanes.remove(index);
        }
    }

    fn num_lanes(&self) -> u64 {
        self.lanes.iter().map(|each| each.count).product()
    }

    /// Number of launches.
    pub fn num_launches(&self) -> u64 {
        self.num_lanes().div_ceil(MOST_LAYERS as u64)
    }

    /// The launches for some runs, from device block ids to indices in host order. Addresses in staging memory are offsets.
    /// Fails with a reason if a launch does not support them.
    pub fn launches(
        &self,
        part: &PlanPart<'_>,
        runs: &Range<usize>,
        to_host: bool,
        [most_blocks, most_tile]: [u64; 2],
    ) -> std::result::Result<Vec<Blocks>, String> {
        let oriented = |[device, staged]: [u64; 2]| if to_host { [device, staged] } else { [staged, device] };
        let rows = u32::try_from(self.rows.count);
        let shape = LaunchShape {
            unit_size: self.unit_size,
            outers: rows
                .map_err(|_| format!("{} rows are more than one launch takes", self.rows.count))?
                .into(),
            block_strides: oriented(self.block_strides),
            outer_strides: oriented(self.rows.strides),
            most_blocks: most_blocks as u32,
            most_tile,
        };
        let side = if to_host { 0 } else { 1 };
        let lane = |lane: u64| {
            let (mut left, (mut region, mut bytes), mut staged) = (lane, self.first, 0);
            for each in self.lanes.iter().rev() {
                let index = left % each.count;
                left /= each.count;
                region += each.regions[0] * index as u32;
                bytes += each.strides[0] * index;
                staged += each.strides[1] * index;
            }
            // Runs count from the first of all blocks; the chunk begins with its own first block.
            let staged = u64::wrapping_sub(staged, self.first_block * self.block_strides[1]);
            let [source, destination] = oriented([part.at(side, region, bytes).1, staged]);
            Layer { source, destination }
        };
        let lanes: Vec<_> = (0..self.num_lanes()).map(lane).collect();
        let launches = lanes.chunks(MOST_LAYERS).map(|lanes| shape.blocks(lanes, runs.start, runs.len()));
        launches.map(|blocks| blocks.ensure_countable().map(|()| blocks)).collect()
    }
}
