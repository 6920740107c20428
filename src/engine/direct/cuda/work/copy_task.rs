// SPDX-License-Identifier: Apache-2.0
//! A prepared copy: the resources that it needs, and how it is enqueued.
#![allow(unsafe_code)]

use std::sync::Arc;

use super::staged::StagedCopy;
use crate::base::{Result, error};
use crate::copy::gpu::device::pool::Pooled;
use crate::copy::gpu::device::resource::{Acquired, Resource};
use crate::copy::gpu::device::staging::Staging;
use crate::copy::gpu::driver_copies::{DriverCopies, StreamKind};
use crate::copy::gpu::kernel_copies::KernelCopy;
use crate::copy::gpu::prepared_runs::PreparedRuns;
use crate::copy::gpu::{DescriptorSlot, DeviceState, RunResources};
use crate::cuda::{Active, CallerStream, CopyKernel};
use crate::engine::cost::gpu::model::{QUICK_BATCH, QUICK_CALLS};

pub enum CopyTask {
    Driver(DriverCopies),
    Kernel(KernelCopy, Arc<CopyKernel>),
    /// By both, through staging memory.
    Staged(Box<StagedCopy>, Arc<CopyKernel>),
}

impl CopyTask {
    /// Whether starting it takes little time.
    pub fn is_quick(&self) -> bool {
        match self {
            Self::Driver(DriverCopies::Batch { batch, .. }) => batch.len() <= QUICK_BATCH,
            Self::Driver(DriverCopies::OneByOne(copies)) => copies.len() <= QUICK_CALLS,
            Self::Driver(DriverCopies::Rows(rows)) => rows.len() <= QUICK_CALLS,
            Self::Kernel(..) => true,
            Self::Staged(copy, _) => copy.is_quick(),
        }
    }

    /// The runs of blocks that its kernel reads.
    fn runs(&self) -> Option<&PreparedRuns> {
        match self {
            Self::Driver(_) => None,
            Self::Kernel(copy, _) => Some(&copy.runs),
            Self::Staged(copy, _) => Some(&copy.runs),
        }
    }

    /// Writes its runs to the descriptor ring, if it has space for prepared copies.
    pub fn keep_runs(&mut self, device: &DeviceState) -> Result<()> {
        match self {
            Self::Driver(_) => Ok(()),
            Self::Kernel(copy, _) => copy.runs.keep(device),
            Self::Staged(copy, _) => copy.runs.keep(device),
        }
    }

    /// Whether it needs a slot of the descriptor ring for its runs.
    pub fn needs_slot(&self) -> bool {
        self.runs().is_some_and(|runs| !matches!(runs, PreparedRuns::InLaunch))
    }

    /// Makes this task use the slot of another layer's task, if it needs one. Returns whether their runs are the same.
    pub fn share_runs(&mut self, other: &Self) -> bool {
        match (self, other) {
            (Self::Driver(_), Self::Driver(_)) => true,
            (Self::Kernel(copy, _), Self::Kernel(other, _)) => copy.runs.share_with(&other.runs),
            (Self::Staged(copy, _), Self::Staged(other, _)) => copy.share_runs(other),
            _ => false,
        }
    }

    /// The resources that it can't start without, besides a stream.
    pub fn resources_needed(&self) -> [Option<Resource>; 2] {
        let staging = if let Self::Staged(copy, _) = self { Some(copy.resource()) } else { None };
        [self.runs().and_then(PreparedRuns::resource), staging]
    }

    /// Writes its runs to the ring, if it has any. Fails with the resource if the ring is full.
    pub fn put(&self, device: &DeviceState) -> std::result::Result<Option<Arc<DescriptorSlot>>, Resource> {
        self.runs().map_or(Ok(None), |runs| runs.slot(device))
    }

    /// Like [`Self::put`], but allocates another ring if the ring is full.
    pub fn put_now(&self, device: &DeviceState) -> Result<Option<Arc<DescriptorSlot>>> {
        self.runs().map_or(Ok(None), |runs| runs.slot_now(device))
    }

    /// Takes its staging memory.
    pub fn staging(&self, device: &DeviceState) -> Acquired<Option<Pooled<Staging>>> {
        match self {
            Self::Staged(copy, _) => Ok(copy.staging(device)?.ok_or(copy.resource()).map(Some)),
            _ => Ok(Ok(None)),
        }
    }

    /// Adds it to the graph that a stream of the caller is captured into. The slot must live as long as the
    /// graph.
    ///
    /// # Safety
    /// As for [`CopyTask::enqueue`], for every run of the graph.
    pub unsafe fn capture(
        &self,
        device: &DeviceState,
        stream: CallerStream,
        slot: Option<&DescriptorSlot>,
    ) -> Result<()> {
        let on = stream.activate(device.context())?;
        match (self, slot) {
            // SAFETY: the caller's promise.
            (Self::Driver(copies), _) => unsafe { copies.enqueue(&on, StreamKind::WithoutBatches) },
            // SAFETY: the caller's promise.
            (Self::Kernel(copy, kernel), slot) => unsafe { copy.enqueue(kernel, &on, slot) },
            (Self::Staged(..), _) => Err(error!(
                InvalidState,
                "a staged copy uses memory shared with other transfers and can't be part of a graph; request another method"
            )),
        }
    }

    /// Enqueues it on a stream.
    ///
    /// # Safety
    /// What is moved must be memory of this process until the resources are done, also after a failure here.
    pub unsafe fn enqueue(&self, on: &Active<'_>, resources: &RunResources, place: StreamKind) -> Result<()> {
        // SAFETY: the caller's promise, for all of it.
        unsafe {
            match (self, resources.slot(), resources.staging(), resources.stream()) {
                (Self::Driver(copies), ..) => copies.enqueue(on, place),
                (Self::Kernel(copy, kernel), slot, ..) => copy.enqueue(kernel, on, slot),
                (Self::Staged(copy, kernel), slot, Some(staging), Some(stream)) => {
                    copy.enqueue(kernel, on, stream, slot, staging)
                }
                _ => Err(error!(Panic, "a run was started without its resources")),
            }
        }
    }
}
