// SPDX-License-Identifier: Apache-2.0
//! Costs that runs show: factors by which the durations of runs differ from what is assumed of their parts. The only way in which
//! kvmem learns from runs. Pure.
//!
//! A run of parts that are assumed to take `parts[i]` seconds took `taken`. The factors move by a share of the distance to the
//! nearest ones that explain this run, so that a part that takes most of a run learns the most from it. The first runs count more than later ones,
//! unless the default has a weight of its own. Factors stay within bounds, and return to the default while no run ends: an
//! outlier changes little, and a method that was once slow, and is therefore not taken, is tried again later.

use std::time::{Duration, Instant};

use crate::base::Mutex;

#[derive(Debug)]
pub struct Learning {
    /// The factor before the first run.
    pub default: f64,
    /// The least and the greatest factor.
    pub bounds: [f64; 2],
    /// The number of runs that the default is worth.
    pub prior: f64,
    /// The number of earlier runs that later ones are compared with: one moves a factor by 1 / (`memory` + 1) of the distance.
    pub memory: f64,
    /// The number of runs that one is worth that took longer than estimated.
    pub longer: f64,
    /// The time since the previous run from which one that took longer than estimated, and one that did not, counts fully.
    pub spacings: [Duration; 2],
    /// The time without runs in which the distance to the default halves. `None` if it never does.
    pub half_life: Option<Duration>,
}

/// Costs that are known to the order of magnitude, such as those of a file system or of a network: the first run replaces what is
/// assumed.
pub static ORDER_OF_MAGNITUDE: Learning = Learning {
    default: 1.0,
    bounds: [1e-3, 1e3],
    prior: 0.0,
    memory: 4.0,
    longer: 1.0,
    spacings: [Duration::ZERO; 2],
    half_life: None,
};

/// Factors of `N` parts.
#[derive(Clone, Copy, Debug)]
pub struct Learned<const N: usize> {
    rule: &'static Learning,
    factors: [f64; N],
    weight: f64,
    /// When the last run ended.
    last: Option<Instant>,
}

impl<const N: usize> Learned<N> {
    /// The default.
    pub fn new(rule: &'static Learning) -> Self {
        Self { rule, factors: [rule.default; N], weight: rule.prior, last: None }
    }

    pub fn is_learned(&self) -> bool {
        self.last.is_some()
    }

    pub fn factors(&self, now: Instant) -> [f64; N] {
        let Learning { default, half_life, .. } = *self.rule;
        let (Some(half_life), Some(last)) = (half_life, self.last) else { return self.factors };
        let half_lives = now.saturating_duration_since(last).as_secs_f64() / half_life.as_secs_f64();
        self.factors.map(|factor| default + (factor - default) * 0.5f64.powf(half_lives))
    }

    pub fn seconds(&self, parts: [f64; N], now: Instant) -> f64 {
        dot(self.factors(now), parts)
    }

    /// Adds a run that took `taken` seconds. `weight` is the number of runs that it is worth, usually 1.
    pub fn add(&mut self, parts: [f64; N], taken: f64, weight: f64, now: Instant) {
        let Learning { bounds: [least, most], memory, longer, spacings, .. } = *self.rule;
        let (factors, squares) = (self.factors(now), dot(parts, parts));
        let assumed: f64 = parts.iter().sum();
        let error = taken.clamp(least * assumed, (most * assumed).max(least * assumed)) - dot(factors, parts);
        if !error.is_finite() || !squares.is_normal() {
            return;
        }
        let (times, spacing) = if error > 0.0 { (longer, spacings[0]) } else { (1.0, spacings[1]) };
        let since = self.last.map_or(Duration::MAX, |last| now.saturating_duration_since(last));
        let covered = if since >= spacing { 1.0 } else { since.as_secs_f64() / spacing.as_secs_f64() };
        let (own, earlier) = (weight * times * covered, self.weight.min(memory));
        if own > 0.0 {
            let step = own / (earlier + own) * error / squares;
            self.factors = std::array::from_fn(|i| (factors[i] + step * parts[i]).clamp(least, most));
            self.weight = earlier + own;
        } else {
            self.factors = factors;
        }
        self.last = Some(now);
    }
}

/// The throughput of runs by one method that no model predicts, and the one that is assumed before the first.
#[derive(Debug)]
pub struct Record {
    assumed: f64,
    runs: Mutex<Learned<1>>,
}

impl Record {
    pub fn assuming(bytes_per_second: f64) -> Self {
        Self { assumed: bytes_per_second, runs: Mutex::new(Learned::new(&ORDER_OF_MAGNITUDE)) }
    }

    /// Adds a run. Small ones say little: most of their duration is latency.
    pub fn add(&self, bytes: u64, taken: Duration) {
        const SMALL: f64 = 1024.0 * 1024.0;
        let (bytes, taken) = (bytes as f64, taken.as_secs_f64());
        if taken > 0.0 {
            self.runs.lock().add([bytes / self.assumed], taken, bytes / (bytes + SMALL), Instant::now());
        }
    }

