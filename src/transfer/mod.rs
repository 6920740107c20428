// SPDX-License-Identifier: Apache-2.0
//! Transfers: moving blocks between two layouts.
//!
//! A transfer is checked, planned and prepared once, and submitted any number of times. Nothing below imports this file.

mod layout_pair;
mod lease;
mod log_lines;
mod measured;
mod prepared_pairs;
pub mod stored;
pub mod transfer_request;
pub mod verify;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

pub use self::lease::{Lease, LeaseTerms};
pub use crate::copy::gpu::rates;
pub use crate::engine::cost::gpu::known as known_rates;
pub use crate::engine::explain::{ComparedMethod, Summary, Verdict};
pub use crate::engine::preferences::Preferences;
pub use crate::plan::{BlockPair, BlockTable, Outline, PairedRange, Plan, TokenTables, Wanted};
pub use crate::run::completion::Completion;
pub use crate::run::findings::Findings;
pub use crate::run::method::TransferMethod;
pub use crate::run::queue::{EntryKind, OpenQueue, Queue, QueueEntry};
pub use crate::run::reports::Reports;
pub use transfer_request::{Step, TransferRequest};
use verify::Verification;
pub use verify::checksum;

use crate::engine::runs::Runs;
use crate::engine::{explain, select};
use crate::plan::PlannedBlocks;
use crate::plan::alignment::ensure_io_alignment;
use crate::plan::overlap::Placed;
use crate::run::{Ticket, Unreleased, UsedBytes, Verify};
use layout_pair::LayoutPair;
use measured::last_run;
use prepared_pairs::{FollowedBlocks, PreparedPairs, Route};

use crate::base::log::{Level, enabled, log};
use crate::base::{Error, Mutex, MutexGuard, Result, ensure, error, fail, nvtx};
use crate::cuda::CallerStream;
use crate::layout::Layout;

/// A move of blocks between two layouts, which it holds. A run in flight holds them too, even after the transfer is dropped.
pub struct Transfer {
    /// The inputs for preparing pairs.
    route: Route,
    runs: Runs,
    /// The blocks of the next run; `None` until there are some. Only replaced by a thread that has the lock below, while no
    /// run is in flight.
    prepared: Mutex<Option<Arc<PreparedPairs>>>,
    /// Held by the thread that submits.
    submitting: Mutex<()>,
    captured: Mutex<Vec<Arc<PreparedPairs>>>,
    /// Memory for the blocks of the next list of pairs.
    spare: Mutex<Option<Arc<PlannedBlocks>>>,
    /// It has one run, which was started when it was created.
    is_single: bool,
}

impl Transfer {
    /// Checks that blocks can move between two layouts; prepares and moves none.
    pub fn create(
        source: &Arc<Layout>,
        destination: &Arc<Layout>,
        request: TransferRequest<'_>,
    ) -> Result<Self> {
        nvtx::load();
        let pair = LayoutPair::cached(source, destination, &request)?;
        let preferences = &request.preferences;
        select::ensure_possible(pair.method, [source, destination], preferences)?;
        let route = Route { pair, preferences: request.preferences };
        let reports = route.pair.reports(request.reports);
        let completion = Completion::reporting(route.pair.outline.layers(), reports);
        let (id, from, to) = (completion.log_id(), source.log_id(), destination.log_id());
        log!(Debug, "transfer {id} created: layout {from} to layout {to}");
        Ok(Self {
            route,
            runs: Runs::new([source.clone(), destination.clone()], completion),
            prepared: Mutex::default(),
            submitting: Mutex::default(),
            captured: Mutex::default(),
            spare: Mutex::default(),
            is_single: false,
        })
    }

    /// Starts its only run. `followed` makes from the check of its blocks what is done after they have moved.
    fn started_once(
        mut self,
        step: Step<'_>,
        followed: impl FnOnce(Option<Arc<Verification>>) -> Result<Arc<dyn Verify>>,
    ) -> Result<Self> {
        self.replace(step)?;
        let prepared = self.prepared()?;
        let ticket = self.reserve(&prepared)?;
        prepared.engine.submit(ticket.verified_by(followed(prepared.verification.clone())?))?;
        self.is_single = true;
        Ok(self)
    }

