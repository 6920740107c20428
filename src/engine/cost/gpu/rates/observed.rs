// SPDX-License-Identifier: Apache-2.0
//! Costs that runs of transfers show, so that estimates follow a host that changes: the CPU time per copy of a batch, and
//! the time that kernels wait for concurrent compute. Pure.
//!
//! Each is an exponential moving average within fixed bounds, which decays to a default while no samples arrive. So an
//! outlier changes little, a series of outliers is limited by the bounds, and a path that was once slow, and is therefore
//! not taken, is tried again later.
#![forbid(unsafe_code)]

use std::time::{Duration, Instant};

/// Number of copies of a batch that count as its first ones. Each takes longer than a later one, until the driver's code and
/// data are cached: observed on short batches only, the cost of long ones was estimated 1.3 to 1.8 times too high.
pub const FIRST_COPIES: u64 = 128;

/// How an estimate follows its samples.
struct Smoothing {
    /// The value without samples.
    default: f64,
    least: f64,
    most: f64,
    /// The fraction of the distance by which a higher, and a lower, sample moves it.
    shares: [f64; 2],
    /// The time since the previous sample from which a higher one, and a lower one, counts fully.
    spacings: [Duration; 2],
    /// The time without samples in which the distance to the default halves.
    half_life: Duration,
}

/// The cost of a copy in a batch, relative to its measured cost. Samples count by the time since the previous one, so that
/// the estimate is a mean over seconds: on H200 hosts, a copy takes 0.4 us or twice that, for some tenths of a second each.
/// Following each change made worse choices than the mean, because the next transfer meets the other state as often.
const BATCH: Smoothing = Smoothing {
    default: 1.0,
    least: 0.3,
    most: 3.0,
    shares: [0.2; 2],
    spacings: [Duration::from_secs(1); 2],
    half_life: Duration::from_secs(300),
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
    spacings: [Duration::ZERO, Duration::from_micros(1700)],
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

    /// Moves the current value towards a sample.
    fn follow(&mut self, smoothing: &Smoothing, value: f64, sample: f64, now: Instant) {
        if !sample.is_finite() {
            return;
        }
        let distance = sample.clamp(smoothing.least, smoothing.most) - value;
        let which = usize::from(distance < 0.0);
        let share = smoothing.shares[which] * self.covered(smoothing.spacings[which], now);
        self.0 = Some((value + share * distance, now));
    }

    /// The fraction of a spacing that has passed since the previous sample.
    fn covered(&self, spacing: Duration, now: Instant) -> f64 {
        let Some((_, at)) = self.0 else { return 1.0 };
        let since = now.saturating_duration_since(at);
        if since >= spacing { 1.0 } else { since.as_secs_f64() / spacing.as_secs_f64() }
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
    batches: [BatchEstimates; 2],
    busy: Estimate,
}

/// The CPU time per copy of a batch, relative to the measured one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BatchFactors {
    /// Of the first [`FIRST_COPIES`] copies.
    pub first: f64,
    /// Of all others.
    pub later: f64,
}

#[derive(Clone, Copy, Debug, Default)]
struct BatchEstimates {
    first: Estimate,
    later: Estimate,
}

impl BatchEstimates {
    /// One without samples is as the other: both depend on the speed of the host.
    fn factors(&self, now: Instant) -> BatchFactors {
        let [first, later] = [(&self.first, &self.later), (&self.later, &self.first)]
            .map(|(own, other)| if own.0.is_some() { own } else { other }.value(&BATCH, now));
        BatchFactors { first, later }
    }

    /// Adds a sample: `copies` copies took as long as `sum` measured ones. The difference to the estimate is divided as the
    /// least change of both that explains it. A few of a kind show nothing of it.
    fn follow(&mut self, copies: u64, sum: f64, now: Instant) {
        let BatchFactors { first, later } = self.factors(now);
        let few = copies.min(FIRST_COPIES);
        let (few, more) = (few as f64, (copies - few) as f64);
        let difference = (sum - few * first - more * later) / (few * few + more * more);
        if few > more / 4.0 {
            self.first.follow(&BATCH, first, first + few * difference, now);
        }
        if more > few / 2.0 {
            self.later.follow(&BATCH, later, later + more * difference, now);
        }
    }
}

impl ObservedCosts {
    /// The cost of the copies of a batch, relative to the measured cost.
    pub fn batch_factors(&self, direction: BatchDirection, now: Instant) -> BatchFactors {
        self.batches[direction as usize].factors(now)
    }

    /// How busy compute keeps the device: 0 if kernels start at once, 1 if they wait as they do for large kernels.
    pub fn busy(&self, now: Instant) -> f64 {
        self.busy.value(&BUSY, now).min(1.0)
    }

