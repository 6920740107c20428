// SPDX-License-Identifier: Apache-2.0
//! Rates that are measured when they are first needed, on a thread of their own.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::base::{Condvar, Mutex, Pool, Result, guarded, log};

/// The rates of a device, or of a pair of devices. The lock is never held while they are measured.
pub struct Known<R> {
    state: Mutex<State<R>>,
    /// A measurement has ended, or rates were set.
    ended: Condvar,
}

struct State<R> {
    entry: Option<Entry<R>>,
    /// When the measurement in progress has begun.
    measuring: Option<Instant>,
    /// Increased when the rates are set: the result of a measurement that began before is discarded.
    generation: u64,
}

impl<R> State<R> {
    /// Whether there are rates that no measurement will replace.
    fn is_certain(&self) -> bool {
        self.entry.as_ref().is_some_and(|entry| entry.retry.is_none())
    }
}

/// Rates, and when to measure them again if the last measurement failed.
struct Entry<R> {
    rates: R,
    retry: Option<Retry>,
}

/// When a failed measurement is repeated: after 16 uses of its defaults, then after 32, and so on. The cause may be over, such as
/// a lack of memory, or last, such as a missing kernel: then each attempt costs as much as the first.
#[derive(Clone, Copy)]
struct Retry {
    interval: u32,
    used: u32,
}

impl Retry {
    const FIRST: Self = Self { interval: 16, used: 0 };

    /// Counts a use. If it is time to measure, returns when to do so again if that fails too.
    fn after_use(&mut self) -> Option<Self> {
        self.used += 1;
        let interval = self.interval.saturating_mul(2);
        (self.used > self.interval).then_some(Self { interval, used: 0 })
    }
}

impl<R> Default for Known<R> {
    fn default() -> Self {
        let state = State { entry: None, measuring: None, generation: 0 };
        Self { state: Mutex::new(state), ended: Condvar::new() }
    }
}

