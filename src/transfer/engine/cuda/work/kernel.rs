// SPDX-License-Identifier: Apache-2.0
//! Copies by the kernel, which reads and writes both sides itself.

use super::super::device::descriptor_ring::DescriptorSlot;
use super::super::launch::{LaunchShape, cut_runs, most_tile, typical_length};
use super::descriptors::PreparedRuns;
use crate::cuda::kernel::{Blocks, CopyKernel, KernelRun, Layer, MOST_LAYERS};
use crate::cuda::stream::Active;
use crate::error::Result;
use crate::transfer::plan::{self, Plan};

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
        let grid = plan.grid();
        let most_blocks = typical_length(plan.runs().len(), plan.blocks());
        let runs = cut_runs(plan.runs().iter().map(of_plan), most_blocks, u32::MAX);
        let first = plan::BlockRun { source: 0, destination: 0, length: 1 };
        let layers: Vec<_> = (0..grid.layers)
            .map(|layer| {
                let start = plan.unit_move(layer, 0, first);
                Layer { source: start.source, destination: start.destination }
            })
            .collect();
        let shape = LaunchShape {
            unit_size: grid.unit_size,
            outers: grid.outers,
            block_strides: grid.strides,
            outer_strides: grid.outer_strides,
            most_blocks,
            most_tile: most_tile(plan.bytes()),
        };
        let launches: Vec<_> =
            layers.chunks(MOST_LAYERS).map(|layers| shape.blocks(layers, 0, runs.len())).collect();
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

fn of_plan(run: &plan::BlockRun) -> KernelRun {
    KernelRun::new(run.source, run.destination, run.length)
}
