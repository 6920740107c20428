// SPDX-License-Identifier: Apache-2.0
//! The CUDA engine: copies between GPU memory and GPU or host memory, by the way that takes the least time.

mod choice;
pub mod device;
mod flight;
mod page_locks;
pub mod rates;
mod sides;
mod work;

use std::sync::Arc;
use std::time::{Duration, Instant};

use once_cell::sync::OnceCell;

use self::choice::weighing::Weighing;
use self::device::descriptor_ring::Slot;
use self::device::state::Engine;
use self::flight::in_flight::Flying;
use self::flight::run::Flight;
use self::flight::watcher::{Flights, Seat};
use self::sides::Sides;
use self::work::sequence::{Jobs, Unmarked};
use super::contexts::Contexts;
use crate::cuda::memory::AllocationStamp;
use crate::cuda::stream::CallerStream;
use crate::error::{Result, ensure};
use crate::layout::Layout;
use crate::sync::{Mutex, MutexGuard};
use crate::transfer::plan::Plan;
use crate::transfer::run::Run;
use crate::transfer::{Candidate, Path, Preferences};

/// How long who waits for a run looks at it all the time before it sleeps: most are over by then.
const PATIENCE: Duration = Duration::from_millis(20);

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
    /// Page locks of the caller's, one of each context.
    locks: Vec<AllocationStamp>,
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
        crate::transfer::plan::overlap::ensure_apart(source, destination, &plan)?;
        let sides = Sides::of(source, destination)?;
        let engine = Engine::of(sides.ordinal)?;
        sides.own().keep(engine.clone());
        let layer = preferences.by_layer.then(|| plan.layer(0));
        let weighed = layer.as_ref().unwrap_or(&plan);
        let mut weighing = Weighing::new(&sides, weighed, preferences, &engine)?;
        let (path, job) = weighing.prepare_best()?;
        let observer = weighing.observer(path);
        let mut candidates = weighing.candidates;
        let jobs = match preferences.by_layer {
            true => {
                let layers = plan.layers().count;
                candidates.iter_mut().for_each(|candidate| candidate.seconds *= layers as f64);
                let prepare = |layer| {
                    let plan = plan.layer(layer);
                    Weighing::new(&sides, &plan, preferences, &engine)?.prepare(path)
                };
                let others = (1..layers).map(prepare).collect::<Result<Vec<_>>>()?;
                Jobs::by_layer(std::iter::once(job).chain(others).collect())?
            }
            false => Jobs::one(job, observer),
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
            locks: sides.locks.sightings().to_vec(),
            layouts: [source.clone(), destination.clone()],
            current: Mutex::default(),
            captured: Mutex::default(),
        })
    }

    /// Adds the contexts of what was prepared, and of page locks that it relies on.
    pub fn add_contexts(&self, contexts: &mut Contexts) {
        contexts.add(self.engine.context().identity());
        self.locks.iter().for_each(|lock| contexts.add_adopted(*lock));
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
        *self.moves.get_or_init(|| self.plan.count_moves(self.by_layer))
    }

    /// Starts the copy: at once if that costs the caller little, or by another thread.
    pub fn submit(&self, begin: impl FnOnce() -> Result<Run>) -> Result<()> {
        let seat = Flights::get().reserve()?;
        let flight = Flight::new(&self.jobs, &self.engine, begin()?);
        self.watch(seat, Flying::new(flight, self.is_quick));
        Ok(())
    }

    fn watch(&self, seat: Seat, flying: Arc<Flying>) {
        *self.current() = Some(flying.clone());
        seat.add(flying);
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
        self.current.lock()
    }

    /// Refuses a stream that the copy can't go on; answers whether it is being captured.
    pub fn check_stream(&self, stream: CallerStream) -> Result<bool> {
        stream.ensure_of(self.engine.context())?;
        stream.is_capturing(self.engine.context())
    }

    /// Starts the copy on a stream of the caller's, after what is there and before what comes.
    pub fn submit_on(&self, stream: CallerStream, begin: impl FnOnce() -> Result<Run>) -> Result<()> {
        let seat = Flights::get().reserve()?;
        let held = self.jobs.take_now(&self.engine)?;
        let flight = Flight::new(&self.jobs, &self.engine, begin()?);
        // SAFETY: the plan checked all spans against their layouts, which are held until the run is over; the stream is
        // alive, by contract.
        let outcome = unsafe { self.jobs.start_on(&self.engine, stream, &held) };
        match outcome {
            Ok(outcome) => self.watch(seat, Flying::started(flight.started(held, outcome))),
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
        let mut captured = self.captured();
        if captured.is_none() {
            *captured = self.jobs.slot_for_graphs(&self.engine)?;
        }
        // SAFETY: the plan checked all spans against their layouts; that those and this copy outlive the graph, and
        // that the stream is alive, is the caller's contract.
        unsafe { self.jobs.capture(&self.engine, stream, captured.as_deref()) }
    }

    fn captured(&self) -> MutexGuard<'_, Option<Arc<Slot>>> {
        self.captured.lock()
    }
}
