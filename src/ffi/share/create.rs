// SPDX-License-Identifier: Apache-2.0
//! Creating shares.

use std::sync::Arc;

use crate::base::{Result, ensure};
use crate::ffi::common::{
    borrow, call_new, check_flags, check_reserved, kvmem_error, kvmem_status, not_one_of, options,
    read_nullable,
};
use crate::ffi::layout::kvmem_layout;
use crate::ffi::region::kvmem_region;
use crate::ffi::share::kvmem_share;
use crate::region::{Access, FutureWrites};
use crate::share::{Share, ShareOptions, Transport};

/// Selects the transport by tier: file descriptors for system, pinned, elastic and disk memory, and for
/// device memory that an engine mapped with cuMemMap; the driver's IPC handle for other device memory. Memory
/// that can be exported only as fabric handles is carried by these.
pub const KVMEM_SHARE_AUTO: u32 = 0;
/// Carries memory by file descriptors.
pub const KVMEM_SHARE_FD: u32 = 1;
/// Carries memory by the driver's IPC handle.
pub const KVMEM_SHARE_IPC: u32 = 2;
/// Carries no memory: other processes access the layout through NIXL.
pub const KVMEM_SHARE_REMOTE: u32 = 3;
/// Carries memory by the driver's fabric handles: elastic memory created with KVMEM_ELASTIC_FABRIC, or memory
/// that an engine mapped and created with fabric handles.
pub const KVMEM_SHARE_FABRIC: u32 = 4;

/// Grants read access only. File descriptors of host memory and files are then read-only, and GPUs get no
/// write access to extents and mappings. That prevents mistakes, and no intent: a process of the same user,
/// or root, can open such a file descriptor again for writing, unless the memory is sealed
/// (KVMEM_SHARE_WRITE_SEALED). For device memory by IPC handle, only the importer's kvmem prevents writing.
pub const KVMEM_SHARE_READ_ONLY: u64 = 1;

/// Seals host memory against writing by other processes for ever (F_SEAL_FUTURE_WRITE), before it is shared.
/// Requires KVMEM_SHARE_READ_ONLY. Mappings that exist remain writable, such as those of this process. For
/// memory of KVMEM_SYSTEM_SHAREABLE and KVMEM_PINNED_SHAREABLE it must be set in the first share; for an
/// adopted memory file before a share that grants write access.
pub const KVMEM_SHARE_WRITE_SEALED: u64 = 2;

/// Options of kvmem_share_create_region and kvmem_share_create_layout.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct kvmem_share_options {
    /// sizeof(kvmem_share_options)
    pub struct_size: usize,
    /// KVMEM_SHARE_* flags; 0 grants read and write access.
    pub flags: u64,
    /// How memory is carried: KVMEM_SHARE_AUTO (default), _FD, _IPC, _REMOTE or _FABRIC.
    pub transport: u32,
    /// Must be 0.
    pub reserved: u32,
}
options!(kvmem_share_options);

/// Creates a share of a region.
///
/// Importers open the region, and can access all memory that the share carries: for a view all of its parent,
/// for device memory the whole allocation or mapping that contains it.
///
/// @param region a region that this process owns: system or pinned memory that was allocated shareable; an
///         adopted memory file; device memory that was allocated or adopted; elastic memory, of which the
///         committed extents are shared; or a file. Device memory that an engine mapped must be exportable
/// @return KVMEM_STATUS_INVALID_ARGUMENT: the transport is KVMEM_SHARE_REMOTE, which only layouts have
///         KVMEM_STATUS_UNSUPPORTED: the memory cannot be carried like this, or sealed; the message says why
///         KVMEM_STATUS_PERMISSION_DENIED: write access is granted for a file or memory that can only be read
///         KVMEM_STATUS_INVALID_STATE: the context of the device memory was reset or destroyed; or the memory
///           is to be sealed and was shared before: an adopted file to be written, other memory at all
///         KVMEM_STATUS_BUSY: a process holds a lease on the file (F_SETLEASE)
///         KVMEM_STATUS_IO
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_share_create_region(
    region: *const kvmem_region,
    options: *const kvmem_share_options,
    share: *mut *mut kvmem_share,
    error: *mut *mut kvmem_error,
) -> kvmem_status {
    call_new(error, (share, "share"), |scope| {
        let options = read_nullable(options)?;
        Ok(Arc::new(Share::from_region(borrow(scope, region)?, grant(options)?)?))
    })
}

/// Creates a share of a layout: its shape, its regions, and the data for NIXL.
///
/// With any transport but KVMEM_SHARE_REMOTE, the share carries the memory of all regions of the layout. The
/// share also carries the data for NIXL: the metadata of the agent, and the layout descriptor. It does not if
/// the layout is on disk, is shared read-only, or has no agent with a backend that reaches peers. NIXL has no
/// read-only access, so a layout that is shared with KVMEM_SHARE_READ_ONLY cannot be accessed through NIXL.
///
/// @return any status of kvmem_share_create_region, and
///         KVMEM_STATUS_UNSUPPORTED: the layout is remote; or importers could not align a region, because it
///           starts at an offset in its memory that is not a multiple of the layout's alignment
///         KVMEM_STATUS_INVALID_STATE: KVMEM_SHARE_REMOTE, and the share would not carry the data for NIXL
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_share_create_layout(
    layout: *const kvmem_layout,
    options: *const kvmem_share_options,
    share: *mut *mut kvmem_share,
    error: *mut *mut kvmem_error,
) -> kvmem_status {
    call_new(error, (share, "share"), |scope| {
        let options = read_nullable(options)?;
        Ok(Arc::new(Share::from_layout(borrow(scope, layout)?, grant(options)?)?))
    })
}

/// The options as core types.
pub(in crate::ffi) fn grant(options: Option<kvmem_share_options>) -> Result<ShareOptions> {
    let Some(options) = options else {
        let writes = FutureWrites::Allowed;
        return Ok(ShareOptions { access: Access::ReadWrite, way: Transport::Auto, writes });
    };
    check_flags("kvmem_share_options", options.flags, KVMEM_SHARE_READ_ONLY | KVMEM_SHARE_WRITE_SEALED)?;
    check_reserved("kvmem_share_options", options.reserved)?;
    let read_only = options.flags & KVMEM_SHARE_READ_ONLY != 0;
    let sealed = options.flags & KVMEM_SHARE_WRITE_SEALED != 0;
    ensure!(
        read_only || !sealed,
        InvalidArgument,
        "KVMEM_SHARE_WRITE_SEALED needs KVMEM_SHARE_READ_ONLY: no importer can write sealed memory"
    );
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
    let access = if read_only { Access::Read } else { Access::ReadWrite };
    let writes = if sealed { FutureWrites::Sealed } else { FutureWrites::Allowed };
    Ok(ShareOptions { access, way, writes })
}
