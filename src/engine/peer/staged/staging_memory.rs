// SPDX-License-Identifier: Apache-2.0
//! The memory of an arena. It is plain memory, which NIXL accesses fast: VMM memory, such as that of elastic layouts, it moves
//! through the host at 0.4 GB/s.

use std::sync::Arc;

use crate::base::Result;
use crate::copy::gpu::RowCopier;
use crate::layout::Layout;
use crate::nixl::MemoryType;
use crate::region::{DeviceConfig, OwnedDevice, PinnedConfig, Region, SystemConfig};
use crate::run::counters;

/// The memory of an arena, by what copies rows between it and a layout.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum StagingMemory {
    /// Host memory, for layouts in host memory.
    Host,
    /// Page-locked host memory, for layouts in memory of this GPU.
    PageLocked(i32),
    /// Memory of this GPU, for layouts in it.
    Device(i32),
}

impl StagingMemory {
    /// For a layout of this process and memory of a peer: of the peer's type, because NIXL moves bytes between a host and a
    /// GPU slowly.
    pub fn between(local: &Layout, remote: MemoryType) -> Self {
        let place = local.memory().regions().first().and_then(|region| region.devices());
        match (place, remote) {
            (None, _) => Self::Host,
            (Some(place), MemoryType::Vram) => Self::Device(place.user),
            (Some(place), _) => Self::PageLocked(place.user),
        }
    }

    pub fn allocate(self, size: u64) -> Result<Arc<Region>> {
        let region = match self {
            Self::Host => Region::system(&SystemConfig { size, ..SystemConfig::default() })?,
            Self::PageLocked(ordinal) => {
                Region::pinned(&PinnedConfig { size, ordinal, ..PinnedConfig::default() }, &mut |_, _| true)?
            }
            Self::Device(ordinal) => Region::new(OwnedDevice::allocate(&DeviceConfig { size, ordinal })?),
        };
        region.count_in(&counters::PEER_STAGING);
        Ok(region)
    }

    /// What copies between it and a layout; `None` for the threads that copy host memory.
    pub fn copier(self) -> Result<Option<Arc<RowCopier>>> {
        match self {
            Self::Host => Ok(None),
            Self::PageLocked(ordinal) => RowCopier::new(ordinal, true).map(Some),
            Self::Device(ordinal) => RowCopier::new(ordinal, false).map(Some),
        }
    }

    pub fn memory_type(self) -> MemoryType {
        match self {
            Self::Host | Self::PageLocked(_) => MemoryType::Dram,
            Self::Device(_) => MemoryType::Vram,
        }
    }

    pub fn device_id(self) -> u64 {
        match self {
            Self::Host | Self::PageLocked(_) => 0,
            Self::Device(ordinal) => ordinal as u64,
        }
    }
}