    /// Estimated duration, and whether it was measured.
    pub fn seconds(&self, bytes: u64) -> (f64, bool) {
        let runs = self.runs.lock();
        (runs.seconds([bytes as f64 / self.assumed], Instant::now()), runs.is_learned())
    }
}

fn dot<const N: usize>(one: [f64; N], other: [f64; N]) -> f64 {
    one.into_iter().zip(other).map(|(a, b)| a * b).sum()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    static SLOW: Learning = Learning {
        prior: 4.0,
        bounds: [0.3, 3.0],
        spacings: [Duration::from_secs(1); 2],
        half_life: Some(Duration::from_secs(300)),
        ..ORDER_OF_MAGNITUDE
    };

    #[test]
    fn the_first_run_replaces_what_is_only_assumed_and_later_ones_count_a_fifth() {
        let (mut learned, now) = (Learned::<1>::new(&ORDER_OF_MAGNITUDE), Instant::now());
        assert!(!learned.is_learned());
        learned.add([1.0], 10.0, 1.0, now);
        assert!(learned.is_learned() && (learned.seconds([2.0], now) - 20.0).abs() < 1e-9);
        (0..9).for_each(|_| learned.add([1.0], 10.0, 1.0, now));
        learned.add([1.0], 5.0, 1.0, now);
        assert!((learned.factors(now)[0] - 9.0).abs() < 1e-9);
    }

    #[test]
    fn before_the_first_run_that_takes_time_the_usual_throughput_is_assumed() {
        let record = Record::assuming(5.0);
        record.add(5, Duration::ZERO);
        assert_eq!(record.seconds(5), (1.0, false));
        record.add(10, Duration::from_secs(1));
        assert_eq!(record.seconds(5), (0.5, true));
    }

    #[test]
    fn a_part_learns_as_much_as_it_takes_of_a_run() {
        let (mut learned, now) = (Learned::<2>::new(&ORDER_OF_MAGNITUDE), Instant::now());
        learned.add([0.01, 1.0], 5.0, 1.0, now);
        let [few, most] = learned.factors(now);
        assert!(few < 1.1 && (4.9..5.1).contains(&most), "{few} {most}");
    }

    #[test]
    fn one_interrupted_run_changes_little_and_without_runs_the_default_returns() {
        let (mut learned, start) = (Learned::<1>::new(&SLOW), Instant::now());
        learned.add([1.0], 1e6, 1.0, start);
        let factor = learned.factors(start)[0];
        assert!((1.3..1.5).contains(&factor), "{factor}");
        assert!(learned.factors(start + Duration::from_secs(3000))[0] < 1.01);
        learned.add([1.0], 1e6, 1.0, start);
        assert_eq!(learned.factors(start)[0], factor, "no time has passed");
    }

    #[test]
    fn factors_follow_a_host_that_slows_down_and_recovers() {
        let (mut learned, mut now) = (Learned::<1>::new(&SLOW), Instant::now());
        for factor in [2.5, 1.0] {
            for _ in 0..30 {
                now += Duration::from_secs(1);
                learned.add([0.4e-6], factor * 0.4e-6, 1.0, now);
            }
            assert!((learned.factors(now)[0] / factor - 1.0).abs() < 0.1);
        }
    }

    proptest! {
        #[test]
        fn estimates_are_within_bounds_after_any_runs(
            runs in prop::collection::vec((any::<f64>(), any::<f64>(), any::<f64>(), 0u64..1000), 0..50),
        ) {
            let (mut learned, mut now) = (Learned::<2>::new(&SLOW), Instant::now());
            for (one, other, taken, milliseconds) in runs {
                now += Duration::from_millis(milliseconds);
                learned.add([one.abs(), other.abs()], taken, 1.0, now);
                prop_assert!(learned.factors(now).iter().all(|factor| (0.3..=3.0).contains(factor)), "{learned:?}");
            }
        }

        #[test]
        fn the_estimate_is_between_the_shortest_and_the_longest_run(
            runs in prop::collection::vec(0.1f64..10.0, 1..20), weights in prop::collection::vec(0.001f64..1.0, 20),
        ) {
            let (mut learned, now) = (Learned::<1>::new(&ORDER_OF_MAGNITUDE), Instant::now());
            runs.iter().zip(weights).for_each(|(taken, weight)| learned.add([1.0], *taken, weight, now));
            let least = runs.iter().copied().fold(f64::INFINITY, f64::min);
            let most = runs.iter().copied().fold(0.0, f64::max);
            let factor = learned.factors(now)[0];
            prop_assert!(factor >= least * (1.0 - 1e-9) && factor <= most * (1.0 + 1e-9), "{factor}");
        }
    }
}
