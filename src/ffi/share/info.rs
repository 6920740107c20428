// SPDX-License-Identifier: Apache-2.0
//! Properties of a share.

use std::ffi::c_void;
use std::os::fd::RawFd;

use crate::ffi::common::{borrow, call_out, destroy, kvmem_error, kvmem_status};
use crate::ffi::region::tier;
use crate::ffi::share::create::{
    KVMEM_SHARE_AUTO, KVMEM_SHARE_FABRIC, KVMEM_SHARE_FD, KVMEM_SHARE_IPC, KVMEM_SHARE_REMOTE,
};
use crate::ffi::share::kvmem_share;
use crate::region::Access;
use crate::share::{Object, Share, Transport};

/// The share is of a region.
pub const KVMEM_SHARED_REGION: u32 = 1;
/// The share is of a layout.
pub const KVMEM_SHARED_LAYOUT: u32 = 2;

/// Properties of a share.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct kvmem_share_info {
    /// KVMEM_SHARED_REGION or KVMEM_SHARED_LAYOUT.
    pub object: u32,
    /// The transport: KVMEM_SHARE_FD, KVMEM_SHARE_IPC, KVMEM_SHARE_FABRIC, or KVMEM_SHARE_REMOTE if it
    /// carries no memory; KVMEM_SHARE_AUTO if the regions of a layout have different ones.
    pub transport: u32,
    /// KVMEM_TIER_* value of the memory that it carries; 0 if it carries none.
    pub tier: u32,
    /// 1 if importers may only read, otherwise 0.
    pub read_only: u32,
    /// Bytes of memory that it carries; 0 if it carries none (KVMEM_SHARE_REMOTE).
    pub memory_size: u64,
    /// Process id of the owner, in the owner's PID namespace.
    pub pid: u32,
    /// 0.
    pub reserved: u32,
    /// Its bytes, for a channel of the caller. They have addresses and, depending on the transport, IPC
    /// handles, fabric handles or NIXL metadata, which give access to the memory: send them only to
    /// processes that may access it. Valid as long as the share.
    pub data: *const c_void,
    /// Number of its bytes.
    pub size: u64,
    /// Its file descriptors, which the share owns; send them in this order. NULL if there are none.
    pub fds: *const i32,
    /// Number of its file descriptors.
    pub num_fds: u64,
}

/// Returns the properties of a share.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_share_get_info(
    share: *const kvmem_share,
    info: *mut kvmem_share_info,
    error: *mut *mut kvmem_error,
) -> kvmem_status {
    call_out(error, (info, "info"), |scope| Ok(describe(borrow(scope, share)?)))
}

/// Destroys a share handle. The file descriptors of the share are closed, unless a broker publishes the
/// share. Regions and layouts that were opened from it stay open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_share_destroy(share: *mut kvmem_share) {
    destroy(share);
}

/// An OwnedFd has the representation of its number.
fn describe(share: &Share) -> kvmem_share_info {
    let manifest = share.manifest();
    kvmem_share_info {
        data: share.bytes().as_ptr().cast(),
        size: share.bytes().len() as u64,
        fds: if share.fds().is_empty() { std::ptr::null() } else { share.fds().as_ptr().cast::<RawFd>() },
        num_fds: share.fds().len() as u64,
        memory_size: manifest.regions.iter().map(|region| region.size).fold(0, u64::saturating_add),
        pid: manifest.process.pid,
        object: match manifest.object {
            Object::Region(_) => KVMEM_SHARED_REGION,
            Object::Layout(_) | Object::Parts(_) => KVMEM_SHARED_LAYOUT,
        },
        tier: manifest.regions.first().map_or(0, |region| tier(region.tier)),
        read_only: (manifest.access == Access::Read).into(),
        transport: transport_value(manifest.way()),
        reserved: 0,
    }
}

fn transport_value(transport: Transport) -> u32 {
    match transport {
        Transport::Auto => KVMEM_SHARE_AUTO,
        Transport::Fd => KVMEM_SHARE_FD,
        Transport::Ipc => KVMEM_SHARE_IPC,
        Transport::Fabric => KVMEM_SHARE_FABRIC,
        Transport::Remote => KVMEM_SHARE_REMOTE,
    }
}
