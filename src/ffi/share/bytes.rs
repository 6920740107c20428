// SPDX-License-Identifier: Apache-2.0
//! Shares as bytes and file descriptors, for a transport of the caller.

use std::ffi::c_void;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use crate::error::{Error, Result, ensure};
use crate::ffi::common::error::kvmem_error;
use crate::ffi::common::guard::call;
use crate::ffi::common::handle::{Out, borrow, peek};
use crate::ffi::common::pointer::{items, out};
use crate::ffi::common::status::kvmem_status;
use crate::ffi::common::text;
use crate::ffi::share::kvmem_share;
use crate::share::Share;

/// The bytes of a share, for a way of the caller's own to the other process. They hold no secret but
/// addresses.
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

/// Makes a share of what came from another process by a way of the caller's own. Any bytes may be given.
///
/// @param data the bytes of kvmem_share_data; copied
/// @param size how many
/// @param fds the file descriptors, in the order of kvmem_share_get_fd; duplicated, so that the caller closes
///        its own; may be NULL with num_fds 0
/// @param num_fds how many
/// @param share gets the share; the caller destroys it
/// @param error gets the failure; may be NULL
/// @return KVMEM_STATUS_OK; KVMEM_STATUS_CORRUPT for bytes that are damaged, hostile or none, and for file
///         descriptors that are not as many as the bytes say; KVMEM_STATUS_VERSION_MISMATCH;
///         KVMEM_STATUS_INVALID_ARGUMENT for a file descriptor that is not open; KVMEM_STATUS_OUT_OF_MEMORY
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
        let (share, bytes, fds) =
            unsafe { (Out::new(share)?, text::bytes(data, size, "data")?, items(fds, num_fds, "fds")?) };
        // All are looked at first: a duplicate may get the number of one that is not open.
        fds.iter().try_for_each(|fd| ensure_open(*fd))?;
        let fds = fds.iter().map(|fd| duplicate(*fd)).collect::<Result<_>>()?;
        share.set(Arc::new(Share::received(bytes.to_vec(), fds)?));
        Ok(())
    };
    // SAFETY: NULL or writable, by contract.
    unsafe { call(error, body) }
}

fn ensure_open(fd: i32) -> Result<()> {
    ensure!(fd >= 0, InvalidArgument, "fd {fd} is none");
    // SAFETY: not -1; whether it is open the kernel says.
    let borrowed = unsafe { BorrowedFd::borrow_raw(fd) };
    let asked = rustix::io::fcntl_getfd(borrowed);
    asked.map(|_| ()).map_err(|errno| {
        Error::errno(format!("fd {fd} is not open in this process"), errno)
            .with_status(crate::error::Status::InvalidArgument)
    })
}

fn duplicate(fd: i32) -> Result<OwnedFd> {
    // SAFETY: it was open a moment ago; if another thread has closed it since, the kernel says so.
    let borrowed = unsafe { BorrowedFd::borrow_raw(fd) };
    rustix::io::fcntl_dupfd_cloexec(borrowed, 0)
        .map_err(|errno| Error::errno(format!("duplicate fd {fd}"), errno))
}
