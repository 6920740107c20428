// SPDX-License-Identifier: Apache-2.0
//! The limit on the size of this process's files, RLIMIT_FSIZE. It covers memory files too.
//!
//! A call that exceeds it fails with EFBIG, and the kernel also sends SIGXFSZ to the calling thread. The default action of
//! that signal ends the process. A library must not install signal handlers, so the calls that can exceed the limit run with
//! the signal blocked.
#![allow(unsafe_code)]

use std::marker::PhantomData;

/// Blocks SIGXFSZ on the calling thread while it exists. A signal that a call has raised in between is discarded: the result
/// of the call reports the failure.
pub struct FileSizeSignal {
    /// The thread had the signal blocked before.
    was_blocked: bool,
    /// A signal was pending before, which must not be discarded.
    was_pending: bool,
    /// The signal mask belongs to the thread.
    not_send: PhantomData<*const ()>,
}

impl FileSizeSignal {
    pub fn block() -> Self {
        let mut pending = no_signals();
        let mut before = no_signals();
        let signal = only_ours();
        // SAFETY: the sets are initialised and live through the calls; only this thread's mask changes. The calls cannot fail,
        // because their arguments are valid.
        let was_pending = unsafe {
            libc::pthread_sigmask(libc::SIG_BLOCK, &signal, &mut before);
            libc::sigpending(&mut pending);
            libc::sigismember(&pending, libc::SIGXFSZ) == 1
        };
        // SAFETY: as above.
        let was_blocked = unsafe { libc::sigismember(&before, libc::SIGXFSZ) == 1 };
        Self { was_blocked, was_pending, not_send: PhantomData }
    }
}

impl Drop for FileSizeSignal {
    fn drop(&mut self) {
        let signal = only_ours();
        let at_once = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: the set and the time live through the calls; only this thread's mask changes.
        unsafe {
            if !self.was_pending {
                libc::sigtimedwait(&signal, std::ptr::null_mut(), &at_once);
            }
            if !self.was_blocked {
                libc::pthread_sigmask(libc::SIG_UNBLOCK, &signal, std::ptr::null_mut());
            }
        }
    }
}

fn no_signals() -> libc::sigset_t {
    // SAFETY: plain integers, for which zero is a valid value; sigemptyset then initialises the set.
    unsafe {
        let mut set = std::mem::zeroed();
        libc::sigemptyset(&mut set);
        set
    }
}

fn only_ours() -> libc::sigset_t {
    let mut set = no_signals();
    // SAFETY: an initialised set and a valid signal.
    unsafe { libc::sigaddset(&mut set, libc::SIGXFSZ) };
    set
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_pending() -> bool {
        let mut pending = no_signals();
        // SAFETY: an initialised set that lives through the calls.
        unsafe { libc::sigpending(&mut pending) == 0 && libc::sigismember(&pending, libc::SIGXFSZ) == 1 }
    }

    fn raise() {
        // SAFETY: the signal goes to this thread, which has it blocked.
        assert_eq!(unsafe { libc::pthread_kill(libc::pthread_self(), libc::SIGXFSZ) }, 0);
    }

    #[test]
    fn a_signal_of_the_call_is_discarded_and_an_earlier_one_is_kept() {
        // Unblocked with its default action it would end the test.
        let outer = FileSizeSignal::block();
        {
            let _inner = FileSizeSignal::block();
            raise();
            assert!(is_pending());
        }
        assert!(!is_pending());
        raise();
        drop(FileSizeSignal::block());
        assert!(is_pending(), "the caller's own");
        drop(outer);
        assert!(!is_pending());
    }
}
