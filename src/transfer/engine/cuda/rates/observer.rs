// SPDX-License-Identifier: Apache-2.0
//! Takes what a run shows: how long its submission took, and how long all of it, where nothing else of the library's was
//! under way on the device. Two looks at a clock and a lock per run.

#![forbid(unsafe_code)]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use super::observed::{BatchDirection, Observed};
use crate::sync::Mutex;

/// What the runs of a transfer show.
#[derive(Clone, Copy, Debug)]
pub enum Lesson {
    /// What a copy of a batch costs.
    Batch {
        /// Where they are copied.
        direction: BatchDirection,
        /// How many copies.
        copies: u64,
        /// Seconds of the calls, beside their copies.
        calls: f64,
        /// Seconds of each, as measured.
        measured: f64,
    },
    /// How long a kernel waits.
    Kernel {
        /// Seconds of a run, alone and beside large kernels.
        expected: [f64; 2],
    },
}

/// Passes on what the runs of a transfer show.
pub struct Observer {
    observed: Arc<Mutex<Observed>>,
    lesson: Lesson,
}

impl Observer {
    /// For runs on the device that was observed.
    pub fn new(observed: Arc<Mutex<Observed>>, lesson: Lesson) -> Self {
        Self { observed, lesson }
    }

    /// Its submission has succeeded.
    pub fn submitted(&self, took: Duration) {
        if let Lesson::Batch { direction, copies, calls, measured } = self.lesson {
            let each = (took.as_secs_f64() - calls).max(0.0) / copies as f64;
            self.with(|observed, now| observed.see_batch(direction, each, measured, now));
        }
    }

    /// It has ended well, and nothing else was under way meanwhile.
    pub fn ended_alone(&self, took: Duration) {
        if let Lesson::Kernel { expected } = self.lesson {
            self.with(|observed, now| observed.see_kernel(took.as_secs_f64(), expected, now));
        }
    }

    fn with(&self, see: impl FnOnce(&mut Observed, Instant)) {
        see(&mut self.observed.lock(), Instant::now());
    }
}

/// Counts the runs on a device.
#[derive(Default)]
pub struct Traffic {
    under_way: AtomicUsize,
    begun: AtomicU64,
}

/// One run on a device, until it is dropped.
pub struct Passage {
    traffic: Arc<Traffic>,
    started: Instant,
    /// Its number, if none was under way when it began.
    alone: Option<u64>,
}

impl Passage {
    /// Begins.
    pub fn begin(traffic: &Arc<Traffic>) -> Self {
        let others = traffic.under_way.fetch_add(1, Ordering::AcqRel);
        let number = traffic.begun.fetch_add(1, Ordering::AcqRel) + 1;
        Self { traffic: traffic.clone(), started: Instant::now(), alone: (others == 0).then_some(number) }
    }

    /// How long it has been under way, if no other was meanwhile.
    pub fn alone_for(&self) -> Option<Duration> {
        let is_last = self.alone == Some(self.traffic.begun.load(Ordering::Acquire));
        is_last.then(|| self.started.elapsed())
    }
}

impl Drop for Passage {
    fn drop(&mut self) {
        self.traffic.under_way.fetch_sub(1, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_that_shared_the_device_was_not_alone() {
        let traffic = Arc::new(Traffic::default());
        let first = Passage::begin(&traffic);
        assert!(first.alone_for().is_some());
        let second = Passage::begin(&traffic);
        assert!(first.alone_for().is_none() && second.alone_for().is_none());
        drop((first, second));
        let third = Passage::begin(&traffic);
        assert!(third.alone_for().is_some());
    }
}
