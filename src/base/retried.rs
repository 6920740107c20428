// SPDX-License-Identifier: Apache-2.0
//! System calls that are repeated after a signal.
//!
//! A signal handler of the program, such as that of a sampling profiler, interrupts system calls with EINTR, which is no
//! failure. A file system that is served by a process may return it for any call. So all calls that can return it are made
//! here; `clippy.toml` forbids them elsewhere.
//!
//! Two calls are not here. fallocate loses its progress, so `region/tiers/disk/fill.rs` divides it. close is never repeated: Linux has
//! closed the file even if it returns EINTR.
#![allow(unsafe_code)]
#![allow(clippy::disallowed_methods, reason = "all of them are repeated here")]

use std::ffi::{CString, c_int, c_void};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::event::{PollFd, Timespec};
use rustix::fs::{
    AtFlags, Dir, FlockOperation, Gid, Mode, OFlags, RenameFlags, Stat, StatFs, StatVfs, Statx, StatxFlags,
    Uid,
};
use rustix::io::{Errno, Result, retry_on_intr};
use rustix::mm::Advice;
use rustix::net::{SocketAddrUnix, SocketFlags};
use rustix::path::Arg;
use rustix::rand::GetRandomFlags;
use rustix::{event, fs, io, mm, net};

use super::timeouts::{deadline_of, time_left};

/// Functions of rustix with the same arguments.
macro_rules! retried {
    ($($module:ident::$name:ident($($argument:ident: $type:ty),*) -> $result:ty;)*) => {
        $(
            #[doc = concat!("`", stringify!($module), "::", stringify!($name), "` of rustix.")]
            pub fn $name($($argument: $type),*) -> Result<$result> {
                retry_on_intr(|| $module::$name($($argument),*))
            }
        )*
    };
}

retried! {
    fs::open(path: impl Arg + Copy, flags: OFlags, mode: Mode) -> OwnedFd;
    fs::openat(folder: impl AsFd + Copy, path: impl Arg + Copy, flags: OFlags, mode: Mode) -> OwnedFd;
    fs::stat(path: impl Arg + Copy) -> Stat;
    fs::lstat(path: impl Arg + Copy) -> Stat;
    fs::fstat(file: impl AsFd + Copy) -> Stat;
    fs::statat(folder: impl AsFd + Copy, path: impl Arg + Copy, flags: AtFlags) -> Stat;
    fs::statx(folder: impl AsFd + Copy, path: impl Arg + Copy, flags: AtFlags, mask: StatxFlags) -> Statx;
    fs::fstatfs(file: impl AsFd + Copy) -> StatFs;
    fs::statfs(path: impl Arg + Copy) -> StatFs;
    fs::fstatvfs(file: impl AsFd + Copy) -> StatVfs;
    fs::mkdir(path: impl Arg + Copy, mode: Mode) -> ();
    fs::link(old: impl Arg + Copy, new: impl Arg + Copy) -> ();
    fs::unlink(path: impl Arg + Copy) -> ();
    fs::unlinkat(folder: impl AsFd + Copy, path: impl Arg + Copy, flags: AtFlags) -> ();
    fs::renameat(from: impl AsFd + Copy, old: impl Arg + Copy, to: impl AsFd + Copy, new: impl Arg + Copy) -> ();
    fs::renameat_with(
        from: impl AsFd + Copy, old: impl Arg + Copy, to: impl AsFd + Copy, new: impl Arg + Copy, flags: RenameFlags
    ) -> ();
    fs::chmod(path: impl Arg + Copy, mode: Mode) -> ();
    fs::fchmod(file: impl AsFd + Copy, mode: Mode) -> ();
    fs::fchown(file: impl AsFd + Copy, owner: Option<Uid>, group: Option<Gid>) -> ();
    fs::ftruncate(file: impl AsFd + Copy, size: u64) -> ();
    fs::fsync(file: impl AsFd + Copy) -> ();
    fs::fdatasync(file: impl AsFd + Copy) -> ();
    fs::flock(file: impl AsFd + Copy, operation: FlockOperation) -> ();
    fs::fcntl_getfl(file: impl AsFd + Copy) -> OFlags;
    fs::fcntl_setfl(file: impl AsFd + Copy, flags: OFlags) -> ();
    io::write(file: impl AsFd + Copy, bytes: &[u8]) -> usize;
    io::pwrite(file: impl AsFd + Copy, bytes: &[u8], offset: u64) -> usize;
    net::bind(socket: impl AsFd + Copy, address: &SocketAddrUnix) -> ();
    net::listen(socket: impl AsFd + Copy, backlog: i32) -> ();
    net::accept_with(socket: impl AsFd + Copy, flags: SocketFlags) -> OwnedFd;
    net::connect(socket: impl AsFd + Copy, address: &SocketAddrUnix) -> ();
}

/// Any other call.
pub fn call<T>(call: impl FnMut() -> Result<T>) -> Result<T> {
    retry_on_intr(call)
}

/// `fs::readlink` of rustix.
pub fn readlink(path: impl Arg + Copy) -> Result<CString> {
    retry_on_intr(|| fs::readlink(path, Vec::new()))
}

/// `fs::Dir::read_from` of rustix, which opens the folder again.
pub fn read_folder(folder: impl AsFd + Copy) -> Result<Dir> {
    retry_on_intr(|| Dir::read_from(folder))
}

/// `io::read` of rustix.
pub fn read(file: impl AsFd + Copy, bytes: &mut [u8]) -> Result<usize> {
    retry_on_intr(|| io::read(file, &mut *bytes))
}

/// `io::pread` of rustix.
pub fn pread(file: impl AsFd + Copy, bytes: &mut [u8], offset: u64) -> Result<usize> {
    retry_on_intr(|| io::pread(file, &mut *bytes, offset))
}

/// `event::poll` of rustix, for no longer than `time` in all; `None` means no limit.
pub fn poll(fds: &mut [PollFd<'_>], time: Option<Duration>) -> Result<usize> {
    // A time that exceeds the clock's range is as good as none.
    let deadline = deadline_of(time);
    retry_on_intr(|| {
        event::poll(fds, time_left(deadline).and_then(|left| Timespec::try_from(left).ok()).as_ref())
    })
}

/// `mm::madvise` of rustix.
///
/// # Safety
/// As for `mm::madvise`.
pub unsafe fn madvise(address: *mut c_void, size: usize, advice: Advice) -> Result<()> {
    // Miri has neither pages nor forks, which all advice here is about.
    if cfg!(miri) {
        return Ok(());
    }
    // SAFETY: the caller's promise.
    retry_on_intr(|| unsafe { mm::madvise(address, size, advice) })
}

/// One of the commands of fcntl on OFD locks, which rustix does not have.
pub fn ofd_lock(file: BorrowedFd<'_>, command: c_int, lock: &mut libc::flock) -> Result<()> {
    retry_on_intr(|| {
        // SAFETY: a live fd; the description lives through the call.
        match unsafe { libc::fcntl(file.as_raw_fd(), command, &raw mut *lock) } {
            -1 => Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO)),
            _ => Ok(()),
        }
    })
}

/// `rand::getrandom` of rustix.
pub fn getrandom(bytes: &mut [u8]) -> Result<usize> {
    retry_on_intr(|| rustix::rand::getrandom(&mut *bytes, GetRandomFlags::empty()))
}
