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

/// Select by tier: file descriptors for system, pinned, elastic and disk, and for GPU memory that an engine
/// mapped itself; the driver's IPC handle for other GPU memory.
pub const KVMEM_SHARE_AUTO: u32 = 0;
/// File descriptors.
pub const KVMEM_SHARE_FD: u32 = 1;
/// The driver's IPC handle.
pub const KVMEM_SHARE_IPC: u32 = 2;
/// None: other processes access a layout by NIXL only.
pub const KVMEM_SHARE_REMOTE: u32 = 3;
/// The driver's fabric handles: for elastic memory created with KVMEM_ELASTIC_FABRIC, or memory that an
/// engine created and mapped so.
pub const KVMEM_SHARE_FABRIC: u32 = 4;

/// Importers may only read. A file descriptor cannot be mapped for writing, and GPUs get no write access to
/// extents. For memory by IPC handle, only the importer's kvmem enforces it.
pub const KVMEM_SHARE_READ_ONLY: u64 = 1;

/// Options of kvmem_share_create_region and kvmem_share_create_layout.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct kvmem_share_options {
    /// sizeof(kvmem_share_options)
    pub struct_size: usize,
    /// KVMEM_SHARE_READ_ONLY; 0 grants reading and writing.
    pub flags: u64,
    /// How the memory is shared: KVMEM_SHARE_AUTO, KVMEM_SHARE_FD, KVMEM_SHARE_IPC, KVMEM_SHARE_REMOTE or
    /// KVMEM_SHARE_FABRIC.
    pub transport: u32,
    /// Must be 0.
    pub reserved: u32,
}
options!(kvmem_share_options);

/// Sets options to their defaults.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_share_options_init(options: *mut kvmem_share_options, struct_size: usize) {
    // SAFETY: by contract.
    unsafe { init(options, struct_size) };
}

/// Shares a region. A share of a view carries all of its parent, of which importers see the part.
///
/// @param region system or pinned memory that is shareable; device memory that was allocated or adopted, also
///         memory that an engine created exportable and mapped; elastic memory, of which the committed
///         extents are shared; or a file
/// @param options what to grant, and how; NULL for the defaults
/// @param share receives the share; the caller destroys it
/// @return KVMEM_STATUS_OK
///         KVMEM_STATUS_UNSUPPORTED: the memory cannot be shared, or not by the requested transport; the
///           message has the reason
///         KVMEM_STATUS_PERMISSION_DENIED: writing is granted for a file that was opened for reading
///         KVMEM_STATUS_OUT_OF_MEMORY: also if no file descriptor is free
///         KVMEM_STATUS_CUDA
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

/// Shares a layout: its shape, its regions, and if it was built with an agent, what peers need to access it
/// by NIXL. A layout that is shared for reading is not accessible by NIXL, which has no read-only access.
///
/// @param layout a layout of this process
/// @param options what to grant, and how; NULL for the defaults
/// @param share receives the share; the caller destroys it
/// @return any status of kvmem_share_create_region, and
///         KVMEM_STATUS_INVALID_STATE: no memory is carried, and the layout has no agent
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
    let way = match options.transport {
        KVMEM_SHARE_AUTO => Transport::Auto,
        KVMEM_SHARE_FD => Transport::Fd,
        KVMEM_SHARE_IPC => Transport::Ipc,
        KVMEM_SHARE_REMOTE => Transport::Remote,
        KVMEM_SHARE_FABRIC => Transport::Fabric,
        other => {
            return Err(not_one_of("transport", other, "KVMEM_SHARE_AUTO, _FD, _IPC, _REMOTE or _FABRIC"));
        }
    };
    Ok(ShareOptions { access: if read_only { Access::Read } else { Access::ReadWrite }, way })
}
