// SPDX-License-Identifier: Apache-2.0
//! Regions.

use std::ffi::c_char;
use std::os::unix::ffi::OsStrExt;

use super::error::kvmem_error;
use super::guard::call;
use super::handle::{Handle, Out, borrow, destroy, opaque, out};
use super::status::kvmem_status;
use super::text;
use crate::error::{Error, Status};
use crate::region::{Backing, DeviceMemory, HandledRegion, Region, SystemMemory, Tier};

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

/// kvmem allocated it.
pub const KVMEM_ORIGIN_ALLOCATED: u32 = 1;
/// It is the caller's.
pub const KVMEM_ORIGIN_ADOPTED: u32 = 2;
/// It is a part of another region.
pub const KVMEM_ORIGIN_VIEW: u32 = 3;
/// It is another process's.
pub const KVMEM_ORIGIN_IMPORTED: u32 = 4;

/// Makes a part of a region a region of its own. It keeps its parent.
///
/// @param region the parent
/// @param offset where in the parent it begins, in bytes
/// @param size its bytes, at least 1
/// @param view gets the part; the caller destroys it
/// @param error gets the failure; may be NULL
/// @return KVMEM_STATUS_OK; KVMEM_STATUS_OUT_OF_RANGE when it does not fit; KVMEM_STATUS_INVALID_ARGUMENT
///         when empty
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_region_create_view(
    region: *const kvmem_region,
    offset: u64,
    size: u64,
    view: *mut *mut kvmem_region,
    error: *mut *mut kvmem_error,
) -> kvmem_status {
    // SAFETY: by contract.
    unsafe {
        call(error, |scope| {
            let view = Out::new(view)?;
            view.set(Region::view(borrow(scope, region)?, offset, size)?.into());
            Ok(())
        })
    }
}

/// Disk: I/O bypasses the page cache.
pub const KVMEM_REGION_DIRECT_IO: u64 = 1;
/// Disk: the space was reserved when this region was created. Not set for a file that existed, or an opened share.
pub const KVMEM_REGION_PREALLOCATED: u64 = 2;
/// Disk: the file has no name and goes with the region.
pub const KVMEM_REGION_TEMPORARY: u64 = 4;
/// System and pinned: pages are smaller than asked for.
pub const KVMEM_REGION_HUGE_PAGE_FALLBACK: u64 = 8;
/// System and pinned: it is stored in a memory file, so that it can be shared with other processes.
pub const KVMEM_REGION_SHAREABLE: u64 = 16;
/// It may only be read: it was shared, adopted or opened so.
pub const KVMEM_REGION_READ_ONLY: u64 = 32;

/// What a region is.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct kvmem_region_info {
    /// The first byte: a host address, a device address, or an offset in the file.
    pub address: u64,
    /// Bytes.
    pub size: u64,
    /// System and pinned: the size of the pages it is mapped with. Elastic: the size of an extent. Others:
    /// the system's page size.
    pub page_size: u64,
    /// Disk: what offsets, sizes and memory addresses of I/O must be multiples of. Others: 1.
    pub alignment: u64,
    /// KVMEM_REGION_* flags.
    pub flags: u64,
    /// A KVMEM_TIER_* value.
    pub tier: u32,
    /// A KVMEM_ORIGIN_* value.
    pub origin: u32,
    /// The GPU it lies on, or serves; -1 for none.
    pub device_id: i32,
    /// The NUMA node its pages come from; -1 for any.
    pub numa_node: i32,
    /// Disk: the open file, valid as long as the region and not to be closed. Others: -1.
    pub fd: i32,
    /// Agents it is registered with; kvmem_region_get_agent names them.
    pub registration_count: u32,
}

/// Returns what a region is.
///
/// @param region a region
/// @param info gets the result
/// @param error gets the failure; may be NULL
/// @return KVMEM_STATUS_OK; KVMEM_STATUS_INVALID_ARGUMENT for a NULL pointer
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_region_get_info(
    region: *const kvmem_region,
    info: *mut kvmem_region_info,
    error: *mut *mut kvmem_error,
) -> kvmem_status {
    // SAFETY: by contract.
    unsafe {
        call(error, |scope| {
            let info = out(info, "info")?;
            info.write(describe(borrow(scope, region)?));
            Ok(())
        })
    }
}

/// How much of a region's memory is resident, in bytes.
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

