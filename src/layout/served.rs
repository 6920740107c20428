// SPDX-License-Identifier: Apache-2.0
//! What a peer needs to know of an owner that serves transfers of a layout.

#![forbid(unsafe_code)]

use serde::{Deserialize, Serialize};

use crate::error::{Result, ensure};
use crate::nixl::{Descriptor, MemoryType, ServiceId};

/// The maximum number of slots of an arena.
const MOST_SLOTS: u32 = 1024;
/// The minimum size of a slot, and the size of the control block before the slots.
const PAGE: u64 = 4096;

/// A service of the owner of a layout.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Served {
    /// Identifies it among the services of the owner's agent.
    pub id: ServiceId,
    /// The arena as it is registered: the control block, and the slots after it.
    pub arena: Descriptor,
    /// Number of slots.
    pub slots: u32,
    /// Bytes of a slot.
    pub slot_size: u64,
    /// Peers may write to the layout.
    pub writes: bool,
}

impl Served {
    /// The address of a slot.
    pub fn slot(&self, index: u32) -> u64 {
        self.arena.address + PAGE + u64::from(index) * self.slot_size
    }

    /// Fails if its parts contradict each other.
    pub fn validate(&self) -> Result<()> {
        let Self { arena, slots, slot_size, .. } = self;
        let size = slot_size.checked_mul((*slots).into()).and_then(|size| size.checked_add(PAGE));
        let is_sound = (1..=MOST_SLOTS).contains(slots)
            && *slot_size >= PAGE
            && slot_size.is_multiple_of(PAGE)
            && size == Some(arena.size)
            && arena.memory_type == MemoryType::Dram
            && arena.address.is_multiple_of(8)
            && arena.address.checked_add(arena.size).is_some();
        ensure!(
            is_sound,
            Corrupt,
            "the layout descriptor is inconsistent: it has a service with {slots} slots of {slot_size} bytes in {} bytes \
             of {} memory",
            arena.size,
            arena.memory_type.name()
        );
        Ok(())
    }
}