    /// The same for a run that moves nothing itself: `follows` moves its blocks.
    fn started_before(mut self, blocks: FollowedBlocks<'_>, follows: Arc<dyn Verify>) -> Result<Self> {
        let prepared = self.route.prepare_followed(self.runs.layouts(), blocks)?;
        let used = prepared.needs.account().used.as_deref();
        if let Some(written) = used.and_then(UsedBytes::written) {
            Unreleased::get().ensure_apart(written)?;
        }
        let prepared = Arc::new(prepared);
        *self.prepared.lock() = Some(prepared.clone());
        let ticket = self.runs.reserve(&*prepared.engine, &prepared.needs)?;
        prepared.engine.submit(ticket.verified_by(follows))?;
        self.is_single = true;
        Ok(self)
    }

    /// Whether it moves whole blocks, as a file that one of the sides is can be accessed.
    fn moves_whole_blocks(&self) -> Result<bool> {
        let [source, destination] = self.runs.layouts();
        let outline = &self.route.pair.outline;
        if !outline.moves_whole_blocks() {
            return Ok(false);
        }
        // The others are as far from these as the second is from the first.
        let blocks = [source, destination].map(|side| side.geometry().dimensions().num_blocks);
        let pairs = [0, 1].map(|block| BlockPair { source: block, destination: block });
        let pairs = &pairs[..blocks[0].min(blocks[1]).min(2) as usize];
        let plan = Plan::new(outline, pairs, None)?;
        Ok(ensure_io_alignment(source, destination, &plan, self.route.preferences.by_layer).is_ok())
    }

    /// Whether it moves whole blocks of one side, or all of several.
    fn fills_blocks_of(&self, side: usize) -> bool {
        self.route.pair.outline.fills_blocks_of(side)
    }

    /// Prepares the blocks of the next run; moves nothing. If that fails, the transfer keeps the blocks that it had.
    pub fn prepare(&self, step: Step<'_>) -> Result<()> {
        let _turn = self.turn()?;
        self.replace(step).map(drop)
    }

    /// Starts a run with other blocks, or with the prepared ones. If that fails, the transfer keeps the blocks that it had.
    pub fn submit(&self, step: Option<Step<'_>>) -> Result<()> {
        let _turn = self.turn()?;
        self.with(step, || self.start(&*self.prepared()?))
    }

    /// The same on a stream of the caller: after the work that is queued there, and before later work. If the stream is being
    /// captured, the copies become part of the graph, and nothing runs.
    pub fn submit_on(&self, step: Option<Step<'_>>, stream: CallerStream) -> Result<()> {
        if step.is_none() {
            return self.submit_prepared_on(stream);
        }
        let _turn = self.turn()?;
        // Nothing that prepares the blocks invalidates the capture.
        let _capture = self.route.pair.check_stream(self.runs.layouts(), stream)?;
        self.with(step, || self.start_or_capture(stream))
    }

    fn submit_prepared_on(&self, stream: CallerStream) -> Result<()> {
        self.ensure_repeatable()?;
        let prepared = self.prepared()?;
        let checked = prepared.check_stream(stream);
        if let Ok(Some(_capture)) = &checked {
            return self.capture(&prepared, stream);
        }
        let _turn = self.turn()?;
        checked?;
        let current = self.prepared()?;
        match Arc::ptr_eq(&current, &prepared) {
            true => self.start_on(&current, stream),
            // Another thread has replaced the pairs, and the stream was not checked with these.
            false => self.start_or_capture(stream),
        }
    }

