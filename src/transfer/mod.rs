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
pub use path::Path;
pub use plan::{Outline, Plan};
pub use request::{BlockPair, Expected, PairedRange, Preferences, Request, Wanted};
pub use run::completion::{Completion, Outcome};
pub use run::queue::{Entry, OpenQueue, Queue};
pub use verify::checksum;

use engine::contexts::Contexts;
use engine::runs::{self, Runs};
use engine::{Engine, explain, select};
use run::Run;
use run::history::{self, Record};
use verify::Verification;

use crate::cuda::stream::CallerStream;
use crate::error::{Result, ensure, fail};
use crate::layout::Layout;
use crate::log::log;

/// A prepared move of blocks. It keeps its layouts alive, also while a run is in flight and the handle is gone.
pub struct Transfer {
    path: Path,
    bytes: u64,
    pieces: u64,
    by_layer: bool,
    engine: Box<dyn Engine>,
    runs: Runs,
    /// Throughput of earlier runs on the same path, if no model predicts it.
    record: Option<Arc<Record>>,
    /// What is compared after the last byte.
    verification: Option<Arc<Verification>>,
}

impl Transfer {
    /// Checks, plans and prepares; moves nothing.
    ///
    /// Nothing of it is cached for the next transfer between the same layouts: what depends on these alone (checks, the
    /// plan's shape, the comparison of paths) takes 0.2 us on the host, 0.2 us plus a statx of 0.5 us to a file, and 1 us
    /// from or to a GPU, under the stand-in driver on 2 cores of an AMD EPYC; memory that was adopted costs 1.2 us more to
    /// ask the driver. The rest depends on the blocks: 64 scattered ones take 1.5 to 3 us in all, 10,000 take 100 to
    /// 250 us, of which finding the runs is 80 us; a program with no other memory in use adds 150 us for pages that its
    /// allocator returns to the system each time. Measure again before adding a cache: a lock and a look-up are 0.1 us.
    pub fn create(source: &Arc<Layout>, destination: &Arc<Layout>, request: Request<'_>) -> Result<Self> {
        let sides = [source, destination];
        let path = select::path(source, destination, request.preferences.path)?;
        destination.memory().regions().iter().try_for_each(|region| region.ensure_writable())?;
        let remote = matches!(path, Path::NixlRead | Path::NixlWrite);
        ensure!(
            request.notification.is_none() || remote,
            InvalidArgument,
            "a notification goes to a remote agent, and neither layout is remote"
        );
        let mut contexts = Contexts::of([&**source, &**destination], path.is_cuda());
        contexts.ensure_alive()?;
        let by_layer = request.preferences.by_layer;
        let outline = Arc::new(Outline::new(source, destination, request.wanted, by_layer)?);
        let plan = Plan::new(&outline, request.pairs, None)?;
        let (bytes, pieces) = (plan.bytes(), plan.pieces());
        let touched = runs::touched(source, destination, &plan);
        let layers = plan.layers().count;
        let verify = |expected| {
            Verification::new(sides, request.pairs, *plan.selection(), by_layer, expected).map(Arc::new)
        };
        let verification = request.expected.map(verify).transpose()?;
        let engine = select::prepare(path, sides, plan, &request.preferences, request.notification)?;
        let path = engine.path();
        engine.add_contexts(&mut contexts);
        let record = engine.learns_from_runs().then(|| history::of(path, source, destination));
        // The duration of a comparison says nothing about the path.
        let recorded = record.clone().filter(|_| verification.is_none());
        let completion = Completion::new(bytes, layers, request.queue, recorded);
        let runs = Runs::new([source.clone(), destination.clone()], touched, contexts, completion);
        let transfer = Self { path, bytes, pieces, by_layer, engine, runs, record, verification };
        transfer.log_creation(source, destination);
        Ok(transfer)
    }

    /// Starts a run.
    pub fn submit(&self) -> Result<()> {
        self.engine.submit(&|| self.begin())
    }

    /// Starts a run on a stream of the caller: after the work that is queued there, and before later work. If the stream
    /// is being captured, the copies become part of the graph, and nothing runs.
    pub fn submit_on(&self, stream: CallerStream) -> Result<()> {
        let Some(on_streams) = self.engine.on_streams() else {
            fail!(Unsupported, "{} takes no stream; submit the transfer without one", self.path)
        };
        // Checked first: the driver can't be asked about a stream that went with the same context.
        self.runs.ensure_alive()?;
        if on_streams.check_stream(stream)? {
            ensure!(
                self.verification.is_none(),
                Unsupported,
                "a graph's runs are not verified: the host has no part in them; create the transfer without checksums"
            );
            log!(Debug, "transfer {} captured into a graph", self.completion().log_id());
            return on_streams.capture(stream);
        }
        on_streams.submit_on(stream, &|| self.begin())
    }

