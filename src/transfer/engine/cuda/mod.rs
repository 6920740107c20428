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
use self::device::state::DeviceState;
use self::flight::in_flight::Flying;
use self::flight::run::Flight;
use self::flight::watcher::{Flights, Seat};
use self::sides::Sides;
use self::work::sequence::{Jobs, Unmarked};
use super::contexts::Contexts;
use super::{BeginRun, Candidate, Engine, OnStreams};
use crate::cuda::stream::CallerStream;
use crate::error::{Result, ensure};
use crate::layout::Layout;
use crate::sync::{Mutex, MutexGuard};
use crate::transfer::path::Path;
use crate::transfer::plan::Plan;
use crate::transfer::plan::overlap::ensure_apart;
use crate::transfer::request::Preferences;

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
    device: Arc<DeviceState>,
    sides: Arc<Sides>,
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
        let sides = Arc::new(Sides::of(source, destination)?);
        let device = DeviceState::of(sides.ordinal)?;
        sides.own().keep(device.clone());
        Self::between(sides, device, plan, preferences)
    }

    /// Compares the paths for a plan between two sides, and prepares the best.
    fn between(
        sides: Arc<Sides>,
        device: Arc<DeviceState>,
        plan: Plan,
        preferences: &Preferences,
    ) -> Result<Self> {
        ensure_apart(&sides.source, &sides.destination, &plan)?;
        let layer = preferences.by_layer.then(|| plan.layer(0));
        let weighed = layer.as_ref().unwrap_or(&plan);
        let mut weighing = Weighing::new(&sides, weighed, preferences, &device)?;
        let (path, job) = weighing.prepare_best()?;
        let observer = weighing.observer(path);
        let mut candidates = weighing.candidates;
        let jobs = match preferences.by_layer {
            true => {
                let layers = plan.layers().count;
                candidates.iter_mut().for_each(|candidate| candidate.seconds *= layers as f64);
                let prepare = |layer| {
                    let plan = plan.layer(layer);
                    Weighing::new(&sides, &plan, preferences, &device)?.prepare(path)
                };
                let others = (1..layers).map(prepare).collect::<Result<Vec<_>>>()?;
                Jobs::by_layer(std::iter::once(job).chain(others).collect())?
            }
            false => Jobs::one(job, observer),
        };
        // The driver may wait for pages that are not locked before it returns.
        let is_quick = jobs.are_quick() && !sides.is_pageable;
        Ok(Self {
            jobs: Arc::new(jobs.keep_runs(&device)?),
            is_quick,
            path,
            candidates,
            moves: OnceCell::new(),
            by_layer: preferences.by_layer,
            plan,
            device,
            sides,
            current: Mutex::default(),
            captured: Mutex::default(),
        })
    }

    fn watch(&self, seat: Seat, flying: Arc<Flying>) {
        *self.current() = Some(flying.clone());
        seat.add(flying);
    }

    fn current(&self) -> MutexGuard<'_, Option<Arc<Flying>>> {
        self.current.lock()
    }

    fn captured(&self) -> MutexGuard<'_, Option<Arc<Slot>>> {
        self.captured.lock()
    }
}

impl Engine for CudaCopy {
    fn path(&self) -> Path {
        self.path
    }

    fn candidates(&self) -> Vec<Candidate> {
        self.candidates.clone()
    }

    /// Keeps what the driver has said of both sides. Not of memory of another device: whether a kernel reaches that may
    /// change while it is elastic.
    fn prepare_next(&self, plan: &Plan, preferences: &Preferences) -> Option<Result<Box<dyn Engine>>> {
        let is_current =
            self.device.is_sound() && self.sides.peer.is_none() && self.sides.locks.check().is_ok();
        is_current.then(|| {
            let next = Self::between(self.sides.clone(), self.device.clone(), plan.clone(), preferences)?;
            Ok(Box::new(next) as Box<dyn Engine>)
        })
    }

    /// Counted at the first call: the kernel needs no list of them.
    fn moves(&self) -> u64 {
        *self.moves.get_or_init(|| self.plan.count_moves(self.by_layer))
    }

    /// The context of the device, and those of page locks that it relies on.
    fn add_contexts(&self, contexts: &mut Contexts) {
        contexts.add(self.device.context().identity());
        self.sides.locks.sightings().iter().for_each(|lock| contexts.add_adopted(*lock));
    }

    /// Starts the copy: on the calling thread if that takes little time, otherwise on another one.
    fn submit(&self, begin: BeginRun<'_>) -> Result<()> {
        let seat = Flights::get().reserve()?;
        let flight = Flight::new(&self.jobs, &self.device, begin()?);
        self.watch(seat, Flying::new(flight, self.is_quick));
        Ok(())
    }

    /// The caller sees the end without waiting for the thread that watches.
    fn poll(&self) {
        let current = self.current().clone();
        if let Some(flying) = current {
            flying.look();
        }
    }

    /// Polls for a while: the end is seen sooner than by a thread that has to be woken.
    fn assist(&self, deadline: Option<Instant>, is_enough: &dyn Fn() -> bool) {
        let current = self.current().clone();
        if let Some(flying) = current {
            let until = Instant::now() + PATIENCE;
            flying.look_until(deadline.map_or(until, |deadline| deadline.min(until)), is_enough);
        }
    }

    fn on_streams(&self) -> Option<&dyn OnStreams> {
        Some(self)
    }
}

impl OnStreams for CudaCopy {
    fn check_stream(&self, stream: CallerStream) -> Result<bool> {
        stream.ensure_of(self.device.context())?;
        stream.is_capturing(self.device.context())
    }

    fn submit_on(&self, stream: CallerStream, begin: BeginRun<'_>) -> Result<()> {
        let seat = Flights::get().reserve()?;
        let held = self.jobs.take_now(&self.device)?;
        let flight = Flight::new(&self.jobs, &self.device, begin()?);
        // SAFETY: the plan checked all spans against their layouts, which are held until the run is over; the stream is
        // alive, by contract.
        let outcome = unsafe { self.jobs.start_on(&self.device, stream, &held) };
        match outcome {
            Ok(outcome) => self.watch(seat, Flying::started(flight.started(held, outcome))),
            Err(Unmarked(error)) => {
                *self.current() = Some(Flying::unmarked(flight.started(held, Ok(())), error))
            }
        }
        Ok(())
    }

    fn capture(&self, stream: CallerStream) -> Result<()> {
        ensure!(
            !self.sides.source.is_elastic() && !self.sides.destination.is_elastic(),
            InvalidState,
            "blocks of elastic memory may lose it between two runs of a graph; submit the transfer each time"
        );
        let mut captured = self.captured();
        if captured.is_none() {
            *captured = self.jobs.slot_for_graphs(&self.device)?;
        }
        // SAFETY: the plan checked all spans against their layouts; that those and this copy outlive the graph, and
        // that the stream is alive, is the caller's contract.
        unsafe { self.jobs.capture(&self.device, stream, captured.as_deref()) }
    }

    fn delay(&self, stream: CallerStream, layers: Option<u64>) -> Result<()> {
        let current = self.current().clone();
        current.map_or(Ok(()), |flying| flying.hold_back(stream, layers))
    }
}
