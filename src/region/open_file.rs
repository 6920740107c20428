// SPDX-License-Identifier: Apache-2.0
//! Reopening a file, and identifying one. Neither waits for another process.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use rustix::fs::{self, AtFlags, Mode, OFlags, Stat, StatxFlags};
use rustix::io::Errno;

use crate::base::file_systems::FileSystemId;
use crate::base::process::explain_proc;
use crate::base::{Error, Result, Status, retried};

/// Opens the file of `file` again. The result has its own rights, locks and flags.
///
/// Fails with BUSY while a process holds a lease on the file (F_SETLEASE). An open that waits for the lease to be
/// broken would block for /proc/sys/fs/lease-break-time, 45 s by default.
pub fn reopened(file: impl AsFd, flags: OFlags) -> Result<OwnedFd> {
    // Of this thread: a main thread that has ended by pthread_exit has no files.
    let path = format!("/proc/thread-self/fd/{}", file.as_fd().as_raw_fd());
    let opened = retried::open(&path, flags | OFlags::CLOEXEC | OFlags::NONBLOCK, Mode::empty());
    let opened = opened.map_err(|errno| match errno {
        Errno::AGAIN => {
            Error::errno(format!("open {path} again: a process holds a lease on the file"), errno)
                .with_status(Status::Busy)
        }
        Errno::NOENT => explain_proc(Error::errno(format!("open {path} again"), errno)),
        _ => Error::errno(format!("open {path} again"), errno),
    })?;
    // I/O on the file may wait: io_uring would otherwise return EAGAIN.
    retried::fcntl_getfl(&opened)
        .and_then(|flags| retried::fcntl_setfl(&opened, flags - OFlags::NONBLOCK))
        .map_err(|errno| Error::errno(format!("open {path} again"), errno))?;
    Ok(opened)
}

/// Identifies a file among all of the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct FileId {
    file_system: FileSystemId,
    inode: u64,
}

impl FileId {
    /// The identity of an open file.
    ///
    /// The file may belong to another process and any file system. One that a process serves (FUSE) gets no request:
    /// the kernel knows device and inode by itself.
    pub fn from_fd(file: BorrowedFd<'_>) -> Result<Self> {
        let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
        match retried::statx(file, c"", flags, StatxFlags::INO) {
            Ok(found) => {
                Ok(Self { file_system: (found.stx_dev_major, found.stx_dev_minor), inode: found.stx_ino })
            }
            // A kernel or a system call filter without statx.
            Err(Errno::NOSYS | Errno::PERM) => Self::by_fstat(file),
            Err(errno) => Err(Error::errno("identify a file", errno)),
        }
    }

    fn by_fstat(file: BorrowedFd<'_>) -> Result<Self> {
        retried::fstat(file)
            .map(|found| Self::from(&found))
            .map_err(|errno| Error::errno("identify a file", errno))
    }

    /// The device and the inode, as /proc/PID/maps has them. Some file systems on disk have another device there.
    pub fn in_list_of_mappings(self) -> (String, u64) {
        let (major, minor) = self.file_system;
        (format!("{major:02x}:{minor:02x}"), self.inode)
    }

    /// The file of an entry of /proc/PID/maps.
    pub fn from_list_of_mappings((device, inode): &(String, u64)) -> Option<Self> {
        let (major, minor) = device.split_once(':')?;
        let number = |text| u32::from_str_radix(text, 16).ok();
        Some(Self { file_system: (number(major)?, number(minor)?), inode: *inode })
    }

    pub fn file_system(self) -> FileSystemId {
        self.file_system
    }
}

impl From<&Stat> for FileId {
    fn from(found: &Stat) -> Self {
        let file_system = (fs::major(found.st_dev), fs::minor(found.st_dev));
        Self { file_system, inode: found.st_ino }
    }
}

#[cfg(test)]
impl FileId {
    /// The file with that inode on some file system.
    pub fn numbered(inode: u64) -> Self {
        Self { file_system: (0, 0), inode }
    }
}

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "tests need no repetition")]
#[allow(unsafe_code)]
mod tests {
    use super::*;

    /// From linux/fcntl.h; the libc crate has it for some C libraries only.
    const F_SETSIG: libc::c_int = 10;

    fn memory_file() -> OwnedFd {
        fs::memfd_create("file", fs::MemfdFlags::CLOEXEC).unwrap()
    }

    #[test]
    fn a_file_is_identified_independently_of_its_path() {
        let (first, second) = (memory_file(), memory_file());
        let again = reopened(&first, OFlags::RDONLY).unwrap();
        assert!(!fs::fcntl_getfl(&again).unwrap().contains(OFlags::NONBLOCK));
        let id = |file: &OwnedFd| FileId::from_fd(file.as_fd()).unwrap();
        assert_eq!(id(&first), id(&again));
        assert_eq!(id(&first), FileId::by_fstat(first.as_fd()).unwrap());
        assert_ne!(id(&first), id(&second));
    }

    #[test]
    fn opening_does_not_wait_for_a_lease() {
        // The kernel does not count the open by memfd_create, and gives no lease by it.
        let file = reopened(memory_file(), OFlags::RDWR).unwrap();
        // SAFETY: a live fd and integers. Of the signals that could report the break SIGURG does nothing.
        let leased = unsafe {
            libc::fcntl(file.as_raw_fd(), F_SETSIG, libc::SIGURG) == 0
                && libc::fcntl(file.as_raw_fd(), libc::F_SETLEASE, libc::F_WRLCK) == 0
        };
        assert!(leased, "{}", std::io::Error::last_os_error());
        // Waiting would take 45 s, and fail neither then nor now.
        reopened(&file, OFlags::RDONLY).err().unwrap().assert_is(Status::Busy, "");
    }
}
