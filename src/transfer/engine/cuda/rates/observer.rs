// SPDX-License-Identifier: Apache-2.0
//! Takes what a run shows: how long its submission took, and how long all of it, where nothing else of the library's was
//! under way on the device. Two looks at a clock and a lock per run.
#![forbid(unsafe_code)]

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::observed::{BatchDirection, ObservedCosts};
use crate::sync::Mutex;

/// What the runs of a transfer show.
#[derive(Clone, Copy, Debug)]
pub enum Measurement {
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
pub struct CostObserver {
    observed: Arc<Mutex<ObservedCosts>>,
    lesson: Measurement,
}

impl CostObserver {
    /// For runs on the device that was observed.
    pub fn new(observed: Arc<Mutex<ObservedCosts>>, lesson: Measurement) -> Self {
        Self { observed, lesson }
    }

    /// Its submission has succeeded.
    pub fn submitted(&self, took: Duration) {
        if let Measurement::Batch { direction, copies, calls, measured } = self.lesson {
            let each = (took.as_secs_f64() - calls).max(0.0) / copies as f64;
            self.with(|observed, now| observed.see_batch(direction, each, measured, now));
        }
    }

    /// It has ended well, and nothing else was under way meanwhile.
    pub fn ended_alone(&self, took: Duration) {
        if let Measurement::Kernel { expected } = self.lesson {
            self.with(|observed, now| observed.see_kernel(took.as_secs_f64(), expected, now));
        }
    }

    fn with(&self, see: impl FnOnce(&mut ObservedCosts, Instant)) {
        see(&mut self.observed.lock(), Instant::now());
    }
}
