// SPDX-License-Identifier: Apache-2.0
//! Reads or writes for io_uring or for threads.
#![forbid(unsafe_code)]

use std::sync::Arc;

use super::planned::RequestSource;
use crate::base::disposal;
use crate::run::completion::Outcome;
use crate::run::{Run, Stop};

/// Some requests. The outcome is reported once the kernel no longer uses any memory that they name.
pub struct Work {
    /// The requests.
    pub requests: RequestSource,
    /// Whether the caller cancelled those that have not begun.
    pub stop: Stop,
    /// What the outcome is reported to.
    pub ending: Ending,
}

/// Receives the outcome of work, on any thread.
pub enum Ending {
    /// It is all of this run.
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
    /// Adds the outcome of the work of a slot.
    fn add(&self, slot: usize, outcome: Outcome);
}

impl Ending {
    /// Reports the outcome.
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
