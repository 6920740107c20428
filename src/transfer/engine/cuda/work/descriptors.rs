// SPDX-License-Identifier: Apache-2.0
//! The runs of blocks of a prepared copy, for the kernel. A few are part of the launch. Others stay in the
//! descriptor ring if it has space for idle copies; otherwise they are written there for each run of the
//! copy.
#![forbid(unsafe_code)]

use std::sync::Arc;

use super::super::device::descriptor_ring::DescriptorSlot;
use super::super::device::resource::Resource;
use super::super::device::state::DeviceState;
use crate::cuda::kernel::KernelRun;
use crate::error::{Error, Result, Status};

/// Runs of blocks of a prepared copy.
pub enum PreparedRuns {
    /// Part of the launch, behind its layers.
    InLaunch,
    /// In the descriptor ring.
    InRing(Arc<DescriptorSlot>),
    /// Written to the ring for each run of the copy.
    Here(Vec<KernelRun>),
}

impl PreparedRuns {
    /// Writes them to the ring, if it has space for idle copies.
    pub fn keep(&mut self, engine: &DeviceState) -> Result<()> {
        if let Self::Here(runs) = self
            && let Some(slot) = engine.keep(runs)?
        {
            *self = Self::InRing(Arc::new(slot));
        }
        Ok(())
    }

    /// Drops them if another copy, whose slot both will use, has the same. Returns whether it has.
    pub fn share_with(&mut self, other: &Self) -> bool {
        match (&*self, other) {
            // Each launch has its own.
            (Self::InLaunch, Self::InLaunch) => true,
            (Self::Here(mine), Self::Here(others)) if mine == others => {
                *self = Self::Here(Vec::new());
                true
            }
            _ => false,
        }
    }

    /// The resource that a run needs for them.
    pub fn resource(&self) -> Option<Resource> {
        match self {
            Self::InLaunch | Self::InRing(_) => None,
            Self::Here(_) => Some(Resource::DescriptorSlot),
        }
    }

    /// The slot with them, unless they are part of the launch; fails with the resource if the ring is full.
    pub fn slot(&self, engine: &DeviceState) -> std::result::Result<Option<Arc<DescriptorSlot>>, Resource> {
        match self {
            Self::InLaunch => Ok(None),
            Self::InRing(slot) => Ok(Some(slot.clone())),
            Self::Here(runs) => engine.put(runs).map(Arc::new).map(Some).ok_or(Resource::DescriptorSlot),
        }
    }

    /// The same, but allocates another ring if the ring is full.
    pub fn slot_now(&self, engine: &DeviceState) -> Result<Option<Arc<DescriptorSlot>>> {
        match self {
            Self::InLaunch => Ok(None),
            Self::InRing(slot) => Ok(Some(slot.clone())),
            Self::Here(runs) => engine.put_now(runs).map(Arc::new).map(Some),
        }
    }

    /// Their address for a launch that has this slot.
    pub fn address(&self, slot: Option<&DescriptorSlot>) -> Result<u64> {
        match (self, slot) {
            (Self::InLaunch, _) => Ok(0),
            (_, Some(slot)) => Ok(slot.address()),
            (_, None) => {
                Err(Error::new(Status::Panic, "a run was started without the descriptors of its kernel"))
            }
        }
    }
}
