// SPDX-License-Identifier: Apache-2.0
//! One run of a staged transfer.

#![forbid(unsafe_code)]

use std::sync::Arc;

use super::Prepared;
use super::ring::Ring;
use crate::error::Error;
use crate::leak;
use crate::transfer::run::disposal;
use crate::transfer::run::{Run, Stop, cancelled};

/// One run.
pub struct Flight {
    /// What it does.
    pub prepared: Arc<Prepared>,
    /// What it goes through.
    pub ring: Arc<Ring>,
    /// The chunk to begin with next.
    pub next: usize,
    /// Chunks in slots.
    pub under_way: usize,
    failure: Option<Error>,
    run: Run,
}

impl Flight {
    /// A run that has not begun.
    pub fn new(prepared: Arc<Prepared>, ring: Arc<Ring>, run: Run) -> Self {
        Self { prepared, ring, next: 0, under_way: 0, failure: None, run }
    }

    /// Whether no chunk is left to begin with.
    pub fn is_begun(&self) -> bool {
        self.failure.is_some() || self.next == self.prepared.chunks.list.len()
    }

    /// Gives up what has not begun where its user wants no more of it.
    pub fn give_up_if_cancelled(&mut self) {
        if !self.is_begun() && self.run.is_cancelled() {
            self.fail(cancelled());
        }
    }

    /// Whether its user wants no more of it to begin.
    pub fn stop(&self) -> Stop {
        self.run.stop()
    }

    /// Nothing more is begun.
    pub fn fail(&mut self, error: Error) {
        self.failure.get_or_insert(error);
    }

    /// Drops all that it used before the end is reported. The thread that serves the ring frees nothing itself, for that
    /// may wait for the device.
    pub fn end(self) {
        let Self { prepared, ring, run, failure, .. } = self;
        let outcome = failure.map_or(Ok(()), Err);
        drop(prepared);
        match (Arc::into_inner(ring), run.is_last_holder()) {
            (None, false) => run.end(outcome),
            (ring, _) => disposal::dispose_of_then(ring, move || run.end(outcome)),
        }
    }

    /// Ends one that has not begun.
    pub fn refuse(mut self, error: Error) {
        self.fail(error);
        self.end();
    }

    /// Ends one that the kernel and the driver may be at, with nobody left to ask them: what it uses is never let go.
    pub fn give_up(self, error: Error) {
        let Self { prepared, ring, run, .. } = self;
        ring.retire();
        leak::intentionally((prepared, ring));
        run.end_for_good(error);
    }
}
