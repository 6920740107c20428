// SPDX-License-Identifier: Apache-2.0
//! Costs that runs on a GPU show, so that estimates follow a host that changes: the CPU time of batches, and the time that
//! kernels wait for concurrent compute. A run costs two clock reads and one lock.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::base::Mutex;
use crate::copy::gpu::CopyDirection;
use crate::run::learned::{Learned, Learning};

/// The CPU time of a batch, relative to what is assumed. Runs count by the time since the previous one, so that
/// the estimate is a mean over seconds: on H200 hosts, a copy takes 0.4 us or twice that, for some tenths of a second each.
/// Following each change made worse choices than the mean, because the next transfer meets the other state as often.
static BATCH: Learning = Learning {
    default: 1.0,
    bounds: [0.3, 3.0],
    prior: 4.0,
    memory: 4.0,
    longer: 1.0,
    spacings: [Duration::from_secs(1); 2],
    half_life: Some(Duration::from_secs(300)),
};
/// How busy compute keeps the device. The default is low, so that kernels are tried: only kernels can show it. It rises
/// fast and falls slowly: a kernel that did not wait may have started in a gap between two large kernels. The half-life
/// covers the time in which every transfer is too small for a kernel beside compute, so that none shows it. Samples above 1
/// count: where kernels wait for all of a large one or not at all, and twice the mean is as frequent as nothing, a limit of 1
/// would halve the mean. A lower sample counts by the time since the previous one, up to the length of a large kernel: while
/// a large kernel ends, ten transfers that follow each other directly may start at once, and that is still one gap.
static BUSY: Learning = Learning {
    default: 0.02,
    bounds: [0.0, 2.0],
    prior: 9.0,
    memory: 9.0,
    longer: 4.0,
    spacings: [Duration::ZERO, Duration::from_micros(1700)],
    half_life: Some(Duration::from_secs(30)),
};

#[derive(Clone, Copy, Debug)]
pub struct ObservedCosts {
    to_device: Learned<1>,
    to_host: Learned<1>,
    busy: Learned<1>,
}

impl Default for ObservedCosts {
    fn default() -> Self {
        let [to_device, to_host] = [Learned::new(&BATCH); 2];
        Self { to_device, to_host, busy: Learned::new(&BUSY) }
    }
}

impl ObservedCosts {
    fn batches(&mut self, direction: CopyDirection) -> &mut Learned<1> {
        if direction == CopyDirection::ToHost { &mut self.to_host } else { &mut self.to_device }
    }

    /// The CPU time of batches to the device and to the host, relative to what is assumed.
    pub fn batch_factors(&self, now: Instant) -> [f64; 2] {
        let ([to_device], [to_host]) = (self.to_device.factors(now), self.to_host.factors(now));
        [to_device, to_host]
    }

    /// How busy compute keeps the device: 0 if kernels start at once, 1 if they wait as they do for large kernels.
    pub fn busy(&self, now: Instant) -> f64 {
        let [busy] = self.busy.factors(now);
        busy.min(1.0)
    }

    /// Adds a batch whose copies took `taken` seconds of CPU time, and are assumed to take `assumed`.
    pub fn add_batch(&mut self, direction: CopyDirection, assumed: f64, taken: f64, now: Instant) {
        self.batches(direction).add([assumed], taken, 1.0, now);
    }

    /// Adds a run of a method with a kernel, which took `taken` seconds. `alone` and `beside` are the estimates without and with
    /// concurrent large kernels. A duration that is nearer to the first counts as the first: the rest is delay of the host.
    pub fn add_kernel(&mut self, taken: f64, [alone, beside]: [f64; 2], now: Instant) {
        let waited = (taken - alone) / (beside - alone);
        self.busy.add([1.0], if waited > 0.5 { waited } else { 0.0 }, 1.0, now);
    }
}

