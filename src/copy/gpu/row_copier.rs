// SPDX-License-Identifier: Apache-2.0
//! Copies of rows that another engine has listed, by the kernels of this one. The engine over NIXL gathers in staging memory
//! with it, and scatters from there.

use std::sync::Arc;
use std::time::Duration;

use super::checker::{Checker, SLEEP, SPIN};
use super::device::descriptor_ring::DescriptorSlot;
use super::device::device_state::DeviceState;
use super::device::run_resources::RunResources;
use super::direction::CopyDirection;
use super::launch;
use super::row_launches::Launches;
use crate::base::error::{Error, Result, Status};
use crate::base::leak;
use crate::base::sync::Mutex;
use crate::base::thread;
use crate::cuda::copy::Copy;
use crate::cuda::ending::is_fatal;
use crate::cuda::kernel::{Blocks, CopyKernel};
use crate::cuda::quiet::PATIENCE;
use crate::plan::Matrix;

/// Copies rows between memory that kernels of one device access: by the driver until the kernels can be loaded.
pub struct RowCopier {
    device: Arc<DeviceState>,
    max_ctas: u32,
    /// Memory for the launches of a copy.
    launches: Mutex<Launches>,
}

impl RowCopier {
    /// For a device, and for memory of it on both sides or page-locked host memory on one.
    pub fn new(ordinal: i32, with_host: bool) -> Result<Arc<Self>> {
        let device = DeviceState::for_device(ordinal)?;
        kernel_of(&device, PATIENCE)?;
        let direction = if with_host { CopyDirection::ToHost } else { CopyDirection::OnDevice };
        let multiprocessors = device.context().device().multiprocessors();
        let max_ctas = launch::ctas(direction, false, multiprocessors, 0);
        Ok(Arc::new(Self { device, max_ctas, launches: Mutex::default() }))
    }

    /// Starts to copy rows, whose order may change. It holds `held` until it is dropped. After the first copies it allocates
    /// nothing.
    ///
    /// # Safety
    /// All rows are in memory that kernels of the device access, and that `held` keeps until the copy has ended. No byte is
    /// in both source and destination.
    pub unsafe fn start<H: Send + 'static>(&self, rows: &mut [Matrix], held: H) -> Result<RowsInFlight<H>> {
        let kernel = kernel_of(&self.device, Duration::ZERO)?;
        let (slot, started, resources);
        if let Some(kernel) = kernel {
            let mut launches = self.launches.lock();
            launches.fill(rows)?;
            let Launches { runs, launches } = &mut *launches;
            let is_stored = if let [launch] = &mut launches[..] { launch.store_runs(runs) } else { false };
            slot = if is_stored { None } else { Some(self.device.put_now(runs)?) };
            let runs = slot.as_ref().map_or(0, DescriptorSlot::address);
            resources = RunResources::own(self.device.one_more_stream()?, None, None);
            // SAFETY: the caller's promise.
            started = unsafe { self.enqueue(&kernel, launches, runs, &resources) };
        } else {
            slot = None;
            resources = RunResources::own(self.device.one_more_stream()?, None, None);
            // SAFETY: the caller's promise.
            started = unsafe { enqueue_by_driver(rows, &resources) };
        }
        Ok(self.in_flight(resources, slot, held, started))
    }

    /// Copies rows to `size` bytes at `address`, which are cleared before if they are memory of the device. Waits for the device.
    ///
    /// # Safety
    /// As for [`Self::start`], until this returns. Nothing else accesses these bytes meanwhile.
    pub unsafe fn copy_to_cleared(
        &self,
        rows: &mut [Matrix],
        (address, size): (u64, u64),
        is_of_device: bool,
    ) -> Result<()> {
        if is_of_device {
            let resources = RunResources::own(self.device.one_more_stream()?, None, None);
            if let Some(stream) = resources.stream() {
                // SAFETY: the caller's promise.
                unsafe { stream.activate()?.clear(address, size)? };
            }
            self.in_flight(resources, None, (), Ok(())).wait()?;
        }
        // SAFETY: the caller's promise.
        unsafe { self.start(rows, ()) }?.wait()
    }

    /// The checksum of memory of the device, after bytes that have the checksum `before`. Waits for the device.
    ///
    /// # Safety
    /// The caller holds the memory.
    pub unsafe fn checksum(&self, before: u32, address: u64, size: u64) -> Result<u32> {
        // SAFETY: the caller's promise.
        unsafe { Checker::of_range(&self.device, before, address, size) }
    }

    fn in_flight<H: Send + 'static>(
        &self,
        resources: RunResources,
        slot: Option<DescriptorSlot>,
        held: H,
        started: Result<()>,
    ) -> RowsInFlight<H> {
        let in_flight = InFlight { resources, _slot: slot, device: self.device.clone() };
        RowsInFlight { in_flight: Some(in_flight), held: Some(held), failure: started.err() }
    }

    unsafe fn enqueue(
        &self,
        kernel: &CopyKernel,
        launches: &[Blocks],
        runs: u64,
        resources: &RunResources,
    ) -> Result<()> {
        let Some(stream) = resources.stream() else { return Ok(()) };
        let on = stream.activate()?;
        launches.iter().try_for_each(|blocks| {
            let blocks = Blocks { runs: runs + blocks.runs, ..*blocks };
            // SAFETY: the caller's promise.
            unsafe { kernel.launch(&on, &blocks, self.max_ctas) }
        })
    }
}

/// The kernels; `None` while other work of the device prevents loading them, for longer than `patience`.
fn kernel_of(device: &DeviceState, patience: Duration) -> Result<Option<Arc<CopyKernel>>> {
    match device.kernel_within(patience) {
        Err(error) if error.status() == Status::Busy => Ok(None),
        kernel => {
            let kernel = kernel?;
            Ok(kernel.provide_rows(patience)?.then_some(kernel))
        }
    }
}

/// Copies each row by one call: only within a row there is certainly no end of an allocation.
unsafe fn enqueue_by_driver(rows: &[Matrix], resources: &RunResources) -> Result<()> {
    let Some(stream) = resources.stream() else { return Ok(()) };
    let on = stream.activate()?;
    rows.iter().try_for_each(|matrix| {
        let Matrix { first, strides: [here, there], rows } = *matrix;
        (0..rows).try_for_each(|row| {
            let (source, destination) = (first.source + row * here, first.destination + row * there);
            // SAFETY: the promise of `start`.
            unsafe { on.copy(Copy { source, destination, size: first.size }) }
        })
    })
}

/// A copy that was started, and what it uses until it has ended.
pub struct RowsInFlight<H: Send + 'static> {
    in_flight: Option<InFlight>,
    held: Option<H>,
    failure: Option<Error>,
}

struct InFlight {
    resources: RunResources,
    /// The runs that the kernels read.
    _slot: Option<DescriptorSlot>,
    device: Arc<DeviceState>,
}

impl<H: Send + 'static> RowsInFlight<H> {
    /// Whether it has ended. Then it needs nothing of what it holds, and has its failure, if it has failed.
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

    /// Waits for its end.
    fn wait(mut self) -> Result<()> {
        thread::poll(SPIN, SLEEP, || Ok(self.is_done()))?;
        self.failure().map_or(Ok(()), Err)
    }

    /// What it holds, once it has ended.
    pub fn take_held(&mut self) -> Option<H> {
        self.held.take_if(|_| self.in_flight.is_none())
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
            leak::intentionally((self.in_flight.take(), self.held.take()));
        }
    }
}
