// SPDX-License-Identifier: Apache-2.0
//! What transfers show of a device while they run, so that the estimates follow a host that changes: what copies of a
//! batch cost its CPU, and how long kernels wait for compute beside them. Pure.
//!
//! Each of these is one number that moves towards a sample by a fixed share, stays within fixed bounds, and returns to
//! what is usual while no sample comes. So one odd run changes little, no run of odd ones changes more than the bounds
//! say, and a path that once seemed slow, and is therefore not taken, is tried again.

#![forbid(unsafe_code)]

use std::time::{Duration, Instant};

/// How an estimate moves.
struct Habit {
    /// What is assumed without a sample.
    usual: f64,
    least: f64,
    most: f64,
    /// How far one sample moves it up, and down, of the distance.
    shares: [f64; 2],
    /// After this time without a sample half of the distance to what is usual is left.
    half_life: Duration,
}

/// Of what was measured.
const BATCH: Habit =
    Habit { usual: 1.0, least: 0.3, most: 3.0, shares: [0.2; 2], half_life: Duration::from_secs(60) };
/// Of the wait beside large kernels. Low, so that kernels are tried where nobody knows: they show it, batches do not. It
/// rises at once and falls slowly, because compute has gaps: a kernel that has met one shows little of the next.
const BUSY: Habit =
    Habit { usual: 0.02, least: 0.0, most: 1.0, shares: [0.3, 0.1], half_life: Duration::from_secs(10) };

/// A number that follows samples.
#[derive(Clone, Copy, Debug, Default)]
struct Estimate(Option<(f64, Instant)>);

impl Estimate {
    fn value(&self, habit: &Habit, now: Instant) -> f64 {
        let Some((value, at)) = self.0 else { return habit.usual };
        let ages = now.saturating_duration_since(at).as_secs_f64() / habit.half_life.as_secs_f64();
        habit.usual + (value - habit.usual) * 0.5f64.powf(ages)
    }

    fn follow(&mut self, habit: &Habit, sample: f64, now: Instant) {
        if !sample.is_finite() {
            return;
        }
        let value = self.value(habit, now);
        let distance = sample.clamp(habit.least, habit.most) - value;
        let share = habit.shares[usize::from(distance < 0.0)];
        self.0 = Some((value + share * distance, now));
    }
}

/// Where batches are copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BatchDirection {
    /// From host memory.
    ToDevice,
    /// To host memory.
    ToHost,
}

/// What transfers have shown of a device.
#[derive(Clone, Copy, Debug, Default)]
pub struct Observed {
    batches: [Estimate; 2],
    busy: Estimate,
}

impl Observed {
    /// What a copy of a batch costs, of what was measured.
    pub fn batch_factor(&self, direction: BatchDirection, now: Instant) -> f64 {
        self.batches[direction as usize].value(&BATCH, now)
    }

    /// How busy compute keeps the device: from 0, where kernels start at once, to 1, where they wait as beside large
    /// ones.
    pub fn busy(&self, now: Instant) -> f64 {
        self.busy.value(&BUSY, now)
    }

    /// Submitting a batch took `each` seconds per copy, where `measured` was known.
    pub fn see_batch(&mut self, direction: BatchDirection, each: f64, measured: f64, now: Instant) {
        self.batches[direction as usize].follow(&BATCH, each / measured, now);
    }

    /// A path with a kernel took so many seconds, where these are expected alone and beside large kernels. It has waited,
    /// or it has not: what lies between is how a host is late.
    pub fn see_kernel(&mut self, taken: f64, [alone, beside]: [f64; 2], now: Instant) {
        let has_waited = taken - alone > 0.5 * (beside - alone);
        self.busy.follow(&BUSY, if has_waited { 1.0 } else { 0.0 }, now);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn without_a_sample_it_is_as_usual() {
        let (observed, now) = (Observed::default(), Instant::now());
        assert_eq!(observed.batch_factor(BatchDirection::ToHost, now), BATCH.usual);
        assert_eq!(observed.busy(now), BUSY.usual);
    }

    #[test]
    fn it_follows_a_host_that_slows_down_and_recovers() {
        let (mut observed, start) = (Observed::default(), Instant::now());
        for run in 0..20 {
            observed.see_batch(BatchDirection::ToDevice, 1.0e-6, 0.4e-6, start + run * SECOND);
        }
        let slow = observed.batch_factor(BatchDirection::ToDevice, start + 20 * SECOND);
        assert!((slow / 2.5 - 1.0).abs() < 0.1, "{slow}");
        assert_eq!(observed.batch_factor(BatchDirection::ToHost, start), BATCH.usual);
        for run in 20..40 {
            observed.see_batch(BatchDirection::ToDevice, 0.4e-6, 0.4e-6, start + run * SECOND);
        }
        let fast = observed.batch_factor(BatchDirection::ToDevice, start + 40 * SECOND);
        assert!((fast - 1.0).abs() < 0.1, "{fast}");
    }

    #[test]
    fn one_run_that_was_interrupted_changes_little() {
        let (mut observed, now) = (Observed::default(), Instant::now());
        observed.see_batch(BatchDirection::ToDevice, 1.0, 0.4e-6, now);
        let factor = observed.batch_factor(BatchDirection::ToDevice, now);
        assert!(factor <= BATCH.usual + BATCH.shares[0] * (BATCH.most - BATCH.usual));
    }

    #[test]
    fn kernels_beside_compute_are_known_after_a_few_and_tried_again_later() {
        let (mut observed, start) = (Observed::default(), Instant::now());
        let expected = [20e-6, 200e-6];
        observed.see_kernel(210e-6, expected, start);
        assert!(observed.busy(start) < 0.4, "one may have met anything");
        observed.see_kernel(190e-6, expected, start);
        observed.see_kernel(190e-6, expected, start);
        observed.see_kernel(90e-6, expected, start);
        assert!(observed.busy(start) > 0.5, "late, but not kept waiting");
        assert!(observed.busy(start + 60 * SECOND) < 0.05);
        observed.see_kernel(19e-6, expected, start + SECOND);
        assert!(observed.busy(start + SECOND) > 0.4, "a gap between two kernels");
        for _ in 0..20 {
            observed.see_kernel(19e-6, expected, start + SECOND);
        }
        assert!(observed.busy(start + SECOND) < 0.1);
    }

    proptest! {
        #[test]
        fn whatever_is_seen_the_estimates_stay_within_bounds(
            samples in prop::collection::vec((any::<f64>(), any::<f64>(), 0u64..100_000), 0..50),
        ) {
            let (mut observed, mut now) = (Observed::default(), Instant::now());
            for (taken, other, milliseconds) in samples {
                now += Duration::from_millis(milliseconds);
                observed.see_batch(BatchDirection::ToHost, taken, other, now);
                observed.see_kernel(taken, [other, taken / 2.0], now);
                let (factor, busy) = (observed.batch_factor(BatchDirection::ToHost, now), observed.busy(now));
                prop_assert!((BATCH.least..=BATCH.most).contains(&factor), "{}", factor);
                prop_assert!((BUSY.least..=BUSY.most).contains(&busy), "{}", busy);
            }
        }
    }
}
