// SPDX-License-Identifier: Apache-2.0
//! Copies between a slot and local memory, on another thread than the agent's.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::time::Instant;

use crate::error::{Error, Result, Status};
use crate::guarded::guarded;
use crate::transfer::engine::host;
use crate::transfer::plan::Matrix;
use crate::transfer::run::threads::Pool;

const RUNNING: u8 = 0;
const DONE: u8 = 1;
const FAILED: u8 = 2;

/// A copy in progress.
pub struct SlotCopy {
    state: AtomicU8,
    nanoseconds: AtomicU64,
}

impl SlotCopy {
    /// Starts to copy rows between a slot and host memory. If `is_inline`, it has ended on return: passing few bytes to
    /// another thread takes longer than copying them.
    ///
    /// The caller keeps the slot and the memory alive, and does not use the rows, until [`Self::is_done`].
    pub fn start(rows: Vec<Matrix>, is_streamed: bool, is_inline: bool) -> Arc<Self> {
        let copy = Arc::new(Self { state: AtomicU8::new(RUNNING), nanoseconds: AtomicU64::new(0) });
        if is_inline {
            copy.run(&rows, is_streamed);
            return copy;
        }
        let copying = copy.clone();
        Pool::get().run_once(move |_| copying.run(&rows, is_streamed));
        copy
    }

    /// The same for many rows, which `work` lists some at a time.
    pub fn start_each(
        is_inline: bool,
        work: impl FnOnce(&mut dyn FnMut(&[Matrix])) + Send + 'static,
    ) -> Arc<Self> {
        let copy = Arc::new(Self { state: AtomicU8::new(RUNNING), nanoseconds: AtomicU64::new(0) });
        let copying = copy.clone();
        // SAFETY: as in `run`, for rows of each call.
        let run = move |_| copying.time(|| work(&mut |rows| unsafe { host::copy_rows(rows, false) }));
        if is_inline {
            run(false);
        } else {
            Pool::get().run_once(run);
        }
        copy
    }

    fn run(&self, rows: &[Matrix], is_streamed: bool) {
        // SAFETY: the chunk checked the rows against a slot, and the plan against the layouts, which the run holds until the
        // copy has ended. A slot and memory of a layout have no byte in common.
        self.time(|| unsafe { host::copy_rows(rows, is_streamed) });
    }

    fn time(&self, work: impl FnOnce()) {
        let started = Instant::now();
        let outcome = guarded(work);
        self.nanoseconds.store(started.elapsed().as_nanos() as u64, Ordering::Relaxed);
        self.state.store(if outcome.is_ok() { DONE } else { FAILED }, Ordering::Release);
    }

    /// Whether it has ended, and its duration in seconds. Fails if the copying thread has panicked.
    pub fn is_done(&self) -> Result<Option<f64>> {
        match self.state.load(Ordering::Acquire) {
            RUNNING => Ok(None),
            DONE => Ok(Some(self.nanoseconds.load(Ordering::Relaxed) as f64 * 1e-9)),
            _ => Err(Error::new(
                Status::Panic,
                "a thread that copies between staging memory and a layout panicked",
            )),
        }
    }
}
