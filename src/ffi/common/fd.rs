// SPDX-License-Identifier: Apache-2.0
//! File descriptors of the caller.

use std::os::fd::BorrowedFd;

use crate::base::{Result, ensure};

/// Returns a file descriptor of the caller. Fails if it is not open.
///
/// # Safety
/// The caller must keep it open as long as the result is used.
pub unsafe fn open_fd<'a>(fd: i32) -> Result<BorrowedFd<'a>> {
    #[allow(clippy::disallowed_methods, reason = "no signal interrupts it")]
    // SAFETY: queries a flag; for a descriptor that is not open it fails with EBADF.
    let is_open = unsafe { libc::fcntl(fd, libc::F_GETFD) } >= 0;
    ensure!(is_open, InvalidArgument, "fd {fd} is not open in this process");
    // SAFETY: it is open, so it is not -1. The caller keeps it open, by promise.
    Ok(unsafe { BorrowedFd::borrow_raw(fd) })
}