    /// Adds a sample: submitting a batch of `copies` copies took `seconds`. `measured` is the measured cost of a copy.
    pub fn add_batch(
        &mut self,
        direction: BatchDirection,
        copies: u64,
        seconds: f64,
        measured: f64,
        now: Instant,
    ) {
        self.batches[direction as usize].follow(copies, seconds / measured, now);
    }

    /// Adds a sample: a path with a kernel took `taken` seconds. `alone` and `beside` are the estimates without and with
    /// concurrent large kernels. A duration that is nearer to the first counts as the first: the rest is delay of the host.
    pub fn add_kernel(&mut self, taken: f64, [alone, beside]: [f64; 2], now: Instant) {
        let waited = (taken - alone) / (beside - alone);
        let busy = self.busy.value(&BUSY, now);
        self.busy.follow(&BUSY, busy, if waited > 0.5 { waited } else { 0.0 }, now);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    const DIRECTION: BatchDirection = BatchDirection::ToDevice;

    #[test]
    fn without_samples_an_estimate_is_the_default() {
        let (observed, now) = (ObservedCosts::default(), Instant::now());
        let BatchFactors { first, later } = observed.batch_factors(DIRECTION, now);
        assert_eq!((first, later), (BATCH.default, BATCH.default));
        assert_eq!(observed.busy(now), BUSY.default);
    }

    #[test]
    fn the_estimate_follows_a_host_that_slows_down_and_recovers() {
        for copies in [FIRST_COPIES, 20 * FIRST_COPIES] {
            let (mut observed, start) = (ObservedCosts::default(), Instant::now());
            let mut add = |each, runs: std::ops::Range<u32>| {
                for run in runs.clone() {
                    observed.add_batch(DIRECTION, copies, each * copies as f64, 0.4e-6, start + run * SECOND);
                }
                let now = start + runs.end * SECOND;
                assert_eq!(observed.batch_factors(BatchDirection::ToHost, now).first, BATCH.default);
                observed.batch_factors(DIRECTION, now)
            };
            let slow = add(1.0e-6, 0..30);
            let observed = |of: BatchFactors| if copies > FIRST_COPIES { of.later } else { of.first };
            assert!((observed(slow) / 2.5 - 1.0).abs() < 0.1, "{slow:?}");
            assert!(slow.first.min(slow.later) > 1.2, "the other follows: {slow:?}");
            let fast = add(0.4e-6, 30..60);
            assert!((observed(fast) - 1.0).abs() < 0.1, "{fast:?}");
        }
    }

    #[test]
    fn the_cost_of_first_copies_does_not_raise_that_of_later_ones() {
        let (mut observed, start) = (ObservedCosts::default(), Instant::now());
        let seconds = |copies: u64| {
            let few = copies.min(FIRST_COPIES);
            few as f64 * 0.8e-6 + (copies - few) as f64 * 0.4e-6
        };
        for (run, copies) in (0..).zip([1500, 80, 120, 64, 2000, 100, 200, 70, 900, 64, 90, 110].repeat(3)) {
            observed.add_batch(DIRECTION, copies, seconds(copies), 0.5e-6, start + run * SECOND);
        }
        let BatchFactors { first, later } = observed.batch_factors(DIRECTION, start + 36 * SECOND);
        assert!((first / 1.6 - 1.0).abs() < 0.1, "{first}");
        assert!((later / 0.8 - 1.0).abs() < 0.1, "{later}");
    }

    #[test]
    fn one_interrupted_run_changes_the_estimate_little() {
        for copies in [64, 6400] {
            let (mut observed, now) = (ObservedCosts::default(), Instant::now());
            observed.add_batch(DIRECTION, copies, 1.0, 0.4e-6, now);
            let BatchFactors { first, later } = observed.batch_factors(DIRECTION, now);
            assert!(first.max(later) <= BATCH.default + BATCH.shares[0] * (BATCH.most - BATCH.default));
        }
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
            samples in prop::collection::vec((any::<f64>(), any::<f64>(), 0u64..100_000, 0u64..1000), 0..50),
        ) {
            let (mut observed, mut now) = (ObservedCosts::default(), Instant::now());
            for (taken, other, milliseconds, copies) in samples {
                now += Duration::from_millis(milliseconds);
                observed.add_batch(BatchDirection::ToHost, copies, taken, other, now);
                observed.add_kernel(taken, [other, taken / 2.0], now);
                let (factors, busy) = (observed.batch_factors(BatchDirection::ToHost, now), observed.busy(now));
                let BatchFactors { first, later } = factors;
                prop_assert!((BATCH.least..=BATCH.most).contains(&first.min(later)), "{:?}", factors);
                prop_assert!((BATCH.least..=BATCH.most).contains(&first.max(later)), "{:?}", factors);
                prop_assert!((BUSY.least..=1.0).contains(&busy), "{}", busy);
            }
        }
    }
}
