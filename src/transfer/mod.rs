// SPDX-License-Identifier: Apache-2.0
//! Transfers: moving blocks between two layouts.
//!
//! A transfer is checked, planned and prepared once, and submitted any number of times. Nothing below imports this file.

pub mod engine;
mod log_lines;
mod path;
pub mod plan;
pub mod request;
pub mod run;
pub mod verify;

use std::sync::Arc;
use std::time::Duration;

pub use engine::Candidate;
pub use engine::cuda::rates::{self, known as known_rates};
pub use engine::explain::{Explanation, Summary};
pub use path::TransferPath;
pub use plan::{Outline, Plan};
pub use request::{BlockPair, Expected, PairedRange, Preferences, Step, TransferRequest, Wanted};
pub use run::completion::{Completion, Outcome};
pub use run::queue::{Entry, OpenQueue, Queue};
pub use verify::checksum;

use engine::contexts::Contexts;
use engine::runs::{self, Needs, Runs};
use engine::{Engine, OnStreams, explain, select};
use plan::BlockRuns;
use run::Run;
use run::completion::Account;
use run::history::{self, Record};
use verify::Verification;

use crate::cuda::stream::CallerStream;
use crate::error::{Error, Result, Status, ensure, fail};
use crate::layout::Layout;
use crate::log::log;
use crate::sync::{Mutex, MutexGuard};

/// A prepared move of blocks. It keeps its layouts alive, also while a run is in flight and the handle is gone.
pub struct Transfer {
    /// The path, or one of several that are compared for each list of pairs.
    path: TransferPath,
    outline: Arc<Outline>,
    preferences: Preferences,
    /// Each run compares the blocks with their source.
    verifies_source: bool,
    /// The CUDA contexts of the memory of both layouts.
    contexts: Contexts,
    runs: Runs,
    /// The work of the next run. Only replaced by a thread that has the lock below, while no run is in flight.
    work: Mutex<Arc<Work>>,
    /// Held by the thread that submits.
    submitting: Mutex<()>,
    /// The work that graphs were captured from.
    captured: Mutex<Vec<Arc<Work>>>,
    /// Memory for the blocks of the next list of pairs.
    spare: Mutex<Option<Arc<BlockRuns>>>,
}

/// A list of pairs, prepared for an engine.
struct Work {
    path: TransferPath,
    bytes: u64,
    pieces: u64,
    engine: Box<dyn Engine>,
    needs: Needs,
    blocks: Arc<BlockRuns>,
    /// Throughput of earlier runs on the same path, if no model predicts it.
    record: Option<Arc<Record>>,
    /// Compares the blocks after the last byte.
    verification: Option<Arc<Verification>>,
}

impl Transfer {
    /// Checks, plans and prepares; moves nothing.
    pub fn create(
        source: &Arc<Layout>,
        destination: &Arc<Layout>,
        request: TransferRequest<'_>,
    ) -> Result<Self> {
        let sides = [source, destination];
        let path = select::path(source, destination, request.preferences.path)?;
        destination.memory().regions().iter().try_for_each(|region| region.ensure_writable())?;
        ensure_notifiable(path, &request.step)?;
        let contexts = Contexts::of([&**source, &**destination], path.is_cuda());
        contexts.ensure_alive()?;
        let by_layer = request.preferences.by_layer;
        let route = Route { path, sides, preferences: &request.preferences, contexts: &contexts };
        let outline = Arc::new(Outline::new(source, destination, request.wanted, by_layer)?);
        let work = route.prepare(&outline, request.step, request.verifies_source, None, None)?;
        let completion = Completion::new(outline.selection().layers.count, request.queue);
        let transfer = Self {
            path,
            outline,
            verifies_source: request.verifies_source,
            runs: Runs::new([source.clone(), destination.clone()], completion),
            work: Mutex::new(Arc::new(work)),
            submitting: Mutex::default(),
            captured: Mutex::default(),
            spare: Mutex::default(),
            preferences: request.preferences,
            contexts,
        };
        transfer.log_creation(source, destination);
        Ok(transfer)
    }

    /// Starts a run.
    pub fn submit(&self) -> Result<()> {
        let _turn = self.turn()?;
        self.start(&self.work())
    }

    /// Starts a run on a stream of the caller: after the work that is queued there, and before later work. If the stream
    /// is being captured, the copies become part of the graph, and nothing runs.
    pub fn submit_on(&self, stream: CallerStream) -> Result<()> {
        if self.check_stream(stream)? {
            return self.capture(&self.work(), stream);
        }
        let _turn = self.turn()?;
        self.start_on(&self.work(), stream)
    }

    /// Replaces the pairs, and starts a run. If that fails, the transfer keeps the pairs that it had.
    pub fn submit_pairs(&self, step: Step<'_>) -> Result<()> {
        let _turn = self.turn()?;
        let before = self.replace(step)?;
        self.start(&self.work()).inspect_err(|_| self.restore(before))
    }