/// Returns how much of a region's memory is resident now. For a view, or a view of a view, returns
/// the figures of the whole underlying region.
///
/// The kernel walks the pages of all mappings of the process for it (/proc/self/smaps), which takes
/// milliseconds, and more with much memory: for diagnosis, not for each block. Pages of an adjacent mapping
/// that the kernel has joined with the region's may count too; no figure exceeds the region's size.
///
/// @param region a system or pinned region
/// @param residency gets the result
/// @param error gets the failure; may be NULL
/// @return KVMEM_STATUS_OK;
///         KVMEM_STATUS_UNSUPPORTED: the region is adopted, or is not in host memory; KVMEM_STATUS_IO,
///         KVMEM_STATUS_NOT_FOUND or KVMEM_STATUS_OUT_OF_MEMORY: the kernel's figures cannot be read
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_region_get_residency(
    region: *const kvmem_region,
    residency: *mut kvmem_region_residency,
    error: *mut *mut kvmem_error,
) -> kvmem_status {
    // SAFETY: by contract.
    unsafe {
        call(error, |scope| {
            let residency = out(residency, "residency")?;
            let found = borrow(scope, region)?.residency()?;
            residency.write(kvmem_region_residency {
                resident_bytes: found.resident,
                transparent_huge_bytes: found.transparent_huge,
                swapped_bytes: found.swapped,
            });
            Ok(())
        })
    }
}

/// Returns the absolute path of a disk region's file.
///
/// @param region a region
/// @param buffer gets the path and its NUL; may be NULL with capacity 0, to ask the size alone
/// @param capacity bytes of the buffer
/// @param size gets the bytes the path needs with its NUL, also when the buffer is too small
/// @param error gets the failure; may be NULL
/// @return KVMEM_STATUS_OK;
///         KVMEM_STATUS_NOT_FOUND: the region is not on disk; the file is temporary or was opened from a
///         share; or the file was renamed or unlinked;
///         KVMEM_STATUS_OUT_OF_RANGE: the buffer is too small
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_region_get_path(
    region: *const kvmem_region,
    buffer: *mut c_char,
    capacity: usize,
    size: *mut usize,
    error: *mut *mut kvmem_error,
) -> kvmem_status {
    // SAFETY: by contract.
    unsafe {
        call(error, |scope| {
            let answer = text::Answer::new(buffer, capacity, size)?;
            let path = borrow(scope, region)?.path()?;
            answer.set(path.as_os_str().as_bytes())
        })
    }
}

/// The name of an agent a region is registered with.
///
/// @param region a region
/// @param index which one, below the info's registration_count
/// @param buffer gets the name and its NUL; may be NULL with capacity 0, to ask the size alone
/// @param capacity bytes of the buffer
/// @param size gets the bytes the name needs with its NUL, also when the buffer is too small
/// @param error gets the failure; may be NULL
/// @return KVMEM_STATUS_OK; KVMEM_STATUS_NOT_FOUND past the last; KVMEM_STATUS_OUT_OF_RANGE when the buffer
///         is too small
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_region_get_agent(
    region: *const kvmem_region,
    index: usize,
    buffer: *mut c_char,
    capacity: usize,
    size: *mut usize,
    error: *mut *mut kvmem_error,
) -> kvmem_status {
    // SAFETY: by contract.
    unsafe {
        call(error, |scope| {
            let answer = text::Answer::new(buffer, capacity, size)?;
            let registrations = borrow(scope, region)?.registrations();
            let past = || {
                let message =
                    format!("there is no registration {index}, the region has {}", registrations.len());
                Error::new(Status::NotFound, message)
            };
            let registration = registrations.get(index).ok_or_else(past)?;
            answer.set(registration.agent().name().as_bytes())
        })
    }
}

/// Waits until what was written to a disk region is on the medium. Other regions have nothing to do.
///
/// @param region a region
/// @param error gets the failure; may be NULL
/// @return KVMEM_STATUS_OK; KVMEM_STATUS_IO or KVMEM_STATUS_OUT_OF_MEMORY when the data is not safe
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_region_sync(
    region: *const kvmem_region,
    error: *mut *mut kvmem_error,
) -> kvmem_status {
    // SAFETY: by contract.
    unsafe { call(error, |scope| borrow(scope, region)?.sync()) }
}

/// The holders of a region's memory at one moment. Holders of a view count for the view only; the view counts
/// here once.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct kvmem_region_holders {
    /// References in this process: one per handle, view, registration and share; one or more per layout. A
    /// transfer in flight may add some. 1 is this handle alone.
    pub references: u64,
    /// Views of it, those among them that a layout has made for its parts.
    pub views: u64,
    /// Agents it is registered with.
    pub registrations: u64,
    /// Shares of it that were not destroyed; a share of a layout counts for each of its regions.
    pub shares: u64,
    /// Number of times that other processes have it open, each a mapping of its own; at most 1,024 are
    /// counted. A process that has ended does not count.
    pub importers: u64,
    /// Handles that kvmem has given for it and that were not destroyed, this one included.
    pub handles: u64,
}