    fn begin(&self) -> Result<Run> {
        let run = self.runs.begin(&*self.engine)?;
        log!(Debug, "transfer {} submitted", self.completion().log_id());
        Ok(match &self.verification {
            Some(verification) => run.verified_by(verification.clone()),
            None => run,
        })
    }

    /// The outcome of the last run; `None` while it is in flight.
    pub fn poll(&self) -> Result<Option<()>> {
        self.engine.poll();
        self.completion().poll()
    }

    /// Waits for the last run; without a timeout, until it ends. The calling thread copies host memory and does NIXL's work
    /// while it waits.
    pub fn wait(&self, timeout: Option<Duration>) -> Result<()> {
        self.runs.wait(&*self.engine, timeout)
    }

    /// How many layers of the last run have moved, from the first on. Without `by_layer`, all at its end.
    pub fn moved_layers(&self) -> Result<u64> {
        self.engine.poll();
        self.completion().moved()
    }

    /// Waits until the first `layers` of the last run have moved; 0 for all. `None` waits without a timeout.
    pub fn wait_layers(&self, layers: u64, timeout: Option<Duration>) -> Result<()> {
        let wanted = self.wanted(layers)?.unwrap_or(self.completion().layers());
        self.runs.wait_layers(&*self.engine, wanted, timeout)
    }

    /// Makes later work on a stream of the caller wait for the first `layers` of the last run; 0 for all.
    pub fn wait_on(&self, layers: u64, stream: CallerStream) -> Result<()> {
        let wanted = self.wanted(layers)?;
        let moved = self.completion().moved()?;
        let Some(on_streams) = self.engine.on_streams() else {
            let over = self.completion().poll()?.is_some();
            ensure!(
                over || wanted.is_some_and(|wanted| moved >= wanted),
                Unsupported,
                "no stream carries {}, so that none can wait for it; wait for the layers before work is put there",
                self.path
            );
            return Ok(());
        };
        if on_streams.check_stream(stream)? {
            fail!(InvalidState, "a graph can't wait for a run that began outside it");
        }
        self.completion().poll()?;
        // Only transfers by layer have an event per layer; others have one at the end.
        on_streams.delay(stream, wanted.filter(|_| self.by_layer))
    }

    /// Cancels what of the last run has not begun. Copies that have begun go on.
    pub fn cancel(&self) -> Result<()> {
        self.completion().cancel()?;
        self.engine.cancel();
        Ok(())
    }

    /// Fails if there are fewer layers. Returns `None` for all.
    fn wanted(&self, layers: u64) -> Result<Option<u64>> {
        let have = self.completion().layers();
        ensure!(layers <= have, OutOfRange, "the transfer moves {have} layers, and {layers} are asked for");
        Ok((layers > 0).then_some(layers))
    }

    /// The path that it takes.
    pub fn path(&self) -> Path {
        self.path
    }

    /// Its size.
    pub fn summary(&self) -> Summary {
        let (moves, requests) = (self.engine.moves(), self.engine.requests());
        Summary { bytes: self.bytes, pieces: self.pieces, moves, requests }
    }

    /// The paths that were compared, or the only one.
    pub fn candidates(&self) -> Vec<Candidate> {
        let mut candidates = self.engine.candidates();
        if let Some(record) = &self.record {
            let taken = candidates.iter_mut().filter(|candidate| candidate.path == self.path);
            taken.for_each(|candidate| candidate.seconds = record.seconds(self.bytes).0);
        }
        candidates
    }

    /// Says which path it takes, the expected throughput, and why it takes no other path. Moves nothing.
    pub fn explain(&self) -> Explanation {
        let assumed = self.record.as_ref().is_some_and(|record| !record.seconds(self.bytes).1);
        let layers = self.by_layer.then(|| self.completion().layers());
        explain::explain(self.path, self.summary(), &self.candidates(), layers, assumed)
    }

    /// Duration of the last run that ended.
    pub fn duration(&self) -> Duration {
        self.completion().duration()
    }

    fn completion(&self) -> &Completion {
        self.runs.completion()
    }

    fn log_creation(&self, source: &Layout, destination: &Layout) {
        let of = || (self.summary(), self.candidates());
        log_lines::log_creation(self.completion().log_id(), self.path, of, source, destination);
    }
}

impl Drop for Transfer {
    fn drop(&mut self) {
        log!(Debug, "transfer {} destroyed", self.completion().log_id());
    }
}
