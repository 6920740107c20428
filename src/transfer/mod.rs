// SPDX-License-Identifier: Apache-2.0
//! Transfers: moving blocks between two layouts.
//!
//! A transfer is checked, planned and prepared once, and submitted as often as its user likes.

pub mod engine;
mod layers;
mod log_lines;
mod path;
pub mod plan;
pub mod run;
pub mod verify;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

pub use engine::cuda::rates::{self, known as known_rates, peer as peer_rates};
pub use path::Path;
pub use plan::{BlockPair, Outline, PairedRange, Plan, Wanted};
pub use run::completion::{Completion, Outcome};
pub use run::queue::{Entry, OpenQueue, Queue};
pub use verify::{Expected, checksum};

use engine::contexts::Contexts;
use engine::disk::DiskMove;
use engine::nixl::NixlMove;
use engine::{cuda, disk, host, nixl};
use run::history::{self, Record};
use run::steps;
use verify::Verification;

use crate::cuda::stream::CallerStream;
use crate::error::{Result, ensure, fail};
use crate::layout::{Layout, TouchedExtents};
use crate::log::log;
use crate::nixl::RemoteHold;

/// What to move, and whom to tell.
#[derive(Default)]
pub struct Request<'a> {
    /// Blocks to move.
    pub pairs: &'a [BlockPair],
    /// What of each.
    pub wanted: Wanted,
    /// Sent to the remote agent when all is done.
    pub notification: Option<Vec<u8>>,
    /// Where completions go, with the word that comes back in them.
    pub queue: Option<(Arc<Queue>, u64)>,
    /// Which way the bytes shall go.
    pub preferences: Preferences,
    /// What the destination's blocks are compared with before the transfer is over.
    pub expected: Option<Expected<'a>>,
}

/// What the caller asks of the way that the bytes go.
#[derive(Clone, Debug, Default)]
pub struct Preferences {
    /// Nothing computes on the GPU meanwhile.
    pub compute_is_idle: bool,
    /// The most CTAs of a kernel; 0 for as many as are worth having.
    pub max_ctas: u32,
    /// Bytes of staging memory; 0 for the default.
    pub staging_size: u64,
    /// Refuses ways with any memory between source and destination.
    pub zero_copy: bool,
    /// Refuses ways through host memory that is neither source nor destination.
    pub no_host_bounce: bool,
    /// Layer by layer, telling how many have moved.
    pub by_layer: bool,
    /// The way to take, or none.
    pub path: Option<Path>,
}

/// A way that was weighed.
#[derive(Clone, Debug)]
pub struct Candidate {
    /// The way.
    pub path: Path,
    /// What it is expected to take.
    pub seconds: f64,
    /// Why it is not taken.
    pub reason: Option<String>,
    /// It can't be taken at all; else the reason only says why another one is better, or was asked for.
    pub is_impossible: bool,
}

/// A prepared move of blocks. It keeps its layouts alive, also while it is in flight and its handle is gone.
pub struct Transfer {
    path: Path,
    bytes: u64,
    pieces: u64,
    by_layer: bool,
    engine: Engine,
    layouts: [Arc<Layout>; 2],
    completion: Arc<Completion>,
    busy: Arc<AtomicBool>,
    touched: [TouchedExtents; 2],
    contexts: Contexts,
    /// How fast earlier runs on this way were, where no model says it.
    record: Option<Arc<Record>>,
    /// What is compared when all has moved.
    verification: Option<Arc<Verification>>,
}

/// The size of a transfer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Bytes it moves.
    pub bytes: u64,
    /// (block, layer, outer) units it is made of.
    pub pieces: u64,
    /// Stretches of memory after merging neighbours.
    pub moves: u64,
    /// NIXL requests, or reads and writes of a file.
    pub requests: u64,
}

enum Engine {
    Host(host::HostCopy),
    Cuda(Box<cuda::CudaCopy>),
    Disk(steps::InTurn<disk::DiskMove>),
    Nixl(steps::InTurn<nixl::NixlMove>),
}

