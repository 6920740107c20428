// SPDX-License-Identifier: Apache-2.0
//! Locks on bytes of a file that live as long as an open of the file does: the kernel takes them back when the
//! process ends, in whatever container it ran.

use std::ffi::c_int;
use std::os::fd::{AsRawFd, OwnedFd};

use crate::error::{Error, Result, Status};

/// One locked byte, through an open of the file that nothing else shares.
pub struct FileLock(OwnedFd);

impl FileLock {
    /// Locks a byte that nobody else may lock. The file must be open for writing, by an open of its own.
    pub fn exclusive(file: OwnedFd, byte: u64) -> Result<Self> {
        Self::take(file, libc::F_WRLCK, byte)
    }

    /// Locks a byte others may lock this way too. The file must be open for reading, by an open of its own.
    pub fn shared(file: OwnedFd, byte: u64) -> Result<Self> {
        Self::take(file, libc::F_RDLCK, byte)
    }

    fn take(file: OwnedFd, kind: c_int, byte: u64) -> Result<Self> {
        let mut lock = description(kind, byte, 1);
        // SAFETY: a live fd; the description lives through the call.
        if unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_SETLK, &mut lock) } != 0 {
            return Err(Error::last_errno(format!("lock byte {byte} of a memory file")));
        }
        Ok(Self(file))
    }

    /// Whether nobody else has locked a byte.
    pub fn is_free(&self, byte: u64) -> Result<bool> {
        self.first_other(byte, 1).map(|found| found.is_none())
    }

    /// How many bytes from `first` on others have locked.
    pub fn others(&self, first: u64) -> Result<u64> {
        let (mut next, mut count) = (first, 0);
        // A length of 0 reaches to the end of all files.
        while let Some(byte) = self.first_other(next, 0)? {
            count += 1;
            next = next.max(byte) + 1;
        }
        Ok(count)
    }

    /// The first byte of a span that another open of the file has locked.
    fn first_other(&self, start: u64, length: u64) -> Result<Option<u64>> {
        let mut lock = description(libc::F_WRLCK, start, length);
        // SAFETY: a live fd; the description lives through the call.
        if unsafe { libc::fcntl(self.0.as_raw_fd(), libc::F_OFD_GETLK, &mut lock) } != 0 {
            return Err(Error::last_errno("ask who has locked a memory file"));
        }
        if c_int::from(lock.l_type) == libc::F_UNLCK {
            return Ok(None);
        }
        u64::try_from(lock.l_start)
            .map(Some)
            .map_err(|_| Error::new(Status::Io, "the kernel tells of a lock before the start of a file"))
    }
}

fn description(kind: c_int, start: u64, length: u64) -> libc::flock {
    // SAFETY: plain integers, of which zero is a value.
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    lock.l_type = kind as i16;
    lock.l_whence = libc::SEEK_SET as i16;
    lock.l_start = start as i64;
    lock.l_len = length as i64;
    lock
}
