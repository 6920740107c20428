// SPDX-License-Identifier: Apache-2.0
//! Memory of one GPU that was allocated here.

use super::pinned::name_the_alternative;
use crate::base::Result;
use crate::cuda::memory::Allocation;
use crate::cuda::{DevicePair, not_started};
use crate::region::deferred_free::sweep;
use crate::region::{Backing, Contexts, Export, MemoryRange, PeerMemory, Tier};

#[derive(Clone, Debug, Default)]
pub struct DeviceConfig {
    pub size: u64,
    /// The device, in the order of CUDA_VISIBLE_DEVICES.
    pub ordinal: i32,
}

/// Memory that the driver has allocated for kvmem.
pub struct OwnedDevice(Allocation);

impl OwnedDevice {
    /// Every address that the driver returns for an allocation is a multiple of this many bytes. CUDA's programming guide
    /// guarantees no larger alignment.
    pub const START_ALIGNMENT: u64 = 256;

    pub fn allocate(config: &DeviceConfig) -> Result<Self> {
        sweep();
        Allocation::new(config.ordinal, config.size).map(Self).map_err(name_the_alternative)
    }
}

impl Backing for OwnedDevice {
    fn range(&self) -> MemoryRange {
        MemoryRange { tier: Tier::Device, address: self.0.address(), size: self.0.size() }
    }

    fn export(&self) -> Result<Export<'_>> {
        self.ensure_registrable()?;
        Ok(Export::IpcHandle)
    }

    fn devices(&self) -> Option<DevicePair> {
        Some(DevicePair::on(self.0.device().ordinal()))
    }

    fn peer_memory(&self) -> PeerMemory {
        PeerMemory::Plain
    }

    fn add_contexts(&self, memory: &mut Contexts, _page_locks: &mut Contexts) {
        memory.add(self.0.identity());
    }

    /// CUDA forbids freeing memory that other processes have opened by its IPC handle.
    fn waits_for_importers(&self) -> bool {
        true
    }

    /// Fails if it was destroyed with its context.
    fn ensure_registrable(&self) -> Result<()> {
        self.0.identity().ensure_alive().map_err(not_started)
    }
}
