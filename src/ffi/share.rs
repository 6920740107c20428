// SPDX-License-Identifier: Apache-2.0
//! Shares.

use std::ffi::c_void;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use super::error::kvmem_error;
use super::guard::call;
use super::handle::{Handle, Out, borrow, destroy, opaque, out, peek};
use super::layout::kvmem_layout;
use super::options::{check_flags, init, not_one_of, options, read_nullable};
use super::region::{kvmem_region, tier};
use super::status::kvmem_status;
use super::text;
use crate::error::{Error, Result, ensure};
use crate::region::Access;
use crate::share::{Object, Share, ShareOptions, Transport};

/// A region or a layout on its way to another process: bytes, and file descriptors that belong to them. The
/// owner of the memory creates it; another process receives and opens it. The owner's share keeps the memory
/// allocated, and extents of an elastic region that it carries can't be decommitted.
///
/// Threads: all functions on one share may run at once, except kvmem_share_destroy.
pub struct kvmem_share {
    handle: Handle<Arc<Share>>,
}
opaque!(kvmem_share, Arc<Share>, "share");

/// As the tier allows: file descriptors for system, pinned, elastic and disk, and for device memory that an engine has
/// mapped itself; the driver's IPC handle for all other device memory.
pub const KVMEM_SHARE_AUTO: u32 = 0;
/// By file descriptors.
pub const KVMEM_SHARE_FD: u32 = 1;
/// By the driver's IPC handle.
pub const KVMEM_SHARE_IPC: u32 = 2;
/// No memory is carried: other processes reach a layout by NIXL.
pub const KVMEM_SHARE_REMOTE: u32 = 3;
/// By the driver's fabric handles: elastic memory made with KVMEM_ELASTIC_FABRIC, or what an engine has mapped so.
pub const KVMEM_SHARE_FABRIC: u32 = 4;

/// Importers may only read. A file descriptor then can't be mapped to be written; a GPU is given no right to write
/// extents; device memory by IPC handle is the importer's to respect, whose kvmem refuses to write.
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
    /// How its memory goes, whether that was asked for or found: KVMEM_SHARE_FD, KVMEM_SHARE_IPC, KVMEM_SHARE_FABRIC,
    /// or KVMEM_SHARE_REMOTE where none goes. KVMEM_SHARE_AUTO where regions of a layout go in different ways.
    pub way: u32,
    /// 0.
    pub reserved: u32,
}

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
/// @param region the region: system or pinned memory made shareable, device memory allocated by kvmem or adopted (also
///        what an engine has mapped itself, if it created it exportable), elastic memory (the extents that are committed
///        now), or a file
/// @param options what to grant, and how; NULL for everything
/// @param share gets the share; the caller destroys it
/// @param error gets the failure; may be NULL
/// @return KVMEM_STATUS_OK; KVMEM_STATUS_UNSUPPORTED for memory that can't be carried, or not in the way asked for,
///         with the reason; KVMEM_STATUS_CUDA; KVMEM_STATUS_OUT_OF_MEMORY also without file descriptors;
///         KVMEM_STATUS_PERMISSION_DENIED to grant writing to a file that was opened to be read only
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

/// Shares a layout: its shape and its regions, and, where it was built with an agent, what peers need to reach it by
/// NIXL. A layout shared to be read only is not reached by NIXL, which knows no such right.
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

/// Makes a share of what came from another process by a way of the caller's own. Any bytes may be given.
///
/// @param data the bytes of kvmem_share_data; copied
/// @param size how many
/// @param fds the file descriptors, in the order of kvmem_share_get_fd; duplicated, so that the caller closes its own;
///        may be NULL with num_fds 0
/// @param num_fds how many
/// @param share gets the share; the caller destroys it
/// @param error gets the failure; may be NULL
/// @return KVMEM_STATUS_OK; KVMEM_STATUS_CORRUPT for bytes that are damaged, hostile or none, and for file descriptors
///         that are not as many as the bytes say; KVMEM_STATUS_VERSION_MISMATCH; KVMEM_STATUS_INVALID_ARGUMENT for a
///         file descriptor that is not open; KVMEM_STATUS_OUT_OF_MEMORY
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_share_create_received(
    data: *const c_void,
    size: usize,
    fds: *const i32,
    num_fds: usize,
    share: *mut *mut kvmem_share,
    error: *mut *mut kvmem_error,
) -> kvmem_status {
    let body = |_: &_| {
        // SAFETY: by contract.
        let (share, bytes, fds) = unsafe {
            (Out::new(share)?, text::bytes(data, size, "data")?, text::items(fds, num_fds, "fds")?)
        };
        // All are looked at first: a duplicate may get the number of one that is not open.
        fds.iter().try_for_each(|fd| ensure_open(*fd))?;
        let fds = fds.iter().map(|fd| duplicate(*fd)).collect::<Result<_>>()?;
        share.set(Arc::new(Share::received(bytes.to_vec(), fds)?));
        Ok(())
    };
    // SAFETY: NULL or writable, by contract.
    unsafe { call(error, body) }
}

/// The bytes of a share, for a way of the caller's own to the other process. They hold no secret but addresses.
///
/// @param share a share; NULL answers NULL
/// @param size gets how many; may be NULL
/// @return the first byte; valid as long as the share
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_share_data(share: *const kvmem_share, size: *mut usize) -> *const c_void {
    // SAFETY: NULL or a live share, by contract.
    let bytes = unsafe { peek(share) }.map_or(&[][..], |share| share.bytes());
    // SAFETY: NULL or writable, by contract.
    if let Some(size) = unsafe { size.as_mut() } {
        *size = bytes.len();
    }
    if bytes.is_empty() { std::ptr::null() } else { bytes.as_ptr().cast() }
}

/// One of the file descriptors of a share. They go to the other process in this order.
///
/// @param share a share
/// @param index which one, below num_fds
/// @param fd gets it: valid as long as the share, and not to be closed
/// @param error gets the failure; may be NULL
/// @return KVMEM_STATUS_OK; KVMEM_STATUS_OUT_OF_RANGE past the last
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_share_get_fd(
    share: *const kvmem_share,
    index: usize,
    fd: *mut i32,
    error: *mut *mut kvmem_error,
) -> kvmem_status {
    // SAFETY: by contract.
    unsafe {
        call(error, |scope| {
            let fd = out(fd, "fd")?;
            let fds = borrow(scope, share)?.fds();
            ensure!(index < fds.len(), OutOfRange, "there is no fd {index}, the share has {}", fds.len());
            fd.write(fds[index].as_raw_fd());
            Ok(())
        })
    }
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

fn ensure_open(fd: i32) -> Result<()> {
    ensure!(fd >= 0, InvalidArgument, "fd {fd} is none");
    // SAFETY: not -1; whether it is open the kernel says.
    let borrowed = unsafe { BorrowedFd::borrow_raw(fd) };
    let asked = rustix::io::fcntl_getfd(borrowed);
    asked.map(|_| ()).map_err(|errno| {
        Error::errno(format!("look at fd {fd}"), errno).with_status(crate::error::Status::InvalidArgument)
    })
}

fn duplicate(fd: i32) -> Result<OwnedFd> {
    // SAFETY: it was open a moment ago; if another thread has closed it since, the kernel says so.
    let borrowed = unsafe { BorrowedFd::borrow_raw(fd) };
    rustix::io::fcntl_dupfd_cloexec(borrowed, 0)
        .map_err(|errno| Error::errno(format!("duplicate fd {fd}"), errno))
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
