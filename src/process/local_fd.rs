// SPDX-License-Identifier: Apache-2.0
//! File descriptors that forked children close.
//!
//! A lock or a socket shows that its process is alive as long as any process has it open. A forked child has it open too: if
//! the parent ends, other processes would still see a live importer, owner or broker. So the child closes them, in a handler
//! of pthread_atfork. A child that is created by clone without the C library runs no such handler.
//!
//! A fork in another thread waits while one is being opened or closed: it would otherwise copy a file descriptor that is
//! not registered yet, or not any more, and the child would keep it. The opening thread runs no signal handlers meanwhile:
//! one that forks would wait for its own thread.

use std::marker::PhantomData;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering};

use super::generation;
use crate::log::log;

/// A file descriptor of this process only.
pub struct LocalFd {
    /// `None` only within `drop`.
    fd: Option<OwnedFd>,
    raw: RawFd,
    generation: u64,
}

impl LocalFd {
    /// Opens one, which every forked child closes. `open` must not wait for another process: a fork
    /// waits for it.
    pub fn open<E>(open: impl FnOnce() -> Result<OwnedFd, E>) -> Result<Self, E> {
        install_handlers();
        let _unforked = Unforked::begin();
        let fd = open()?;
        let raw = fd.as_raw_fd();
        set(raw, true);
        Ok(Self { fd: Some(fd), raw, generation: generation() })
    }

    /// Whether this is the process that opened it. In a forked child its number may be another file's.
    pub fn is_own(&self) -> bool {
        self.generation == generation()
    }
}

impl AsFd for LocalFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: open until this is dropped. It is closed in a forked child, where every call on a handle fails.
        unsafe { BorrowedFd::borrow_raw(self.raw) }
    }
}

impl Drop for LocalFd {
    fn drop(&mut self) {
        let fd = self.fd.take();
        if self.is_own() {
            let _unforked = Unforked::begin();
            // Before closing: afterwards the number may belong to another file, which a child must keep.
            set(self.raw, false);
            drop(fd);
        } else {
            std::mem::forget(fd);
        }
    }
}

/// The number of file descriptors per chunk, with a bit each.
const CHUNK: usize = 1 << 16;
const WORDS: usize = CHUNK / u64::BITS as usize;
/// A process may have more file descriptors than these chunks cover; a forked child keeps those.
const CHUNKS: usize = 1 << 10;

type Chunk = [AtomicU64; WORDS];

/// A bit per file descriptor that forked children close. A forked child may read it at any moment, so it has no lock, and
/// its chunks are never freed.
static OPEN: [AtomicPtr<Chunk>; CHUNKS] = [const { AtomicPtr::new(std::ptr::null_mut()) }; CHUNKS];

fn set(fd: RawFd, is_open: bool) {
    let fd = fd as usize;
    let (word, bit) = (fd % CHUNK / u64::BITS as usize, 1 << (fd % u64::BITS as usize));
    let Some(chunk) = OPEN.get(fd / CHUNK).map(chunk) else { return };
    if is_open {
        chunk[word].fetch_or(bit, Ordering::SeqCst);
    } else {
        chunk[word].fetch_and(!bit, Ordering::SeqCst);
    }
}

