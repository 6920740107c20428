// SPDX-License-Identifier: Apache-2.0
//! The CUDA engine: copies between GPU memory and GPU or host memory, by the way that takes the least time.

mod bench;
mod calibration;
pub mod checksum;
mod choice;
mod chunking;
mod division;
mod driver;
mod engine;
mod flight;
mod flights;
mod flying;
mod held;
mod job;
mod jobs;
mod kernel;
pub mod known_rates;
mod need;
pub mod peer_rates;
pub mod rates;
mod ring;
mod rows;
mod runs;
mod shelf;
mod sides;
mod staged;

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use once_cell::sync::OnceCell;

use self::choice::{Case, Direction, Staged};
use self::division::{Division, HostOrder};
use self::driver::DriverCopies;
use self::engine::Engine;
use self::flight::Flight;
use self::flights::Flights;
use self::flying::Flying;
use self::job::Job;
use self::jobs::{Jobs, Unmarked};
use self::kernel::KernelCopy;
use self::ring::Slot;
use self::sides::Sides;
use self::staged::StagedCopy;
use super::completion::Run;
use super::plan::Plan;
use super::{Candidate, Path, Preferences};
use crate::cuda::stream::CallerStream;
use crate::error::{Error, Result, Status, ensure};
use crate::layout::Layout;
use crate::log::HoldBack;

/// How long who waits for a run looks at it all the time before it sleeps: most are over by then.
const PATIENCE: Duration = Duration::from_millis(20);
/// Staging memory that is not asked for otherwise: what the link takes while a large kernel keeps ours waiting.
const STAGING: u64 = 128 << 20;
/// The same where nothing computes: kernel and copy engine take turns sooner.
const STAGING_ALONE: u64 = 64 << 20;
/// Less is not worth staging: the copy engine would wait for the kernel most of the time.
const LEAST_STAGED: u64 = 256 << 10;

/// A prepared copy.
pub struct CudaCopy {
    jobs: Arc<Jobs>,
    path: Path,
    /// Starting it costs the caller little.
    is_quick: bool,
    candidates: Vec<Candidate>,
    plan: Plan,
    by_layer: bool,
    moves: OnceCell<u64>,
    engine: Arc<Engine>,
    layouts: [Arc<Layout>; 2],
    /// The last run.
    current: Mutex<Option<Arc<Flying>>>,
    /// The runs of graphs that this copy was captured into.
    captured: Mutex<Option<Arc<Slot>>>,
}

impl CudaCopy {
    /// Weighs the ways there are and prepares the best.
    pub fn prepare(
        source: &Arc<Layout>,
        destination: &Arc<Layout>,
        plan: Plan,
        preferences: &Preferences,
    ) -> Result<Self> {
        super::apart::ensure_apart(source, destination, || {
            plan.moves(source.placement(), destination.placement()).collect()
        })?;
        let sides = Sides::of(source, destination)?;
        let engine = Engine::of(sides.ordinal)?;
        sides.own().keep(engine.clone());
        let layer = preferences.by_layer.then(|| plan.layer(source, destination, 0));
        let weighed = layer.as_ref().unwrap_or(&plan);
        let mut weighing = Weighing::new(&sides, weighed, preferences, &engine)?;
        let (path, job) = weighing.prepare_best()?;
        let mut candidates = weighing.candidates;
        let jobs = match preferences.by_layer {
            true => {
                let layers = plan.layers().count;
                candidates.iter_mut().for_each(|candidate| candidate.seconds *= layers as f64);
                let prepare = |layer| {
                    let plan = plan.layer(source, destination, layer);
                    Weighing::new(&sides, &plan, preferences, &engine)?.prepare(path)
                };
                let others = (1..layers).map(prepare).collect::<Result<Vec<_>>>()?;
                Jobs::by_layer(std::iter::once(job).chain(others).collect())?
            }
            false => Jobs::one(job),
        };
        // The driver may wait for pages that are not locked before it returns.
        let is_quick = jobs.are_quick() && !sides.is_pageable;
        Ok(Self {
            jobs: Arc::new(jobs.keep_runs(&engine)?),
            is_quick,
            path,
            candidates,
            moves: OnceCell::new(),
            by_layer: preferences.by_layer,
            plan,
            engine,
            layouts: [source.clone(), destination.clone()],
            current: Mutex::default(),
            captured: Mutex::default(),
        })
    }