/// What the runs of a transfer show.
#[derive(Clone, Copy, Debug)]
pub enum Measurement {
    Batch {
        direction: CopyDirection,
        /// Seconds of its calls, without the time per copy.
        calls: f64,
        /// Seconds of its copies, as assumed.
        assumed: f64,
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
        if let Measurement::Batch { direction, calls, assumed } = self.measurement {
            let taken = (took.as_secs_f64() - calls).max(0.0);
            self.observed.lock().add_batch(direction, assumed, taken, Instant::now());
        }
    }

    /// Records the duration of a successful run during which no other run was in flight.
    pub fn ended_alone(&self, took: Duration) {
        if let Measurement::Kernel { expected } = self.measurement {
            self.observed.lock().add_kernel(took.as_secs_f64(), expected, Instant::now());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn each_direction_has_its_own_estimate() {
        let (mut observed, now) = (ObservedCosts::default(), Instant::now());
        observed.add_batch(CopyDirection::ToHost, 1e-6, 2e-6, now);
        let [to_device, to_host] = observed.batch_factors(now);
        assert!(to_device == 1.0 && to_host > 1.1, "{to_host}");
    }

    #[test]
    fn a_few_delayed_kernels_show_compute_and_kernels_are_tried_again_later() {
        let (mut observed, start) = (ObservedCosts::default(), Instant::now());
        let expected = [20e-6, 200e-6];
        observed.add_kernel(210e-6, expected, start);
        assert!(observed.busy(start) < 0.4, "one delayed kernel proves little");
        observed.add_kernel(190e-6, expected, start);
        observed.add_kernel(190e-6, expected, start);
        observed.add_kernel(90e-6, expected, start);
        assert!(observed.busy(start) > 0.5, "the last kernel was late, but did not wait for compute");
        assert!(observed.busy(start + 180 * SECOND) < 0.05);
        observed.add_kernel(19e-6, expected, start + SECOND);
        assert!(observed.busy(start + SECOND) > 0.4, "a gap between two kernels");
        for run in 1..=20 {
            observed.add_kernel(19e-6, expected, start + SECOND + run * SECOND / 100);
        }
        assert!(observed.busy(start + 2 * SECOND) < 0.1);
    }

    /// Transfers that follow each other directly.
    struct Series {
        observed: ObservedCosts,
        now: Instant,
        expected: [f64; 2],
    }

    impl Series {
        fn new(expected: [f64; 2]) -> Self {
            Self { observed: ObservedCosts::default(), now: Instant::now(), expected }
        }

        fn run(&mut self, taken: f64) {
            self.now += Duration::from_secs_f64(taken);
            self.observed.add_kernel(taken, self.expected, self.now);
        }

        fn run_for(&mut self, duration: Duration, taken: f64) {
            let end = self.now + duration;
            while self.now < end {
                self.run(taken);
            }
        }

        fn busy(&self) -> f64 {
            self.observed.busy(self.now)
        }
    }

    #[test]
    fn kernels_that_wait_for_twice_the_mean_or_not_at_all_show_that_compute_runs() {
        let mut series = Series::new([70e-6, 800e-6]);
        for run in 0..40 {
            series.run(if run % 2 == 0 { 1530e-6 } else { 75e-6 });
        }
        for _ in 0..4 {
            series.run(75e-6);
        }
        assert!(series.busy() > 0.85, "{}", series.busy());
    }

    /// While the last CTAs of a large kernel end, other multiprocessors are free. Then short kernels start at once, several of
    /// them.
    #[test]
    fn short_kernels_in_the_gaps_between_large_ones_do_not_show_that_compute_has_ended() {
        let mut series = Series::new([16e-6, 210e-6]);
        for large in 0..160 {
            series.run_for(Duration::from_micros(1350), 270e-6);
            series.run_for(Duration::from_micros(150), 16e-6);
            assert!(large < 2 || series.busy() > 0.9, "{large}: {}", series.busy());
        }
        series.run_for(Duration::from_millis(60), 16e-6);
        assert!(series.busy() < 0.1, "compute has ended: {}", series.busy());
    }
}