impl Transfer {
    /// Checks, plans and prepares; moves nothing.
    ///
    /// Nothing of it is kept for the next transfer between the same layouts: what depends on these alone (checks, the
    /// plan's shape, weighing) is 0.2 us on the host, 0.2 us plus a statx of 0.5 us to a file, and 1 us from or to a GPU, under
    /// the stand-in driver on 2 cores of an AMD EPYC; memory that was adopted costs 1.2 us more to ask the driver of.
    /// The rest goes with the blocks: 64 scattered ones take 1.5 to 3 us in all, 10,000 take 100 to 250 us, of which
    /// finding the runs is 80 us; a program with no other memory in use adds 150 us for pages that its allocator gives
    /// back each time. Measure again before adding a cache: a lock and a look-up are 0.1 us.
    pub fn create(source: &Arc<Layout>, destination: &Arc<Layout>, request: Request<'_>) -> Result<Self> {
        let mut path = path::choose(source, destination, request.preferences.path)?;
        path::ensure_possible(path, request.preferences.path)?;
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
        let touched = touched(source, destination, &plan);
        let layers = plan.layers().count;
        let verify = |expected| {
            let sides = [source, destination];
            Verification::new(sides, request.pairs, *plan.selection(), by_layer, expected).map(Arc::new)
        };
        let verification = request.expected.map(verify).transpose()?;
        let engine =
            Engine::prepare(path, [source, destination], plan, request.preferences, request.notification)?;
        match &engine {
            Engine::Cuda(copy) => {
                path = copy.path();
                copy.add_contexts(&mut contexts);
            }
            Engine::Disk(moves) => moves.parts().iter().for_each(|part| {
                path = part.path();
                part.identity().into_iter().for_each(|identity| contexts.add(identity));
            }),
            _ => {}
        }
        let record = matches!(engine, Engine::Disk(_) | Engine::Nixl(_))
            .then(|| history::of(path, source, destination));
        // How long it takes to compare says nothing of the way.
        let recorded = record.clone().filter(|_| verification.is_none());
        let completion = Arc::new(Completion::new(bytes, layers, request.queue, recorded));
        let busy = Arc::default();
        let transfer = Self {
            path,
            bytes,
            pieces,
            by_layer,
            engine,
            layouts: [source.clone(), destination.clone()],
            completion,
            busy,
            touched,
            contexts,
            record,
            verification,
        };
        transfer.log_creation(source, destination);
        Ok(transfer)
    }

    /// Starts it, or starts it again.
    pub fn submit(&self) -> Result<()> {
        match &self.engine {
            Engine::Host(copy) => {
                copy.submit(self.begin()?);
                Ok(())
            }
            Engine::Cuda(copy) => copy.submit(|| self.begin()),
            Engine::Disk(moves) => moves.submit(self.begin()?),
            Engine::Nixl(requests) => requests.submit(self.begin()?),
        }
    }

    /// Starts it on a stream of the caller's: after what is there, and before what comes. Where the stream is captured,
    /// it goes into the graph, and nothing runs.
    pub fn submit_on(&self, stream: CallerStream) -> Result<()> {
        let Engine::Cuda(copy) = &self.engine else {
            fail!(Unsupported, "{} takes no stream; submit the transfer without one", self.path)
        };
        // Asked first: of a stream that went with the same context the driver can't be asked.
        self.contexts.ensure_alive()?;
        if copy.check_stream(stream)? {
            ensure!(
                self.verification.is_none(),
                Unsupported,
                "a graph's runs are not verified: the host has no part in them; create the transfer without checksums"
            );
            log!(Debug, "transfer {} captured into a graph", self.completion.log_id());
            return copy.capture(stream);
        }
        copy.submit_on(stream, || self.begin())
    }

    /// Begins a run; refused while there is one, where an extent has no memory, and where adopted memory is gone.
    fn begin(&self) -> Result<run::Run> {
        self.contexts.ensure_alive()?;
        let [source, destination] = &self.touched;
        let extents = [source.hold()?, destination.hold()?];
        let peer = self.hold_peer()?;
        ensure!(
            !self.busy.swap(true, Ordering::AcqRel),
            Busy,
            "the transfer is in flight; poll it or wait for it, then submit it again"
        );
        let held = run::Held { layouts: Some(self.layouts.clone()), extents, peer };
        let run = run::Run::start(self.completion.clone(), self.busy.clone(), held);
        log!(Debug, "transfer {} submitted", self.completion.log_id());
        Ok(run.verified_by(self.verification.clone()))
    }

    /// The peer of a transfer over NIXL, whose metadata can't be invalidated from now on.
    fn hold_peer(&self) -> Result<Option<RemoteHold>> {
        let Engine::Nixl(moves) = &self.engine else { return Ok(None) };
        moves.parts().iter().try_for_each(NixlMove::ensure_usable)?;
        // All parts have the same layouts.
        moves.parts().first().map_or(Ok(None), NixlMove::hold_peer)
    }

    /// How the last run stands; `None` while it is under way.
    pub fn poll(&self) -> Result<Option<()>> {
        if let Engine::Cuda(copy) = &self.engine {
            copy.look();
        }
        self.completion.poll()
    }

