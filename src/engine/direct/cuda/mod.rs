// SPDX-License-Identifier: Apache-2.0
//! The CUDA engine: copies between GPU memory and GPU or host memory, by the method with the shortest estimated duration.
#![allow(unsafe_code)]

mod comparison;
mod flight;
mod graphs;
mod row_costs;
mod work;

use std::borrow::Cow;
use std::sync::Arc;
use std::time::{Duration, Instant};

use once_cell::sync::OnceCell;

use self::comparison::Comparison;
use self::flight::cuda_run::CudaRun;
use self::flight::in_flight::InFlight;
use self::flight::watcher::{Reservation, Watcher};
use self::graphs::{CapturedCopy, GraphMethod};
use self::work::method_limits::MethodLimits;
use self::work::sequence::{EndNotRecorded, TaskSequence};
use crate::base::{Mutex, MutexGuard, Result, Status, ensure, fail, guarded};
use crate::copy::gpu::DeviceState;
use crate::copy::gpu::gpu_sides::{CudaSides, executor};
use crate::cuda::{CallerStream, Capture, Patience, quiet};
use crate::engine::cost::gpu::kernel_access::KernelAccess;
use crate::engine::cost::outcome;
use crate::engine::preferences::Preferences;
use crate::engine::{Candidate, Engine, OnStreams};
use crate::layout::Layout;
use crate::plan::Plan;
use crate::region::Contexts;
use crate::run::{Spares, Ticket, TransferMethod};

/// How long a waiting thread polls before it sleeps: most runs end sooner.
const SPIN: Duration = Duration::from_millis(20);

pub struct CudaCopy {
    tasks: Arc<TaskSequence>,
    method: TransferMethod,
    /// The calling thread starts it, because that takes little time.
    is_quick: bool,
    candidates: Vec<Candidate>,
    /// How busy compute keeps the device, if the estimates depend on it.
    busy: Option<f64>,
    plan: Plan,
    by_layer: bool,
    moves: OnceCell<u64>,
    device: Arc<DeviceState>,
    sides: Arc<CudaSides>,
    /// The last run.
    current: Mutex<Option<Arc<InFlight>>>,
    /// Objects of earlier runs.
    spares: Spares<InFlight>,
    limits: MethodLimits,
    /// The method of graphs, if it is another one.
    in_graphs: Option<GraphMethod>,
    /// The copy of graphs, after the first capture.
    captured: Mutex<Option<CapturedCopy>>,
}

impl CudaCopy {
    /// Compares all methods and prepares the best.
    pub fn prepare(
        source: &Arc<Layout>,
        destination: &Arc<Layout>,
        plan: Plan,
        preferences: &Preferences,
    ) -> Result<Self> {
        let sides = Arc::new(CudaSides::new(source, destination)?);
        let device = device_of(source, destination)?;
        Self::between(sides, device, plan, preferences)
    }

    /// As [`OnStreams::check_stream`] of what [`Self::prepare`] returns, before it prepares anything.
    pub fn check_stream_first(
        [source, destination]: [&Arc<Layout>; 2],
        stream: CallerStream,
    ) -> Result<Option<Capture>> {
        stream.capture_in(device_of(source, destination)?.context())
    }

    /// Compares the methods for a plan between two sides, and prepares the best.
    fn between(
        sides: Arc<CudaSides>,
        device: Arc<DeviceState>,
        plan: Plan,
        preferences: &Preferences,
    ) -> Result<Self> {
        let Compared { tasks, method, candidates, busy, limits, in_graphs } =
            Compared::new(&sides, &plan, preferences, &device)?;
        // For pageable memory the driver may block until the bytes are read.
        let is_quick = tasks.are_quick() && !sides.is_pageable;
        Ok(Self {
            tasks: Arc::new(tasks.keep_runs(&device)?),
            is_quick,
            method,
            candidates,
            busy,
            moves: OnceCell::new(),
            by_layer: preferences.by_layer,
            plan,
            device,
            sides,
            current: Mutex::default(),
            spares: Spares::default(),
            limits,
            in_graphs,
            captured: Mutex::default(),
        })
    }

