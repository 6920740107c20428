// SPDX-License-Identifier: Apache-2.0
//! The runs of a prepared copy on their way to the kernel: a few go with the launch. Others wait in the descriptor ring
//! where that has room to spare for copies that do not run, and are written there for each run of the copy where it has
//! not.

#![forbid(unsafe_code)]

use std::sync::Arc;

use super::super::device::descriptor_ring::Slot;
use super::super::device::need::Need;
use super::super::device::state::DeviceState;
use crate::cuda::kernel::Run;
use crate::error::{Error, Result, Status};

/// Runs of blocks.
pub enum PreparedRuns {
    /// Behind the layers of the launch.
    InLaunch,
    /// Where kernels read them.
    InRing(Arc<Slot>),
    /// Not yet.
    Here(Vec<Run>),
}

impl PreparedRuns {
    /// Puts them into the ring, where it has room to spare.
    pub fn keep(&mut self, engine: &DeviceState) -> Result<()> {
        if let Self::Here(runs) = self
            && let Some(slot) = engine.keep(runs)?
        {
            *self = Self::InRing(Arc::new(slot));
        }
        Ok(())
    }

    /// Leaves them to another copy that reads the same and is not in the ring yet; whether that is so.
    pub fn leave_to(&mut self, other: &Self) -> bool {
        match (&*self, other) {
            // Each has its own.
            (Self::InLaunch, Self::InLaunch) => true,
            (Self::Here(mine), Self::Here(others)) if mine == others => {
                *self = Self::Here(Vec::new());
                true
            }
            _ => false,
        }
    }

    /// What they need to be read.
    pub fn need(&self) -> Option<Need> {
        match self {
            Self::InLaunch | Self::InRing(_) => None,
            Self::Here(_) => Some(Need::Slot),
        }
    }

    /// Where a kernel reads them, if not in its launch; what they need while the ring is full.
    pub fn slot(&self, engine: &DeviceState) -> std::result::Result<Option<Arc<Slot>>, Need> {
        match self {
            Self::InLaunch => Ok(None),
            Self::InRing(slot) => Ok(Some(slot.clone())),
            Self::Here(runs) => engine.put(runs).map(Arc::new).map(Some).ok_or(Need::Slot),
        }
    }

    /// The same where nobody can wait.
    pub fn slot_now(&self, engine: &DeviceState) -> Result<Option<Arc<Slot>>> {
        match self {
            Self::InLaunch => Ok(None),
            Self::InRing(slot) => Ok(Some(slot.clone())),
            Self::Here(runs) => engine.put_now(runs).map(Arc::new).map(Some),
        }
    }

    /// Their address for a launch that has this slot.
    pub fn address(&self, slot: Option<&Slot>) -> Result<u64> {
        match (self, slot) {
            (Self::InLaunch, _) => Ok(0),
            (_, Some(slot)) => Ok(slot.address()),
            (_, None) => Err(Error::new(Status::Panic, "a run was started without what its kernel reads")),
        }
    }
}
