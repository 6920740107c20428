// SPDX-License-Identifier: Apache-2.0
//! A lock of a folder, by which processes take turns to change what is in it. It is advisory, and any process that can read the
//! folder can hold it: who waits for it must go on without it after a time.

use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, Mode, OFlags};
use rustix::io::Errno;

use super::process::LocalFd;
use super::retried;

const PAUSE: Duration = Duration::from_millis(1);

/// The lock, until it is dropped.
pub struct FolderLock(LocalFd);

impl FolderLock {
    /// Locks a folder. Fails with [`Errno::WOULDBLOCK`] if another process has it locked for `limit`, and with other errors on file
    /// systems without such locks.
    pub fn take(folder: impl AsFd + Copy, limit: Duration) -> Result<Self, Errno> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let lock = LocalFd::open(|| retried::openat(folder, ".", flags, Mode::empty()))?;
        let until = Instant::now() + limit;
        loop {
            match retried::flock(&lock, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => return Ok(Self(lock)),
                Err(Errno::WOULDBLOCK) if Instant::now() < until => std::thread::sleep(PAUSE),
                Err(errno) => return Err(errno),
            }
        }
    }
}

impl Drop for FolderLock {
    /// A child created by clone may still have the folder open, and the lock with it.
    fn drop(&mut self) {
        if self.0.is_own() {
            let _ = retried::flock(&self.0, FlockOperation::Unlock);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_folder::TestFolder;

    #[test]
    fn one_at_a_time_has_a_folder() {
        let path = TestFolder::new();
        let folder = std::fs::File::open(&path).unwrap();
        let held = FolderLock::take(&folder, Duration::ZERO).unwrap();
        assert_eq!(FolderLock::take(&folder, 3 * PAUSE).err(), Some(Errno::WOULDBLOCK));
        drop(held);
        assert!(FolderLock::take(&folder, Duration::ZERO).is_ok());
    }
}
