// SPDX-License-Identifier: Apache-2.0
//! The staging ring of a GPU: page-locked host memory in slots, of which one is filled while another is
//! drained. A file system that does not respond keeps its slots, so each has its own.

use std::sync::Arc;

use super::inbox::Inbox;
use crate::base::file_systems::FileSystems;
use crate::base::{Counted, PerProcess, Result, SharedObjects, error};
use crate::copy::gpu::DeviceState;
use crate::cuda::ContextIdentity;
use crate::region::{PinnedConfig, PinnedMemory};
use crate::run::counters;

pub const SLOTS: usize = 4;
const PAGE: u64 = 4096;

/// Page-locked memory, and the state of the device that copies between it and the GPU. Transfers, runs and layouts of the
/// GPU hold it.
pub struct StagingRing {
    slot_size: u64,
    memory: PinnedMemory,
    _counted: Counted,
    /// If the driver fails there, new transfers use a new ring.
    pub device: Arc<DeviceState>,
    /// The queue of the thread that serves it.
    pub inbox: Arc<Inbox>,
}

impl StagingRing {
    /// A ring of a device, for files on these file systems, with slots of at least `slot` bytes: an existing one, or a new one.
    pub fn for_device(ordinal: i32, on: &FileSystems, slot: u64) -> Result<Arc<Self>> {
        static RINGS: PerProcess<SharedObjects<(i32, FileSystems), StagingRing>> = PerProcess::new();
        let suits = |ring: &Self| ring.slot_size >= slot && ring.device.is_usable();
        let make = || Self::allocate(ordinal, slot.next_multiple_of(PAGE));
        RINGS.get(SharedObjects::default).get((ordinal, on.clone()), suits, None, make)
    }

    fn allocate(ordinal: i32, slot_size: u64) -> Result<Self> {
        let size = slot_size
            .checked_mul(SLOTS as u64)
            .ok_or_else(|| error!(InvalidArgument, "staging_size exceeds the address space"))?;
        let config = PinnedConfig { size, ordinal, ..PinnedConfig::default() };
        Ok(Self {
            slot_size,
            device: DeviceState::for_device(ordinal)?,
            memory: PinnedMemory::allocate(&config, &mut |_, _| true)?,
            _counted: counters::FILE_STAGING.count(size),
            inbox: Arc::default(),
        })
    }

    pub fn slot(&self, index: usize) -> u64 {
        self.memory.memory().address() as u64 + index as u64 * self.slot_size
    }

    /// Bytes of all slots.
    pub fn size(&self) -> u64 {
        self.slot_size * SLOTS as u64
    }

    pub fn identity(&self) -> ContextIdentity {
        self.memory.identity()
    }
}
