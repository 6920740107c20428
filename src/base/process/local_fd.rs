// SPDX-License-Identifier: Apache-2.0
//! File descriptors that forked children close.
//!
//! A lock or a socket shows that its process is alive as long as any process has it open. A forked child has it open too: if
//! the parent ends, other processes would still see a live importer, owner or broker. So the child closes them, in a handler
//! of pthread_atfork. A child that is created by clone without the C library runs no such handler.
//!
//! Opening and closing a file may wait for a file system, so no fork waits for either. Instead, a file that was opened while
//! the process was forked is closed and opened again: the child keeps the first open, on which there is no lock yet. A child
//! that is forked while a file is closed may keep that open too; its lock was released before.
#![allow(unsafe_code)]

use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use super::generation;
use crate::base::log::log;

/// How often a file is opened, if the process is forked each time.
const MAX_OPENS: usize = 8;

/// A file descriptor of this process only.
pub struct LocalFd {
    fd: ManuallyDrop<OwnedFd>,
    generation: u64,
}

impl LocalFd {
    /// Opens one, which every forked child closes. Calls `open` again if the process was forked meanwhile.
    pub fn open<E>(mut open: impl FnMut() -> Result<OwnedFd, E>) -> Result<Self, E> {
        install_handlers();
        for _ in 1..MAX_OPENS {
            let ended = ENDED.load(Ordering::SeqCst);
            let opened = Self::from_opened(open()?);
            // Each fork that has begun by now had ended before the file was opened.
            if BEGUN.load(Ordering::SeqCst) == ended {
                return Ok(opened);
            }
        }
        log!(Warn, "the process was forked each time that a file was opened; a child may keep a lock of it");
        open().map(Self::from_opened)
    }

    /// One that cannot be opened again, such as a connection. A child that is forked between its opening and this call
    /// keeps it.
    pub fn from_opened(fd: OwnedFd) -> Self {
        install_handlers();
        set(fd.as_raw_fd(), true);
        Self { fd: ManuallyDrop::new(fd), generation: generation() }
    }

    /// Whether this is the process that opened it. In a forked child its number may be another file's.
    pub fn is_own(&self) -> bool {
        self.generation == generation()
    }
}

impl AsFd for LocalFd {
    /// The file. It is closed in a forked child, where every call on a handle fails.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Drop for LocalFd {
    fn drop(&mut self) {
        if self.is_own() {
            // Before closing: afterwards the number may belong to another file, which a child must keep.
            set(self.fd.as_raw_fd(), false);
            // SAFETY: not used after this.
            unsafe { ManuallyDrop::drop(&mut self.fd) };
        }
    }
}

/// File descriptors with higher numbers are kept by forked children. It takes as many open files to get one: the default limit
/// of the kernel.
const MAX_FDS: usize = 1 << 20;

/// A bit per file descriptor that forked children close. A forked child may read it at any moment, so it has no lock. Its pages
/// have memory once they are written.
static OPEN: [AtomicU64; MAX_FDS / 64] = [const { AtomicU64::new(0) }; MAX_FDS / 64];
/// The number of words of it that were ever written.
static USED: AtomicUsize = AtomicUsize::new(0);

fn set(fd: RawFd, is_open: bool) {
    let (index, bit) = (fd as usize / 64, 1 << (fd as usize % 64));
    let Some(word) = OPEN.get(index) else { return };
    if is_open {
        USED.fetch_max(index + 1, Ordering::SeqCst);
        word.fetch_or(bit, Ordering::SeqCst);
    } else {
        word.fetch_and(!bit, Ordering::SeqCst);
    }
}

/// Threads that race here install them twice, which does no harm.
fn install_handlers() {
    static IS_INSTALLED: AtomicBool = AtomicBool::new(false);
    if IS_INSTALLED.load(Ordering::Acquire) {
        return;
    }
    // SAFETY: the handlers allocate nothing and take no lock, so that they are safe in a process with threads and in its
    // child. The C library removes them when this library is unloaded.
    let result = unsafe { libc::pthread_atfork(Some(begin_fork), Some(end_fork), Some(close_all)) };
    if result != 0 {
        log!(Warn, "install fork handlers: errno {result}; a forked child keeps locks and sockets open");
    }
    IS_INSTALLED.store(true, Ordering::Release);
}

/// The forks of this process that have begun, and those that have ended. Several may be in progress.
static BEGUN: AtomicU64 = AtomicU64::new(0);
static ENDED: AtomicU64 = AtomicU64::new(0);

/// In the parent, before the fork.
unsafe extern "C" fn begin_fork() {
    BEGUN.fetch_add(1, Ordering::SeqCst);
}

/// In the parent, after the fork.
unsafe extern "C" fn end_fork() {
    ENDED.fetch_add(1, Ordering::SeqCst);
}

/// In a forked child, before fork returns there.
unsafe extern "C" fn close_all() {
    // This fork is over here, and no other one is in progress in this process.
    ENDED.store(BEGUN.load(Ordering::SeqCst), Ordering::SeqCst);
    for (index, word) in OPEN.iter().enumerate().take(USED.load(Ordering::SeqCst)) {
        let mut open = word.swap(0, Ordering::SeqCst);
        while open != 0 {
            let fd = index * 64 + open.trailing_zeros() as usize;
            // SAFETY: a file descriptor of the parent that is not used in this child.
            unsafe { libc::close(fd as RawFd) };
            open &= open - 1;
        }
    }
}

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "tests need no repetition")]
mod tests {
    use std::os::fd::FromRawFd;

