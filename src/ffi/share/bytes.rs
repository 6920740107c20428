// SPDX-License-Identifier: Apache-2.0
//! Shares as bytes and file descriptors, for a channel of the caller.

use std::ffi::c_void;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use crate::base::{Error, Result, ensure, lists};
use crate::ffi::common::{Out, borrow, call, items, kvmem_error, kvmem_status, out, peek, text};
use crate::ffi::share::kvmem_share;
use crate::share::Share;

/// Returns the bytes of a share, for a channel of the caller.
///
/// The bytes contain addresses. Depending on the transport, they also contain IPC handles, fabric handles or
/// NIXL metadata, which give access to the memory: send them only to processes that may access it.
///
/// @param share a share; may be NULL
/// @param size receives the size in bytes; 0 if the share is NULL; may be NULL
/// @return the first byte, valid until the share is destroyed; NULL if the share is NULL
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

/// Returns a file descriptor of a share. Send the file descriptors to the other process in the order of their
/// indices.
///
/// @param index less than num_fds of kvmem_share_info
/// @param fd receives the file descriptor, valid until the share is destroyed; the share owns it, do not
///        close it
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_share_get_fd(
    share: *const kvmem_share,
    index: usize,
    fd: *mut i32,
    error: *mut *mut kvmem_error,
) -> kvmem_status {
    call(error, |scope| {
        let fd = out(fd, "fd")?;
        let fds = borrow(scope, share)?.fds();
        ensure!(
            index < fds.len(),
            OutOfRange,
            "index is {index}, and the share has {} file descriptors",
            fds.len()
        );
        fd.write(fds[index].as_raw_fd());
        Ok(())
    })
}

/// Creates a share from bytes and file descriptors that came over a channel of the caller. kvmem does not
/// trust the bytes.
///
/// @param data the bytes of kvmem_share_data; copied
/// @param fds the file descriptors, in the order of kvmem_share_get_fd; duplicated, so the caller closes its
///        own; NULL with num_fds 0
/// @return KVMEM_STATUS_CORRUPT: the bytes name another number of file descriptors
///         KVMEM_STATUS_INVALID_ARGUMENT: a file descriptor is not open
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
            (Out::new(share, "share")?, text::bytes(data, size, "data")?, items(fds, num_fds, "fds")?)
        };
        // Checked before any is duplicated: a duplicate may get the number of one that is not open.
        fds.iter().try_for_each(|fd| ensure_open(*fd))?;
        let fds = fds.iter().map(|fd| duplicate(*fd)).collect::<Result<_>>()?;
        share.set(Arc::new(Share::received(lists::copied(bytes)?, fds)?));
        Ok(())
    };
    // SAFETY: NULL or writable, by contract.
    unsafe { call(error, body) }
}

fn ensure_open(fd: i32) -> Result<()> {
    ensure!(fd >= 0, InvalidArgument, "fd is {fd}, which is not a file descriptor");
    // SAFETY: not -1; the kernel checks whether it is open.
    let borrowed = unsafe { BorrowedFd::borrow_raw(fd) };
    let asked = rustix::io::fcntl_getfd(borrowed);
    asked.map(|_| ()).map_err(|errno| {
        Error::errno(format!("fd {fd} is not open in this process"), errno)
            .with_status(crate::base::error::Status::InvalidArgument)
    })
}

fn duplicate(fd: i32) -> Result<OwnedFd> {
    // SAFETY: it was open when checked; if another thread has closed it since, the call fails.
    let borrowed = unsafe { BorrowedFd::borrow_raw(fd) };
    rustix::io::fcntl_dupfd_cloexec(borrowed, 0)
        .map_err(|errno| Error::errno(format!("duplicate fd {fd}"), errno))
}
