// SPDX-License-Identifier: Apache-2.0
//! The kernel's share of a chunk: between the device's blocks and staging memory. Pure.
#![forbid(unsafe_code)]

use std::ops::Range;

use super::staged_axes::{AxisKind, DEVICE, StagedAxes};
use crate::base::error::{Error, Result, Status};
use crate::base::sorting::sort_few_by_key;
use crate::copy::gpu::launch::{LaunchShape, launches};
use crate::copy::gpu::rows::{RowLoops, RowShape};
use crate::copy::gpu::transpose::{TransposedLoops, TransposedShape};
use crate::cuda::kernel::{Blocks, Layer, MAX_LAYERS};
use crate::plan::{Loop, PlanPart};

/// What the kernels copy of some indices of each axis.
pub struct Gather {
    /// Bytes that are contiguous on the device and in staging memory.
    unit_size: u64,
    /// The loops. A launch goes through the last one by itself, or through the last two if the units are short; each iteration
    /// of the others is listed.
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
        gather.choose_rows();
        gather
    }

    /// Adds loops to the unit as long as one continues it on both sides.
    fn lengthen_unit(&mut self) {
        let continues = |unit: u64| move |each: &Loop| each.is_within_regions() && each.strides == [unit; 2];
        while let Some(index) = self.loops.iter().position(continues(self.unit_size)) {
            self.unit_size *= self.loops.remove(index).count;
        }
    }

    /// The longest loops within regions become the innermost ones, so that the fewest addresses are listed.
    fn choose_rows(&mut self) {
        sort_few_by_key(&mut self.loops, |each| (each.is_within_regions(), each.count));
    }

    /// The loop that a launch goes through by itself, and the others.
    fn rows(&self) -> (Loop, &[Loop]) {
        match &self.loops[..] {
            [others @ .., rows] if rows.is_within_regions() => (*rows, others),
            others => (Loop { count: 1, ..Loop::default() }, others),
        }
    }

    /// Number of launches, if the alignment allows to transpose elements and to copy short units as rows.
    pub fn num_launches(&self) -> u64 {
        // Of blocks that may have adjacent ones, or not.
        let transposed = [1, 2].into_iter().filter_map(|max_blocks| {
            let loops =
                TransposedLoops::from_loops(self.unit_size, &self.loops, self.block_strides, max_blocks)?;
            Some(iterations(&loops.1))
        });
        let listed = match (transposed.max(), RowLoops::from_loops(self.unit_size, &self.loops)) {
            (Some(listed), _) => listed,
            (None, Some((_, outside))) => iterations(&self.loops[..outside]),
            (None, None) => iterations(self.rows().1),
        };
        listed.div_ceil(MAX_LAYERS as u64)
    }

    /// The launches for some runs, from device block ids to indices in host order. Addresses in staging memory are offsets from
    /// a multiple of `alignment`. Fails if a launch does not support them.
    pub fn launches(
        &self,
        part: &PlanPart<'_>,
        runs: &Range<usize>,
        to_host: bool,
        [max_blocks, max_tile, alignment]: [u64; 3],
    ) -> Result<Vec<Blocks>> {
        let together = match self.transposed(part, runs, to_host, max_blocks, alignment)? {
            None => self.as_rows(part, runs, to_host, max_blocks, alignment)?,
            transposed => transposed,
        };
        let oriented = |strides: [u64; 2]| oriented(strides, to_host);
        let all = match together {
            Some(all) => all,
            None => {
                let (rows, listed) = self.rows();
                let too_many = |_| {
                    let message = format!("{} rows are more than one launch takes", rows.count);
                    Error::new(Status::Unsupported, message)
                };
                let shape = LaunchShape {
                    unit_size: self.unit_size,
                    outers: u32::try_from(rows.count).map_err(too_many)?.into(),
                    block_strides: oriented(self.block_strides),
                    outer_strides: oriented(rows.strides),
                    max_blocks: max_blocks as u32,
                    max_tile,
                };
                let blocks = |layers: &[Layer]| Some(shape.blocks(layers, runs.start, runs.len()));
                launches(self.layers(part, listed, to_host), blocks)?.unwrap_or_default()
            }
        };
        all.iter().try_for_each(Blocks::ensure_countable)?;
        Ok(all)
    }

    /// The launches that transpose elements; `None` if that is not what the loops do.
    fn transposed(
        &self,
        part: &PlanPart<'_>,
        runs: &Range<usize>,
        to_host: bool,
        max_blocks: u64,
        alignment: u64,
    ) -> Result<Option<Vec<Blocks>>> {
        let turned = |loops: &[Loop]| -> Vec<_> {
            loops.iter().map(|each| Loop { strides: oriented(each.strides, to_host), ..*each }).collect()
        };
        let block_strides = oriented(self.block_strides, to_host);
        let loops =
            TransposedLoops::from_loops(self.unit_size, &turned(&self.loops), block_strides, max_blocks);
        let Some((loops, listed)) = loops else { return Ok(None) };
        let unit_size = self.unit_size;
        let shape = TransposedShape { unit_size, loops, block_strides, max_blocks: max_blocks as u32 };
        let listed = turned(&listed);
        let layers = self.layers(part, &listed, to_host);
        launches(layers, |layers| shape.blocks(layers, alignment, runs.start, runs.len()))
    }

    /// The launches that copy the units as rows; `None` if they are long or have no loops that a launch can go through.
    fn as_rows(
        &self,
        part: &PlanPart<'_>,
        runs: &Range<usize>,
        to_host: bool,
        max_blocks: u64,
        alignment: u64,
    ) -> Result<Option<Vec<Blocks>>> {
        let Some((loops, outside)) = RowLoops::from_loops(self.unit_size, &self.loops) else {
            return Ok(None);
        };
        let [outer, inner] =
            [loops.outer, loops.inner].map(|each| Loop { strides: oriented(each.strides, to_host), ..each });
        let shape = RowShape {
            unit_size: self.unit_size,
            rows: RowLoops { outer, inner },
            block_strides: oriented(self.block_strides, to_host),
            max_blocks: max_blocks as u32,
        };
        let layers = self.layers(part, &self.loops[..outside], to_host);
        launches(layers, |layers| shape.blocks(layers, alignment, runs.start, runs.len()))
    }

    /// Where block 0 starts in each iteration of some loops.
    fn layers(&self, part: &PlanPart<'_>, listed: &[Loop], to_host: bool) -> impl Iterator<Item = Layer> {
        let side = if to_host { 0 } else { 1 };
        let layer = move |iteration: u64| {
            let (mut left, (mut region, mut bytes), mut staged) = (iteration, self.first, 0);
            for each in listed.iter().rev() {
                let index = left % each.count;
                left /= each.count;
                region += each.regions[0] * index as u32;
                bytes += each.strides[0] * index;
                staged += each.strides[1] * index;
            }
            // Runs count from the first of all blocks; the chunk begins with its own first block.
            let staged = u64::wrapping_sub(staged, self.first_block * self.block_strides[1]);
            let [source, destination] = oriented([part.at(side, region, bytes).1, staged], to_host);
            Layer { source, destination }
        };
        (0..iterations(listed)).map(layer)
    }
}

fn iterations(loops: &[Loop]) -> u64 {
    loops.iter().map(|each| each.count).product()
}

/// Source and destination, from device and staging memory.
fn oriented([device, staged]: [u64; 2], to_host: bool) -> [u64; 2] {
    if to_host { [device, staged] } else { [staged, device] }
}