    /// Replaces the pairs, and starts a run on a stream of the caller. If the stream is being captured, the copies become
    /// part of the graph.
    pub fn submit_pairs_on(&self, step: Step<'_>, stream: CallerStream) -> Result<()> {
        let is_captured = self.check_stream(stream)?;
        let _turn = self.turn()?;
        let before = self.replace(step)?;
        let work = self.work();
        let started = match is_captured {
            true => self.capture(&work, stream),
            false => self.start_on(&work, stream),
        };
        started.inspect_err(|_| self.restore(before))
    }

    /// Locks the transfer for a submission. Other threads that submit it fail until the lock is dropped.
    fn turn(&self) -> Result<MutexGuard<'_, ()>> {
        self.submitting.try_lock().ok_or_else(|| {
            Error::new(
                Status::Busy,
                "another thread is submitting the transfer; wait for its run, then submit it again",
            )
        })
    }

    /// Prepares other pairs for the next run. Returns the previous work.
    fn replace(&self, step: Step<'_>) -> Result<Arc<Work>> {
        self.runs.ensure_idle()?;
        ensure_notifiable(self.path, &step)?;
        self.contexts.ensure_alive()?;
        let spare = self.spare.lock().take();
        let route = Route {
            path: self.path,
            sides: self.runs.layouts(),
            preferences: &self.preferences,
            contexts: &self.contexts,
        };
        let before = self.work();
        let work = route.prepare(&self.outline, step, self.verifies_source, Some(&before), spare)?;
        *self.work.lock() = Arc::new(work);
        *self.spare.lock() = Some(before.blocks.clone());
        Ok(before)
    }

    fn restore(&self, before: Arc<Work>) {
        *self.work.lock() = before;
    }

    fn start(&self, work: &Work) -> Result<()> {
        work.engine.submit(&|| self.begin(work))
    }

    fn start_on(&self, work: &Work, stream: CallerStream) -> Result<()> {
        work.on_streams()?.submit_on(stream, &|| self.begin(work))
    }

    fn begin(&self, work: &Work) -> Result<Run> {
        let run = self.runs.begin(&*work.engine, &work.needs)?;
        log!(Debug, "transfer {} submitted", self.completion().log_id());
        Ok(match &work.verification {
            Some(verification) => run.verified_by(verification.clone()),
            None => run,
        })
    }

    /// Fails for a stream that the transfer can't be submitted on. Returns whether it is being captured into a graph.
    fn check_stream(&self, stream: CallerStream) -> Result<bool> {
        let work = self.work();
        let on_streams = work.on_streams()?;
        // Checked first: the driver can't be queried about a stream of a context that no longer exists.
        work.needs.ensure_alive()?;
        on_streams.check_stream(stream)
    }

    fn capture(&self, work: &Arc<Work>, stream: CallerStream) -> Result<()> {
        ensure!(
            work.verification.is_none(),
            Unsupported,
            "runs of a graph can't be verified, because the host does not take part in them; create the transfer without \
             checksums"
        );
        log!(Debug, "transfer {} captured into a graph", self.completion().log_id());
        // Kept before the driver is called, because the graph may use it even if the driver reports a failure.
        let mut captured = self.captured.lock();
        if !captured.iter().any(|known| Arc::ptr_eq(known, work)) {
            captured.push(work.clone());
        }
        drop(captured);
        work.on_streams()?.capture(stream)
    }

    fn work(&self) -> Arc<Work> {
        self.work.lock().clone()
    }

    /// The outcome of the last run; `None` while it is in flight.
    pub fn poll(&self) -> Result<Option<()>> {
        self.work().engine.poll();
        self.completion().poll()
    }

    /// Waits for the last run; without a timeout, until it ends. The calling thread copies host memory and does NIXL's work
    /// while it waits.
    pub fn wait(&self, timeout: Option<Duration>) -> Result<()> {
        self.runs.wait(&*self.work().engine, timeout)
    }

    /// Number of layers of the last run that have moved, from the first on. Without `by_layer`, all of them at its end.
    pub fn moved_layers(&self) -> Result<u64> {
        self.work().engine.poll();
        self.completion().moved()
    }

    /// Waits until the first `layers` of the last run have moved; 0 for all. `None` waits without a timeout.
    pub fn wait_layers(&self, layers: u64, timeout: Option<Duration>) -> Result<()> {
        let wanted = self.wanted(layers)?.unwrap_or(self.completion().layers());
        self.runs.wait_layers(&*self.work().engine, wanted, timeout)
    }

    /// Makes later work on a stream of the caller wait for the first `layers` of the last run; 0 for all.
    pub fn wait_on(&self, layers: u64, stream: CallerStream) -> Result<()> {
        let wanted = self.wanted(layers)?;
        let moved = self.completion().moved()?;
        let work = self.work();
        let Some(on_streams) = work.engine.on_streams() else {
            let over = self.completion().poll()?.is_some();
            ensure!(
                over || wanted.is_some_and(|wanted| moved >= wanted),
                Unsupported,
                "streams can't wait for {}; wait for the layers on the host before queueing the work",
                work.path
            );
            return Ok(());
        };
        if on_streams.check_stream(stream)? {
            fail!(InvalidState, "a graph can't wait for a run that is not part of it");
        }
        self.completion().poll()?;
        // Only transfers by layer have an event per layer; others have one at the end.
        on_streams.delay(stream, wanted.filter(|_| self.preferences.by_layer))
    }

    /// Cancels the parts of the last run that have not begun. Copies that have begun complete.
    pub fn cancel(&self) -> Result<()> {
        self.completion().cancel()?;
        self.work().engine.cancel();
        Ok(())
    }

    /// Fails if the transfer has fewer layers. Returns `None` for all layers.
    fn wanted(&self, layers: u64) -> Result<Option<u64>> {
        let have = self.completion().layers();
        ensure!(layers <= have, OutOfRange, "the transfer moves {have} layers, and {layers} are requested");
        Ok((layers > 0).then_some(layers))
    }

    /// The path that it takes with its current pairs.
    pub fn path(&self) -> TransferPath {
        self.work().path
    }

    /// Its size with its current pairs.
    pub fn summary(&self) -> Summary {
        self.work().summary()
    }

    /// Says which path it takes, the expected throughput, and why it takes no other path. Moves nothing.
    pub fn explain(&self) -> Explanation {
        let work = self.work();
        let assumed = work.record.as_ref().is_some_and(|record| !record.seconds(work.bytes).1);
        let layers = self.preferences.by_layer.then(|| self.completion().layers());
        explain::explain(work.path, work.summary(), &work.candidates(), layers, assumed)
    }

    /// Duration of the last run that ended.
    pub fn duration(&self) -> Duration {
        self.completion().duration()
    }

    fn completion(&self) -> &Completion {
        self.runs.completion()
    }

    fn log_creation(&self, source: &Layout, destination: &Layout) {
        let work = self.work();
        let of = || (work.summary(), work.candidates());
        log_lines::log_creation(self.completion().log_id(), work.path, of, source, destination);
    }
}