    fn prepare_for_graphs(&self) -> Result<CapturedCopy> {
        let tasks = match self.in_graphs {
            None => self.tasks.clone(),
            Some(GraphMethod { method, .. }) => Arc::new(self.limits.prepare_all(
                &self.sides,
                &self.device,
                &self.plan,
                self.by_layer,
                method,
                // They were loaded when the method was chosen.
                &Patience::needed(quiet::PATIENCE),
            )?),
        };
        CapturedCopy::new(tasks, &self.device)
    }

    fn watch(&self, reservation: Reservation, in_flight: Arc<InFlight>) {
        *self.current() = Some(in_flight.clone());
        reservation.add(in_flight);
    }

    fn current(&self) -> MutexGuard<'_, Option<Arc<InFlight>>> {
        self.current.lock()
    }
}

/// The device that executes the copies.
fn device_of(source: &Layout, destination: &Layout) -> Result<Arc<DeviceState>> {
    let (own, ordinal) = executor(source, destination)?;
    DeviceState::kept_by(own, ordinal)
}

/// The tasks of the best method, and what the comparison found.
struct Compared {
    tasks: TaskSequence,
    method: TransferMethod,
    candidates: Vec<Candidate>,
    busy: Option<f64>,
    limits: MethodLimits,
    in_graphs: Option<GraphMethod>,
}

impl Compared {
    /// Compares the methods of a plan, or of its first layer: all layers take the method of the first, because rates may be measured
    /// meanwhile.
    fn new(
        sides: &CudaSides,
        plan: &Plan,
        preferences: &Preferences,
        device: &Arc<DeviceState>,
    ) -> Result<Self> {
        let layers: Vec<_> = match preferences.by_layer {
            true => (0..plan.layers().count).map(|layer| plan.layer(layer)).collect(),
            false => Vec::new(),
        };
        let plans = if preferences.by_layer { &layers[..] } else { std::slice::from_ref(plan) };
        let [first, others @ ..] = plans else { fail!(InvalidState, "the plan has no layers") };
        let mut comparison = Comparison::new(sides, first, preferences, device)?;
        let (method, task, others) = comparison.prepare_best(others)?;
        let limits = comparison.limits;
        let tasks = if preferences.by_layer {
            TaskSequence::by_layer(std::iter::once(task).chain(others).collect())?
        } else {
            TaskSequence::one(task, comparison.observer(method))
        };
        let mut in_graphs = comparison.in_graphs(method, plans)?;
        let (busy, mut candidates) = (comparison.busy(), comparison.candidates);
        in_graphs.iter_mut().for_each(|graph| graph.seconds *= plans.len() as f64);
        outcome::repeat(&mut candidates, plans.len() as u64);
        Ok(Self { tasks, method, candidates, busy, limits, in_graphs })
    }
}

impl Engine for CudaCopy {
    fn method(&self) -> TransferMethod {
        self.method
    }

    /// Decides what the comparison left open, because the method would not be taken: whether it is possible.
    fn candidates(&self) -> Vec<Candidate> {
        let plan = if self.by_layer { Cow::Owned(self.plan.layer(0)) } else { Cow::Borrowed(&self.plan) };
        let reason = |method| match method {
            TransferMethod::Cuda2d => row_costs::reason_against(&plan),
            TransferMethod::CudaStaged => {
                let refused = self.limits.divide(&self.sides, &plan).err()?;
                (refused.status() != Status::OutOfMemory).then(|| refused.message().to_string().into())
            }
            _ => None,
        };
        let decided = |each: &Candidate| match each.is_impossible || each.method == self.method {
            true => None,
            false => reason(each.method).map(|reason| each.clone().impossible_if(Some(reason))),
        };
        self.candidates.iter().map(|each| decided(each).unwrap_or_else(|| each.clone())).collect()
    }

    fn conditions(&self) -> String {
        let line = |busy: f64| {
            format!("compute: keeps the GPU {:.0}% busy, as earlier transfers show\n", busy * 100.0)
        };
        let accesses =
            (self.method == TransferMethod::CudaKernel).then(|| KernelAccess::from_plan(&self.plan));
        self.busy.map(line).unwrap_or_default()
            + &accesses.map(|of| of.line(self.plan.bytes())).unwrap_or_default()
            + &self.in_graphs.map(|graph| graph.line(self.method, self.plan.bytes())).unwrap_or_default()
    }

