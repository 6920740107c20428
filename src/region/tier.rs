// SPDX-License-Identifier: Apache-2.0
//! The tiers of memory.

use serde::{Deserialize, Serialize};

use crate::nixl::MemoryType;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Tier {
    System,
    Disk,
    /// Host memory that devices reach by DMA.
    Pinned,
    Device,
    /// Memory of a GPU that grows and shrinks at fixed addresses.
    Elastic,
    Object,
    /// Block storage, which a backend of NIXL accesses.
    Block,
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
            Self::Object => "object",
            Self::Block => "block",
        }
    }

    /// Whether its addresses are offsets in storage, which no other process can access through this one.
    pub fn is_storage(self) -> bool {
        self.memory_type().is_storage()
    }

    /// The kind of memory NIXL sees.
    pub fn memory_type(self) -> MemoryType {
        match self {
            Self::System | Self::Pinned => MemoryType::Dram,
            Self::Disk => MemoryType::File,
            Self::Device | Self::Elastic => MemoryType::Vram,
            Self::Object => MemoryType::Object,
            Self::Block => MemoryType::Block,
        }
    }
}
