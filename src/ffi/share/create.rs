// SPDX-License-Identifier: Apache-2.0
//! Creating shares.

use std::sync::Arc;

use crate::error::{Result, ensure};
use crate::ffi::common::error::kvmem_error;
use crate::ffi::common::guard::call;
use crate::ffi::common::handle::{Out, borrow};
use crate::ffi::common::options::{check_flags, init, not_one_of, options, read_nullable};
use crate::ffi::common::status::kvmem_status;
use crate::ffi::layout::kvmem_layout;
use crate::ffi::region::kvmem_region;
use crate::ffi::share::kvmem_share;
use crate::region::Access;
use crate::share::{Share, ShareOptions, Transport};

/// As the tier allows: file descriptors for system, pinned, elastic and disk, and for device memory that an
/// engine has mapped itself; the driver's IPC handle for all other device memory.
pub const KVMEM_SHARE_AUTO: u32 = 0;
/// By file descriptors.
pub const KVMEM_SHARE_FD: u32 = 1;
/// By the driver's IPC handle.
pub const KVMEM_SHARE_IPC: u32 = 2;
/// No memory is carried: other processes reach a layout by NIXL.
pub const KVMEM_SHARE_REMOTE: u32 = 3;
/// By the driver's fabric handles: elastic memory made with KVMEM_ELASTIC_FABRIC, or what an engine has
/// mapped so.
pub const KVMEM_SHARE_FABRIC: u32 = 4;

/// Importers may only read. A file descriptor then can't be mapped to be written; a GPU is given no right to
/// write extents; device memory by IPC handle is the importer's to respect, whose kvmem refuses to write.
pub const KVMEM_SHARE_READ_ONLY: u64 = 1;

/// What to share, and how. All zeroes but struct_size grants everything.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct kvmem_share_options {
    /// sizeof(kvmem_share_options)
    pub struct_size: usize,
    /// KVMEM_SHARE_READ_ONLY, or 0.
    pub flags: u64,
    /// KVMEM_SHARE_AUTO, KVMEM_SHARE_FD, KVMEM_SHARE_IPC, KVMEM_SHARE_REMOTE or KVMEM_SHARE_FABRIC.
    pub way: u32,
    /// Must be 0.
    pub reserved: u32,
}
options!(kvmem_share_options);

/// Fills options with defaults.
///
/// @param options the caller's struct; NULL does nothing
/// @param struct_size sizeof(*options); no more is written
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_share_options_init(options: *mut kvmem_share_options, struct_size: usize) {
    // SAFETY: by contract.
    unsafe { init(options, struct_size) };
}

/// Shares a region, or the part of one that a view is. Of a view all of its parent is carried.
///
/// @param region the region: system or pinned memory made shareable, device memory allocated by kvmem or
///        adopted (also what an engine has mapped itself, if it created it exportable), elastic memory (the
///        extents that are committed now), or a file
/// @param options what to grant, and how; NULL for everything
/// @param share gets the share; the caller destroys it
/// @param error gets the failure; may be NULL
/// @return KVMEM_STATUS_OK; KVMEM_STATUS_UNSUPPORTED for memory that can't be carried, or not in the way
///         asked for, with the reason; KVMEM_STATUS_CUDA; KVMEM_STATUS_OUT_OF_MEMORY also without file
///         descriptors; KVMEM_STATUS_PERMISSION_DENIED to grant writing to a file that was opened to be read
///         only
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_share_create_region(
    region: *const kvmem_region,
    options: *const kvmem_share_options,
    share: *mut *mut kvmem_share,
    error: *mut *mut kvmem_error,
) -> kvmem_status {
    // SAFETY: by contract.
    unsafe {
        call(error, |scope| {
            let (share, options) = (Out::new(share)?, read_nullable(options)?);
            share.set(Arc::new(Share::of_region(borrow(scope, region)?, grant(options)?)?));
            Ok(())
        })
    }
}

/// Shares a layout: its shape and its regions, and, where it was built with an agent, what peers need to
/// reach it by NIXL. A layout shared to be read only is not reached by NIXL, which knows no such right.
///
/// @param layout a layout of this process
/// @param options what to grant, and how; NULL for everything
/// @param share gets the share; the caller destroys it
/// @param error gets the failure; may be NULL
/// @return as kvmem_share_create_region.
///         KVMEM_STATUS_INVALID_STATE: no memory is carried and no agent knows the layout.
///         KVMEM_STATUS_NIXL: the agent of the layout has no backend that reaches peers
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_share_create_layout(
    layout: *const kvmem_layout,
    options: *const kvmem_share_options,
    share: *mut *mut kvmem_share,
    error: *mut *mut kvmem_error,
) -> kvmem_status {
    // SAFETY: by contract.
    unsafe {
        call(error, |scope| {
            let (share, options) = (Out::new(share)?, read_nullable(options)?);
            share.set(Arc::new(Share::of_layout(borrow(scope, layout)?, grant(options)?)?));
            Ok(())
        })
    }
}

fn grant(options: Option<kvmem_share_options>) -> Result<ShareOptions> {
    let Some(options) = options else {
        return Ok(ShareOptions { access: Access::ReadWrite, way: Transport::Auto });
    };
    check_flags("kvmem_share_options", options.flags, KVMEM_SHARE_READ_ONLY)?;
    ensure!(options.reserved == 0, InvalidArgument, "reserved is {}, it must be 0", options.reserved);
    let read_only = options.flags & KVMEM_SHARE_READ_ONLY != 0;
    let way = match options.way {
        KVMEM_SHARE_AUTO => Transport::Auto,
        KVMEM_SHARE_FD => Transport::Fd,
        KVMEM_SHARE_IPC => Transport::Ipc,
        KVMEM_SHARE_REMOTE => Transport::Remote,
        KVMEM_SHARE_FABRIC => Transport::Fabric,
        other => return Err(not_one_of("way", other, "KVMEM_SHARE_AUTO, _FD, _IPC, _REMOTE or _FABRIC")),
    };
    Ok(ShareOptions { access: if read_only { Access::Read } else { Access::ReadWrite }, way })
}