impl<R: Clone + Send + 'static> Known<R> {
    /// The rates. If they are unknown, `measure` is called on a thread of its own, and this waits for it until `patience` has
    /// passed since it began; `None` if it takes longer. If the last measurement failed, it is repeated at a later use, for
    /// which this does not wait.
    pub fn get_or_measure(
        self: &Arc<Self>,
        patience: Duration,
        measure: impl FnOnce() -> (R, Result<()>) + Send + 'static,
    ) -> Option<R> {
        let mut state = self.state.lock();
        let next = match &mut state.entry {
            None => Some(Retry::FIRST),
            Some(entry) => entry.retry.as_mut().and_then(Retry::after_use),
        };
        if let (Some(next), None) = (next, state.measuring) {
            state.measuring = Some(Instant::now());
            let (known, generation) = (self.clone(), state.generation);
            let started = Pool::services().run_once_alone(move || {
                let measured = guarded(measure).inspect_err(|panic| log!(Error, "measure copies: {panic}"));
                known.publish(generation, measured.ok(), next);
            });
            if let Err(error) = started {
                log!(Warn, "measure copies: {error}");
                state.measuring = None;
            }
        }
        while let (None, Some(begun)) = (&state.entry, state.measuring) {
            let left = patience.checked_sub(begun.elapsed())?;
            state = self.ended.wait_timeout(state, left).0;
        }
        state.entry.as_ref().map(|entry| entry.rates.clone())
    }

    pub fn is_known(&self) -> bool {
        self.state.lock().entry.is_some()
    }

    fn publish(&self, generation: u64, measured: Option<(R, Result<()>)>, retry: Retry) {
        let mut state = self.state.lock();
        state.measuring = None;
        if let (Some((rates, outcome)), true) = (measured, state.generation == generation) {
            state.entry = Some(Entry { rates, retry: outcome.is_err().then_some(retry) });
        }
        drop(state);
        self.ended.notify_all();
    }

    /// The known rates. Waits until `patience` has passed for a measurement in progress, unless its result is not used.
    pub fn get(&self, patience: Duration) -> Option<R> {
        let mut state = self.state.lock();
        while let (Some(begun), false) = (state.measuring, state.is_certain()) {
            let Some(left) = patience.checked_sub(begun.elapsed()) else { break };
            state = self.ended.wait_timeout(state, left).0;
        }
        state.entry.as_ref().map(|entry| entry.rates.clone())
    }

    /// Replaces the known rates; `None` discards them.
    pub fn set(&self, rates: Option<R>) {
        let mut state = self.state.lock();
        state.entry = rates.map(|rates| Entry { rates, retry: None });
        state.generation += 1;
        drop(state);
        self.ended.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;
    use crate::base::error;

    /// Longer than any thread takes to start.
    const LONG: Duration = Duration::from_secs(20);

    /// The uses, from 1, at which the rates are measured, if the first `failures` measurements fail.
    fn attempts(failures: usize, uses: u32) -> Vec<u32> {
        let known = Arc::new(Known::default());
        let attempts = Arc::new(Mutex::new(Vec::new()));
        for number in 1..=uses {
            let attempts = attempts.clone();
            known.get_or_measure(LONG, move || {
                let mut attempts = attempts.lock();
                attempts.push(number);
                let failed = attempts.len() <= failures;
                let failure = || error!(OutOfMemory, "no memory for buffers");
                ((), if failed { Err(failure()) } else { Ok(()) })
            });
            // A repetition that this use has begun.
            known.get(LONG);
        }
        attempts.lock().clone()
    }

    #[test]
    fn a_failed_measurement_is_repeated_ever_more_rarely_until_it_succeeds() {
        assert_eq!(attempts(0, 1000), [1]);
        assert_eq!(attempts(2, 1000), [1, 18, 51]);
        assert_eq!(attempts(usize::MAX, 300), [1, 18, 51, 116, 245]);
    }

    #[test]
    fn rates_that_are_set_are_not_measured() {
        let known = Arc::new(Known::default());
        known.set(Some(5));
        assert_eq!((0..100).map(|_| known.get_or_measure(LONG, || (7, Ok(())))).max(), Some(Some(5)));
        known.set(None);
        assert_eq!((known.get(LONG), known.get_or_measure(LONG, || (7, Ok(())))), (None, Some(7)));
    }

    /// A measurement that a busy device holds up delays no thread beyond its patience, and no query or setting at all.
    #[test]
    fn a_measurement_in_progress_delays_no_other_call() {
        let known = Arc::new(Known::default());
        let (go, held) = channel::<()>();
        let endless = move || {
            let _ = held.recv();
            (7, Ok(()))
        };
        assert_eq!(known.get_or_measure(Duration::from_millis(1), endless), None);
        assert_eq!(known.get_or_measure(Duration::from_millis(1), || panic!("one is in progress")), None);
        assert_eq!(known.get(Duration::ZERO), None);
        drop(go);
        assert_eq!(known.get(LONG), Some(7));
    }

    #[test]
    fn a_measurement_does_not_replace_rates_that_were_set_meanwhile() {
        let known = Arc::new(Known::default());
        let (go, held) = channel::<()>();
        let measure = move || {
            let _ = held.recv();
            (7, Ok(()))
        };
        assert_eq!(known.get_or_measure(Duration::from_millis(1), measure), None);
        known.set(Some(5));
        // The measurement has not ended, and nothing waits for it.
        assert_eq!(known.get(Duration::MAX), Some(5));
        assert_eq!(known.get_or_measure(Duration::MAX, || panic!("rates are set")), Some(5));
        drop(go);
        let mut state = known.state.lock();
        while state.measuring.is_some() {
            state = known.ended.wait(state);
        }
        drop(state);
        assert_eq!(known.get(LONG), Some(5));
    }

    #[test]
    fn a_measurement_that_panics_is_repeated() {
        let known = Arc::new(Known::default());
        assert_eq!(known.get_or_measure(LONG, || panic!("deliberate")), None);
        assert_eq!(known.get_or_measure(LONG, || (7, Ok(()))), Some(7));
    }
}
