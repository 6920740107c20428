// SPDX-License-Identifier: Apache-2.0
//! Regions: memory on a tier.

pub mod adopt;
pub mod adopt_memfd;
pub mod block;
pub mod device;
pub mod disk;
pub mod elastic;
pub mod holders;
pub mod info;
pub mod object;
pub mod pinned;
pub mod system;
pub mod view;

use crate::ffi::common::{Handle, opaque};
use crate::region::{HeldRegion, Tier};

/// A range of memory on one tier: host memory, GPU memory, a file, objects or block storage. Views,
/// registrations, layouts, shares and transfers keep the memory of their regions allocated.
pub struct kvmem_region {
    handle: Handle<HeldRegion>,
}
opaque!(kvmem_region, HeldRegion, "region");

/// Host memory.
pub const KVMEM_TIER_SYSTEM: u32 = 1;
/// A file.
pub const KVMEM_TIER_DISK: u32 = 2;
/// Page-locked host memory, which GPUs access by DMA.
pub const KVMEM_TIER_PINNED: u32 = 3;
/// GPU memory.
pub const KVMEM_TIER_DEVICE: u32 = 4;
/// GPU memory that grows and shrinks at fixed addresses.
pub const KVMEM_TIER_ELASTIC: u32 = 5;
/// Objects of an object store, which NIXL reads and writes.
pub const KVMEM_TIER_OBJECT: u32 = 6;
/// Block storage, which NIXL reads and writes.
pub const KVMEM_TIER_BLOCK: u32 = 7;

/// The C value of a tier.
pub(in crate::ffi) fn tier(tier: Tier) -> u32 {
    match tier {
        Tier::System => KVMEM_TIER_SYSTEM,
        Tier::Disk => KVMEM_TIER_DISK,
        Tier::Pinned => KVMEM_TIER_PINNED,
        Tier::Device => KVMEM_TIER_DEVICE,
        Tier::Elastic => KVMEM_TIER_ELASTIC,
        Tier::Object => KVMEM_TIER_OBJECT,
        Tier::Block => KVMEM_TIER_BLOCK,
    }
}