/// A chunk, allocated at its first use.
fn chunk(slot: &'static AtomicPtr<Chunk>) -> &'static Chunk {
    // SAFETY: a published chunk is never freed.
    if let Some(chunk) = unsafe { slot.load(Ordering::Acquire).as_ref() } {
        return chunk;
    }
    let fresh = Box::into_raw(Box::new([const { AtomicU64::new(0) }; WORDS]));
    match slot.compare_exchange(std::ptr::null_mut(), fresh, Ordering::AcqRel, Ordering::Acquire) {
        // SAFETY: published just now, and never freed.
        Ok(_) => unsafe { &*fresh },
        // SAFETY: `fresh` was not published; `other` was, by another thread, and is never freed.
        Err(other) => unsafe {
            drop(Box::from_raw(fresh));
            &*other
        },
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

/// Threads that open or close one now.
static CHANGING: AtomicU32 = AtomicU32::new(0);
/// Forks that wait for them, or are in progress. Counts and not a lock: a child could not unlock what its parent's thread
/// has locked, and handlers that are installed twice must not wait for themselves.
static FORKING: AtomicU32 = AtomicU32::new(0);

/// No fork begins while this lives, and no signal handler runs on this thread.
struct Unforked {
    /// The signals that were blocked before.
    signals: libc::sigset_t,
    /// They are those of the thread.
    not_send: PhantomData<*const ()>,
}

impl Unforked {
    fn begin() -> Self {
        // SAFETY: the sets are plain integers, of which zero is a value, and live through the calls; only this thread's mask
        // changes. The calls cannot fail, because their arguments are valid.
        let signals = unsafe {
            let (mut all, mut before) = (std::mem::zeroed(), std::mem::zeroed());
            libc::sigfillset(&mut all);
            libc::pthread_sigmask(libc::SIG_SETMASK, &all, &mut before);
            before
        };
        loop {
            CHANGING.fetch_add(1, Ordering::SeqCst);
            if FORKING.load(Ordering::SeqCst) == 0 {
                return Self { signals, not_send: PhantomData };
            }
            CHANGING.fetch_sub(1, Ordering::SeqCst);
            std::thread::yield_now();
        }
    }
}

impl Drop for Unforked {
    fn drop(&mut self) {
        CHANGING.fetch_sub(1, Ordering::SeqCst);
        // SAFETY: as above.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &self.signals, std::ptr::null_mut()) };
    }
}

/// In the parent, before the fork.
unsafe extern "C" fn begin_fork() {
    FORKING.fetch_add(1, Ordering::SeqCst);
    while CHANGING.load(Ordering::SeqCst) != 0 {
        std::thread::yield_now();
    }
}

/// In the parent, after the fork.
unsafe extern "C" fn end_fork() {
    FORKING.fetch_sub(1, Ordering::SeqCst);
}

/// In a forked child, before fork returns there.
unsafe extern "C" fn close_all() {
    // The only thread of this process is not within either.
    CHANGING.store(0, Ordering::SeqCst);
    FORKING.store(0, Ordering::SeqCst);
    for (index, slot) in OPEN.iter().enumerate() {
        // SAFETY: a published chunk is never freed.
        let Some(chunk) = (unsafe { slot.load(Ordering::Acquire).as_ref() }) else { continue };
        for (word, bits) in chunk.iter().enumerate() {
            let mut open = bits.swap(0, Ordering::SeqCst);
            while open != 0 {
                let fd = index * CHUNK + word * u64::BITS as usize + open.trailing_zeros() as usize;
                // SAFETY: a file descriptor of the parent that is not used in this child.
                unsafe { libc::close(fd as RawFd) };
                open &= open - 1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::FromRawFd;

    use super::*;

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

    /// Both ends of a pipe, under numbers that other tests do not reach.
    fn pipe() -> (OwnedFd, OwnedFd) {
        let (reader, writer) = std::io::pipe().unwrap();
        let high = |fd: OwnedFd| rustix::io::fcntl_dupfd_cloexec(fd, 600).unwrap();
        (high(reader.into()), high(writer.into()))
    }

    fn local(fd: OwnedFd) -> LocalFd {
        LocalFd::open(|| Ok::<_, ()>(fd)).unwrap()
    }

    #[test]
    fn a_fork_waits_for_a_file_that_is_being_opened() {
        let (first, second) = pipe();
        let raw = first.as_raw_fd();
        let (opened, is_opened) = std::sync::mpsc::channel();
        let forked = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let opener = scope.spawn(|| {
                LocalFd::open(|| {
                    opened.send(()).unwrap();
                    // Until the fork waits for this.
                    while FORKING.load(Ordering::SeqCst) == 0 {
                        std::thread::yield_now();
                    }
                    assert!(!forked.load(Ordering::SeqCst));
                    Ok::<_, ()>(first)
                })
            });
            is_opened.recv().unwrap();
            let other = second.as_raw_fd();
            assert!(in_a_child(|| !is_open(raw) && is_open(other)));
            forked.store(true, Ordering::SeqCst);
            drop(opener.join().unwrap());
        });
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
    fn a_signal_handler_that_forks_runs_after_a_file_was_opened() {
        let (first, _second) = pipe();
        // In a child, which SIGALRM ends if the handler waits for its own thread.
        assert!(in_a_child(|| {
            // SAFETY: a handler of the right type; the signals are for this process, which has one thread.
            unsafe {
                libc::alarm(20);
                libc::signal(libc::SIGUSR1, fork_in_a_handler as *const () as libc::sighandler_t);
            }
            let opened = LocalFd::open(|| {
                // SAFETY: as above.
                unsafe { libc::raise(libc::SIGUSR1) };
                Ok::<_, ()>(first)
            });
            opened.is_ok()
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
        let (first, second) = pipe();
        let raw = first.as_raw_fd();
        drop(local(first));
        // SAFETY: no other test opens this number, which is free.
        assert_eq!(unsafe { libc::dup2(second.as_raw_fd(), raw) }, raw);
        assert!(in_a_child(move || is_open(raw)));
        // SAFETY: opened just above.
        drop(unsafe { OwnedFd::from_raw_fd(raw) });
    }
}
