// SPDX-License-Identifier: Apache-2.0
//! GPUDirect Storage: the backend of an agent that moves bytes between files and GPUs, and the results of trial transfers.

#![forbid(unsafe_code)]

use std::collections::HashMap;
use std::time::{Duration, Instant};

use crate::base::sync::{Condvar, Mutex};

/// The two ends of a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct GdsEndpoints {
    /// The GPU.
    pub ordinal: i32,
    /// The major and minor number of the file system's device.
    pub file_system: (u32, u32),
    /// The file is open for direct I/O.
    pub is_direct: bool,
}

/// The results of trial transfers, by GPU and file system.
#[derive(Default)]
pub struct GdsTrials {
    states: Mutex<HashMap<GdsEndpoints, State>>,
    ended: Condvar,
}

enum State {
    Running,
    Known(Result<(), String>),
}

/// How long a thread waits for the trial of another one: as long as a backend that does not move any bytes can keep it.
const PATIENCE: Duration = Duration::from_secs(20);

impl GdsTrials {
    /// The outcome of `trial`, which runs once. It moves bytes, and may wait for a backend that never does, so that no
    /// lock is held meanwhile: only threads that need its outcome wait, and no longer than [`PATIENCE`].
    pub fn once(&self, ends: GdsEndpoints, trial: impl FnOnce() -> Result<(), String>) -> Result<(), String> {
        self.once_within(PATIENCE, ends, trial)
    }

    fn once_within(
        &self,
        patience: Duration,
        ends: GdsEndpoints,
        trial: impl FnOnce() -> Result<(), String>,
    ) -> Result<(), String> {
        match self.known_or_begun(ends, Instant::now() + patience) {
            Some(known) => known,
            None => {
                let mut running = Running { trials: self, ends, outcome: None };
                running.outcome.insert(trial()).clone()
            }
        }
    }

    /// Waits until no trial runs, and returns its result. Returns `None` if the caller must run the trial.
    fn known_or_begun(&self, ends: GdsEndpoints, deadline: Instant) -> Option<Result<(), String>> {
        let mut states = self.states.lock();
        loop {
            match states.get(&ends) {
                Some(State::Known(outcome)) => return Some(outcome.clone()),
                Some(State::Running) => {
                    let Ok(woken) = self.ended.wait_until(states, Some(deadline)) else {
                        return Some(Err("the trial transfer of another thread has not ended".to_string()));
                    };
                    states = woken;
                }
                None => {
                    states.insert(ends, State::Running);
                    return None;
                }
            }
        }
    }
}

/// A trial that this thread runs. If it panics, another thread may try.
struct Running<'a> {
    trials: &'a GdsTrials,
    ends: GdsEndpoints,
    outcome: Option<Result<(), String>>,
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        let mut states = self.trials.states.lock();
        match self.outcome.take() {
            Some(outcome) => states.insert(self.ends, State::Known(outcome)),
            None => states.remove(&self.ends),
        };
        self.trials.ended.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::Barrier;

    use super::*;

    const HERE: GdsEndpoints = GdsEndpoints { ordinal: 0, file_system: (8, 1), is_direct: true };
    const THERE: GdsEndpoints = GdsEndpoints { ordinal: 1, ..HERE };

    #[test]
    fn a_trial_runs_once() {
        let trials = GdsTrials::default();
        assert_eq!(trials.once(HERE, || Err("no".into())), Err("no".into()));
        assert_eq!(trials.once(HERE, || Ok(())), Err("no".into()));
    }

    #[test]
    fn a_trial_that_hangs_does_not_block_others() {
        let (trials, barrier) = (GdsTrials::default(), Barrier::new(2));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                trials.once(HERE, || {
                    barrier.wait();
                    barrier.wait();
                    Ok(())
                })
            });
            barrier.wait();
            assert_eq!(trials.once(THERE, || Ok(())), Ok(()));
            let impatient = trials.once_within(Duration::ZERO, HERE, || unreachable!());
            assert!(impatient.unwrap_err().contains("another thread"));
            barrier.wait();
        });
        assert_eq!(trials.once(HERE, || unreachable!()), Ok(()));
    }

    #[test]
    fn waiting_threads_receive_the_outcome() {
        let (trials, barrier) = (GdsTrials::default(), Barrier::new(2));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                trials.once(HERE, || {
                    barrier.wait();
                    Ok(())
                })
            });
            barrier.wait();
            assert_eq!(trials.once(HERE, || unreachable!()), Ok(()));
        });
    }

    #[test]
    fn after_a_panic_another_thread_may_try() {
        let trials = GdsTrials::default();
        let panicked = catch_unwind(AssertUnwindSafe(|| trials.once(HERE, || panic!("deliberate"))));
        assert!(panicked.is_err());
        assert_eq!(trials.once(HERE, || Ok(())), Ok(()));
    }
}