    /// Waits for the last run; without a timeout for ever. The waiting thread copies along in host memory, and does NIXL's
    /// work if no other thread does.
    pub fn wait(&self, timeout: Option<Duration>) -> Result<()> {
        let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        match &self.engine {
            Engine::Host(copy) => copy.help(deadline, || false),
            Engine::Cuda(copy) => copy.look_for_a_while(deadline, || false),
            Engine::Nixl(moves) => {
                if let Some(part) = moves.parts().first() {
                    part.drive(deadline, || !self.completion.is_running());
                }
            }
            Engine::Disk(_) => {}
        }
        self.completion.wait(deadline)
    }

    /// The path it takes.
    pub fn path(&self) -> Path {
        self.path
    }

    /// Its size.
    pub fn summary(&self) -> Summary {
        let (moves, requests) = match &self.engine {
            Engine::Host(copy) => (copy.moves(), 0),
            Engine::Cuda(copy) => (copy.moves(), 0),
            Engine::Disk(moves) => (moves.sum(DiskMove::moves), moves.sum(DiskMove::requests)),
            Engine::Nixl(moves) => (moves.sum(NixlMove::moves), moves.sum(NixlMove::requests)),
        };
        Summary { bytes: self.bytes, pieces: self.pieces, moves, requests }
    }

    /// The ways that were weighed; for what has but one, that.
    pub fn candidates(&self) -> Vec<Candidate> {
        let own = |seconds| vec![Candidate { path: self.path, seconds, reason: None, is_impossible: false }];
        let mut candidates = match &self.engine {
            Engine::Cuda(copy) => copy.candidates().to_vec(),
            Engine::Disk(moves) => {
                moves.parts().first().map_or(Vec::new(), |part| part.candidates().to_vec())
            }
            Engine::Host(copy) => own(copy.seconds()),
            Engine::Nixl(_) => own(0.0),
        };
        if let Some(record) = &self.record {
            let taken = candidates.iter_mut().filter(|candidate| candidate.path == self.path);
            taken.for_each(|candidate| candidate.seconds = record.seconds(self.bytes).0);
        }
        candidates
    }

    /// Whether what is expected of it is neither measured nor by the figures of a device, but what is usual.
    fn is_assumed(&self) -> bool {
        self.record.as_ref().is_some_and(|record| !record.seconds(self.bytes).1)
    }

    /// How long its last finished run took.
    pub fn duration(&self) -> Duration {
        self.completion.duration()
    }
}

impl Drop for Transfer {
    fn drop(&mut self) {
        log!(Debug, "transfer {} destroyed", self.completion.log_id());
    }
}

impl Engine {
    fn prepare(
        path: Path,
        [source, destination]: [&Arc<Layout>; 2],
        plan: Plan,
        preferences: Preferences,
        notification: Option<Vec<u8>>,
    ) -> Result<Self> {
        let by_layer = preferences.by_layer;
        if path == Path::Memcpy {
            return host::HostCopy::prepare(source, destination, plan, by_layer).map(Self::Host);
        }
        if path.is_cuda() {
            return Ok(Self::Cuda(Box::new(cuda::CudaCopy::prepare(
                source,
                destination,
                plan,
                &preferences,
            )?)));
        }
        let plans: Vec<_> = match by_layer {
            true => (0..plan.layers().count).map(|layer| plan.layer(layer)).collect(),
            false => vec![plan],
        };
        if DiskMove::takes(path, source, destination) {
            let prepare = |plan: &Plan| DiskMove::prepare(source, destination, plan, &preferences);
            let parts = plans.iter().map(prepare).collect::<Result<_>>()?;
            return Ok(Self::Disk(steps::InTurn::new(parts)));
        }
        nixl::ensure_allowed(path, [source, destination], &preferences)?;
        // The peer hears of it after the last byte.
        let last = plans.len() - 1;
        let mut notification = notification;
        let prepare = |(index, plan)| {
            let notification = if index == last { notification.take() } else { None };
            NixlMove::prepare(source, destination, path, plan, notification)
        };
        let parts = plans.into_iter().enumerate().map(prepare).collect::<Result<_>>()?;
        Ok(Self::Nixl(steps::InTurn::new(parts)))
    }
}

/// What either side must have memory for while the transfer runs.
fn touched(source: &Layout, destination: &Layout, plan: &Plan) -> [TouchedExtents; 2] {
    [
        source.touched_extents(plan.moves().map(|each| (each.source_region, each.source, each.size))),
        destination
            .touched_extents(plan.moves().map(|each| (each.destination_region, each.destination, each.size))),
    ]
}
