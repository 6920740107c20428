// SPDX-License-Identifier: Apache-2.0
//! How kernels go through the loops over the units of a block: elements are transposed, short units are copied as rows, and others by
//! themselves. Pure.
#![forbid(unsafe_code)]

use std::ops::Range;

use super::launch::{LaunchShape, typical_length};
use super::rows::{RowLoops, RowShape};
use super::transpose::{TransposedLoops, TransposedShape};
use crate::base::error::{Error, Result, Status};
use crate::base::lists;
use crate::cuda::kernel::{Blocks, Layer, MAX_LAYERS};
use crate::plan::{Grid, Loop, PlanPart};

/// The loops over the units of each block of some runs.
pub struct UnitLoops<'a> {
    /// Bytes of a unit.
    pub unit_size: u64,
    /// Outermost first. A launch goes through the innermost ones by itself; each iteration of the others is listed.
    pub loops: &'a [Loop],
    /// Bytes from a block to the next, in source and destination.
    pub block_strides: [u64; 2],
    /// The maximum number of blocks of a run.
    pub max_blocks: u32,
}

impl<'a> UnitLoops<'a> {
    /// Those of a part of a plan.
    pub fn from_part(part: &PlanPart<'a>) -> Self {
        let Grid { unit_size, strides: block_strides, .. } = part.grid();
        let max_blocks = typical_length(part.runs().len(), part.blocks());
        Self { unit_size, loops: part.loops(), block_strides, max_blocks }
    }

    /// The loops of a launch that transposes, and those outside them; `None` if nothing is transposed.
    pub fn transposed(&self) -> Option<(TransposedLoops, Vec<Loop>)> {
        let Self { unit_size, loops, block_strides, max_blocks } = *self;
        TransposedLoops::from_loops(unit_size, loops, block_strides, max_blocks.into())
    }

    /// The loops of a launch that copies the units as rows, and those outside them; `None` if the units are long, also because they
    /// continue each other in the blocks of a run.
    pub fn rows(&self) -> Option<(RowLoops, &[Loop])> {
        let are_together = self.max_blocks > 1 && self.block_strides == [self.unit_size; 2];
        let (rows, outside) = RowLoops::from_loops(self.unit_size, self.loops).filter(|_| !are_together)?;
        Some((rows, &self.loops[..outside]))
    }

    /// The loop of a launch that copies each unit by itself, and those outside it.
    fn single(&self) -> (Loop, &[Loop]) {
        match self.loops {
            [outside @ .., inner] if inner.is_within_regions() => (*inner, outside),
            outside => (Loop { count: 1, ..Loop::default() }, outside),
        }
    }

    /// Iterations that are listed, if the alignment allows to transpose elements and to copy short units as rows.
    pub fn listed(&self) -> u64 {
        match (self.transposed(), self.rows()) {
            (Some((_, outside)), _) => iterations(&outside),
            (None, Some((_, outside))) => iterations(outside),
            (None, None) => iterations(self.single().1),
        }
    }

    /// The launches for the blocks of some runs. `starts` are the addresses of block 0 in each iteration of loops that are listed. They
    /// are relative to a multiple of `alignment`. Fails if a launch does not support them.
    pub fn launches(
        &self,
        runs: Range<usize>,
        [max_tile, alignment]: [u64; 2],
        starts: impl Fn(&[Loop]) -> Result<Vec<Layer>>,
    ) -> Result<Vec<Blocks>> {
        let Self { unit_size, block_strides, max_blocks, .. } = *self;
        let mut all = None;
        if let Some((loops, outside)) = self.transposed() {
            let shape = TransposedShape { unit_size, loops, block_strides, max_blocks };
            all = launches(&starts(&outside)?, |layers| {
                shape.blocks(layers, alignment, runs.start, runs.len())
            })?;
        }
        if let (None, Some((rows, outside))) = (&all, self.rows()) {
            let shape = RowShape { unit_size, rows, block_strides, max_blocks };
            all = launches(&starts(outside)?, |layers| {
                shape.blocks(layers, alignment, runs.start, runs.len())
            })?;
        }
        if all.is_none() {
            let (Loop { count, strides: outer_strides, .. }, outside) = self.single();
            let outers = countable(count)?;
            let shape = LaunchShape { unit_size, outers, block_strides, outer_strides, max_blocks, max_tile };
            let blocks = |layers: &[Layer]| Some(shape.blocks(layers, runs.start, runs.len()));
            all = launches(&starts(outside)?, blocks)?;
        }
        let all = all.unwrap_or_default();
        all.iter().try_for_each(Blocks::ensure_countable)?;
        Ok(all)
    }
}

/// Iterations of the loop of a launch that copies units by themselves. Fails if they are too many.
pub fn countable(rows: u64) -> Result<u64> {
    match u32::try_from(rows) {
        Ok(rows) => Ok(rows.into()),
        Err(_) => Err(Error::new(Status::Unsupported, format!("{rows} rows are more than one launch takes"))),
    }
}

/// Iterations of loops, one within the other.
pub fn iterations(loops: &[Loop]) -> u64 {
    loops.iter().map(|each| each.count).product()
}

/// The launches for layers, as many for each as one takes; `None` if `blocks` returns it.
fn launches(layers: &[Layer], blocks: impl Fn(&[Layer]) -> Option<Blocks>) -> Result<Option<Vec<Blocks>>> {
    let mut all = Vec::new();
    for each in layers.chunks(MAX_LAYERS) {
        let Some(blocks) = blocks(each) else { return Ok(None) };
        lists::push(&mut all, blocks)?;
    }
    Ok(Some(all))
}
