// SPDX-License-Identifier: Apache-2.0
//! File descriptors that forked children close.
//!
//! A lock or a socket shows that its process is alive as long as any process has it open. A forked child has it open too: if
//! the parent ends, other processes would still see a live importer, owner or broker. So the child closes them, in a handler
//! of pthread_atfork. A child that is created by clone without the C library runs no such handler.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering};

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
    /// Takes a file descriptor, which forked children close from now on.
    pub fn new(fd: OwnedFd) -> Self {
        install_handler();
        let raw = fd.as_raw_fd();
        set(raw, true);
        Self { fd: Some(fd), raw, generation: generation() }
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
            // Before closing: afterwards the number may belong to another file, which a child must keep.
            set(self.raw, false);
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

/// Concurrent threads may install it twice; the second run of the handler then finds no open file.
fn install_handler() {
    static IS_INSTALLED: AtomicBool = AtomicBool::new(false);
    if IS_INSTALLED.load(Ordering::Acquire) {
        return;
    }
    // SAFETY: the handler is safe in the child of a process with threads: it allocates nothing and takes no lock. The
    // C library removes it when this library is unloaded.
    let result = unsafe { libc::pthread_atfork(None, None, Some(close_all)) };
    if result != 0 {
        log!(Warn, "install a fork handler: errno {result}; a forked child keeps locks and sockets open");
    }
    IS_INSTALLED.store(true, Ordering::Release);
}

/// In a forked child, before fork returns there.
unsafe extern "C" fn close_all() {
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

    /// What `child` returns in a forked child of this process.
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

    #[test]
    fn a_forked_child_closes_it_and_nothing_else() {
        let (first, second) = pipe();
        let (local, other) = (LocalFd::new(first), second.as_raw_fd());
        let raw = local.as_fd().as_raw_fd();
        assert!(in_a_child(|| !is_open(raw) && is_open(other)));
        assert!(local.is_own() && is_open(raw));
    }

    #[test]
    fn a_forked_child_that_drops_it_closes_no_other_file() {
        let (first, second) = pipe();
        let local = LocalFd::new(first);
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
    fn one_that_was_dropped_is_not_closed_in_a_child() {
        let (first, second) = pipe();
        let raw = first.as_raw_fd();
        drop(LocalFd::new(first));
        // SAFETY: no other test opens this number, which is free.
        assert_eq!(unsafe { libc::dup2(second.as_raw_fd(), raw) }, raw);
        assert!(in_a_child(move || is_open(raw)));
        // SAFETY: opened just above.
        drop(unsafe { OwnedFd::from_raw_fd(raw) });
    }
}
