// SPDX-License-Identifier: Apache-2.0
//! Reads or writes for io_uring or for threads.
#![forbid(unsafe_code)]

use std::sync::Arc;

use super::file_requests::FileRequests;
use super::planned::RequestSource;
use crate::base::disposal;
use crate::base::error::{Error, Result};
use crate::run::completion::Outcome;
use crate::run::{Run, Stop, cancelled};

/// Some requests. The outcome is reported once the kernel no longer uses any memory that they name.
pub struct Work {
    pub requests: RequestSource,
    /// Whether the caller cancelled those that have not begun.
    pub stop: Stop,
    /// What the outcome is reported to.
    pub ending: Ending,
}

/// Receives the outcome of work, on any thread.
pub enum Ending {
    OfRun(Run),
    /// It is a part of a run, in a slot.
    OfSlot {
        /// Receives the outcome.
        to: Arc<dyn SlotOutcomes>,
        /// The index of the slot.
        slot: usize,
    },
}

/// Receives the outcomes of work in slots.
pub trait SlotOutcomes: Send + Sync {
    fn add(&self, slot: usize, outcome: Outcome);
}

impl Ending {
    pub fn report(self, outcome: Outcome) {
        match self {
            // Unlocking pages or deregistering memory may take long, and io_uring has one thread for all transfers, so another
            // thread frees objects.
            Self::OfRun(run) if run.is_last_holder() => {
                disposal::dispose_of_files_then(&run.file_systems(), (), move || run.end(outcome));
            }
            Self::OfRun(run) => run.end(outcome),
            Self::OfSlot { to, slot } => to.add(slot, outcome),
        }
    }
}

/// Work in progress.
pub struct WorkLeft {
    work: Work,
    /// Number of requests that have begun and not ended.
    executing: usize,
    /// The first failure; nothing begins after it.
    failure: Option<Error>,
}

impl WorkLeft {
    pub fn new(work: Work) -> Self {
        Self { work, executing: 0, failure: None }
    }

    /// The next request: its list and its index. There is none if the caller cancelled the run.
    pub fn take(&mut self) -> Option<(Arc<FileRequests>, usize)> {
        if self.has_more() && self.work.stop.is_asked() {
            self.fail(cancelled());
        }
        let taken = self.work.requests.take();
        self.executing += usize::from(taken.is_some());
        taken
    }

    /// Whether requests have not begun.
    pub fn has_more(&self) -> bool {
        !self.work.requests.is_over()
    }

    /// Handles the end of a request of so many bytes.
    pub fn ended(&mut self, outcome: Result<u64>) {
        self.executing -= 1;
        match outcome {
            Ok(bytes) => self.work.stop.count(bytes),
            Err(error) => self.fail(error),
        }
    }

    /// Prevents further requests from beginning. Those that have begun end.
    pub fn fail(&mut self, error: Error) {
        self.work.requests.clear();
        self.failure.get_or_insert(error);
    }

    /// Whether all requests have ended.
    pub fn is_over(&self) -> bool {
        self.executing == 0 && !self.has_more()
    }

    /// What the outcome is reported to, and the outcome. All else is dropped.
    pub fn into_end(self) -> (Ending, Outcome) {
        (self.work.ending, self.failure.map_or(Ok(()), Err))
    }
}