    /// Locks the transfer for a submission. Fails if a run is in flight. Waits for another thread that submits while none is: its
    /// run may have ended within its call, and the end was reported before the call returns.
    fn turn(&self) -> Result<MutexGuard<'_, ()>> {
        self.ensure_repeatable()?;
        let turn = match self.submitting.try_lock() {
            Some(turn) => turn,
            None => {
                self.runs.ensure_idle()?;
                self.submitting.lock()
            }
        };
        // Perhaps it has passed its deadline, and nothing of it is in progress.
        if self.runs.ensure_idle().is_err()
            && let Ok(prepared) = self.prepared()
        {
            prepared.engine.end_if_cancelled();
        }
        // Before all other checks: while memory is in use, the caller learns that, whatever else has happened.
        self.runs.ensure_idle().map(|()| turn)
    }

    fn ensure_repeatable(&self) -> Result<()> {
        ensure!(
            !self.is_single,
            InvalidState,
            "the transfer belongs to the blocks of one kvmem_store_put or kvmem_store_get; call that for others"
        );
        Ok(())
    }

    /// Starts a run by a call, after preparing other blocks if there are some.
    fn with(&self, step: Option<Step<'_>>, start: impl FnOnce() -> Result<()>) -> Result<()> {
        let Some(step) = step else { return start() };
        let before = self.replace(step)?;
        start().inspect_err(|_| {
            // Not dropped under the lock, which calls of other threads take: an engine may have objects of the driver.
            let failed = std::mem::replace(&mut *self.prepared.lock(), before);
            drop(failed);
        })
    }

    /// Prepares other blocks for the next run. Returns the previous ones.
    fn replace(&self, step: Step<'_>) -> Result<Option<Arc<PreparedPairs>>> {
        let spare = self.spare.lock().take();
        let before = self.prepared.lock().clone();
        let prepared = self.route.prepare(self.runs.layouts(), step, before.as_deref(), spare)?;
        if before.is_none() {
            self.log_method(&prepared);
        }
        *self.prepared.lock() = Some(Arc::new(prepared));
        if let Some(before) = &before {
            *self.spare.lock() = Some(before.plan.shared_blocks());
        }
        Ok(before)
    }

    fn start(&self, prepared: &PreparedPairs) -> Result<()> {
        let ticket = self.reserve(prepared)?.unless_stale();
        ticket.map_or(Ok(()), |ticket| prepared.engine.submit(ticket))
    }

    fn start_on(&self, prepared: &PreparedPairs, stream: CallerStream) -> Result<()> {
        let on_streams = prepared.on_streams()?;
        let ticket = self.reserve(prepared)?.unless_stale();
        ticket.map_or(Ok(()), |ticket| on_streams.submit_on(stream, ticket))
    }

    fn start_or_capture(&self, stream: CallerStream) -> Result<()> {
        let prepared = self.prepared()?;
        match prepared.check_stream(stream)? {
            Some(_capture) => self.capture(&prepared, stream),
            None => self.start_on(&prepared, stream),
        }
    }

    fn reserve(&self, prepared: &PreparedPairs) -> Result<Ticket> {
        let [_, destination] = self.runs.layouts();
        Unreleased::get().ensure_apart(Placed::side(&prepared.plan, 1, destination))?;
        let ticket = self.runs.reserve(&*prepared.engine, &prepared.needs)?;
        prepared.was_submitted.store(true, Ordering::Release);
        let ticket = match &prepared.verification {
            Some(verification) => ticket.verified_by(verification.clone()),
            None => ticket,
        };
        Ok(match &prepared.epochs {
            Some(epochs) => ticket.expecting(epochs.clone()),
            None => ticket,
        })
    }

    fn capture(&self, prepared: &Arc<PreparedPairs>, stream: CallerStream) -> Result<()> {
        ensure!(
            prepared.epochs.is_none(),
            Unsupported,
            "runs of a graph can't expect epochs, because the host does not take part in them; submit without epochs"
        );
        ensure!(
            prepared.verification.is_none(),
            Unsupported,
            "runs of a graph can't be verified, because the host does not take part in them; submit without \
             checksums and KVMEM_SUBMIT_* flags"
        );
        ensure!(
            prepared.needs.account().limit.is_none(),
            Unsupported,
            "runs of a graph can't have a deadline, because the host does not take part in them; set run_timeout_ns to 0"
        );
        log!(Debug, "transfer {} captured into a graph", self.completion().log_id());
        // Kept before the driver is called, because the graph may use it even if the driver reports a failure.
        let mut captured = self.captured.lock();
        if !captured.iter().any(|known| Arc::ptr_eq(known, prepared)) {
            captured.push(prepared.clone());
        }
        drop(captured);
        prepared.on_streams()?.capture(stream)
    }

    /// The blocks of the next run, or of the one in flight. Fails before the first.
    fn prepared(&self) -> Result<Arc<PreparedPairs>> {
        let prepared = self.prepared.lock().clone();
        prepared.ok_or_else(no_blocks)
    }

    /// The blocks of the last run. Fails if there was none.
    fn submitted(&self) -> Result<Arc<PreparedPairs>> {
        self.completion().ensure_submitted()?;
        self.prepared()
    }

    /// The outcome of the last run; `None` while it is in flight.
    pub fn poll(&self) -> Result<Option<()>> {
        self.submitted()?.engine.poll();
        self.completion().poll()
    }

    /// Passes what the check of the last run has found to `read`. Returns `None` while the run is in flight. Fails as the run has
    /// failed, unless its blocks were compared and differ.
    pub fn findings<T>(&self, read: impl FnOnce(&Findings) -> T) -> Result<Option<T>> {
        self.completion().findings(read)
    }

    /// Waits for the last run; without a timeout, until it ends. The calling thread copies host memory and does NIXL's work
    /// while it waits.
    pub fn wait(&self, timeout: Option<Duration>) -> Result<()> {
        self.runs.wait(&*self.submitted()?.engine, timeout)
    }

    /// Number of layers of the last run that have moved, from the first on; 0 before the first run. Without `by_layer`, all
    /// of them at its end.
    pub fn moved_layers(&self) -> Result<u64> {
        let Ok(last) = self.submitted() else { return Ok(0) };
        last.engine.poll();
        self.completion().moved()
    }

    /// Waits until the first `layers` of the last run have moved; 0 for all. `None` waits without a timeout.
    pub fn wait_layers(&self, layers: u64, timeout: Option<Duration>) -> Result<()> {
        let wanted = self.wanted(layers)?.unwrap_or(self.completion().layers());
        self.runs.wait_layers(&*self.submitted()?.engine, wanted, timeout)
    }

    /// Makes later work on a stream of the caller wait for the first `layers` of the last run; 0 for all.
    pub fn wait_on(&self, layers: u64, stream: CallerStream) -> Result<()> {
        let wanted = self.wanted(layers)?;
        let moved = self.completion().moved()?;
        let prepared = self.prepared()?;
        let Some(on_streams) = prepared.engine.on_streams() else {
            let over = self.completion().poll()?.is_some();
            ensure!(
                over || wanted.is_some_and(|wanted| moved >= wanted),
                Unsupported,
                "streams can't wait for {}; wait for the layers on the host before queueing the work",
                prepared.method
            );
            return Ok(());
        };
        if on_streams.check_stream(stream)?.is_some() {
            fail!(InvalidState, "a graph can't wait for a run that is not part of it");
        }
        self.completion().poll()?;
        // Only transfers by layer have an event per layer; others have one at the end.
        on_streams.delay(stream, wanted.filter(|_| self.route.preferences.by_layer))
    }

    /// Cancels the parts of the last run that have not begun. Copies that have begun complete.
    pub fn cancel(&self) -> Result<()> {
        self.completion().cancel()?;
        self.prepared()?.engine.end_if_cancelled();
        Ok(())
    }

    /// Fails if the transfer has fewer layers. Returns `None` for all layers.
    fn wanted(&self, layers: u64) -> Result<Option<u64>> {
        let have = self.completion().layers();
        ensure!(layers <= have, OutOfRange, "the transfer moves {have} layers, and {layers} are requested");
        Ok((layers > 0).then_some(layers))
    }

    /// The method that it takes with its current blocks.
    pub fn method(&self) -> Result<TransferMethod> {
        self.prepared().map(|prepared| prepared.method)
    }

    /// Its size with its current blocks. Fails if its requests cannot be counted.
    pub fn summary(&self) -> Result<Summary> {
        self.prepared()?.summary()
    }

    /// Says which method it takes, the expected throughput, why it takes no other method, and what the last run has taken. Moves nothing.
    pub fn explain(&self) -> Result<String> {
        let prepared = self.prepared()?;
        let layers = self.route.preferences.by_layer.then(|| self.completion().layers());
        let choice = explain::explain(
            prepared.method,
            prepared.summary()?,
            [&prepared.loops(self.route.preferences.by_layer), &prepared.conditions()],
            &prepared.candidates(),
            layers,
            prepared.run_estimate(),
        );
        Ok(choice + &last_run(self.completion(), || prepared.phase_estimates()))
    }

    /// The methods that were compared, beginning with the one that it takes.
    pub fn compared_methods(&self) -> Result<Vec<ComparedMethod>> {
        let prepared = self.prepared()?;
        Ok(explain::compared(
            prepared.method,
            prepared.plan.bytes(),
            &prepared.candidates(),
            prepared.run_estimate(),
        ))
    }

    /// Duration of the last run that ended.
    pub fn duration(&self) -> Duration {
        self.completion().duration()
    }

    fn completion(&self) -> &Completion {
        self.runs.completion()
    }

    /// Logs the method of the first blocks. Later ones may be others, in every step of an engine.
    fn log_method(&self, prepared: &PreparedPairs) {
        if enabled(Level::Info) {
            let details = (prepared.summary(), prepared.candidates(), prepared.run_estimate());
            log_lines::log_method(self.completion().log_id(), prepared.method, details);
        }
    }
}

#[cold]
fn no_blocks() -> Error {
    error!(
        InvalidState,
        "the transfer has no blocks yet; give them to kvmem_transfer_submit or kvmem_transfer_prepare first"
    )
}

impl Drop for Transfer {
    fn drop(&mut self) {
        log!(Debug, "transfer {} destroyed", self.completion().log_id());
    }
}
