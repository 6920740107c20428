// SPDX-License-Identifier: Apache-2.0
//! How kernels go through the loops over the units of a block: elements are transposed, short units are copied as rows, and others by
//! themselves. Pure.

use std::ops::Range;

use super::launch::{single_units, typical_length};
use super::rows::RowLoops;
use super::transpose::TransposedLoops;
use crate::base::{Result, error, lists};
use crate::cuda::kernel::{Blocks, Layer, MAX_LAYERS, Units};
use crate::plan::{Grid, Loop, PlanPart};

/// The loops over the units of each block of some runs.
pub struct UnitLoops<'a> {
    pub units: Units,
    /// Outermost first. A launch goes through the innermost ones by itself; each iteration of the others is listed.
    pub loops: &'a [Loop],
}

impl<'a> UnitLoops<'a> {
    pub fn from_part(part: &PlanPart<'a>) -> Self {
        let Grid { unit_size, strides: block_strides, .. } = part.grid();
        let max_blocks = typical_length(part.runs().len(), part.blocks());
        Self { units: Units { unit_size, block_strides, max_blocks }, loops: part.loops() }
    }

    /// The loops of a launch that transposes, and those outside them; `None` if nothing is transposed.
    pub fn transposed(&self) -> Option<(TransposedLoops, Vec<Loop>)> {
        let Units { unit_size, block_strides, max_blocks } = self.units;
        TransposedLoops::from_loops(unit_size, self.loops, block_strides, max_blocks.into())
    }

    /// The loops of a launch that copies the units as rows, and those outside them; `None` if the units are long, also because they
    /// continue each other in the blocks of a run.
    pub fn rows(&self) -> Option<(RowLoops, &[Loop])> {
        let Units { unit_size, block_strides, max_blocks } = self.units;
        let are_together = max_blocks > 1 && block_strides == [unit_size; 2];
        let (rows, outside) = RowLoops::from_loops(unit_size, self.loops).filter(|_| !are_together)?;
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
        let units = &self.units;
        let mut all = None;
        if let Some((loops, outside)) = self.transposed() {
            all = launches(&starts(&outside)?, |layers| loops.blocks(units, layers, alignment, &runs))?;
        }
        if let (None, Some((rows, outside))) = (&all, self.rows()) {
            all = launches(&starts(outside)?, |layers| rows.blocks(units, layers, alignment, &runs))?;
        }
        if all.is_none() {
            let (inner, outside) = self.single();
            let outer = (countable(inner.count)?, inner.strides);
            let blocks = |layers: &[Layer]| Some(single_units(units, outer, max_tile, layers, &runs));
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
        Err(_) => Err(error!(Unsupported, "{rows} rows are more than one launch takes")),
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
