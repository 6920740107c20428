// SPDX-License-Identifier: Apache-2.0
//! The holders of a region.

use crate::ffi::common::{borrow, call, call_out, destroy, kvmem_error, kvmem_status};
use crate::ffi::region::kvmem_region;

/// References to the memory of a region at one moment. Those to a view of it count for the view only.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct kvmem_region_holders {
    /// References in this process: one per handle, view, registration and share; one or more per layout. A
    /// transfer in flight may add some. 1: only this handle.
    pub references: u64,
    /// Views of it, including views of views and those that a layout created for its parts. 0 for a view.
    pub views: u64,
    /// Agents that it is registered with.
    pub registrations: u64,
    /// Shares of it that are not destroyed. A share of a layout counts for each of its regions. Those of a
    /// view are those of its region, of which a share gives access to all.
    pub shares: u64,
    /// Number of times that other processes have it open, each with a separate mapping; at most 1,024 are
    /// counted. A process that has ended does not count. Those of a view are those of its region.
    pub importers: u64,
    /// Handles to it that are not destroyed, including this one.
    pub handles: u64,
}

/// Returns the number of references to a region, in this process and in others.
///
/// @return KVMEM_STATUS_PERMISSION_DENIED, KVMEM_STATUS_IO: the region was shared, and the kernel does not
///           report its importers, for example because a system call filter rejects F_OFD_GETLK
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_region_get_holders(
    region: *const kvmem_region,
    holders: *mut kvmem_region_holders,
    error: *mut *mut kvmem_error,
) -> kvmem_status {
    call_out(error, (holders, "holders"), |scope| {
        let found = borrow(scope, region)?.holders()?;
        Ok(kvmem_region_holders {
            references: found.references,
            views: found.views,
            registrations: found.registrations,
            shares: found.shares,
            importers: found.importers,
            handles: found.handles,
        })
    })
}

/// Checks that the owner of an imported region still has it. If not, existing mappings stay readable. A
/// region of this process is its own owner.
///
/// @return KVMEM_STATUS_PEER_LOST: the owner has freed the region or has ended
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_region_check_owner(
    region: *const kvmem_region,
    error: *mut *mut kvmem_error,
) -> kvmem_status {
    call(error, |scope| borrow(scope, region)?.ensure_owner_lives())
}

/// Destroys a region handle. The memory is freed when nothing refers to it any more.
///
/// The driver frees page-locked memory, and memory of kvmem_region_create_device, only when the GPU has
/// finished its work. If that takes longer than 20 ms, a thread frees the memory, which stays allocated
/// meanwhile; an allocation that finds no memory waits for what can be freed. To learn whether the GPU has
/// finished invalidates captures in its primary context, as cudaFree does: see docs/streams.md.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_region_destroy(region: *mut kvmem_region) {
    destroy(region);
}
