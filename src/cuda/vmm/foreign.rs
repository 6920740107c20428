// SPDX-License-Identifier: Apache-2.0
//! Identifies a file descriptor that the driver did not accept as memory.

use std::os::fd::{AsRawFd, BorrowedFd};

use rustix::fs::{AtFlags, FileType, StatxFlags};
use rustix::io::Errno;

use crate::base::{Cause, Error, Status, retried};
use crate::cuda::codes::{INVALID_DEVICE, INVALID_HANDLE, INVALID_VALUE, has_code};

/// Adds the type of the file descriptor to the driver's error. Drivers return an unknown error for a descriptor that is not memory,
/// and for other causes, so the status is INVALID_ARGUMENT only if the descriptor is certainly something else.
pub fn explain(fd: BorrowedFd<'_>, error: Error) -> Error {
    if error.status() == Status::OutOfMemory || !matches!(error.cause(), Some(Cause::Cuda(..))) {
        return error;
    }
    let (what, is_foreign) = describe(fd);
    let number = fd.as_raw_fd();
    if is_foreign {
        return error
            .context(format!("fd {number} is {what}, not memory"))
            .with_status(Status::InvalidArgument);
    }
    if has_code(&error, &[INVALID_DEVICE]) {
        let message = format!("fd {number} is memory of a GPU that this process may not use");
        return error.context(message).with_status(Status::NotFound);
    }
    let explained = error.context(format!("fd {number} is {what}"));
    if has_code(&explained, &[INVALID_VALUE, INVALID_HANDLE]) {
        return explained.with_status(Status::InvalidArgument);
    }
    explained
}

/// Describes the file of a file descriptor, and returns whether it cannot be memory of the driver. Such memory is a device of the driver, or
/// a file without a name.
pub fn describe(fd: BorrowedFd<'_>) -> (String, bool) {
    // A file system that another process serves (FUSE) is not queried, because it could block this thread.
    let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
    let stat = match retried::statx(fd, c"", flags, StatxFlags::TYPE | StatxFlags::NLINK) {
        Ok(stat) => stat,
        Err(Errno::BADF) => return ("not open".into(), true),
        Err(errno) => return (format!("a file that can't be examined ({errno})"), false),
    };
    let target = retried::readlink(&format!("/proc/thread-self/fd/{}", fd.as_raw_fd()));
    let path = target.map(|path| path.to_string_lossy().into_owned()).unwrap_or_default();
    match FileType::from_raw_mode(stat.stx_mode.into()) {
        FileType::Fifo => ("a pipe".into(), true),
        FileType::Socket => ("a socket".into(), true),
        FileType::Directory => (format!("the directory {path}"), true),
        FileType::BlockDevice => (format!("the disk {path}"), true),
        FileType::CharacterDevice => (format!("the device {path}"), !path.starts_with("/dev/nvidia")),
        FileType::RegularFile if stat.stx_nlink > 0 => (format!("the file {path}"), true),
        _ => (path, false),
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use super::*;

    #[test]
    fn files_devices_and_pipes_are_not_vmm_handles() {
        let file = std::fs::File::open(file!()).unwrap();
        let (what, is_foreign) = describe(file.as_fd());
        assert!(what.ends_with("foreign.rs") && is_foreign, "{what}");
        let nowhere = std::fs::File::open("/dev/null").unwrap();
        assert_eq!(describe(nowhere.as_fd()), ("the device /dev/null".into(), true));
        let (pipe, _) = std::io::pipe().unwrap();
        assert_eq!(describe(pipe.as_fd()), ("a pipe".into(), true));
    }

    #[test]
    fn an_anonymous_file_may_be_a_vmm_handle() {
        let file = rustix::fs::memfd_create("it", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        assert!(!describe(file.as_fd()).1);
    }
}
