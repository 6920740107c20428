// SPDX-License-Identifier: Apache-2.0
//! What a share is.

use crate::ffi::common::error::kvmem_error;
use crate::ffi::common::guard::call;
use crate::ffi::common::handle::{borrow, destroy};
use crate::ffi::common::pointer::out;
use crate::ffi::common::status::kvmem_status;
use crate::ffi::region::tier;
use crate::ffi::share::create::{
    KVMEM_SHARE_AUTO, KVMEM_SHARE_FABRIC, KVMEM_SHARE_FD, KVMEM_SHARE_IPC, KVMEM_SHARE_REMOTE,
};
use crate::ffi::share::kvmem_share;
use crate::region::Access;
use crate::share::{Object, Share, Transport};

/// A share of a region.
pub const KVMEM_SHARED_REGION: u32 = 1;
/// A share of a layout.
pub const KVMEM_SHARED_LAYOUT: u32 = 2;

/// What a share is.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct kvmem_share_info {
    /// Its bytes.
    pub size: u64,
    /// File descriptors that belong to them.
    pub num_fds: u64,
    /// Bytes of memory it carries; 0 where it is reached by NIXL only.
    pub memory_size: u64,
    /// The process that shares, as that process counts.
    pub pid: u32,
    /// KVMEM_SHARED_REGION or KVMEM_SHARED_LAYOUT.
    pub object: u32,
    /// The KVMEM_TIER_* value of what it carries; 0 where it is reached by NIXL only.
    pub tier: u32,
    /// 1 where importers may only read.
    pub read_only: u32,
    /// How its memory goes, whether that was asked for or found: KVMEM_SHARE_FD, KVMEM_SHARE_IPC,
    /// KVMEM_SHARE_FABRIC, or KVMEM_SHARE_REMOTE where none goes. KVMEM_SHARE_AUTO where regions of a layout
    /// go in different ways.
    pub way: u32,
    /// 0.
    pub reserved: u32,
}

/// Tells what a share is.
///
/// @param share a share
/// @param info gets the answer
/// @param error gets the failure; may be NULL
/// @return KVMEM_STATUS_OK; KVMEM_STATUS_INVALID_ARGUMENT for a NULL pointer
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_share_get_info(
    share: *const kvmem_share,
    info: *mut kvmem_share_info,
    error: *mut *mut kvmem_error,
) -> kvmem_status {
    // SAFETY: by contract.
    unsafe {
        call(error, |scope| {
            let info = out(info, "info")?;
            info.write(describe(borrow(scope, share)?));
            Ok(())
        })
    }
}

/// Destroys a share handle. The share's file descriptors are closed, unless a broker publishes the share.
/// What was opened from it stays open.
///
/// @param share a share that no other call uses; NULL does nothing
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_share_destroy(share: *mut kvmem_share) {
    // SAFETY: by contract.
    unsafe { destroy(share) };
}

fn describe(share: &Share) -> kvmem_share_info {
    let manifest = share.manifest();
    kvmem_share_info {
        size: share.bytes().len() as u64,
        num_fds: share.fds().len() as u64,
        memory_size: manifest.regions.iter().map(|region| region.size).fold(0, u64::saturating_add),
        pid: manifest.process.pid,
        object: match manifest.object {
            Object::Region(_) => KVMEM_SHARED_REGION,
            Object::Layout(_) => KVMEM_SHARED_LAYOUT,
        },
        tier: manifest.regions.first().map_or(0, |region| tier(region.tier)),
        read_only: (manifest.access == Access::Read).into(),
        way: way_value(manifest.way()),
        reserved: 0,
    }
}

fn way_value(way: Transport) -> u32 {
    match way {
        Transport::Auto => KVMEM_SHARE_AUTO,
        Transport::Fd => KVMEM_SHARE_FD,
        Transport::Ipc => KVMEM_SHARE_IPC,
        Transport::Fabric => KVMEM_SHARE_FABRIC,
        Transport::Remote => KVMEM_SHARE_REMOTE,
    }
}
