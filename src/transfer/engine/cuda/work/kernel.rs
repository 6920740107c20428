// SPDX-License-Identifier: Apache-2.0
//! Copies by the kernel, which reads and writes both sides itself.

use super::super::device::descriptor_ring::DescriptorSlot;
use super::super::launch::{LaunchShape, cut_runs, most_tile, typical_length};
use super::descriptors::PreparedRuns;
use crate::cuda::kernel::{Blocks, CopyKernel, KernelRun, Layer, MOST_LAYERS};
use crate::cuda::stream::Active;
use crate::error::Result;
use crate::transfer::plan::{self, Plan, PlanPart};

/// A prepared copy by the kernel.
pub struct KernelCopy {
    /// Runs of blocks.
    pub runs: PreparedRuns,
    /// Without the address of the runs, unless they are part of the launch.
    launches: Vec<Blocks>,
    most_ctas: u32,
}

impl KernelCopy {
    /// Prepares it. Fails with a reason.
    pub fn prepare(plan: &Plan, most_ctas: u32) -> std::result::Result<Self, String> {
        let (mut runs, mut launches) = (Vec::new(), Vec::new());
        for part in plan.parts() {
            add_launches(&part, most_tile(plan.bytes()), &mut runs, &mut launches)?;
        }
        launches.iter().try_for_each(Blocks::ensure_countable)?;
        let with_runs = match &launches[..] {
            [launch] => launch.with_runs(&runs),
            _ => None,
        };
        Ok(match with_runs {
            Some(launch) => Self { runs: PreparedRuns::InLaunch, launches: vec![launch], most_ctas },
            None => Self { runs: PreparedRuns::OnHeap(runs), launches, most_ctas },
        })
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
        self.launches.iter().try_for_each(|blocks| {
            let blocks = Blocks { runs: runs + blocks.runs, ..*blocks };
            // SAFETY: the caller's promise. The plan checked that source and destination do not overlap.
            unsafe { kernel.launch(on, &blocks, self.most_ctas) }
        })
    }
}

/// Adds the launches for blocks with the same loops, and their runs.
fn add_launches(
    part: &PlanPart<'_>,
    most_tile: u64,
    runs: &mut Vec<KernelRun>,
    launches: &mut Vec<Blocks>,
) -> std::result::Result<(), String> {
    let grid = part.grid();
    let most_blocks = typical_length(part.runs().len(), part.blocks());
    let first_run = runs.len();
    let cut = cut_runs(part.runs().iter().map(of_plan), most_blocks, u32::MAX);
    // The runs of most plans have one set of loops.
    if runs.is_empty() {
        *runs = cut
    } else {
        runs.extend(cut)
    }
    let starts = (0..grid.lanes).map(|lane| part.lane(lane));
    let layers: Vec<_> =
        starts.map(|start| Layer { source: start.source, destination: start.destination }).collect();
    let rows = u32::try_from(grid.rows);
    let shape = LaunchShape {
        unit_size: grid.unit_size,
        outers: rows.map_err(|_| format!("{} rows are more than one launch takes", grid.rows))?.into(),
        block_strides: grid.strides,
        outer_strides: grid.row_strides,
        most_blocks,
        most_tile,
    };
    let num_runs = runs.len() - first_run;
    launches.extend(layers.chunks(MOST_LAYERS).map(|layers| shape.blocks(layers, first_run, num_runs)));
    Ok(())
}

fn of_plan(run: &plan::BlockRun) -> KernelRun {
    KernelRun::new(run.source, run.destination, run.length)
}