/// Fails if there is a notification and no remote agent.
fn ensure_notifiable(path: TransferPath, step: &Step<'_>) -> Result<()> {
    ensure!(
        step.notification.is_none() || matches!(path, TransferPath::NixlRead | TransferPath::NixlWrite),
        InvalidArgument,
        "a notification goes to a remote agent, and neither layout is remote"
    );
    Ok(())
}

/// The inputs for preparing an engine that do not depend on the pairs.
struct Route<'a> {
    path: TransferPath,
    sides: [&'a Arc<Layout>; 2],
    preferences: &'a Preferences,
    contexts: &'a Contexts,
}

impl Route<'_> {
    /// Plans some pairs, and prepares the engine for them. Reuses the engine of the previous pairs if possible.
    fn prepare(
        &self,
        outline: &Arc<Outline>,
        step: Step<'_>,
        verifies_source: bool,
        before: Option<&Work>,
        spare: Option<Arc<BlockRuns>>,
    ) -> Result<Work> {
        let [source, destination] = self.sides;
        let expected = step.expected(verifies_source)?;
        let plan = Plan::new(outline, step.pairs, spare)?;
        let (bytes, pieces, blocks) = (plan.bytes(), plan.pieces(), plan.shared_blocks());
        let touched = runs::touched(source, destination, &plan);
        let verify = |expected| {
            let selection = *outline.selection();
            Verification::new(self.sides, step.pairs, selection, self.preferences.by_layer, expected)
        };
        let verification = expected.map(verify).transpose()?.map(Arc::new);
        let next = before.and_then(|before| before.engine.prepare_next(&plan, self.preferences));
        let engine = match next {
            Some(next) => next?,
            None => select::prepare(self.path, self.sides, plan, self.preferences, step.notification)?,
        };
        let path = engine.path();
        let record = engine.learns_from_runs().then(|| history::of(path, source, destination));
        let account = Account {
            bytes,
            user_data: step.user_data,
            // With verification, the duration is not that of the path alone.
            record: record.clone().filter(|_| verification.is_none()),
        };
        let needs = Needs::of(&*engine, touched, self.contexts.clone(), account);
        Ok(Work { path, bytes, pieces, engine, needs, blocks, record, verification })
    }
}

impl Work {
    fn on_streams(&self) -> Result<&dyn OnStreams> {
        match self.engine.on_streams() {
            Some(on_streams) => Ok(on_streams),
            None => {
                fail!(Unsupported, "{} does not run on streams; submit the transfer without one", self.path)
            }
        }
    }

    fn summary(&self) -> Summary {
        let (moves, requests) = (self.engine.moves(), self.engine.requests());
        Summary { bytes: self.bytes, pieces: self.pieces, moves, requests }
    }

    /// The paths that were compared, or the only one.
    fn candidates(&self) -> Vec<Candidate> {
        let mut candidates = self.engine.candidates();
        if let Some(record) = &self.record {
            let taken = candidates.iter_mut().filter(|candidate| candidate.path == self.path);
            taken.for_each(|candidate| candidate.seconds = record.seconds(self.bytes).0);
        }
        candidates
    }
}

impl Drop for Transfer {
    fn drop(&mut self) {
        log!(Debug, "transfer {} destroyed", self.completion().log_id());
    }
}
