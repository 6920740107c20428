// SPDX-License-Identifier: Apache-2.0
//! GPUDirect Storage: the backend of an agent that moves bytes between files and GPUs, and the results of trial transfers.

use std::sync::Arc;
use std::time::{Duration, Instant};

use once_cell::sync::OnceCell;

use crate::base::{Error, Keyed, Pool, Result, Turns, error};

/// The two ends of a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
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
    outcomes: Keyed<GdsEndpoints, OnceCell<Result<()>>>,
    /// A trial has the turn of its ends.
    turns: Arc<Turns<GdsEndpoints>>,
}

/// How long a trial may take: a backend that takes longer is not used. Callers wait no longer either.
const PATIENCE: Duration = Duration::from_secs(10);

impl GdsTrials {
    /// The outcome of a trial, which runs once, on a thread of its own: it waits for a backend that may never move a byte, and a
    /// caller may have less time. `prepare` makes it, if none has begun; it ends at the time that it is given.
    ///
    /// Waits for the outcome until `until`. The outcome of a trial that is late counts for later callers. After a panic the next
    /// caller begins another.
    pub fn outcome<T: FnOnce(Instant) -> Result<()> + Send + 'static>(
        &self,
        ends: GdsEndpoints,
        until: Option<Instant>,
        prepare: impl FnOnce() -> Result<T>,
    ) -> Result<()> {
        let trial = self.outcomes.get(ends);
        let end = Instant::now() + PATIENCE;
        let until = until.map_or(end, |until| until.min(end));
        if trial.get().is_none() {
            let turn = self.turns.take(&ends, Some(until)).ok_or_else(late)?;
            if trial.get().is_none() {
                let made = trial.clone();
                let started = prepare().and_then(|work| {
                    Pool::services().run_once_alone(move || {
                        let _turn = turn;
                        let _ = made.set(work(end));
                    })
                });
                started.map_err(|error| error.context("a trial transfer could not begin"))?;
                drop(self.turns.take(&ends, Some(until)).ok_or_else(late)?);
            }
        }
        let failed = || Err(error!(Panic, "a trial transfer has failed; the log has the reason"));
        trial.get().cloned().unwrap_or_else(failed)
    }
}

/// It is not known whether the backend works.
fn late() -> Error {
    error!(TimedOut, "a trial transfer has not ended yet; submit again later, or request another method")
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;
    use crate::base::Status;

    /// The status and the message of a failure.
    fn failure(outcome: Result<()>) -> (Status, String) {
        outcome.map_err(|error| (error.status(), error.message().to_string())).unwrap_err()
    }

    fn refused(reason: &'static str) -> Result<()> {
        Err(Error::new(Status::Unsupported, reason))
    }

    const HERE: GdsEndpoints = GdsEndpoints { ordinal: 0, file_system: (8, 1), is_direct: true };

    /// The outcome for a caller who has time.
    fn outcome(trials: &GdsTrials, ends: GdsEndpoints, made: Result<()>) -> Result<()> {
        trials.outcome(ends, None, || Ok(move |_| made))
    }

    #[test]
    fn a_trial_runs_once_and_again_only_after_a_panic() {
        let trials = GdsTrials::default();
        let panicked = trials.outcome(HERE, None, || Ok(|_| panic!("deliberate")));
        let reason = "a trial transfer has failed; the log has the reason".to_string();
        assert_eq!(failure(panicked), (Status::Panic, reason));
        let failed = || Err(Error::new(Status::OutOfMemory, "deliberate"));
        let not_begun = trials.outcome::<fn(Instant) -> Result<()>>(HERE, None, failed);
        let reason = "a trial transfer could not begin: deliberate".to_string();
        assert_eq!(failure(not_begun), (Status::OutOfMemory, reason));
        for made in [refused("no"), Ok(())] {
            assert_eq!(failure(outcome(&trials, HERE, made)), (Status::Unsupported, "no".to_string()));
        }
        outcome(&trials, GdsEndpoints { ordinal: 1, ..HERE }, Ok(())).unwrap();
    }

    #[test]
    fn a_caller_waits_until_its_deadline_and_a_late_outcome_counts() {
        let trials = GdsTrials::default();
        let (open, gate) = channel::<()>();
        let (report, ended) = channel();
        let work = move |_: Instant| {
            let _ = gate.recv();
            let _ = report.send(());
            Ok(())
        };
        let is_late = |outcome: Result<()>| failure(outcome).0 == Status::TimedOut;
        assert!(is_late(trials.outcome(HERE, Some(Instant::now()), || Ok(work))));
        assert!(is_late(trials.outcome(HERE, Some(Instant::now()), || Ok(|_| unreachable!()))));
        outcome(&trials, GdsEndpoints { ordinal: 1, ..HERE }, Ok(())).expect("no other waits for it");
        drop(open);
        ended.recv().unwrap();
        outcome(&trials, HERE, refused("another")).unwrap();
    }
}
