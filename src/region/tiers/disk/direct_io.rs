// SPDX-License-Identifier: Apache-2.0
//! Direct I/O: whether a file bypasses the page cache, and the required alignment of its I/O.

use std::os::fd::OwnedFd;

use rustix::fs::{AtFlags, OFlags, StatxFlags};
use rustix::io::Errno;

use crate::base::{Cause, Result, fail, log, retried};
use crate::region::reopened;

/// Whether reads and writes bypass the page cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DirectIo {
    /// If the file system supports it.
    #[default]
    Preferred,
    /// Fail if the file system does not support it.
    Required,
    /// Never.
    Off,
}

/// Opens an open file again with O_DIRECT if wanted. Without support the file itself is returned, if that
/// is allowed.
///
/// The file is never created with O_DIRECT: the kernel creates a file before it checks for support, so a failed call would
/// leave the file behind.
pub fn open_direct(file: OwnedFd, access: OFlags, wanted: DirectIo, what: &str) -> Result<(OwnedFd, bool)> {
    if wanted == DirectIo::Off {
        return Ok((file, false));
    }
    match reopened(&file, access | OFlags::DIRECT) {
        Ok(direct) => Ok((direct, true)),
        Err(error) if error.cause() != Some(&Cause::Errno(Errno::INVAL.raw_os_error())) => {
            Err(error.context(what))
        }
        Err(_) if wanted == DirectIo::Preferred => {
            log!(Warn, "{what}: the file system does not support O_DIRECT; I/O uses the page cache");
            Ok((file, false))
        }
        Err(_) => fail!(Unsupported, "{what}: the file system does not support O_DIRECT, which is required"),
    }
}

/// The required alignment of offsets, sizes and addresses of direct I/O on a file. Kernels before 6.1 do
/// not report it; a page suits them all.
pub fn alignment(file: &OwnedFd) -> u64 {
    let page = rustix::param::page_size() as u64;
    match retried::statx(file, c"", AtFlags::EMPTY_PATH, StatxFlags::DIOALIGN) {
        Ok(statx) if statx.stx_dio_offset_align > 0 => {
            u64::from(statx.stx_dio_offset_align.max(statx.stx_dio_mem_align))
        }
        _ => page,
    }
}
