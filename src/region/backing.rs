// SPDX-License-Identifier: Apache-2.0
//! What regions are made of: the kinds of memory, and the tiers they belong to.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{AdoptedMemory, DeviceMemory, DiskFile, ElasticMemory, PinnedMemory, Region, SystemMemory};
use crate::nixl::MemoryType;

/// Where memory is located.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Tier {
    /// Host memory.
    System,
    /// A file.
    Disk,
    /// Host memory that devices reach by DMA.
    Pinned,
    /// Memory of a GPU.
    Device,
    /// Memory of a GPU that grows and shrinks behind fixed addresses.
    Elastic,
}

impl Tier {
    /// Its name, for messages.
    pub fn name(self) -> &'static str {
        match self {
            Self::System => "system",
            Self::Disk => "disk",
            Self::Pinned => "pinned",
            Self::Device => "device",
            Self::Elastic => "elastic",
        }
    }

    /// The kind of memory NIXL sees.
    pub fn memory_type(self) -> MemoryType {
        match self {
            Self::System | Self::Pinned => MemoryType::Dram,
            Self::Disk => MemoryType::File,
            Self::Device | Self::Elastic => MemoryType::Vram,
        }
    }
}

/// What a region is made of.
pub enum Backing {
    /// Memory this library mapped.
    System(SystemMemory),
    /// A file this library opened.
    Disk(DiskFile),
    /// Host memory of the caller's.
    Adopted(AdoptedMemory),
    /// Page-locked memory.
    Pinned(PinnedMemory),
    /// Memory of a GPU.
    Device(Arc<DeviceMemory>),
    /// Memory of a GPU that grows and shrinks.
    Elastic(ElasticMemory),
    /// A part of another region.
    View {
        /// The region it is a part of.
        parent: Arc<Region>,
        /// Where in the parent it starts.
        offset: u64,
        /// Its size in bytes.
        size: u64,
    },
}

impl Backing {
    /// Its name, for the log.
    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::System(_) => "system",
            Self::Disk(_) => "disk",
            Self::Adopted(_) => "adopted host",
            Self::Pinned(_) => "pinned",
            Self::Device(_) => "device",
            Self::Elastic(_) => "elastic",
            Self::View { parent, .. } => parent.backing().name(),
        }
    }
}
