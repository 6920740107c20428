// SPDX-License-Identifier: Apache-2.0
//! Properties of a region.

use crate::ffi::common::{borrow, call_out, kvmem_error, kvmem_status};
use crate::ffi::region::{kvmem_region, tier};
use crate::region::{Backing, Region, Source};

/// kvmem allocated it.
pub const KVMEM_ORIGIN_ALLOCATED: u32 = 1;
/// It is memory of the caller.
pub const KVMEM_ORIGIN_ADOPTED: u32 = 2;
/// It is a part of another region.
pub const KVMEM_ORIGIN_VIEW: u32 = 3;
/// It is memory of another process.
pub const KVMEM_ORIGIN_IMPORTED: u32 = 4;

/// Disk: I/O bypasses the page cache.
pub const KVMEM_REGION_DIRECT_IO: u64 = 1;
/// Disk: space was reserved when this region was created. Not set for an existing or shared file.
pub const KVMEM_REGION_PREALLOCATED: u64 = 2;
/// Disk: the file has no name, and is deleted with the region.
pub const KVMEM_REGION_TEMPORARY: u64 = 4;
/// System and pinned: pages are smaller than requested.
pub const KVMEM_REGION_HUGE_PAGE_FALLBACK: u64 = 8;
/// System and pinned: the memory is a memory file, which can be shared.
pub const KVMEM_REGION_SHAREABLE: u64 = 16;
/// It can only be read: it was shared, adopted or opened for reading.
pub const KVMEM_REGION_READ_ONLY: u64 = 32;

/// Properties of a region.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct kvmem_region_info {
    /// First byte: a host or device address, or an offset in the file, the block device or all objects.
    pub address: u64,
    /// Bytes.
    pub size: u64,
    /// KVMEM_TIER_* value.
    pub tier: u32,
    /// KVMEM_ORIGIN_* value.
    pub origin: u32,
    /// GPU that the memory is located on, or was page-locked for; -1 for none. The id in NIXL, which
    /// kvmem_layout_info has, is another number.
    pub device: i32,
    /// NUMA node of the pages; -1 for any.
    pub numa_node: i32,
    /// KVMEM_REGION_* flags.
    pub flags: u64,
    /// Bytes per page of the mapping for system and pinned; bytes per extent for elastic; bytes per object
    /// for object; the system's page size for others.
    pub memory_page_size: u64,
    /// Disk and block: offsets, sizes and memory addresses of I/O must be multiples of this. Others: 1.
    pub alignment: u64,
    /// Disk: the open file, valid as long as the region; do not close it. Others: -1.
    pub fd: i32,
    /// Number of agents it is registered with (kvmem_region_get_agent).
    pub registration_count: u32,
    /// Elastic: extents that it can hold. Others: 0. A view has this and the next two fields of its region.
    pub num_extents: u64,
    /// Elastic: extents that have memory. Others: 0.
    pub num_committed: u64,
    /// Elastic: number of times that the memory at any address has changed. Others: 0.
    pub generation: u64,
}

/// Returns the properties of a region.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_region_get_info(
    region: *const kvmem_region,
    info: *mut kvmem_region_info,
    error: *mut *mut kvmem_error,
) -> kvmem_status {
    call_out(error, (info, "info"), |scope| Ok(describe(borrow(scope, region)?)))
}

/// Resident memory of a region, in bytes.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct kvmem_region_residency {
    /// In memory, on pages of any size.
    pub resident_bytes: u64,
    /// In memory, on transparent huge pages.
    pub transparent_huge_bytes: u64,
    /// Swapped out.
    pub swapped_bytes: u64,
}

/// Returns how many bytes of a region are resident in memory. A view has the figures of its region.
///
/// @param region a system or pinned region
/// @return KVMEM_STATUS_UNSUPPORTED: the region is adopted, or is not in host memory
///         KVMEM_STATUS_IO, KVMEM_STATUS_NOT_FOUND, KVMEM_STATUS_OUT_OF_MEMORY: the kernel gives no figures
///
/// Notes: for diagnosis. The kernel walks the pages of all mappings of the process (/proc/self/smaps), which
/// takes milliseconds, and more with much memory. Pages of an adjacent mapping that the kernel merged with
/// the region's may be included; no figure exceeds the size of the region.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_region_get_residency(
    region: *const kvmem_region,
    residency: *mut kvmem_region_residency,
    error: *mut *mut kvmem_error,
) -> kvmem_status {
    call_out(error, (residency, "residency"), |scope| {
        let found = borrow(scope, region)?.residency()?;
        Ok(kvmem_region_residency {
            resident_bytes: found.resident,
            transparent_huge_bytes: found.transparent_huge,
            swapped_bytes: found.swapped,
        })
    })
}

fn describe(region: &Region) -> kvmem_region_info {
    let (found, elastic) = (region.properties(), region.elastic_memory());
    let flags = [
        (found.fell_back, KVMEM_REGION_HUGE_PAGE_FALLBACK),
        (found.is_shareable, KVMEM_REGION_SHAREABLE),
        (found.is_direct, KVMEM_REGION_DIRECT_IO),
        (found.is_preallocated, KVMEM_REGION_PREALLOCATED),
        (found.is_temporary, KVMEM_REGION_TEMPORARY),
        (region.read_only_because().is_some(), KVMEM_REGION_READ_ONLY),
    ];
    kvmem_region_info {
        address: region.address(),
        size: region.size(),
        memory_page_size: found.page_size.unwrap_or_else(|| rustix::param::page_size() as u64),
        alignment: region.io_alignment(),
        flags: flags.iter().filter(|(is_set, _)| *is_set).fold(0, |all, (_, flag)| all | flag),
        tier: tier(region.tier()),
        origin: match found.source {
            _ if region.is_view() => KVMEM_ORIGIN_VIEW,
            Source::Imported => KVMEM_ORIGIN_IMPORTED,
            _ if region.origin().is_some() => KVMEM_ORIGIN_IMPORTED,
            Source::Adopted => KVMEM_ORIGIN_ADOPTED,
            Source::Allocated => KVMEM_ORIGIN_ALLOCATED,
        },
        device: region.ordinal().or(found.page_locked_for).unwrap_or(-1),
        numa_node: found.numa_node.map_or(-1, |node| node as i32),
        fd: region.fd().unwrap_or(-1),
        registration_count: region.registration_count() as u32,
        num_extents: elastic.map_or(0, |memory| memory.size() / memory.extent_size()),
        num_committed: elastic.map_or(0, |memory| memory.num_committed()),
        generation: elastic.map_or(0, |memory| memory.generation()),
    }
}
