// SPDX-License-Identifier: Apache-2.0
//! Copies by the kernel, which reads and writes both sides itself.

use super::prepared_runs::PreparedRuns;
use crate::base::error::{Error, Result, Status};
use crate::base::lists;
use crate::copy::gpu::device::descriptor_ring::DescriptorSlot;
use crate::copy::gpu::launch::{LaunchShape, add_runs, launches, max_tile, typical_length};
use crate::copy::gpu::rows::{RowLoops, RowShape};
use crate::copy::gpu::transpose::{TransposedLoops, TransposedShape};
use crate::cuda::kernel::{Blocks, CopyKernel, KernelRun, Layer};
use crate::cuda::stream::Active;
use crate::plan::{self, Move, Plan, PlanPart};

/// A prepared copy by the kernel.
pub struct KernelCopy {
    /// Runs of blocks.
    pub runs: PreparedRuns,
    /// Without the address of the runs, unless they are part of the launch.
    launches: Vec<Blocks>,
    max_ctas: u32,
}

impl KernelCopy {
    pub fn prepare(plan: &Plan, max_ctas: u32) -> Result<Self> {
        let (mut runs, mut launches) = (Vec::new(), Vec::new());
        for part in plan.parts() {
            add_launches(&part, max_tile(plan.bytes()), &mut runs, &mut launches)?;
        }
        launches.iter().try_for_each(Blocks::ensure_countable)?;
        let is_stored = if let [launch] = &mut launches[..] { launch.store_runs(&runs) } else { false };
        let runs = if is_stored { PreparedRuns::InLaunch } else { PreparedRuns::OnHeap(runs) };
        Ok(Self { runs, launches, max_ctas })
    }

    pub fn launches(&self) -> impl Iterator<Item = &Blocks> {
        self.launches.iter()
    }

    /// Launches the kernel.
    ///
    /// # Safety
    /// The slot holds this copy's runs, and the device can access what is moved. All of it must stay valid
    /// until the stream has completed, also after a failure here.
    pub unsafe fn enqueue(
        &self,
        kernel: &CopyKernel,
        on: &Active<'_>,
        slot: Option<&DescriptorSlot>,
    ) -> Result<()> {
        let runs = self.runs.address(slot)?;
        // SAFETY: the caller's promise. The plan checked that source and destination do not overlap.
        let launch = |blocks: &Blocks| unsafe { kernel.launch(on, blocks, self.max_ctas) };
        self.launches.iter().try_for_each(|blocks| match &self.runs {
            // Not copied: the parameter has 4 KiB, and the driver copies it again.
            PreparedRuns::InLaunch => launch(blocks),
            _ => launch(&Blocks { runs: runs + blocks.runs, ..*blocks }),
        })
    }
}

/// Adds the launches for blocks with the same loops, and their runs.
fn add_launches(
    part: &PlanPart<'_>,
    max_tile: u64,
    runs: &mut Vec<KernelRun>,
    all: &mut Vec<Blocks>,
) -> Result<()> {
    let grid = part.grid();
    let max_blocks = typical_length(part.runs().len(), part.blocks());
    let first_run = runs.len();
    add_runs(runs, part.runs().iter().map(of_plan), max_blocks, u32::MAX)?;
    let num_runs = runs.len() - first_run;
    let together = match transposed_launches(part, max_blocks, first_run, num_runs)? {
        None => row_launches(part, max_blocks, first_run, num_runs)?,
        transposed => transposed,
    };
    if let Some(together) = together {
        return lists::extend(all, together);
    }
    let rows = u32::try_from(grid.rows);
    let too_many =
        |_| Error::new(Status::Unsupported, format!("{} rows are more than one launch takes", grid.rows));
    let shape = LaunchShape {
        unit_size: grid.unit_size,
        outers: rows.map_err(too_many)?.into(),
        block_strides: grid.strides,
        outer_strides: grid.row_strides,
        max_blocks,
        max_tile,
    };
    let blocks = |layers: &[Layer]| Some(shape.blocks(layers, first_run, num_runs));
    lists::extend(all, launches(part.lanes().map(layer), blocks)?.into_iter().flatten())
}

/// The launches that transpose elements; `None` if that is not what the loops do.
fn transposed_launches(
    part: &PlanPart<'_>,
    max_blocks: u32,
    first_run: usize,
    num_runs: usize,
) -> Result<Option<Vec<Blocks>>> {
    let grid = part.grid();
    let transposed =
        TransposedLoops::from_loops(grid.unit_size, part.loops(), grid.strides, max_blocks.into());
    let Some((loops, listed)) = transposed else { return Ok(None) };
    let shape = TransposedShape { unit_size: grid.unit_size, loops, block_strides: grid.strides, max_blocks };
    launches(part.starts(&listed).map(layer), |layers| shape.blocks(layers, 0, first_run, num_runs))
}

/// The launches that copy the units as rows; `None` if they are long or have no loops that a launch can go through.
fn row_launches(
    part: &PlanPart<'_>,
    max_blocks: u32,
    first_run: usize,
    num_runs: usize,
) -> Result<Option<Vec<Blocks>>> {
    let grid = part.grid();
    if grid.blocks_together && max_blocks > 1 {
        return Ok(None); // The units of a run are a long span.
    }
    let Some((rows, outside)) = RowLoops::from_loops(grid.unit_size, part.loops()) else { return Ok(None) };
    let shape = RowShape { unit_size: grid.unit_size, rows, block_strides: grid.strides, max_blocks };
    let starts = part.starts(&part.loops()[..outside]);
    launches(starts.map(layer), |layers| shape.blocks(layers, 0, first_run, num_runs))
}

fn layer(start: Move) -> Layer {
    Layer { source: start.source, destination: start.destination }
}

fn of_plan(run: &plan::BlockRun) -> KernelRun {
    KernelRun::new(run.source, run.destination, run.length)
}
