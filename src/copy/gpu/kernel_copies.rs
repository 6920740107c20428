// SPDX-License-Identifier: Apache-2.0
//! Copies by the kernel, which reads and writes both sides itself.
#![allow(unsafe_code)]

use super::prepared_runs::PreparedRuns;
use crate::base::{Result, lists};
use crate::copy::gpu::device::descriptor_ring::DescriptorSlot;
use crate::copy::gpu::launch::{add_runs, max_tile};
use crate::copy::gpu::unit_launches::UnitLoops;
use crate::cuda::{Active, Blocks, CopyKernel, KernelRun, Layer};
use crate::plan::{Loop, Move, Plan, PlanPart};

pub struct KernelCopy {
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
    let loops = UnitLoops::from_part(part);
    let first_run = runs.len();
    let of_part = part.runs().iter().map(|run| KernelRun::new(run.source, run.destination, run.length));
    add_runs(runs, of_part, loops.units.max_blocks, u32::MAX)?;
    let starts = |listed: &[Loop]| lists::collect(part.starts(listed).map(layer));
    lists::extend(all, loops.launches(first_run..runs.len(), [max_tile, 0], starts)?)
}

fn layer(start: Move) -> Layer {
    Layer { source: start.source, destination: start.destination }
}
