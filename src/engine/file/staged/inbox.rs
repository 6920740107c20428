// SPDX-License-Identifier: Apache-2.0
//! New runs and results of I/O for the thread that serves a staging ring. The thread holds only this, so that
//! a ring is freed with its last user, before the end of the last run is reported.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use super::staged_run::StagedRun;
use super::staging_thread::StagingSession;
use crate::base::{Condvar, Error, Mutex, MutexGuard, Pool, Result, Shared, WorkThread, guarded, log};
use crate::engine::file::work::{SlotOutcomes, end_each};

/// Input of the thread: new runs, and results of I/O.
#[derive(Default)]
pub struct Inbox {
    state: Mutex<State>,
    arrival: Condvar,
}

#[derive(Default)]
struct State {
    new: Vec<StagedRun>,
    results: VecDeque<IoResult>,
    thread: WorkThread,
    /// The thread has panicked, and may have left slots in use.
    failure: Option<Error>,
}

/// The result of a slot's I/O.
pub struct IoResult {
    /// Index of the slot.
    pub slot: usize,
    pub outcome: Result<()>,
}

impl Inbox {
    pub fn start(self: &Arc<Self>, run: StagedRun) {
        let mut state = self.state();
        let failed = state.failure.clone().map_or(Ok(()), Err);
        match failed.and_then(|()| state.thread.ensure(|| Pool::services().run_alone(self.clone()))) {
            Ok(_woken) => {
                state.new.push(run);
                drop(state);
                self.arrival.notify_one();
            }
            Err(error) => {
                drop(state);
                run.reject(error);
            }
        }
    }

    /// Passes new runs and results to the session of the thread. Returns false if there is no work: then the thread may end.
    pub fn pass_new(&self, session: &mut StagingSession) -> bool {
        let mut state = self.state();
        let State { new, results, thread, .. } = &mut *state;
        let has_work = !(new.is_empty() && session.is_idle());
        session.receive(new, results);
        thread.goes_on(has_work)
    }

    /// Rejects all further runs with the failure. Returns those that the session has not received.
    fn close(&self, failure: &Error) -> Vec<StagedRun> {
        let mut state = self.state();
        state.failure = Some(failure.clone());
        std::mem::take(&mut state.new)
    }

    /// Sleeps until something arrives, or until the timeout.
    pub fn sleep(&self, at_most: Duration) {
        let state = self.state();
        if state.new.is_empty() && state.results.is_empty() {
            drop(self.arrival.wait_timeout(state, at_most));
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }
}

/// Adds the result of a slot's I/O.
impl SlotOutcomes for Inbox {
    fn add(&self, slot: usize, outcome: Result<()>) {
        self.state().results.push_back(IoResult { slot, outcome });
        self.arrival.notify_one();
    }
}

impl Shared for Inbox {
    fn run(&self) {
        let mut session = StagingSession::default();
        if let Err(panic) = guarded(|| session.serve(self)) {
            log!(Error, "panic on the thread of a staging ring: {panic}");
            let new = self.close(&panic);
            session.abandon(&panic);
            end_each(new, |run| run.reject(panic.clone()));
        }
    }
}