    use super::*;
    use crate::base::sync::Mutex;

    fn is_open(fd: RawFd) -> bool {
        // SAFETY: asks for the flags of a number, open or not.
        unsafe { libc::fcntl(fd, libc::F_GETFD) >= 0 }
    }

    /// Returns the result of `child` in a forked child of this process.
    fn in_a_child(child: impl FnOnce() -> bool) -> bool {
        // SAFETY: the child calls functions that are safe after a fork, and ends at once.
        let pid = unsafe { libc::fork() };
        assert!(pid >= 0);
        if pid == 0 {
            let code = i32::from(!child());
            // SAFETY: ends the child without running anything of the parent's.
            unsafe { libc::_exit(code) };
        }
        let mut status = 0;
        // SAFETY: waits for the child made above.
        assert_eq!(unsafe { libc::waitpid(pid, &mut status, 0) }, pid);
        libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0
    }

    /// Both ends of a pipe.
    fn pipe() -> (OwnedFd, OwnedFd) {
        let (reader, writer) = std::io::pipe().unwrap();
        (reader.into(), writer.into())
    }

    fn local(fd: OwnedFd) -> LocalFd {
        LocalFd::from_opened(fd)
    }

    #[test]
    fn a_fork_does_not_wait_for_a_file_that_is_being_opened_and_the_child_has_no_lock_of_it() {
        let opens = Mutex::new(Vec::new());
        let (opening, is_opening) = std::sync::mpsc::channel();
        let (forked, has_forked) = std::sync::mpsc::channel::<()>();
        std::thread::scope(|scope| {
            let opener = scope.spawn(|| {
                let has_forked = has_forked;
                LocalFd::open(|| {
                    let (first, _) = pipe();
                    opens.lock().push(first.as_raw_fd());
                    opening.send(()).unwrap();
                    // The first time until the process was forked. Later it is known already.
                    let _ = has_forked.recv();
                    Ok::<_, ()>(first)
                })
                .unwrap()
            });
            is_opening.recv().unwrap();
            let first = opens.lock()[0];
            // This child has the first open, and nothing else.
            assert!(in_a_child(|| is_open(first)));
            drop(forked);
            let opened = opener.join().unwrap();
            assert!(opens.lock().len() > 1, "it was not opened again");
            let last = opened.as_fd().as_raw_fd();
            assert_eq!(opens.lock().last(), Some(&last));
            assert!(in_a_child(|| !is_open(last)));
        });
    }

    #[test]
    fn an_open_ends_even_if_every_one_is_interrupted_by_a_fork() {
        let mut opens = 0;
        let opened = LocalFd::open(|| {
            opens += 1;
            assert!(in_a_child(|| true));
            Ok::<_, ()>(pipe().0)
        });
        assert_eq!(opens, MAX_OPENS);
        let raw = opened.unwrap();
        let raw = raw.as_fd().as_raw_fd();
        assert!(in_a_child(|| !is_open(raw)));
    }

    extern "C" fn fork_in_a_handler(_: libc::c_int) {
        // SAFETY: the child ends at once, and the parent waits for it.
        unsafe {
            let pid = libc::fork();
            if pid == 0 {
                libc::_exit(0);
            }
            libc::waitpid(pid, std::ptr::null_mut(), 0);
        }
    }

    #[test]
    fn a_signal_handler_may_fork_while_a_file_is_opened() {
        // In a child, which SIGALRM ends if anything waits for its own thread.
        assert!(in_a_child(|| {
            // SAFETY: a handler of the right type; the signals are for this process, which has one thread.
            unsafe {
                libc::alarm(20);
                libc::signal(libc::SIGUSR1, fork_in_a_handler as *const () as libc::sighandler_t);
            }
            let mut opens = 0;
            let opened = LocalFd::open(|| {
                opens += 1;
                if opens == 1 {
                    // SAFETY: as above.
                    unsafe { libc::raise(libc::SIGUSR1) };
                }
                Ok::<_, ()>(pipe().0)
            });
            opened.is_ok() && opens == 2
        }));
    }

    #[test]
    fn a_forked_child_closes_only_local_files() {
        let (first, second) = pipe();
        let (local, other) = (local(first), second.as_raw_fd());
        let raw = local.as_fd().as_raw_fd();
        assert!(in_a_child(|| !is_open(raw) && is_open(other)));
        assert!(local.is_own() && is_open(raw));
    }

    #[test]
    fn dropping_a_local_file_in_a_forked_child_closes_no_other_file() {
        let (first, second) = pipe();
        let local = local(first);
        let raw = local.as_fd().as_raw_fd();
        let source = second.as_raw_fd();
        assert!(in_a_child(move || {
            // SAFETY: takes the number that the handler has closed.
            let reused = unsafe { libc::dup2(source, raw) };
            drop(local);
            reused == raw && is_open(raw)
        }));
    }

    #[test]
    fn a_dropped_file_is_not_closed_again_in_a_child() {
        /// No other test reaches it, nor takes it when it is free.
        const FREE: RawFd = 900;
        let (first, second) = pipe();
        let first = rustix::io::fcntl_dupfd_cloexec(first, FREE).unwrap();
        let raw = first.as_raw_fd();
        drop(local(first));
        // SAFETY: the number was this test's, and is free.
        assert_eq!(unsafe { libc::dup2(second.as_raw_fd(), raw) }, raw);
        assert!(in_a_child(move || is_open(raw)));
        // SAFETY: opened just above.
        drop(unsafe { OwnedFd::from_raw_fd(raw) });
    }
}
