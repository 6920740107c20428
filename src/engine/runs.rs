// SPDX-License-Identifier: Apache-2.0
//! The runs of a prepared transfer: checks and holds what each of them needs, and waits for the last one.

use std::sync::Arc;
use std::time::Duration;

use super::Engine;
use crate::base::{Error, Result, Status, deadline_of};
use crate::layout::{Layout, TouchedExtents};
use crate::plan::Plan;
use crate::region::Contexts;
use crate::run::{Account, Completion, RunHolds, Ticket};

/// The runs of one transfer, with any engine.
pub struct Runs {
    layouts: [Arc<Layout>; 2],
    completion: Arc<Completion>,
}

/// The memory that each run of a prepared engine needs, and the data that its end reports.
pub struct Needs {
    /// The extents on either side that must have memory during the run.
    touched: [TouchedExtents; 2],
    contexts: Contexts,
    account: Account,
}

impl Needs {
    /// Adds the contexts of `engine` to those of the layouts.
    pub fn new(
        engine: &dyn Engine,
        touched: [TouchedExtents; 2],
        mut contexts: Contexts,
        account: Account,
    ) -> Self {
        engine.add_contexts(&mut contexts);
        Self { touched, contexts, account }
    }

    pub fn account(&self) -> &Account {
        &self.account
    }

    /// Fails if a CUDA context with memory of the transfer was reset or destroyed.
    pub fn ensure_alive(&self) -> Result<()> {
        self.contexts.ensure_alive()
    }
}

impl Runs {
    /// For runs between a source and a destination.
    pub fn new(layouts: [Arc<Layout>; 2], completion: Completion) -> Self {
        Self { layouts, completion: Arc::new(completion) }
    }

    /// The source and the destination.
    pub fn layouts(&self) -> [&Arc<Layout>; 2] {
        self.layouts.each_ref()
    }

    /// The state of the last run.
    pub fn completion(&self) -> &Completion {
        &self.completion
    }

    /// Fails if a run is in flight.
    pub fn ensure_idle(&self) -> Result<()> {
        if self.completion.is_claimed() { Err(self.in_use()) } else { Ok(()) }
    }

    /// Reserves a run for an engine, which ends at its deadline if it has a limit. Fails if one is in flight, if an extent has no
    /// memory, if adopted memory no longer exists, or if no thread can watch the deadline.
    pub fn reserve(&self, engine: &dyn Engine, needs: &Needs) -> Result<Ticket> {
        needs.ensure_alive()?;
        let [source, destination] = &needs.touched;
        let extents = [source.hold()?, destination.hold()?];
        let peer = engine.hold_peer()?;
        if !self.completion.claim() {
            return Err(self.in_use());
        }
        let held = RunHolds { layouts: Some(self.layouts.clone()), extents, peer };
        Ticket::new(self.completion.clone(), needs.account.clone(), held)
    }

    /// Waits for the last run; without a timeout, until it ends. The calling thread does a part of the work if it can.
    pub fn wait(&self, engine: &dyn Engine, timeout: Option<Duration>) -> Result<()> {
        // The thread that submits a short run ends it.
        if let Some(()) = self.completion.poll()? {
            return Ok(());
        }
        let deadline = deadline_of(timeout);
        engine.assist(self.completion.earlier(deadline), &|| !self.completion.is_running());
        self.completion.wait(deadline)
    }

    #[cold]
    fn in_use(&self) -> Error {
        let message = if self.completion.is_running() {
            "the transfer is in flight; poll it or wait for it, then submit it again"
        } else if self.completion.was_run() && !self.completion.has_succeeded() {
            "the last run has ended and its memory may still be in use, as after a timeout; submit the transfer again later, or \
             move to other blocks by another transfer"
        } else {
            "another thread is submitting the transfer; wait for its run, then submit it again"
        };
        Error::new(Status::Busy, message)
    }

    /// Waits until the first `layers` of the last run have moved.
    pub fn wait_layers(&self, engine: &dyn Engine, layers: u64, timeout: Option<Duration>) -> Result<()> {
        let deadline = deadline_of(timeout);
        let have_moved = || self.completion.moved().is_ok_and(|moved| moved >= layers);
        let is_enough = || have_moved() || !self.completion.is_running();
        engine.assist(self.completion.earlier(deadline), &is_enough);
        self.completion.wait_layers(layers, deadline)
    }
}

/// The CUDA contexts of both sides; those of page locks if a GPU will use them.
pub fn contexts([source, destination]: [&Layout; 2], with_page_locks: bool) -> Contexts {
    let mut contexts = source.contexts(with_page_locks);
    contexts.add_all(&destination.contexts(with_page_locks));
    contexts
}

/// The extents that a plan accesses on both sides.
pub fn touched(source: &Layout, destination: &Layout, plan: &Plan) -> [TouchedExtents; 2] {
    // A part of a block is in one extent, so the footprints are in no other extents than the moves.
    [source.touched_extents(plan.footprints(0)), destination.touched_extents(plan.footprints(1))]
}
