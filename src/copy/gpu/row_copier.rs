// SPDX-License-Identifier: Apache-2.0
//! Copies of rows that another engine has listed, by the kernels of this one. The engine over NIXL gathers in staging memory
//! with it, and scatters from there.

use std::sync::Arc;

use super::device::descriptor_ring::DescriptorSlot;
use super::device::device_state::DeviceState;
use super::device::run_resources::RunResources;
use super::direction::CopyDirection;
use super::launch;
use super::row_launches::Launches;
use crate::base::error::{Error, Result};
use crate::base::leak;
use crate::base::sync::Mutex;
use crate::cuda::ending::is_fatal;
use crate::cuda::kernel::{Blocks, CopyKernel};
use crate::plan::Matrix;

/// Copies rows between memory that kernels of one device access.
pub struct RowCopier {
    device: Arc<DeviceState>,
    kernel: Arc<CopyKernel>,
    max_ctas: u32,
    /// Memory for the launches of a copy.
    launches: Mutex<Launches>,
}

impl RowCopier {
    /// For a device, and for memory of it on both sides or page-locked host memory on one.
    pub fn new(ordinal: i32, with_host: bool) -> Result<Arc<Self>> {
        let device = DeviceState::for_device(ordinal)?;
        let kernel = device.kernel()?;
        kernel.provide_rows()?;
        let direction = if with_host { CopyDirection::ToHost } else { CopyDirection::OnDevice };
        let multiprocessors = device.context().device().multiprocessors();
        let max_ctas = launch::ctas(direction, false, multiprocessors, 0);
        Ok(Arc::new(Self { device, kernel, max_ctas, launches: Mutex::default() }))
    }

    /// Starts to copy rows, whose order may change. It drops what it holds when the copy has ended. After the first copies it allocates
    /// nothing.
    ///
    /// # Safety
    /// All rows are in memory that kernels of the device access, and that `held` keeps until the copy has ended. No byte is
    /// in both source and destination.
    pub unsafe fn start<H: Send + 'static>(&self, rows: &mut [Matrix], held: H) -> Result<RowsInFlight<H>> {
        let mut launches = self.launches.lock();
        launches.fill(rows)?;
        let Launches { runs, launches } = &mut *launches;
        let is_stored = if let [launch] = &mut launches[..] { launch.store_runs(runs) } else { false };
        let slot = if is_stored { None } else { Some(self.device.put_now(runs)?) };
        let runs = slot.as_ref().map_or(0, DescriptorSlot::address);
        let resources = RunResources::own(self.device.one_more_stream()?, None, None);
        // SAFETY: the caller's promise.
        let started = unsafe { self.enqueue(launches, runs, &resources) };
        let in_flight = InFlight { resources, _slot: slot, _held: held, device: self.device.clone() };
        Ok(RowsInFlight { in_flight: Some(in_flight), failure: started.err() })
    }

    unsafe fn enqueue(&self, launches: &[Blocks], runs: u64, resources: &RunResources) -> Result<()> {
        let Some(stream) = resources.stream() else { return Ok(()) };
        let on = stream.activate()?;
        launches.iter().try_for_each(|blocks| {
            let blocks = Blocks { runs: runs + blocks.runs, ..*blocks };
            // SAFETY: the caller's promise.
            unsafe { self.kernel.launch(&on, &blocks, self.max_ctas) }
        })
    }
}

/// A copy that was started, and what it uses until it has ended.
pub struct RowsInFlight<H: Send + 'static> {
    in_flight: Option<InFlight<H>>,
    failure: Option<Error>,
}

struct InFlight<H: Send + 'static> {
    resources: RunResources,
    /// The runs that the kernels read.
    _slot: Option<DescriptorSlot>,
    _held: H,
    device: Arc<DeviceState>,
}

impl<H: Send + 'static> RowsInFlight<H> {
    /// Whether it has ended. Then it holds nothing, and has its failure, if it has failed.
    pub fn is_done(&mut self) -> bool {
        let Some(InFlight { resources, .. }) = &self.in_flight else { return true };
        if !resources.is_done(&mut self.failure) {
            return false;
        }
        if let Some(InFlight { resources, device, .. }) = self.in_flight.take() {
            if self.failure.as_ref().is_some_and(is_fatal) {
                device.retire();
            }
            drop(resources.release(self.failure.is_none()));
        }
        true
    }

    /// Why it has failed.
    pub fn failure(&mut self) -> Option<Error> {
        self.failure.take()
    }
}

impl<H: Send + 'static> Drop for RowsInFlight<H> {
    /// The device may still use what it holds.
    fn drop(&mut self) {
        if !self.is_done() {
            leak::intentionally(self.in_flight.take());
        }
    }
}
