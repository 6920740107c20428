// SPDX-License-Identifier: Apache-2.0
//! A prepared copy: what it needs to run, and how it is put on a stream.

use std::sync::Arc;

use super::super::device::descriptor_ring::Slot;
use super::super::device::need::{Need, Taking};
use super::super::device::pool::Taken;
use super::super::device::resources::Held;
use super::super::device::state::{DeviceState, Staging};
use super::driver::{DriverCopies, Place};
use super::kernel::KernelCopy;
use super::staged::StagedCopy;
use crate::cuda::kernel::CopyKernel;
use crate::cuda::stream::{Active, CallerStream};
use crate::error::{Error, Result, Status};

/// A prepared copy.
pub enum Job {
    /// By the driver.
    Driver(DriverCopies),
    /// By the kernel.
    Kernel(KernelCopy, Arc<CopyKernel>),
    /// By both.
    Staged(Box<StagedCopy>, Arc<CopyKernel>),
}

/// Driver calls that a caller's thread makes by itself: handing a run over costs as much.
pub const QUICK_CALLS: usize = 16;
/// Copies of a batch, likewise.
pub const QUICK_BATCH: usize = 128;

impl Job {
    /// Whether starting it costs little.
    pub fn is_quick(&self) -> bool {
        match self {
            Self::Driver(DriverCopies::Batch(batch, _)) => batch.len() <= QUICK_BATCH,
            Self::Driver(DriverCopies::Loop(copies)) => copies.len() <= QUICK_CALLS,
            Self::Driver(DriverCopies::Rows(rows)) => rows.len() <= QUICK_CALLS,
            Self::Kernel(..) => true,
            Self::Staged(copy, _) => copy.is_quick(),
        }
    }

    /// Puts the runs that it reads where kernels read them, if there is room to spare.
    pub fn keep_runs(&mut self, engine: &DeviceState) -> Result<()> {
        match self {
            Self::Driver(_) => Ok(()),
            Self::Kernel(copy, _) => copy.runs.keep(engine),
            Self::Staged(copy, _) => copy.runs.keep(engine),
        }
    }

    /// Has this job, of another layer, read the runs of the first from the first's slot; whether it can.
    pub fn share_runs(&mut self, first: &Self) -> bool {
        match (self, first) {
            (Self::Driver(_), Self::Driver(_)) => true,
            (Self::Kernel(copy, _), Self::Kernel(first, _)) => copy.runs.leave_to(&first.runs),
            (Self::Staged(copy, _), Self::Staged(first, _)) => copy.share_runs(first),
            _ => false,
        }
    }

    /// What it can't start without beside a stream.
    pub fn needs(&self) -> [Option<Need>; 2] {
        match self {
            Self::Driver(_) => [None, None],
            Self::Kernel(copy, _) => [copy.runs.need(), None],
            Self::Staged(copy, _) => [copy.runs.need(), Some(copy.need())],
        }
    }

    /// Writes the runs that it reads, where there are any and there is room.
    pub fn put(&self, engine: &DeviceState) -> std::result::Result<Option<Arc<Slot>>, Need> {
        match self {
            Self::Driver(_) => Ok(None),
            Self::Kernel(copy, _) => copy.runs.slot(engine),
            Self::Staged(copy, _) => copy.runs.slot(engine),
        }
    }

    /// The same where nobody can wait.
    pub fn put_now(&self, engine: &DeviceState) -> Result<Option<Arc<Slot>>> {
        match self {
            Self::Driver(_) => Ok(None),
            Self::Kernel(copy, _) => copy.runs.slot_now(engine),
            Self::Staged(copy, _) => copy.runs.slot_now(engine),
        }
    }

    /// The staging memory that it goes through.
    pub fn staging(&self, engine: &DeviceState) -> Taking<Option<Taken<Staging>>> {
        match self {
            Self::Staged(copy, _) => Ok(copy.staging(engine)?.ok_or(copy.need()).map(Some)),
            _ => Ok(Ok(None)),
        }
    }

    /// Puts it into the graph that a stream of the caller's is captured into. The slot must live as long as the graph.
    ///
    /// # Safety
    /// As for [`Job::enqueue`], for every run of the graph.
    pub unsafe fn capture(
        &self,
        engine: &DeviceState,
        stream: CallerStream,
        slot: Option<&Slot>,
    ) -> Result<()> {
        let on = stream.activate(engine.context())?;
        match (self, slot) {
            // SAFETY: the caller's promise.
            (Self::Driver(copies), _) => unsafe { copies.enqueue(&on, Place::Elsewhere) },
            // SAFETY: the caller's promise.
            (Self::Kernel(copy, kernel), slot) => unsafe { copy.enqueue(kernel, &on, slot) },
            (Self::Staged(..), _) => Err(Error::new(
                Status::InvalidState,
                "a staged copy uses memory that it shares with others, and can't go into a graph; force another path",
            )),
        }
    }

    /// Starts it on a stream.
    ///
    /// # Safety
    /// What is moved must be memory of this process until `held` is done, also after a failure here.
    pub unsafe fn enqueue(&self, on: &Active<'_>, held: &Held, place: Place) -> Result<()> {
        // SAFETY: the caller's promise, for all of it.
        unsafe {
            match (self, held.slot(), held.staging(), held.stream()) {
                (Self::Driver(copies), ..) => copies.enqueue(on, place),
                (Self::Kernel(copy, kernel), slot, ..) => copy.enqueue(kernel, on, slot),
                (Self::Staged(copy, kernel), slot, Some(staging), Some(stream)) => {
                    copy.enqueue(kernel, on, stream, slot, staging)
                }
                _ => Err(Error::new(Status::Panic, "a run was started without what it needs")),
            }
        }
    }
}
