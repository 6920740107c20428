// SPDX-License-Identifier: Apache-2.0
//! One run of a staged transfer.

use std::sync::Arc;

use super::Prepared;
use super::ring::Ring;
use crate::error::Error;
use crate::kept;
use crate::layout::Layout;
use crate::transfer::completion::{Run, Stop, cancelled};

/// One run.
pub struct Flight {
    /// What it does.
    pub prepared: Arc<Prepared>,
    /// What it goes through.
    pub ring: Arc<Ring>,
    layouts: [Arc<Layout>; 2],
    run: Run,
    /// The chunk to begin with next.
    pub next: usize,
    /// Chunks in slots.
    pub under_way: usize,
    failure: Option<Error>,
}

impl Flight {
    /// A run that has not begun.
    pub fn new(prepared: Arc<Prepared>, ring: Arc<Ring>, layouts: [Arc<Layout>; 2], run: Run) -> Self {
        Self { prepared, ring, layouts, run, next: 0, under_way: 0, failure: None }
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

    /// All that it used is let go before anyone hears that the run is over: who hears it may free their memory.
    pub fn end(self) {
        let Self { prepared, ring, layouts, run, failure, .. } = self;
        drop((prepared, ring, layouts));
        run.end(failure.map_or(Ok(()), Err));
    }

    /// Ends one that has not begun.
    pub fn refuse(mut self, error: Error) {
        self.fail(error);
        self.end();
    }

    /// Ends one that the kernel and the driver may be at, with nobody left to ask them: what it uses is never let go.
    pub fn give_up(self, error: Error) {
        let Self { prepared, ring, layouts, run, .. } = self;
        ring.retire();
        kept::for_good((prepared, ring, layouts));
        run.end_for_good(error);
    }
}
