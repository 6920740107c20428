// SPDX-License-Identifier: Apache-2.0
//! The holders of a region.

use crate::ffi::common::error::kvmem_error;
use crate::ffi::common::guard::call;
use crate::ffi::common::handle::{borrow, destroy};
use crate::ffi::common::pointer::out;
use crate::ffi::common::status::kvmem_status;
use crate::ffi::region::kvmem_region;

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
