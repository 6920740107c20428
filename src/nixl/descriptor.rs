// SPDX-License-Identifier: Apache-2.0
//! NIXL's descriptor of a span of memory.

use serde::{Deserialize, Serialize};

use super::sys;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum MemoryType {
    Dram,
    Vram,
    /// A file; addresses are offsets in it, the device id is its fd.
    File,
    /// A block device or store of blocks; the meaning of addresses is the backend's.
    Block,
    /// An object store; the key is metadata of the registration.
    Object,
}

impl MemoryType {
    pub(super) fn raw(self) -> sys::nixl_capi_mem_type_t {
        match self {
            Self::Dram => sys::NIXL_CAPI_MEM_DRAM,
            Self::Vram => sys::NIXL_CAPI_MEM_VRAM,
            Self::File => sys::NIXL_CAPI_MEM_FILE,
            Self::Block => sys::NIXL_CAPI_MEM_BLOCK,
            Self::Object => sys::NIXL_CAPI_MEM_OBJECT,
        }
    }

    /// The type with this value in NIXL.
    pub(super) fn from_raw(raw: sys::nixl_capi_mem_type_t) -> Option<Self> {
        Self::ALL.into_iter().find(|memory_type| memory_type.raw() == raw)
    }

    /// Whether its addresses are offsets in a file, an object or a device. Only the agent that registered it accesses it.
    pub fn is_storage(self) -> bool {
        matches!(self, Self::File | Self::Block | Self::Object)
    }

    pub const ALL: [Self; 5] = [Self::Dram, Self::Vram, Self::File, Self::Block, Self::Object];

    pub fn name(self) -> &'static str {
        match self {
            Self::Dram => "DRAM",
            Self::Vram => "VRAM",
            Self::File => "FILE",
            Self::Block => "BLOCK",
            Self::Object => "OBJECT",
        }
    }
}

/// A span of memory as an agent registers it and a peer addresses it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Descriptor {
    /// Host or device address; for storage the offset.
    pub address: u64,
    pub size: u64,
    /// 0 for host memory, the ordinal of a GPU, the fd of a file, the number of an object or block device.
    pub device_id: u64,
    pub memory_type: MemoryType,
}

/// A descriptor, for messages.
pub(super) fn describe(descriptor: &Descriptor) -> String {
    let Descriptor { address, size, device_id, memory_type } = descriptor;
    format!("{} memory at {address:#x} of {size} bytes on device {device_id}", memory_type.name())
}