    /// Reuses the results of driver queries about both sides. Not if one side is on another device: whether a kernel can
    /// access elastic memory there may change.
    fn prepare_next(&self, plan: &Plan, preferences: &Preferences) -> Option<Result<Box<dyn Engine>>> {
        let is_current =
            self.device.is_sound() && self.sides.peer.is_none() && self.sides.locks.check().is_ok();
        is_current.then(|| {
            let next = Self::between(self.sides.clone(), self.device.clone(), plan.clone(), preferences)?;
            Ok(Box::new(next) as Box<dyn Engine>)
        })
    }

    /// Counts them at the first call: the kernel needs no list of moves.
    fn moves(&self) -> Result<u64> {
        Ok(*self.moves.get_or_init(|| self.plan.count_moves(self.by_layer)))
    }

    /// The context of the device, and those of page locks that it relies on.
    fn add_contexts(&self, contexts: &mut Contexts) {
        contexts.add(self.device.context().identity());
        self.sides.locks.stamps().iter().for_each(|lock| contexts.add_adopted(*lock));
    }

    /// Starts the copy: on the calling thread if that takes little time, otherwise on another thread.
    fn submit(&self, ticket: Ticket) -> Result<()> {
        let reservation = Watcher::for_device(&self.device).reserve()?;
        let run = CudaRun::new(&self.tasks, &self.device, ticket.start());
        self.watch(reservation, InFlight::new(&self.spares, run, self.is_quick));
        Ok(())
    }

    /// Detects the end without waiting for the watcher.
    fn poll(&self) {
        let current = self.current().clone();
        if let Some(in_flight) = current {
            in_flight.check();
        }
    }

    /// Polls for a while: that detects the end sooner than waking a thread does.
    fn assist(&self, deadline: Option<Instant>, is_enough: &dyn Fn() -> bool) {
        let current = self.current().clone();
        if let Some(in_flight) = current {
            let until = Instant::now() + SPIN;
            in_flight.check_until(deadline.map_or(until, |deadline| deadline.min(until)), is_enough);
        }
    }

    fn on_streams(&self) -> Option<&dyn OnStreams> {
        Some(self)
    }
}

impl OnStreams for CudaCopy {
    fn check_stream(&self, stream: CallerStream) -> Result<Option<Capture>> {
        stream.capture_in(self.device.context())
    }

    fn submit_on(&self, stream: CallerStream, ticket: Ticket) -> Result<()> {
        let reservation = Watcher::for_device(&self.device).reserve()?;
        let resources = self.tasks.take_now(&self.device)?;
        let run = CudaRun::new(&self.tasks, &self.device, ticket.start());
        // SAFETY: the plan checked all spans against their layouts, which are held until the run has ended. The stream is
        // valid, by contract.
        let started = guarded(|| unsafe { self.tasks.start_on(&self.device, stream, &resources) });
        let undetected = match started {
            Ok(Ok(outcome)) => {
                let run = run.started(resources, outcome);
                self.watch(reservation, InFlight::started(&self.spares, run));
                return Ok(());
            }
            Ok(Err(EndNotRecorded(error))) => {
                error.context("the completion event could not be recorded on the stream")
            }
            // The driver may have a part of the copies.
            Err(panic) => panic,
        };
        let run = run.started(resources, Ok(()));
        *self.current() = Some(InFlight::undetected(&self.spares, run, undetected));
        Ok(())
    }

    fn capture(&self, stream: CallerStream) -> Result<()> {
        ensure!(
            !self.sides.source.is_elastic() && !self.sides.destination.is_elastic(),
            InvalidState,
            "extents of elastic memory may be decommitted between two runs of a graph; submit the transfer each time"
        );
        let mut captured = self.captured.lock();
        let copy = match &*captured {
            Some(copy) => copy,
            None => captured.insert(self.prepare_for_graphs()?),
        };
        // SAFETY: the plan checked all spans against their layouts. By contract, the layouts and this copy outlive the
        // graph, and the stream is valid.
        unsafe { copy.tasks.capture(&self.device, stream, copy.slot.as_deref()) }
    }

    fn delay(&self, stream: CallerStream, layers: Option<u64>) -> Result<()> {
        let current = self.current().clone();
        current.map_or(Ok(()), |in_flight| in_flight.delay(stream, layers))
    }
}
