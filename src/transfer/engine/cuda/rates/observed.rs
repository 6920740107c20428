// SPDX-License-Identifier: Apache-2.0
//! Costs that runs of transfers show, so that estimates follow a host that changes: the CPU time per copy of a batch, and
//! the time that kernels wait for concurrent compute. Pure.
//!
//! Each is an exponential moving average within fixed bounds, which decays to a default while no samples arrive. So an
//! outlier changes little, a series of outliers is limited by the bounds, and a path that was once slow, and is therefore
//! not taken, is tried again later.
#![forbid(unsafe_code)]

use std::time::{Duration, Instant};

/// How an estimate follows its samples.
struct Smoothing {
    /// The value without samples.
    default: f64,
    least: f64,
    most: f64,
    /// The fraction of the distance by which a higher, and a lower, sample moves it.
    shares: [f64; 2],
    /// The time since the previous sample from which a lower one counts fully.
    spacing: Duration,
    /// The time without samples in which the distance to the default halves.
    half_life: Duration,
}

/// The cost of a copy in a batch, relative to its measured cost.
const BATCH: Smoothing = Smoothing {
    default: 1.0,
    least: 0.3,
    most: 3.0,
    shares: [0.2; 2],
    spacing: Duration::ZERO,
    half_life: Duration::from_secs(60),
};
/// How busy compute keeps the device. The default is low, so that kernels are tried: only kernels can show it. It rises
/// fast and falls slowly: a kernel that did not wait may have started in a gap between two large kernels. The half-life
/// covers the time in which every transfer is too small for a kernel beside compute, so that none shows it. Samples above 1
/// count: where kernels wait for all of a large one or not at all, and twice the mean is as frequent as nothing, a limit of 1
/// would halve the mean. A lower sample counts by the time since the previous one, up to the length of a large kernel: while
/// a large kernel ends, ten transfers that follow each other directly may start at once, and that is still one gap.
const BUSY: Smoothing = Smoothing {
    default: 0.02,
    least: 0.0,
    most: 2.0,
    shares: [0.3, 0.1],
    spacing: Duration::from_micros(1700),
    half_life: Duration::from_secs(30),
};

/// A number that follows samples.
#[derive(Clone, Copy, Debug, Default)]
struct Estimate(Option<(f64, Instant)>);

impl Estimate {
    fn value(&self, smoothing: &Smoothing, now: Instant) -> f64 {
        let Some((value, at)) = self.0 else { return smoothing.default };
        let half_lives = now.saturating_duration_since(at).as_secs_f64() / smoothing.half_life.as_secs_f64();
        smoothing.default + (value - smoothing.default) * 0.5f64.powf(half_lives)
    }

    fn follow(&mut self, smoothing: &Smoothing, sample: f64, now: Instant) {
        if !sample.is_finite() {
            return;
        }
        let value = self.value(smoothing, now);
        let distance = sample.clamp(smoothing.least, smoothing.most) - value;
        let [rise, fall] = smoothing.shares;
        let share = if distance < 0.0 { fall * self.covered(smoothing, now) } else { rise };
        self.0 = Some((value + share * distance, now));
    }

    /// The fraction of the spacing that has passed since the previous sample.
    fn covered(&self, smoothing: &Smoothing, now: Instant) -> f64 {
        let Some((_, at)) = self.0 else { return 1.0 };
        let since = now.saturating_duration_since(at);
        if since >= smoothing.spacing { 1.0 } else { since.as_secs_f64() / smoothing.spacing.as_secs_f64() }
    }
}

/// The directions in which batches are observed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BatchDirection {
    /// From host memory.
    ToDevice,
    /// To host memory.
    ToHost,
}

/// The observed costs of one device.
#[derive(Clone, Copy, Debug, Default)]
pub struct ObservedCosts {
    batches: [Estimate; 2],
    busy: Estimate,
}

impl ObservedCosts {
    /// The cost of a copy in a batch, relative to its measured cost.
    pub fn batch_factor(&self, direction: BatchDirection, now: Instant) -> f64 {
        self.batches[direction as usize].value(&BATCH, now)
    }

    /// How busy compute keeps the device: 0 if kernels start at once, 1 if they wait as they do for large kernels.
    pub fn busy(&self, now: Instant) -> f64 {
        self.busy.value(&BUSY, now).min(1.0)
    }

    /// Adds a sample: submitting a batch took `each` seconds per copy. `measured` is the measured cost.
    pub fn add_batch(&mut self, direction: BatchDirection, each: f64, measured: f64, now: Instant) {
        self.batches[direction as usize].follow(&BATCH, each / measured, now);
    }

    /// Adds a sample: a path with a kernel took `taken` seconds. `alone` and `beside` are the estimates without and with
    /// concurrent large kernels. A duration that is nearer to the first counts as the first: the rest is delay of the host.
    pub fn add_kernel(&mut self, taken: f64, [alone, beside]: [f64; 2], now: Instant) {
        let waited = (taken - alone) / (beside - alone);
        self.busy.follow(&BUSY, if waited > 0.5 { waited } else { 0.0 }, now);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn without_samples_an_estimate_is_the_default() {
        let (observed, now) = (ObservedCosts::default(), Instant::now());
        assert_eq!(observed.batch_factor(BatchDirection::ToHost, now), BATCH.default);
        assert_eq!(observed.busy(now), BUSY.default);
    }

    #[test]
    fn the_estimate_follows_a_host_that_slows_down_and_recovers() {
        let (mut observed, start) = (ObservedCosts::default(), Instant::now());
        for run in 0..20 {
            observed.add_batch(BatchDirection::ToDevice, 1.0e-6, 0.4e-6, start + run * SECOND);
        }
        let slow = observed.batch_factor(BatchDirection::ToDevice, start + 20 * SECOND);
        assert!((slow / 2.5 - 1.0).abs() < 0.1, "{slow}");
        assert_eq!(observed.batch_factor(BatchDirection::ToHost, start), BATCH.default);
        for run in 20..40 {
            observed.add_batch(BatchDirection::ToDevice, 0.4e-6, 0.4e-6, start + run * SECOND);
        }
        let fast = observed.batch_factor(BatchDirection::ToDevice, start + 40 * SECOND);
        assert!((fast - 1.0).abs() < 0.1, "{fast}");
    }

    #[test]
    fn one_interrupted_run_changes_the_estimate_little() {
        let (mut observed, now) = (ObservedCosts::default(), Instant::now());
        observed.add_batch(BatchDirection::ToDevice, 1.0, 0.4e-6, now);
        let factor = observed.batch_factor(BatchDirection::ToDevice, now);
        assert!(factor <= BATCH.default + BATCH.shares[0] * (BATCH.most - BATCH.default));
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

    proptest! {
        #[test]
        fn estimates_stay_within_bounds_after_any_samples(
            samples in prop::collection::vec((any::<f64>(), any::<f64>(), 0u64..100_000), 0..50),
        ) {
            let (mut observed, mut now) = (ObservedCosts::default(), Instant::now());
            for (taken, other, milliseconds) in samples {
                now += Duration::from_millis(milliseconds);
                observed.add_batch(BatchDirection::ToHost, taken, other, now);
                observed.add_kernel(taken, [other, taken / 2.0], now);
                let (factor, busy) = (observed.batch_factor(BatchDirection::ToHost, now), observed.busy(now));
                prop_assert!((BATCH.least..=BATCH.most).contains(&factor), "{}", factor);
                prop_assert!((BUSY.least..=1.0).contains(&busy), "{}", busy);
            }
        }
    }
}
