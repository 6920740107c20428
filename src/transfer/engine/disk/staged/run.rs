// SPDX-License-Identifier: Apache-2.0
//! One run of a staged transfer.
#![forbid(unsafe_code)]

use std::sync::Arc;

use super::PreparedChunks;
use super::ring::StagingRing;
use crate::error::Error;
use crate::leak;
use crate::transfer::run::disposal;
use crate::transfer::run::{Run, Stop, cancelled};

/// One run.
pub struct StagedRun {
    /// The prepared transfer.
    pub prepared: Arc<PreparedChunks>,
    /// The staging ring.
    pub ring: Arc<StagingRing>,
    /// Index of the next chunk.
    pub next: usize,
    /// Number of chunks in slots.
    pub in_slots: usize,
    failure: Option<Error>,
    run: Run,
}

impl StagedRun {
    /// A run that has not begun.
    pub fn new(prepared: Arc<PreparedChunks>, ring: Arc<StagingRing>, run: Run) -> Self {
        Self { prepared, ring, next: 0, in_slots: 0, failure: None, run }
    }

    /// Whether no further chunk will begin.
    pub fn has_begun_all(&self) -> bool {
        self.failure.is_some() || self.next == self.prepared.chunks.list.len()
    }

    /// Prevents further chunks from beginning if the caller cancelled the run.
    pub fn fail_if_cancelled(&mut self) {
        if !self.has_begun_all() && self.run.is_cancelled() {
            self.fail(cancelled());
        }
    }

    /// Whether the caller cancelled the run.
    pub fn stop(&self) -> Stop {
        self.run.stop()
    }

    /// Prevents further chunks from beginning.
    pub fn fail(&mut self, error: Error) {
        self.failure.get_or_insert(error);
    }

    /// Drops everything before the end is reported. Freeing the ring may wait for the device, so another
    /// thread does it.
    pub fn end(self) {
        let Self { prepared, ring, run, failure, .. } = self;
        let outcome = failure.map_or(Ok(()), Err);
        drop(prepared);
        match (Arc::into_inner(ring), run.is_last_holder()) {
            (None, false) => run.end(outcome),
            (ring, _) => disposal::dispose_of_then(ring, move || run.end(outcome)),
        }
    }

    /// Ends a run that has not begun.
    pub fn reject(mut self, error: Error) {
        self.fail(error);
        self.end();
    }

    /// Ends a run that the kernel and the driver may still execute, with no way to detect its end. Its
    /// resources are intentionally leaked.
    pub fn abandon(self, error: Error) {
        let Self { prepared, ring, run, .. } = self;
        ring.retire();
        leak::intentionally((prepared, ring));
        run.abandon(error);
    }
}
