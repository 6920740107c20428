// SPDX-License-Identifier: Apache-2.0
//! Shares as bytes and file descriptors, for a channel of the caller.

use std::ffi::c_void;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;

use crate::base::{Error, Result, ensure, lists};
use crate::ffi::common::{Out, call, items, kvmem_error, kvmem_status, text};
use crate::ffi::share::kvmem_share;
use crate::share::Share;

/// Creates a share from untrusted bytes and file descriptors that came over a channel of the caller.
///
/// @param data the bytes, as in kvmem_share_info; copied
/// @param fds the file descriptors, in that order, which the call duplicates; NULL with num_fds 0
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
    call(error, |_| {
        // SAFETY: by contract.
        let (share, bytes, fds) = unsafe {
            (
                Out::new(share, "share")?,
                text::bytes(data, size, "data")?,
                items(fds, num_fds, ("fds", "num_fds"))?,
            )
        };
        // Checked before any is duplicated: a duplicate may get the number of one that is not open.
        fds.iter().try_for_each(|fd| ensure_open(*fd))?;
        let fds = fds.iter().map(|fd| duplicate(*fd)).collect::<Result<_>>()?;
        share.set(Arc::new(Share::received(lists::copied(bytes)?, fds)?));
        Ok(())
    })
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
