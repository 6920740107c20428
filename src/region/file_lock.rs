// SPDX-License-Identifier: Apache-2.0
//! Locks on bytes of a file that live as long as an open of the file does: the kernel releases them when the process
//! ends, in whatever container it ran.
//!
//! A forked child has the same open of the file, so its copy is closed at the fork, and a lock is released explicitly.
#![allow(unsafe_code)]

use std::ffi::c_int;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use crate::base::{Cause, Error, LocalFd, Result, Status, error, log, retried};

/// Past the last byte a file can have.
const END: u64 = i64::MAX as u64;
/// A process that may read a file may put any number of locks on it, and the kernel finds one by passing those before
/// it. So to count all takes the square of their number; to count this many takes so many passes at most.
pub const MAX_COUNTED: u64 = 1 << 10;
/// Time of the processor for one question about the locks of a file. To count as many locks as are counted takes some milliseconds of it, if there are no
/// others: a count that takes longer passes far more.
const MAX_TIME: Duration = Duration::from_millis(250);

/// The time of the processor that this thread may still spend on locks of a file, of which other processes can make any number.
pub struct LockBudget {
    begun: Duration,
    /// In tests how often it may be asked whether it is spent, so that they do not depend on time.
    #[cfg(test)]
    steps: std::cell::Cell<Option<u64>>,
}

impl Default for LockBudget {
    fn default() -> Self {
        Self {
            begun: thread_time(),
            #[cfg(test)]
            steps: None.into(),
        }
    }
}

impl LockBudget {
    pub fn is_spent(&self) -> bool {
        #[cfg(test)]
        if let Some(steps) = self.steps.get() {
            self.steps.set(Some(steps.saturating_sub(1)));
            return steps == 0;
        }
        thread_time().saturating_sub(self.begun) > MAX_TIME
    }

    #[cfg(test)]
    pub fn with_steps(steps: u64) -> Self {
        Self { steps: Some(steps).into(), ..Self::default() }
    }

    #[cfg(test)]
    pub fn spent() -> Self {
        Self::with_steps(0)
    }
}

/// One locked byte, through an exclusive open of the file.
pub struct FileLock {
    file: LocalFd,
    byte: u64,
}

impl FileLock {
    /// Locks a byte exclusively. The file must be open for writing, by an open that is used for nothing else.
    pub fn exclusive(file: LocalFd, byte: u64) -> Result<Self> {
        Self::take(file, libc::F_WRLCK, byte)
    }

    /// Locks a byte shared. The file must be open for reading, by an open that is used for nothing else.
    pub fn shared(file: LocalFd, byte: u64) -> Result<Self> {
        Self::take(file, libc::F_RDLCK, byte)
    }

    fn take(file: LocalFd, kind: c_int, byte: u64) -> Result<Self> {
        set(&file, kind, byte..byte + 1)
            .map_err(|error| error.context(format!("lock byte {byte} of a file")))?;
        Ok(Self { file, byte })
    }