/// Returns the holders of a region, in this process and in others.
///
/// @param region a region
/// @param holders gets the answer
/// @param error gets the failure; may be NULL
/// @return KVMEM_STATUS_OK; KVMEM_STATUS_INVALID_ARGUMENT for a NULL pointer; for a region that was shared
///         KVMEM_STATUS_PERMISSION_DENIED or KVMEM_STATUS_IO where the kernel does not tell who has it
///         open, as where a filter of system calls refuses F_OFD_GETLK
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_region_get_holders(
    region: *const kvmem_region,
    holders: *mut kvmem_region_holders,
    error: *mut *mut kvmem_error,
) -> kvmem_status {
    // SAFETY: by contract.
    unsafe {
        call(error, |scope| {
            let holders = out(holders, "holders")?;
            let found = borrow(scope, region)?.holders()?;
            holders.write(kvmem_region_holders {
                references: found.references,
                views: found.views,
                registrations: found.registrations,
                shares: found.shares,
                importers: found.importers,
                handles: found.handles,
            });
            Ok(())
        })
    }
}

/// Tells whether the owner of an imported region still has it. What is mapped here stays readable also when
/// it has not. A region of this process is its own owner.
///
/// @param region a region
/// @param error gets the failure; may be NULL
/// @return KVMEM_STATUS_OK; KVMEM_STATUS_PEER_LOST when its owner has freed it or has ended
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_region_check_owner(
    region: *const kvmem_region,
    error: *mut *mut kvmem_error,
) -> kvmem_status {
    // SAFETY: by contract.
    unsafe { call(error, |scope| borrow(scope, region)?.ensure_owner_lives()) }
}

/// Destroys a region handle. The memory is freed when nothing holds it.
///
/// @param region a region that no other call uses; NULL does nothing
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_region_destroy(region: *mut kvmem_region) {
    // SAFETY: by contract.
    unsafe { destroy(region) };
}

fn describe(region: &Region) -> kvmem_region_info {
    let mut info = kvmem_region_info {
        address: region.address(),
        size: region.size(),
        page_size: rustix::param::page_size() as u64,
        alignment: region.io_alignment(),
        flags: 0,
        tier: tier(region.tier()),
        origin: KVMEM_ORIGIN_ALLOCATED,
        device_id: region.ordinal().unwrap_or(-1),
        numa_node: -1,
        fd: region.fd().unwrap_or(-1),
        registration_count: region.registrations().len() as u32,
    };
    match region.root() {
        Backing::System(memory) => describe_pages(memory, &mut info),
        Backing::Pinned(memory) => {
            describe_pages(memory.memory(), &mut info);
            info.flags |= if memory.fell_back() { KVMEM_REGION_HUGE_PAGE_FALLBACK } else { 0 };
            info.device_id = memory.ordinal();
        }
        Backing::Elastic(memory) => info.page_size = memory.extent_size(),
        Backing::Device(memory) => match **memory {
            DeviceMemory::Owned(_) => {}
            DeviceMemory::Adopted(_) => info.origin = KVMEM_ORIGIN_ADOPTED,
            DeviceMemory::Imported(_) | DeviceMemory::Mapped(_) => info.origin = KVMEM_ORIGIN_IMPORTED,
        },
        Backing::Disk(file) => {
            info.flags |= if file.is_direct() { KVMEM_REGION_DIRECT_IO } else { 0 };
            info.flags |= if file.is_preallocated() { KVMEM_REGION_PREALLOCATED } else { 0 };
            info.flags |= if file.is_temporary() { KVMEM_REGION_TEMPORARY } else { 0 };
        }
        Backing::Adopted(memory) => {
            info.origin = KVMEM_ORIGIN_ADOPTED;
            if let Some(file) = memory.shared_file() {
                info.page_size = file.page_size();
                info.flags |= KVMEM_REGION_SHAREABLE;
            }
        }
        Backing::View { .. } => {}
    }
    if region.origin().is_some() {
        info.origin = KVMEM_ORIGIN_IMPORTED;
    }
    info.flags |= if region.read_only_because().is_some() { KVMEM_REGION_READ_ONLY } else { 0 };
    if matches!(region.backing(), Backing::View { .. }) {
        info.origin = KVMEM_ORIGIN_VIEW;
    }
    info
}

fn describe_pages(memory: &SystemMemory, info: &mut kvmem_region_info) {
    info.page_size = memory.page_size();
    info.numa_node = memory.numa_node().map_or(-1, |node| node as i32);
    info.flags |= if memory.fell_back() { KVMEM_REGION_HUGE_PAGE_FALLBACK } else { 0 };
    info.flags |= if memory.file().is_some() { KVMEM_REGION_SHAREABLE } else { 0 };
}

/// A tier as C has it.
pub(super) fn tier(tier: Tier) -> u32 {
    match tier {
        Tier::System => KVMEM_TIER_SYSTEM,
        Tier::Disk => KVMEM_TIER_DISK,
        Tier::Pinned => KVMEM_TIER_PINNED,
        Tier::Device => KVMEM_TIER_DEVICE,
        Tier::Elastic => KVMEM_TIER_ELASTIC,
    }
}