    /// The way it takes.
    pub fn path(&self) -> Path {
        self.path
    }

    /// All ways, with what was expected of each or why it can't be taken.
    pub fn candidates(&self) -> &[Candidate] {
        &self.candidates
    }

    /// How many stretches of memory it moves; counted when somebody asks, for the kernel needs no list of them.
    pub fn moves(&self) -> u64 {
        let [source, destination] = &self.layouts;
        let of = |plan: &Plan| plan.moves(source.placement(), destination.placement()).count() as u64;
        *self.moves.get_or_init(|| match self.by_layer {
            true => (0..self.plan.layers().count)
                .map(|layer| of(&self.plan.layer(source, destination, layer)))
                .sum(),
            false => of(&self.plan),
        })
    }

    /// Starts the copy: at once where that costs the caller little, or by another thread.
    pub fn submit(&self, run: Run) {
        let flight = Flight::new(&self.jobs, &self.engine, &self.layouts, run);
        self.watch(Flying::new(flight, self.is_quick));
    }

    fn watch(&self, flying: Arc<Flying>) {
        *self.current() = Some(flying.clone());
        Flights::get().add(flying);
    }

    /// Looks whether the run is over, so that who asks need not wait for the thread that watches.
    pub fn look(&self) {
        let current = self.current().clone();
        if let Some(flying) = current {
            flying.look();
        }
    }

    /// Looks all the time for a while, but not past `deadline`, nor once there is enough: what is seen so is seen
    /// sooner than by a thread that has to be woken.
    pub fn look_for_a_while(&self, deadline: Option<Instant>, is_enough: impl Fn() -> bool) {
        let current = self.current().clone();
        if let Some(flying) = current {
            let until = Instant::now() + PATIENCE;
            flying.look_until(deadline.map_or(until, |deadline| deadline.min(until)), is_enough);
        }
    }

    /// Has what comes later on a stream of the caller's wait for the first `layers` of the last run, or for all of it.
    pub fn hold_back(&self, stream: CallerStream, layers: Option<u64>) -> Result<()> {
        let current = self.current().clone();
        current.map_or(Ok(()), |flying| flying.hold_back(stream, layers))
    }

    fn current(&self) -> MutexGuard<'_, Option<Arc<Flying>>> {
        self.current.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Refuses a stream that the copy can't go on; answers whether it is being captured.
    pub fn check_stream(&self, stream: CallerStream) -> Result<bool> {
        stream.ensure_of(self.engine.context())?;
        stream.is_capturing(self.engine.context())
    }

    /// Starts the copy on a stream of the caller's, after what is there and before what comes.
    pub fn submit_on(&self, stream: CallerStream, begin: impl FnOnce() -> Result<Run>) -> Result<()> {
        let held = self.jobs.take_now(&self.engine)?;
        let flight = Flight::new(&self.jobs, &self.engine, &self.layouts, begin()?);
        // SAFETY: the plan checked all spans against their layouts, which are held until the run is over; the stream is
        // alive, by contract.
        let outcome = unsafe { self.jobs.start_on(&self.engine, stream, &held) };
        match outcome {
            Ok(outcome) => self.watch(Flying::started(flight.started(held, outcome))),
            Err(Unmarked(error)) => {
                *self.current() = Some(Flying::unmarked(flight.started(held, Ok(())), error))
            }
        }
        Ok(())
    }

    /// Puts the copy into the graph that a stream is captured into.
    pub fn capture(&self, stream: CallerStream) -> Result<()> {
        ensure!(
            !self.layouts.iter().any(|layout| layout.is_elastic()),
            InvalidState,
            "blocks of elastic memory may lose it between two runs of a graph; submit the transfer each time"
        );
        let _late = HoldBack::begin();
        let mut captured = self.captured();
        if captured.is_none() {
            *captured = self.jobs.slot_for_graphs(&self.engine)?;
        }
        // SAFETY: the plan checked all spans against their layouts; that those and this copy outlive the graph, and
        // that the stream is alive, is the caller's contract.
        unsafe { self.jobs.capture(&self.engine, stream, captured.as_deref()) }
    }