    pub fn file(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// Whether no other open of the file has locked a byte exclusively.
    pub fn is_free(&self, byte: u64) -> Result<bool> {
        is_locked(self.file.as_fd(), byte).map(|is_locked| !is_locked)
    }

    /// Whether another open of the file has a lock on some of these bytes.
    pub fn has_others(&self, bytes: Range<u64>) -> Result<bool> {
        self.any_other(bytes).map(|found| found.is_some())
    }

    /// How many locks other opens of the file have on some of these bytes; [`MAX_COUNTED`] if there are more.
    pub fn others(&self, bytes: Range<u64>) -> Result<u64> {
        self.others_within(bytes, &LockBudget::default())
    }

    /// The kernel returns any lock in a span, not the first: the one that it returns divides the span in two.
    fn others_within(&self, bytes: Range<u64>, budget: &LockBudget) -> Result<u64> {
        let mut spans = Vec::from_iter(std::iter::once(bytes));
        let mut count = 0;
        while let Some(span) = spans.pop()
            && count < MAX_COUNTED
        {
            if let Some(locked) = self.any_other(span.clone())? {
                count += 1;
                if budget.is_spent() {
                    return Ok(MAX_COUNTED);
                }
                let around = [span.start..locked.start, locked.end..span.end];
                spans.extend(around.into_iter().filter(|rest| !rest.is_empty()));
            }
        }
        Ok(count)
    }

    /// The bytes of a lock that another open of the file has within a span, or reaching into it.
    pub(super) fn any_other(&self, span: Range<u64>) -> Result<Option<Range<u64>>> {
        other_lock(&self.file, span)
    }
}

/// The bytes of a lock that another open of the file has within a span, or reaching into it.
pub(super) fn other_lock(file: &LocalFd, span: Range<u64>) -> Result<Option<Range<u64>>> {
    conflicting(file.as_fd(), libc::F_WRLCK, span)
}

/// Whether another open of a file than this one has locked a byte exclusively. A shared lock does not count: each process that
/// may read the file can have one, and would appear as the owner.
pub fn is_locked(file: BorrowedFd<'_>, byte: u64) -> Result<bool> {
    conflicting(file, libc::F_RDLCK, byte..byte + 1).map(|found| found.is_some())
}

/// The bytes of a lock of another open within a span, or reaching into it, that excludes one of this kind.
fn conflicting(file: BorrowedFd<'_>, kind: c_int, span: Range<u64>) -> Result<Option<Range<u64>>> {
    let mut lock = description(kind, span.start, span.end - span.start);
    retried::ofd_lock(file, libc::F_OFD_GETLK, &mut lock)
        .map_err(|errno| Error::errno("get the locks of a file", errno))?;
    if c_int::from(lock.l_type) == libc::F_UNLCK {
        return Ok(None);
    }
    let bound = |byte: i64| u64::try_from(byte).map_err(|_| strange());
    let start = bound(lock.l_start)?;
    // A length of 0 reaches to the end of all files.
    let end = if lock.l_len == 0 { END } else { start.saturating_add(bound(lock.l_len)?) };
    if start >= span.end || end <= span.start {
        return Err(strange());
    }
    Ok(Some(start..end))
}

impl Drop for FileLock {
    /// A child created by clone may still have the file open, and the lock with it.
    fn drop(&mut self) {
        if self.file.is_own()
            && let Err(error) = unlock(&self.file, self.byte..self.byte + 1)
        {
            log!(Warn, "unlock byte {} of a file: {error}", self.byte);
        }
    }
}

/// Locks bytes shared, beside other locks of this open of the file, which must be open for reading. The kernel joins locks that
/// touch each other.
pub(super) fn lock_shared(file: &LocalFd, bytes: Range<u64>) -> Result<()> {
    set(file, libc::F_RDLCK, bytes).map_err(|error| match error.cause() {
        Some(Cause::Errno(libc::EAGAIN | libc::EACCES)) => error.with_status(Status::Busy).followed_by(
            "a process that can open the control block for writing, such as one of the same user, has locked these bytes exclusively, \
             and keeps others from leases until it ends",
        ),
        _ => error,
    })
}

/// Releases what this open of the file has locked of some bytes.
pub(super) fn unlock(file: &LocalFd, bytes: Range<u64>) -> Result<()> {
    set(file, libc::F_UNLCK, bytes)
}

fn set(file: &LocalFd, kind: c_int, bytes: Range<u64>) -> Result<()> {
    let mut lock = description(kind, bytes.start, bytes.end - bytes.start);
    retried::ofd_lock(file.as_fd(), libc::F_OFD_SETLK, &mut lock)
        .map_err(|errno| Error::errno("fcntl F_OFD_SETLK", errno))
}

/// Time that the processor has spent on this thread, also in the kernel.
fn thread_time() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the output lives through the call, which cannot fail for this clock.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

fn strange() -> Error {
    error!(Io, "the kernel reports a lock outside the requested range")
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

#[cfg(test)]
mod tests {
    use std::fs::File;

    use rustix::fs::{MemfdFlags, OFlags};

    use super::*;
    use crate::region::reopened;

    fn file() -> File {
        rustix::fs::memfd_create("locked", MemfdFlags::CLOEXEC).unwrap().into()
    }

    fn lock(file: &File, byte: u64) -> FileLock {
        FileLock::shared(LocalFd::open(|| reopened(file, OFlags::RDONLY)).unwrap(), byte).unwrap()
    }

    fn exclusive(file: &File, byte: u64) -> FileLock {
        FileLock::exclusive(LocalFd::open(|| reopened(file, OFlags::RDWR)).unwrap(), byte).unwrap()
    }

    #[test]
    fn locks_in_any_order_are_counted() {
        let file = file();
        let own = exclusive(&file, 0);
        let bytes = [700, 100, 900, 101, 1 << 62, 500, 300, 800];
        let mut locks = Vec::new();
        for byte in bytes {
            assert_eq!(own.others(100..END).unwrap(), locks.len() as u64);
            locks.push(lock(&file, byte));
        }
        assert_eq!(own.others(101..END).unwrap(), bytes.len() as u64 - 1);
        drop(locks);
        assert_eq!(own.others(100..END).unwrap(), 0);
    }

    #[test]
    fn a_lock_on_the_whole_file_counts_once() {
        let file = file();
        let own = exclusive(&file, 0);
        let all = reopened(&file, OFlags::RDONLY).unwrap();
        let mut lock = description(libc::F_RDLCK, 1, 0);
        retried::ofd_lock(all.as_fd(), libc::F_OFD_SETLK, &mut lock).unwrap();
        assert_eq!(own.others(100..END).unwrap(), 1);
    }

    #[test]
    fn many_locks_are_counted_up_to_a_limit_and_each_is_found() {
        let file = file();
        let own = exclusive(&file, 0);
        assert!(!own.has_others(100..END).unwrap());
        let one = reopened(&file, OFlags::RDONLY).unwrap();
        // Apart from each other: the kernel joins neighbours of one open.
        for byte in 0..MAX_COUNTED + 100 {
            let mut lock = description(libc::F_RDLCK, 100 + 2 * byte, 1);
            retried::ofd_lock(one.as_fd(), libc::F_OFD_SETLK, &mut lock).unwrap();
        }
        assert!(own.has_others(100..END).unwrap());
        assert_eq!(own.others(100..END).unwrap(), MAX_COUNTED);
        drop(one);
        assert!(!own.has_others(100..END).unwrap());
    }

    #[test]
    fn a_count_that_takes_too_long_ends() {
        let file = file();
        let own = exclusive(&file, 0);
        assert_eq!(own.others_within(100..END, &LockBudget::spent()).unwrap(), 0);
        let _other = lock(&file, 700);
        assert_eq!(own.others_within(100..END, &LockBudget::spent()).unwrap(), MAX_COUNTED);
        assert_eq!(own.others(100..END).unwrap(), 1);
    }

    #[test]
    fn a_lock_is_released_even_if_a_duplicate_fd_is_open() {
        let file = file();
        let opened = LocalFd::open(|| reopened(&file, OFlags::RDWR)).unwrap();
        // Like a child that was created by clone.
        let _copy = rustix::io::fcntl_dupfd_cloexec(opened.as_fd(), 0).unwrap();
        let held = FileLock::exclusive(opened, 7).unwrap();
        let other = lock(&file, 8);
        assert!(!other.is_free(7).unwrap());
        assert!(is_locked(file.as_fd(), 7).unwrap() && !is_locked(file.as_fd(), 9).unwrap());
        drop(held);
        assert!(other.is_free(7).unwrap() && !is_locked(file.as_fd(), 7).unwrap());
    }

    #[test]
    fn a_reader_is_no_owner() {
        let file = file();
        let owner = exclusive(&file, 7);
        let other = lock(&file, 8);
        assert!(is_locked(file.as_fd(), 7).unwrap() && !other.is_free(7).unwrap());
        drop(owner);
        let reader = lock(&file, 7);
        assert!(!is_locked(file.as_fd(), 7).unwrap() && other.is_free(7).unwrap());
        // As an importer it counts.
        assert!(other.has_others(7..END).unwrap() && !reader.has_others(9..END).unwrap());
    }

    #[test]
    fn a_released_lock_is_free() {
        let file = file();
        let own = lock(&file, 7);
        assert!(own.is_free(7).unwrap(), "one's own does not count");
        let other = exclusive(&file, 8);
        assert!(!own.is_free(8).unwrap());
        drop(other);
        assert!(own.is_free(8).unwrap());
    }
}
