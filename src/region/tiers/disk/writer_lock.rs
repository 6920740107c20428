// SPDX-License-Identifier: Apache-2.0
//! The lock of a file's writer: a second writer, in this process or in another, fails.
//!
//! It is an OFD lock on one byte far past the data, through an open of the file that is used for nothing else. So it
//! conflicts neither with locks of the caller on the data nor with opens and closes of the caller, and the kernel releases
//! it when the process ends. It is advisory: it stops kvmem, and other programs only if they check it.

use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::OFlags;

use crate::base::{Cause, Error, LocalFd, Result, Status, error};
use crate::region::file_lock::FileLock;
use crate::region::reopened;

/// The byte that a writer locks. docs/files.md names it.
const WRITER: u64 = 1 << 62;

/// Locks a file against other writers.
pub fn lock(file: &OwnedFd, path: &Path) -> Result<FileLock> {
    let own = LocalFd::open(|| reopened(file, OFlags::RDWR))?;
    FileLock::exclusive(own, WRITER).map_err(|error| refused(path, error))
}

fn refused(path: &Path, error: Error) -> Error {
    let path = path.display();
    match error.cause() {
        Some(Cause::Errno(libc::EAGAIN | libc::EACCES)) => error!(
            Busy,
            "{path} is already open for writing, in this process or in another; destroy that region, or open the file \
                 with KVMEM_DISK_READ_ONLY, or with KVMEM_DISK_NO_LOCK if the writers synchronise themselves"
        ),
        Some(Cause::Errno(libc::ENOLCK | libc::EOPNOTSUPP | libc::ENOSYS)) => error
            .context(format!("lock {path} against other writers; KVMEM_DISK_NO_LOCK omits the lock"))
            .with_status(Status::Unsupported),
        _ => error.context(format!("lock {path} against other writers")),
    }
}