    fn captured(&self) -> MutexGuard<'_, Option<Arc<Slot>>> {
        self.captured.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

/// The ways of one transfer on the scales.
struct Weighing<'a> {
    sides: &'a Sides<'a>,
    plan: &'a Plan,
    preferences: &'a Preferences,
    engine: &'a Arc<Engine>,
    case: Case,
    order: Option<HostOrder>,
    division: std::result::Result<Division, String>,
    candidates: Vec<Candidate>,
}

const WAYS: [Path; 5] = [Path::CudaCopy, Path::CudaBatch, Path::Cuda2d, Path::CudaKernel, Path::CudaStaged];

impl<'a> Weighing<'a> {
    fn new(
        sides: &'a Sides<'a>,
        plan: &'a Plan,
        preferences: &'a Preferences,
        engine: &'a Arc<Engine>,
    ) -> Result<Self> {
        let computes = !preferences.compute_is_idle;
        let multiprocessors = engine.context().device().multiprocessors();
        let ctas = choice::ctas(sides.direction, computes, multiprocessors);
        let mut weighing = Self {
            sides,
            plan,
            preferences,
            engine,
            case: Case {
                direction: sides.direction,
                bytes: plan.bytes(),
                moves: plan.most_moves(),
                is_pageable: sides.is_pageable,
                computes,
                ctas: if preferences.max_ctas > 0 { ctas.min(preferences.max_ctas) } else { ctas },
                row_calls: 0,
                staged: None,
            },
            order: None,
            division: Err("neither side is host memory".to_string()),
            candidates: Vec::new(),
        };
        weighing.divide();
        let rates = known_rates::between(engine, sides.peer, sides.direction);
        for path in WAYS {
            let reason = weighing.reason_against(path);
            let seconds = choice::seconds(path, &weighing.case, &rates);
            weighing.candidates.push(Candidate { path, seconds, reason });
        }
        weighing.weigh_rows(&rates);
        Ok(weighing)
    }

    /// Looks how it could be staged, where it could.
    fn divide(&mut self) {
        let Some(host) = self.sides.host() else { return };
        if self.plan.bytes() < LEAST_STAGED && self.preferences.path != Some(Path::CudaStaged) {
            self.division = Err(format!("less than {LEAST_STAGED} bytes are not worth staging"));
            return;
        }
        let order = HostOrder::of(self.plan, self.sides.to_host());
        let wanted = match self.preferences.staging_size {
            0 if self.case.computes => STAGING,
            0 => STAGING_ALONE,
            asked => asked,
        };
        self.division = Division::of(
            host.geometry(),
            self.plan,
            &order,
            wanted,
            choice::staging_parts(self.case.computes),
        );
        if let Ok(division) = &self.division {
            self.case.staged = Some(Staged {
                chunk: division.part_size.min(self.plan.bytes()),
                parts: division.parts as u64,
                copies: division.copies,
            });
        }
        self.order = Some(order);
    }

    /// Why a way can't be taken, or must not be.
    fn reason_against(&self, path: Path) -> Option<String> {
        let own = match path {
            Path::CudaBatch if !self.engine.context().driver().copies_batches() => {
                Some("the driver has no cuMemcpyBatchAsync".to_string())
            }
            Path::CudaBatch if self.sides.is_pageable => {
                Some("the host memory is not page-locked".to_string())
            }
            Path::CudaKernel => self.sides.kernel_reaches.clone().err(),
            Path::CudaStaged => {
                let pageable =
                    "the host memory is not page-locked, so that the copy engine would wait for the CPU";
                match self.sides.is_pageable {
                    true => Some(pageable.to_string()),
                    false => self.division.clone().err(),
                }
            }
            _ => None,
        };
        own.or_else(|| self.refused(path))
    }

