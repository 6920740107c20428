// SPDX-License-Identifier: Apache-2.0
//! The end of the process, before which work on a GPU ends that no caller waits for: kernels are loaded, copies measured and objects freed
//! by threads of the library.
//!
//! `exit` runs the handlers of the driver, and of what observes it, such as a profiler, on the thread that has called it. Other threads
//! run on meanwhile, and one that calls the driver uses what the handlers destroy. So the process waits for such work when it exits, and
//! none begins later. The runs of transfers are not such work: a program that has waited for them has none when it exits.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::base::disposal::dispose_of_then;
use crate::base::file_systems::Blockers;
use crate::base::{PerProcess, Result, at_exit, ensure, leak, log};

/// How long a process that exits waits. The driver may wait for work of the program on the GPU, which may take any time.
const PATIENCE: Duration = Duration::from_secs(1);
/// Between two looks for the end of the work.
const PAUSE: Duration = Duration::from_micros(100);

/// How many threads do such work, and whether the process exits.
#[derive(Default)]
struct Work(AtomicU64);

/// The bit of [`Work`] for a process that exits. The others count.
const EXITS: u64 = 1 << 63;

/// A forked child has none of the threads.
static WORK: PerProcess<Work> = PerProcess::new();

impl Work {
    fn exits(&self) -> bool {
        self.0.load(Ordering::Acquire) & EXITS != 0
    }

    /// Returns false if the process exits.
    fn begin(&self) -> bool {
        let may_begin = self.0.fetch_add(1, Ordering::Acquire) & EXITS == 0;
        if !may_begin {
            self.end();
        }
        may_begin
    }

    fn end(&self) {
        self.0.fetch_sub(1, Ordering::Release);
    }

    /// Prevents that more begins, and waits for what has begun. Returns whether it has ended.
    fn exit(&self, patience: Duration) -> bool {
        let until = Instant::now() + patience;
        let mut left = self.0.fetch_or(EXITS, Ordering::AcqRel) & !EXITS;
        while left > 0 && Instant::now() < until {
            std::thread::sleep(PAUSE);
            left = self.0.load(Ordering::Acquire) & !EXITS;
        }
        left == 0
    }
}

/// Work that no caller waits for, until it is dropped.
pub struct Unattended(&'static Work);

impl Unattended {
    /// Fails if the process exits.
    pub fn begin() -> Result<Self> {
        let work = WORK.get(Work::default);
        ensure!(work.begin(), InvalidState, "{EXITING}");
        Ok(Self(work))
    }

    /// Fails if the process exits, so that the work ends before its next step.
    pub fn ensure_wanted(&self) -> Result<()> {
        ensure!(!self.0.exits(), InvalidState, "{EXITING}");
        Ok(())
    }
}

const EXITING: &str = "the process exits, and the CUDA driver ends with it; use it before, not in an exit handler or a static destructor";

impl Drop for Unattended {
    fn drop(&mut self) {
        self.0.end();
    }
}

/// Drops objects of a device on another thread. A process that exits frees them by itself.
pub fn dispose_of<T: Send + 'static>(ordinal: i32, objects: Vec<T>) {
    if objects.is_empty() {
        return;
    }
    match Unattended::begin() {
        Ok(work) => dispose_of_then(&Blockers::device(ordinal), objects, move || drop(work)),
        Err(_) => leak::intentionally(objects),
    }
}

/// Whether the process exits.
pub fn has_begun() -> bool {
    WORK.get(Work::default).exits()
}

/// How often the wait is registered, which nothing undoes: more often than a process has kernels and GPUs.
const MAX_REGISTRATIONS: u64 = 256;

/// Has the process wait before it destroys what the driver, and what observes it, have created until now.
pub fn precedes_the_driver() {
    static REGISTRATIONS: AtomicU64 = AtomicU64::new(0);
    if REGISTRATIONS.fetch_add(1, Ordering::Relaxed) >= MAX_REGISTRATIONS {
        return;
    }
    if !at_exit::precede(wait) {
        log!(Warn, "a process that exits does not wait for work of kvmem on the GPU: out of memory");
    }
}

/// On the main thread: has the process wait also before it destroys what they create later. A profiler creates objects when it first sees
/// a kernel, a copy or a measurement of another thread.
pub fn precedes_all_of_the_driver() {
    at_exit::precede_later_ones(wait);
}

/// Waits at most once, however often it is registered.
extern "C" fn wait() {
    if has_begun() {
        return;
    }
    if !WORK.get(Work::default).exit(PATIENCE) {
        log!(
            Debug,
            "work of kvmem on the GPU has not ended within {PATIENCE:?}; the process exits meanwhile"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_exits_waits_for_work_and_prevents_more() {
        let work = Work::default();
        assert!(work.begin() && !work.exits());
        assert!(!work.exit(Duration::ZERO), "it has not ended");
        std::thread::scope(|scope| {
            let exit = scope.spawn(|| work.exit(Duration::from_secs(60)));
            assert!(!work.begin() && work.exits());
            work.end();
            assert!(exit.join().unwrap());
        });
        assert!(!work.begin() && work.exit(Duration::ZERO));
    }
}
