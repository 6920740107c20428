// SPDX-License-Identifier: Apache-2.0
//! Staged copies: the kernel gathers or scatters in device memory, and the copy engine copies contiguous spans between
//! staging memory and host. The parts of the staging memory are used in rotation, so that both work concurrently. There are
//! several parts, so that the copy engine has work while a kernel waits to start on a busy device.
#![allow(unsafe_code)]

use crate::base::{Mutex, Result};
use crate::copy::gpu::chunking::{self, Chunk};
use crate::copy::gpu::device::pool::Pooled;
use crate::copy::gpu::device::staging::Staging;
use crate::copy::gpu::division::Division;
use crate::copy::gpu::prepared_runs::PreparedRuns;
use crate::copy::gpu::{CudaSides, DescriptorSlot, DeviceState, Resource};
use crate::cuda::{Active, Batch, Blocks, Copy, CopyKernel, EngineLoad, KernelRun, SourceOrder, Stream};
use crate::engine::cost::gpu::model::is_quick;
use crate::layout::Layout;
use crate::plan::Plan;

pub struct StagedCopy {
    /// Runs from device blocks to indices in the staging memory, or in the opposite direction.
    pub runs: PreparedRuns,
    chunks: Vec<Chunk>,
    /// The copies of the chunk that is being enqueued. It has capacity for any chunk, so that submissions allocate nothing.
    batch: Mutex<Batch>,
    parts: usize,
    part_size: u64,
    to_host: bool,
    max_ctas: u32,
}

impl StagedCopy {
    pub fn prepare(
        sides: &CudaSides,
        host: &Layout,
        plan: &Plan,
        division: &Division,
        max_ctas: u32,
    ) -> Result<Self> {
        let (to_host, left) = (sides.to_host(), sides.left(host));
        let (mut chunks, mut runs) = chunking::chunks(plan, division, to_host, &left)?;
        if !to_host {
            for run in &mut runs {
                std::mem::swap(&mut run.source, &mut run.destination);
            }
        }
        let runs = match put_in_launches(&mut chunks, &runs) {
            true => PreparedRuns::InLaunch,
            false => PreparedRuns::OnHeap(runs),
        };
        let max_copies = chunks.iter().map(|chunk| chunk.copies.len()).max();
        let batch = Mutex::new(Batch::with_capacity(max_copies.unwrap_or(0))?);
        let Division { parts, part_size, .. } = *division;
        Ok(Self { runs, chunks, batch, parts, part_size, to_host, max_ctas })
    }

    pub fn launches(&self) -> impl Iterator<Item = &Blocks> {
        self.chunks.iter().flat_map(|chunk| &chunk.launches)
    }

    /// Uses the runs of another copy, if it has the same runs and parts. Returns whether it has.
    pub fn share_runs(&mut self, other: &Self) -> bool {
        (self.parts, self.part_size) == (other.parts, other.part_size) && self.runs.share_with(&other.runs)
    }

    /// Takes its staging memory; `None` while it is in use.
    pub fn staging(&self, device: &DeviceState) -> Result<Option<Pooled<Staging>>> {
        device.staging(self.parts as u64 * self.part_size, self.to_host)
    }

    /// Allocates its staging memory, unless there is enough or it is in use.
    pub fn provide_staging(&self, device: &DeviceState) -> Result<()> {
        device.provide_staging(self.parts as u64 * self.part_size, self.to_host)
    }

    /// The resource that represents its staging memory.
    pub fn resource(&self) -> Resource {
        if self.to_host { Resource::StagingToHost } else { Resource::StagingToDevice }
    }

    /// Whether starting it takes little time.
    pub fn is_quick(&self) -> bool {
        let copies = self.chunks.iter().map(|chunk| chunk.copies.len()).sum();
        let launches = self.chunks.iter().map(|chunk| chunk.launches.len()).sum();
        is_quick(self.chunks.len(), launches, copies)
    }