    /// What the caller's flags rule out.
    fn refused(&self, path: Path) -> Option<String> {
        let bounces = self.sides.bounces(path);
        if bounces && (self.preferences.no_host_bounce || self.preferences.zero_copy) {
            return Some(
                "the driver passes the bytes through host memory of its own, which is refused".to_string(),
            );
        }
        (path == Path::CudaStaged && self.preferences.zero_copy)
            .then(|| "the bytes pass through staging memory, which is refused".to_string())
    }

    /// Prepares the best way; where that fails, its reason is noted and the next best is.
    fn prepare_best(&mut self) -> Result<(Path, Job)> {
        if let Some(forced) = self.preferences.path {
            return self.prepare_forced(forced);
        }
        loop {
            let Some(best) = self.best() else { return Err(self.no_way()) };
            let path = self.candidates[best].path;
            match self.prepare(path) {
                Ok(job) => return Ok((path, job)),
                Err(error) => self.candidates[best].reason = Some(error.message().to_string()),
            }
        }
    }

    fn prepare_forced(&self, path: Path) -> Result<(Path, Job)> {
        let candidate = self.candidates.iter().find(|candidate| candidate.path == path);
        let Some(candidate) = candidate else {
            return Err(Error::new(Status::Unsupported, format!("{path} is no way for GPU memory")));
        };
        match &candidate.reason {
            Some(reason) => Err(Error::new(
                Status::Unsupported,
                format!("the path that is asked for can't be taken: {reason}"),
            )),
            None => self.prepare(path).map(|job| (path, job)),
        }
    }

    fn best(&self) -> Option<usize> {
        let possible = self.candidates.iter().enumerate().filter(|(_, candidate)| candidate.reason.is_none());
        possible.min_by(|(_, a), (_, b)| a.seconds.total_cmp(&b.seconds)).map(|(index, _)| index)
    }

    fn no_way(&self) -> Error {
        let reasons: Vec<_> =
            self.candidates.iter().filter_map(|candidate| candidate.reason.clone()).collect();
        let first = reasons.first().cloned().unwrap_or_default();
        Error::new(Status::Unsupported, format!("no path is left for these layouts: {first}"))
    }

    fn prepare(&self, path: Path) -> Result<Job> {
        let (source, destination) = (self.sides.source, self.sides.destination);
        let unsupported = |reason| Error::new(Status::Unsupported, reason);
        Ok(match path {
            Path::CudaBatch => {
                let from_host = self.sides.direction == Direction::ToDevice;
                Job::Driver(DriverCopies::batch(source, destination, self.plan, from_host))
            }
            Path::Cuda2d => Job::Driver(DriverCopies::rows(source, destination, self.plan)),
            Path::CudaKernel => {
                let is_one_of_many = self.preferences.by_layer;
                let copy =
                    KernelCopy::prepare(source, destination, self.plan, self.case.ctas, is_one_of_many);
                Job::Kernel(copy.map_err(unsupported)?, self.engine.kernel()?)
            }
            Path::CudaStaged => self.prepare_staged()?,
            _ => Job::Driver(DriverCopies::one_by_one(source, destination, self.plan)),
        })
    }

    fn prepare_staged(&self) -> Result<Job> {
        let unsupported = |reason| Error::new(Status::Unsupported, reason);
        let division = self.division.as_ref().map_err(|reason| unsupported(reason.clone()))?;
        let (Some(order), Some(host), Some(device)) = (&self.order, self.sides.host(), self.sides.device())
        else {
            return Err(unsupported("neither side is host memory".to_string()));
        };
        let to_host = self.sides.to_host();
        let wanted = choice::staging_ctas(self.case.computes);
        let ctas = match self.preferences.max_ctas {
            0 => wanted,
            most => wanted.min(most),
        };
        let copy = StagedCopy::prepare([host, device], self.plan, order, division, to_host, ctas);
        let copy = copy.map_err(unsupported)?;
        let kernel = self.engine.kernel()?;
        // Allocated here, so that no run has to; one that is in use was.
        drop(copy.staging(self.engine)?);
        Ok(Job::Staged(Box::new(copy), kernel))
    }
}
