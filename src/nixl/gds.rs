// SPDX-License-Identifier: Apache-2.0
//! GPUDirect Storage: the backend of an agent that moves bytes between files and GPUs, and the results of trial transfers.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::base::{Mutex, SharedObjects};

/// The two ends of a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct GdsEndpoints {
    pub ordinal: i32,
    /// The major and minor number of the file system's device.
    pub file_system: (u32, u32),
    /// The file is open for direct I/O.
    pub is_direct: bool,
}

/// The results of trial transfers, by GPU and file system.
#[derive(Default)]
pub struct GdsTrials {
    outcomes: SharedObjects<GdsEndpoints, Outcome>,
    /// Keeps them.
    known: Mutex<HashMap<GdsEndpoints, Arc<Outcome>>>,
}

type Outcome = Result<(), String>;

/// How long a thread waits for the trial of another one: as long as a backend that does not move any bytes can keep it.
const PATIENCE: Duration = Duration::from_secs(20);

impl GdsTrials {
    /// The outcome of `trial`, which runs once. It moves bytes, and may wait for a backend that never does, so that no
    /// lock is held meanwhile: only threads that need its outcome wait, and no longer than [`PATIENCE`].
    pub fn once(&self, ends: GdsEndpoints, trial: impl FnOnce() -> Outcome) -> Outcome {
        let deadline = Instant::now() + PATIENCE;
        match self.outcomes.get(ends, |_| true, Some(deadline), || Ok(trial())) {
            Ok(outcome) => {
                self.known.lock().insert(ends, outcome.clone());
                Outcome::clone(&outcome)
            }
            Err(_) => Err("the trial transfer of another thread has not ended".to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use super::*;

    const HERE: GdsEndpoints = GdsEndpoints { ordinal: 0, file_system: (8, 1), is_direct: true };

    #[test]
    fn a_trial_runs_once_and_again_only_after_a_panic() {
        let trials = GdsTrials::default();
        let panicked = catch_unwind(AssertUnwindSafe(|| trials.once(HERE, || panic!("deliberate"))));
        assert!(panicked.is_err());
        assert_eq!(trials.once(HERE, || Err("no".into())), Err("no".into()));
        assert_eq!(trials.once(HERE, || unreachable!()), Err("no".into()));
        assert_eq!(trials.once(GdsEndpoints { ordinal: 1, ..HERE }, || Ok(())), Ok(()));
    }
}
