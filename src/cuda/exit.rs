// SPDX-License-Identifier: Apache-2.0
//! The end of the process, from which on the library's threads call no function of the driver's.
//!
//! `exit` runs the handlers of the driver and of what observes it, such as a profiler, on the thread that has called it. Other threads
//! run on meanwhile, and one of the library's that is in a call then uses what the handlers destroy. So the process waits for
//! these calls first, and later ones return DEINITIALIZED, as the driver's own do when it has released everything. Calls on threads of
//! the program are its own matter.
#![allow(unsafe_code)]

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::base::process::PerProcess;
use crate::base::{log, thread};

/// How long a process that exits waits for calls of the driver. One that waits for work of a GPU may take any time.
const PATIENCE: Duration = Duration::from_secs(1);
/// Between two looks for the end of the calls.
const PAUSE: Duration = Duration::from_micros(100);

/// Calls by the library's threads, and whether the process exits.
#[derive(Default)]
struct Calls(AtomicU64);

/// The bit of [`Calls`] for a process that exits. The others count calls.
const EXITS: u64 = 1 << 63;

/// A forked child has none of the threads.
static CALLS: PerProcess<Calls> = PerProcess::new();

impl Calls {
    /// Begins a call. Returns false if the process exits.
    fn begin(&self) -> bool {
        let may_call = self.0.fetch_add(1, Ordering::Acquire) & EXITS == 0;
        if !may_call {
            self.end();
        }
        may_call
    }

    fn end(&self) {
        self.0.fetch_sub(1, Ordering::Release);
    }

    /// Prevents later calls, and waits for those that have begun. Returns whether they have ended.
    fn exit(&self, patience: Duration) -> bool {
        let until = Instant::now() + patience;
        let mut calls = self.0.fetch_or(EXITS, Ordering::AcqRel) & !EXITS;
        while calls > 0 && Instant::now() < until {
            std::thread::sleep(PAUSE);
            calls = self.0.load(Ordering::Acquire) & !EXITS;
        }
        calls == 0
    }
}

/// Begins a call of the driver, which [`end_call`] ends. Returns false if it must not be made.
#[inline(never)]
pub(super) fn begin_call() -> bool {
    !thread::is_own() || CALLS.get(Calls::default).begin()
}

#[inline(never)]
pub(super) fn end_call() {
    if thread::is_own() {
        CALLS.get(Calls::default).end();
    }
}

/// Has the process wait when it exits, before what was initialised until now is destroyed: `exit` first calls what was registered last.
pub(super) fn prepare() {
    // SAFETY: a function that does not unwind.
    if unsafe { libc::atexit(at_exit) } != 0 {
        log!(Warn, "a process that exits does not wait for calls of the CUDA driver: out of memory");
    }
}

extern "C" fn at_exit() {
    if !CALLS.get(Calls::default).exit(PATIENCE) {
        log!(
            Debug,
            "a call of the CUDA driver did not return within {PATIENCE:?}; the process exits meanwhile"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_exits_waits_for_calls_and_prevents_later_ones() {
        let calls = Calls::default();
        assert!(calls.begin());
        assert!(!calls.exit(Duration::ZERO), "a call has not ended");
        std::thread::scope(|scope| {
            let exit = scope.spawn(|| calls.exit(Duration::from_secs(60)));
            assert!(!calls.begin());
            calls.end();
            assert!(exit.join().unwrap());
        });
        assert!(!calls.begin() && calls.exit(Duration::ZERO));
    }
}
