// SPDX-License-Identifier: Apache-2.0
//! Regions: memory on a tier.

pub mod adopt;
pub mod adopt_file;
pub mod device;
pub mod disk;
pub mod elastic;
pub mod holders;
pub mod info;
pub mod pinned;
pub mod system;
pub mod view;

use crate::ffi::common::handle::{Handle, opaque};
use crate::region::{HandledRegion, Tier};

/// A span of memory on one tier. Views, registrations, layouts and transfers hold the region they lie in,
/// so handles may be destroyed in any order: the memory goes with the last holder.
///
/// Threads: all functions on one region may run at once, except kvmem_region_destroy.
pub struct kvmem_region {
    handle: Handle<HandledRegion>,
}
opaque!(kvmem_region, HandledRegion, "region");

/// Host memory.
pub const KVMEM_TIER_SYSTEM: u32 = 1;
/// A file.
pub const KVMEM_TIER_DISK: u32 = 2;
/// Host memory that GPUs reach by DMA.
pub const KVMEM_TIER_PINNED: u32 = 3;
/// Memory of a GPU.
pub const KVMEM_TIER_DEVICE: u32 = 4;
/// Memory of a GPU that grows and shrinks behind fixed addresses.
pub const KVMEM_TIER_ELASTIC: u32 = 5;

/// A tier as C has it.
pub(in crate::ffi) fn tier(tier: Tier) -> u32 {
    match tier {
        Tier::System => KVMEM_TIER_SYSTEM,
        Tier::Disk => KVMEM_TIER_DISK,
        Tier::Pinned => KVMEM_TIER_PINNED,
        Tier::Device => KVMEM_TIER_DEVICE,
        Tier::Elastic => KVMEM_TIER_ELASTIC,
    }
}
