// SPDX-License-Identifier: Apache-2.0
//! What a peer needs to know of an owner that serves transfers of a layout.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde::{Deserialize, Serialize};

use crate::base::{Result, ensure};
use crate::nixl::{Descriptor, MemoryType, ServiceId};

/// The maximum number of slots of an arena.
const MAX_SLOTS: u32 = 1024;
/// The minimum size of a slot, and the size of the control block before the slots.
const PAGE: u64 = 4096;

/// A service of the owner of a layout.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Served {
    /// Identifies it among the services of the owner's agent.
    pub id: ServiceId,
    /// The arena as it is registered: the control block, and the slots after it unless they are in GPU memory.
    pub arena: Descriptor,
    /// The slots, if they are in GPU memory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device: Option<Descriptor>,
    pub slots: u32,
    pub slot_size: u64,
    /// Peers may write to the layout.
    pub writes: bool,
    /// The longest lease of a peer in milliseconds; 0 if the owner keeps none.
    #[serde(default, rename = "lease_ms", skip_serializing_if = "is_zero")]
    pub longest_lease: u32,
    #[serde(skip)]
    pub end: ServiceEnd,
}

/// Whether a requester has found that the owner serves the layout no more, which it never does again by this service. All copies of what
/// one import knows share it.
#[derive(Clone, Debug, Default)]
pub struct ServiceEnd(Arc<AtomicBool>);

impl ServiceEnd {
    pub fn note(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Fails if it is known. The control block of the agent's service may be freed, and over TCP a request for that ends the agent's process.
    pub fn ensure_unknown(&self, agent: &str) -> Result<()> {
        let is_known = self.0.load(Ordering::Relaxed);
        ensure!(
            !is_known,
            Stale,
            "agent '{agent}' has destroyed the layout, as an earlier request has found; import another one"
        );
        Ok(())
    }
}

/// What a service is does not depend on it.
impl PartialEq for ServiceEnd {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for ServiceEnd {}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(number: &u32) -> bool {
    *number == 0
}

impl Served {
    pub fn slot(&self, index: u32) -> u64 {
        let first = self.device.map_or(self.arena.address + PAGE, |device| device.address);
        first + u64::from(index) * self.slot_size
    }

    pub fn memory(&self) -> &Descriptor {
        self.device.as_ref().unwrap_or(&self.arena)
    }

    pub fn descriptors(&self) -> Vec<Descriptor> {
        [Some(self.arena), self.device].into_iter().flatten().collect()
    }

    /// Fails if its parts contradict each other.
    pub fn validate(&self) -> Result<()> {
        let Self { arena, device, slots, slot_size, .. } = self;
        let size = slot_size.checked_mul((*slots).into());
        let (of_arena, is_on_device) = match device {
            None => (size.and_then(|size| size.checked_add(PAGE)), true),
            Some(device) => {
                let is_right = device.memory_type == MemoryType::Vram
                    && size == Some(device.size)
                    && device.address.checked_add(device.size).is_some();
                (Some(PAGE), is_right)
            }
        };
        let is_sound = is_on_device
            && (1..=MAX_SLOTS).contains(slots)
            && *slot_size >= PAGE
            && slot_size.is_multiple_of(PAGE)
            && of_arena == Some(arena.size)
            && arena.memory_type == MemoryType::Dram
            && arena.address.is_multiple_of(8)
            && arena.address.checked_add(arena.size).is_some();
        ensure!(
            is_sound,
            Corrupt,
            "the layout descriptor is inconsistent: it has a service with {slots} slots of {slot_size} bytes in {} bytes \
             of {} memory",
            self.memory().size,
            self.memory().memory_type.name()
        );
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SLOT: u64 = 2 * PAGE;

    fn memory(memory_type: MemoryType, size: u64) -> Descriptor {
        Descriptor { address: 0x10_0000, size, device_id: 0, memory_type }
    }

    fn on_gpu() -> Served {
        let (arena, device) = (memory(MemoryType::Dram, PAGE), memory(MemoryType::Vram, 8 * SLOT));
        Served {
            id: ServiceId([7; 16]),
            arena,
            device: Some(device),
            slots: 8,
            slot_size: SLOT,
            writes: false,
            longest_lease: 60_000,
            end: ServiceEnd::default(),
        }
    }

    #[test]
    fn slots_are_after_the_control_block_or_in_gpu_memory() {
        let arena = memory(MemoryType::Dram, PAGE + 8 * SLOT);
        let on_host = Served { arena, device: None, ..on_gpu() };
        for (served, first) in [(on_host, 0x10_0000 + PAGE), (on_gpu(), 0x10_0000)] {
            served.validate().unwrap();
            assert_eq!((served.slot(0), served.slot(3)), (first, first + 3 * SLOT));
            assert_eq!(served.memory().memory_type == MemoryType::Vram, served.device.is_some());
        }
    }

    #[test]
    fn memory_that_does_not_have_the_slots_is_refused() {
        let changes: [fn(&mut Descriptor); 4] = [
            |device| device.size -= 1,
            |device| device.size += PAGE,
            |device| device.memory_type = MemoryType::Dram,
            |device| device.address = u64::MAX - PAGE,
        ];
        for change in changes {
            let mut served = on_gpu();
            change(served.device.as_mut().unwrap());
            assert_eq!(served.validate().unwrap_err().status(), crate::base::error::Status::Corrupt);
        }
        let with_slots = Served { arena: memory(MemoryType::Dram, PAGE + 8 * SLOT), ..on_gpu() };
        assert!(with_slots.validate().is_err());
        assert!(Served { device: None, ..on_gpu() }.validate().is_err());
    }
}
