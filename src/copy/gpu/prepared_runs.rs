// SPDX-License-Identifier: Apache-2.0
//! The runs of blocks of a prepared copy, for the kernel. A few fit the parameters of the launch. Others stay in the
//! descriptor ring if it has space for prepared copies; otherwise they are written there for each run of the copy.

use std::sync::Arc;

use crate::base::{Result, error};
use crate::copy::gpu::device::descriptor_ring::DescriptorSlot;
use crate::copy::gpu::device::device_state::DeviceState;
use crate::copy::gpu::device::resource::Resource;
use crate::cuda::KernelRun;

pub enum PreparedRuns {
    /// In the parameters of the launch, behind its layers.
    InLaunch,
    InRing(Arc<DescriptorSlot>),
    /// On the heap; written to the ring for each run of the copy.
    OnHeap(Vec<KernelRun>),
}

impl PreparedRuns {
    /// Writes them to the ring, if it has space for prepared copies.
    pub fn keep(&mut self, device: &DeviceState) -> Result<()> {
        if let Self::OnHeap(runs) = self
            && let Some(slot) = device.keep(runs)?
        {
            *self = Self::InRing(Arc::new(slot));
        }
        Ok(())
    }

    /// Drops them if another copy has the same runs: then both use the other's slot. Returns whether it has, or none is needed.
    pub fn share_with(&mut self, other: &Self) -> bool {
        match (&*self, other) {
            // The launch contains its own.
            (Self::InLaunch, _) => true,
            (Self::OnHeap(mine), Self::OnHeap(others)) if mine == others => {
                *self = Self::OnHeap(Vec::new());
                true
            }
            _ => false,
        }
    }

    /// The resource that a run needs for them.
    pub fn resource(&self) -> Option<Resource> {
        match self {
            Self::InLaunch | Self::InRing(_) => None,
            Self::OnHeap(_) => Some(Resource::DescriptorSlot),
        }
    }

    /// The slot that contains them; `None` if they are part of the launch. Fails with the resource if the ring is full.
    pub fn slot(&self, device: &DeviceState) -> std::result::Result<Option<Arc<DescriptorSlot>>, Resource> {
        match self {
            Self::InLaunch => Ok(None),
            Self::InRing(slot) => Ok(Some(slot.clone())),
            Self::OnHeap(runs) => device.put(runs).map(Arc::new).map(Some).ok_or(Resource::DescriptorSlot),
        }
    }

    /// Like [`Self::slot`], but allocates another ring if the ring is full.
    pub fn slot_now(&self, device: &DeviceState) -> Result<Option<Arc<DescriptorSlot>>> {
        match self {
            Self::InLaunch => Ok(None),
            Self::InRing(slot) => Ok(Some(slot.clone())),
            Self::OnHeap(runs) => device.put_now(runs).map(Arc::new).map(Some),
        }
    }

    /// Their address for a launch with this slot.
    pub fn address(&self, slot: Option<&DescriptorSlot>) -> Result<u64> {
        match (self, slot) {
            (Self::InLaunch, _) => Ok(0),
            (_, Some(slot)) => Ok(slot.address()),
            (_, None) => Err(error!(Panic, "a run was started without the descriptors of its kernel")),
        }
    }
}