    /// Enqueues it after the work that is queued on `on`, and before later work there.
    ///
    /// # Safety
    /// As for the kernel's copy. No other run uses the staging memory and the stream `gather`.
    pub unsafe fn enqueue(
        &self,
        kernel: &CopyKernel,
        on: &Active<'_>,
        gather: &Stream,
        slot: Option<&DescriptorSlot>,
        staging: &Staging,
    ) -> Result<()> {
        let runs = self.runs.address(slot)?;
        let gather = gather.activate()?;
        let copier = staging.copier.activate()?;
        on.record(&staging.begun)?;
        gather.wait_for(&staging.begun)?;
        copier.wait_for(&staging.begun)?;
        let (fills, drains) = if self.to_host { (&gather, &copier) } else { (&copier, &gather) };
        for (index, chunk) in self.chunks.iter().enumerate() {
            let (address, part) = staging.part(index, self.parts, self.part_size);
            let ahead = if index == 0 { EngineLoad::Idle } else { EngineLoad::Busy };
            if index >= self.parts {
                fills.wait_for(&part.drained)?;
            }
            // SAFETY: the caller's promise. The part is empty when filling begins, and full when draining begins.
            let launch = || unsafe {
                let mut placed =
                    chunk.launches.iter().map(|blocks| placed(blocks, runs, address, self.to_host));
                placed.try_for_each(|blocks| kernel.launch(&gather, &blocks, self.max_ctas))
            };
            // SAFETY: as above.
            let copy = || unsafe { self.copy(chunk, address, &copier, ahead) };
            let [fill, drain]: [&dyn Fn() -> Result<()>; 2] =
                if self.to_host { [&launch, &copy] } else { [&copy, &launch] };
            fill()?;
            fills.record(&part.filled)?;
            drains.wait_for(&part.filled)?;
            drain()?;
            drains.record(&part.drained)?;
        }
        let last = self.chunks.len().saturating_sub(1);
        on.wait_for(&staging.part(last, self.parts, self.part_size).1.drained)
    }

    /// Enqueues the copy engine's part of a chunk in one batch. One call per copy took a quarter longer for copies of 1 MiB,
    /// concurrently with a GEMM.
    unsafe fn copy(&self, chunk: &Chunk, part: u64, on: &Active<'_>, ahead: EngineLoad) -> Result<()> {
        let mut batch = self.batch.lock();
        batch.clear();
        for copy in &chunk.copies {
            batch.push(match self.to_host {
                true => Copy { source: part + copy.source, ..*copy },
                false => Copy { destination: part + copy.destination, ..*copy },
            })?;
        }
        // SAFETY: the caller's promise.
        unsafe { on.copy_all(&batch, SourceOrder::Stream, ahead) }
    }
}

/// Stores the runs in the parameters of each launch, if those of all chunks fit. Returns whether they do. Warps that read
/// runs from host memory would wait for the writes of the copy engine.
fn put_in_launches(chunks: &mut [Chunk], runs: &[KernelRun]) -> bool {
    let mut launches = chunks.iter().flat_map(|chunk| &chunk.launches);
    if !launches.all(|launch| launch.has_space_for(launch.num_runs as usize)) {
        return false;
    }
    chunks.iter_mut().flat_map(|chunk| &mut chunk.launches).all(|launch| {
        let first = launch.runs as usize / size_of::<KernelRun>();
        launch.store_runs(&runs[first..first + launch.num_runs as usize])
    })
}

/// A launch with the addresses of the runs and of the part.
fn placed(launch: &Blocks, runs: u64, part: u64, to_host: bool) -> Blocks {
    let mut blocks = Blocks { runs: runs + launch.runs, ..*launch };
    for layer in &mut blocks.layers[..launch.num_layers as usize] {
        let staged = if to_host { &mut layer.destination } else { &mut layer.source };
        *staged = staged.wrapping_add(part);
    }
    blocks
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chunk(first_run: usize, num_runs: u32) -> Chunk {
        let runs = (first_run * size_of::<KernelRun>()) as u64;
        Chunk { launches: vec![Blocks { runs, num_runs, num_layers: 2, ..Blocks::NONE }], copies: Vec::new() }
    }

    #[test]
    fn each_launch_contains_its_own_runs() {
        let runs: Vec<_> = (0..5).map(|index| KernelRun::new(index, 10 + index, 1)).collect();
        let mut chunks = [chunk(0, 3), chunk(3, 2)];
        let expected = [&runs[..3], &runs[3..]].map(|own| {
            let mut launch = chunk(0, 0).launches[0];
            assert!(launch.store_runs(own));
            launch.layers
        });
        assert!(put_in_launches(&mut chunks, &runs));
        assert_eq!(chunks.each_ref().map(|chunk| chunk.launches[0].layers), expected);
        assert_eq!(chunks.map(|chunk| chunk.launches[0].runs), [0, 0]);
    }

    #[test]
    fn no_launch_contains_runs_if_those_of_one_do_not_fit() {
        let runs = vec![KernelRun::new(1, 2, 3); 400];
        let mut chunks = [chunk(0, 1), chunk(1, 399)];
        assert!(!put_in_launches(&mut chunks, &runs));
        assert_eq!(
            chunks[0].launches[0].layers[2..],
            [Default::default(); crate::cuda::kernel::MAX_LAYERS - 2]
        );
        assert_eq!(chunks.map(|chunk| chunk.launches[0].runs), [0, size_of::<KernelRun>() as u64]);
    }
}
