// SPDX-License-Identifier: Apache-2.0
//! Copies of rows that another engine has listed, by the kernels of this one. The engine over NIXL gathers in staging memory
//! with it, and scatters from there.
#![allow(unsafe_code)]

use std::sync::Arc;

use super::checker::Checker;
use super::copies_in_flight::CopiesInFlight;
use super::device::descriptor_ring::DescriptorSlot;
use super::device::device_state::DeviceState;
use super::direction::CopyDirection;
use super::launch;
use super::row_launches::Launches;
use crate::base::{Mutex, Result, Status};
use crate::cuda::module::is_impossible;
use crate::cuda::{Active, Blocks, Copy, CopyKernel, Patience};
use crate::plan::{Matrix, Move};

/// Copies rows between memory that kernels of one device access: by the driver unless the kernels can be loaded.
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
        kernel_of(&device, &Patience::optional())?;
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
    pub unsafe fn start<H: Send + 'static>(&self, rows: &mut [Matrix], held: H) -> Result<CopiesInFlight<H>> {
        let Some(kernel) = kernel_of(&self.device, &Patience::none())? else {
            // SAFETY: the caller's promise.
            return CopiesInFlight::start(&self.device, None, held, |on| unsafe { copy_by_driver(rows, on) });
        };
        let mut launches = self.launches.lock();
        launches.fill(rows)?;
        let Launches { runs, launches } = &mut *launches;
        let is_stored = if let [launch] = &mut launches[..] { launch.store_runs(runs) } else { false };
        let slot = if is_stored { None } else { Some(self.device.put_now(runs)?) };
        let runs = slot.as_ref().map_or(0, DescriptorSlot::address);
        CopiesInFlight::start(&self.device, slot, held, |on| {
            launches.iter().try_for_each(|blocks| {
                let blocks = Blocks { runs: runs + blocks.runs, ..*blocks };
                // SAFETY: the caller's promise.
                unsafe { kernel.launch(on, &blocks, self.max_ctas) }
            })
        })
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
            // SAFETY: the caller's promise.
            CopiesInFlight::start(&self.device, None, (), |on| unsafe { on.clear(address, size) })?.wait()?;
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
}

/// The kernels; `None` if loading them takes longer than `patience`, and if the device has none.
fn kernel_of(device: &DeviceState, patience: &Patience) -> Result<Option<Arc<CopyKernel>>> {
    match device.kernel(patience) {
        Err(error) if error.status() == Status::Busy || is_impossible(&error) => Ok(None),
        kernel => {
            let kernel = kernel?;
            Ok(kernel.provide_rows(patience)?.then_some(kernel))
        }
    }
}

/// Copies each row by one call: only within a row there is certainly no end of an allocation.
unsafe fn copy_by_driver(rows: &[Matrix], on: &Active<'_>) -> Result<()> {
    rows.iter().flat_map(|row| row.moves()).try_for_each(|Move { source, destination, size, .. }| {
        // SAFETY: the promise of `start`.
        unsafe { on.copy(Copy { source, destination, size }) }
    })
}
