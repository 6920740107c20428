// SPDX-License-Identifier: Apache-2.0
//! Commits that wait for the journal. Who gets the journal writes all that wait by then, so that they share its syncs.

use std::sync::Arc;

use super::blocks::Written;
use crate::base::{Error, Mutex, Result, Status, lists};

#[derive(Default)]
pub struct Commits(Mutex<Vec<Arc<Commit>>>);

/// A commit of one caller.
pub struct Commit(Mutex<State>);

enum State {
    Waiting(Vec<Written>),
    Done(Result<()>),
}

impl Commits {
    /// Without memory, gives back what was written.
    pub fn add(&self, written: Vec<Written>) -> std::result::Result<Arc<Commit>, (Vec<Written>, Error)> {
        let mut waiting = self.0.lock();
        if let Err(error) = lists::reserve(&mut waiting, 1) {
            return Err((written, error));
        }
        let commit = Arc::new(Commit(Mutex::new(State::Waiting(written))));
        waiting.push(commit.clone());
        Ok(commit)
    }

    /// Writes all that wait by one call of `write`, if there are any. All of them have its outcome. The caller has the lock of the journal:
    /// a commit that another thread has taken is done when this thread gets that lock.
    pub fn write_waiting(&self, write: impl FnOnce(Vec<Vec<Written>>) -> Result<()>) {
        let waiting = std::mem::take(&mut *self.0.lock());
        if waiting.is_empty() {
            return;
        }
        let outcome = write(waiting.iter().map(|commit| commit.take()).collect());
        for commit in waiting {
            *commit.0.lock() = State::Done(outcome.clone());
        }
    }

    #[cfg(test)]
    pub fn waiting(&self) -> usize {
        self.0.lock().len()
    }
}

impl Commit {
    fn take(&self) -> Vec<Written> {
        match &mut *self.0.lock() {
            State::Waiting(written) => std::mem::take(written),
            State::Done(_) => Vec::new(),
        }
    }

    /// After the journal was locked and unlocked.
    pub fn outcome(&self) -> Result<()> {
        match &*self.0.lock() {
            State::Done(outcome) => outcome.clone(),
            State::Waiting(_) => Err(Error::new(Status::Panic, "the commit ended before it was written")),
        }
    }
}
