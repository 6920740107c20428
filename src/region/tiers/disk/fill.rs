// SPDX-License-Identifier: Apache-2.0
//! Giving a new file its length, its label and its space.
//!
//! In this order, so that a process that ends in between, or a machine that loses power, leaves a file that can be opened: an
//! empty one, which is treated as new, or one with its length and its label, whose space may not be reserved.

use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{self, FallocateFlags};
use rustix::io::Errno;

use super::label::{self, Label};
use crate::base::file_limit::FileSizeSignal;
use crate::base::{Error, Result, advice, log, retried};
use crate::cuda::deferred;
use crate::region::available_memory::ensure_available;

/// Space is reserved in pieces, which are smaller while signals arrive: an interrupted call releases what it has reserved, so
/// that one call for the whole file would never end while a profiler sends a signal every few milliseconds.
const MAX_PIECE: u64 = 64 << 20;
const MIN_PIECE: u64 = 64 << 10;

/// Fills an empty file. Returns whether its space is reserved.
pub fn fill(file: &OwnedFd, size: u64, label: Option<&Label>) -> Result<bool> {
    let length = match label {
        Some(_) => label::offset(size)? + label::PAGE,
        None => size,
    };
    let what = format!("allocate {length} bytes for a file");
    ensure_memory(file, length, &what)?;
    let _limit_reports_itself = FileSizeSignal::block();
    match label {
        // It is the last page, so it sets the length.
        Some(label) => {
            label::write(file, size, label).and_then(|()| sync(file)).map_err(|error| error.context(&what))?
        }
        None => retried::ftruncate(file, length).map_err(|errno| Error::errno(&what, errno))?,
    }
    reserve(file, length, &what)
}

/// Fails if a file on tmpfs is larger than the memory that is left: allocating a page beyond the limit of the control group
/// does not fail, the kernel ends the process instead.
fn ensure_memory(file: &OwnedFd, length: u64, what: &str) -> Result<()> {
    let Ok(system) = retried::fstatfs(file) else { return Ok(()) };
    if system.f_type != libc::TMPFS_MAGIC {
        return Ok(());
    }
    // A tmpfs without a limit of its own reports no blocks.
    let free = system.f_bavail.saturating_mul(u64::try_from(system.f_bsize).unwrap_or(u64::MAX));
    if system.f_blocks > 0 && length > free {
        return Err(no_space(file, what));
    }
    deferred::allocate(None, || ensure_available(length, None)).map_err(|error| {
        error.context(what).followed_by("the file is on tmpfs, which is memory: choose a directory on a disk")
    })
}

fn no_space(file: &OwnedFd, what: &str) -> Error {
    Error::errno(what, Errno::NOSPC).with_advice(advice::free_space(file.as_fd()))
}

/// The label must be on the medium before the space is: otherwise a loss of power could leave the length without the label.
fn sync(file: &OwnedFd) -> Result<()> {
    match retried::fdatasync(file) {
        // The file system has no such call.
        Ok(()) | Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => Ok(()),
        Err(errno) => Err(Error::errno("flush its label to the medium", errno)),
    }
}

fn reserve(file: &OwnedFd, length: u64, what: &str) -> Result<bool> {
    let (mut done, mut piece) = (0, MAX_PIECE);
    while done < length {
        let size = piece.min(length - done);
        #[allow(clippy::disallowed_methods, reason = "repeated here, with a smaller piece")]
        match fs::fallocate(file, FallocateFlags::empty(), done, size) {
            Ok(()) => (done, piece) = (done + size, MAX_PIECE.min(2 * piece)),
            Err(Errno::INTR) => piece = MIN_PIECE.max(piece / 2),
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => {
                log!(Warn, "the file system cannot reserve space, so a later write may fail for lack of it");
                return Ok(false);
            }
            Err(Errno::NOSPC) => return Err(no_space(file, what)),
            Err(errno) => return Err(Error::errno(what, errno)),
        }
    }
    Ok(true)
}
