// SPDX-License-Identifier: Apache-2.0
//! Records the costs that a run shows: the duration of its submission, and its whole duration if no other run of kvmem was
//! in flight on the device. It costs two clock reads and one lock per run.
#![forbid(unsafe_code)]

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::observed::{BatchDirection, ObservedCosts};
use crate::base::sync::Mutex;

/// What is measured on the runs of a transfer.
#[derive(Clone, Copy, Debug)]
pub enum Measurement {
    /// The CPU time per copy of a batch.
    Batch {
        /// The direction of the copies.
        direction: BatchDirection,
        /// Number of copies.
        copies: u64,
        /// Seconds of the calls, without the time per copy.
        calls: f64,
        /// Seconds per copy, as measured before.
        measured: f64,
    },
    /// The time that a kernel waits for compute.
    Kernel {
        /// Estimated seconds of a run, without and with concurrent large kernels.
        expected: [f64; 2],
    },
}

/// Adds the measurements on a transfer's runs to the observed costs of its device.
pub struct CostObserver {
    observed: Arc<Mutex<ObservedCosts>>,
    measurement: Measurement,
}

impl CostObserver {
    /// For runs on the device that `observed` belongs to.
    pub fn new(observed: Arc<Mutex<ObservedCosts>>, measurement: Measurement) -> Self {
        Self { observed, measurement }
    }

    /// Records the duration of a successful submission.
    pub fn submitted(&self, took: Duration) {
        if let Measurement::Batch { direction, copies, calls, measured } = self.measurement {
            let seconds = (took.as_secs_f64() - calls).max(0.0);
            self.with(|observed, now| observed.add_batch(direction, copies, seconds, measured, now));
        }
    }

    /// Records the duration of a successful run during which no other run was in flight.
    pub fn ended_alone(&self, took: Duration) {
        if let Measurement::Kernel { expected } = self.measurement {
            self.with(|observed, now| observed.add_kernel(took.as_secs_f64(), expected, now));
        }
    }

    fn with(&self, add: impl FnOnce(&mut ObservedCosts, Instant)) {
        add(&mut self.observed.lock(), Instant::now());
    }
}
