// SPDX-License-Identifier: Apache-2.0
//! Which runs have a device to themselves.
#![forbid(unsafe_code)]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

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
