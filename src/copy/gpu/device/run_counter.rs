// SPDX-License-Identifier: Apache-2.0
//! Detects runs during which no other run was in flight on the device.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

#[derive(Default)]
pub struct RunCounter {
    in_flight: AtomicUsize,
    begun: AtomicU64,
}

/// Counts a run as in flight until it is dropped.
pub struct CountedRun {
    run_counter: Arc<RunCounter>,
    started: Instant,
    /// Its number, if no other run was in flight when it began.
    alone: Option<u64>,
}

impl CountedRun {
    pub fn begin(run_counter: &Arc<RunCounter>) -> Self {
        let others = run_counter.in_flight.fetch_add(1, Ordering::AcqRel);
        let number = run_counter.begun.fetch_add(1, Ordering::AcqRel) + 1;
        Self {
            run_counter: run_counter.clone(),
            started: Instant::now(),
            alone: (others == 0).then_some(number),
        }
    }

    /// Time since it began; `None` if another run was in flight meanwhile.
    pub fn alone_for(&self) -> Option<Duration> {
        let is_last = self.alone == Some(self.run_counter.begun.load(Ordering::Acquire));
        is_last.then(|| self.started.elapsed())
    }
}

impl Drop for CountedRun {
    fn drop(&mut self) {
        self.run_counter.in_flight.fetch_sub(1, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_that_shared_the_device_was_not_alone() {
        let run_counter = Arc::new(RunCounter::default());
        let first = CountedRun::begin(&run_counter);
        assert!(first.alone_for().is_some());
        let second = CountedRun::begin(&run_counter);
        assert!(first.alone_for().is_none() && second.alone_for().is_none());
        drop((first, second));
        let third = CountedRun::begin(&run_counter);
        assert!(third.alone_for().is_some());
    }
}
