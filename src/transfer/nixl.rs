// SPDX-License-Identifier: Apache-2.0
//! The NIXL engine: requests to peers and to files.
//!
//! A transfer is cut into requests of bounded size. With host memory NIXL copies within the posting call, so a
//! large request would keep the agent from everything else; and many of them can fail early.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use super::Path;
use super::completion::Run;
use super::plan::{Move, Plan};
use crate::error::{Error, Result, Status, ensure};
use crate::layout::{Layout, Memory, RemoteMemory, Unit};
use crate::log::log;
use crate::nixl::driver::Driver;
use crate::nixl::request::Side;
use crate::nixl::{Agent, Operation, RequestId, Span, Step, Work};

/// The most bytes of one request.
const REQUEST_BYTES: u64 = 16 << 20;
/// How many requests of one transfer are in flight.
const WINDOW: usize = 4;
/// How often a peer that does not answer is looked at.
const LIVENESS: Duration = Duration::from_millis(250);
/// How long a failure waits for the peer's process to end: its sockets close first.
const DYING: Duration = Duration::from_millis(500);
/// The most units a layout's prepared list may have: it costs some 100 bytes a unit.
const MOST_UNITS: u64 = 1 << 20;
/// Choosing among prepared units costs this many units an unmerged move saved; measured, see bench/.
const UNITS_A_MOVE: u64 = 25;

/// A prepared transfer.
pub struct NixlMove {
    shared: Arc<Prepared>,
}

/// What all runs of a transfer share; released with the last of them.
struct Prepared {
    agent: Arc<Agent>,
    build: Build,
    /// Made by the first run, on the agent's thread: the caller need not wait for that.
    requests: Mutex<Vec<RequestId>>,
    notification: Option<Vec<u8>>,
}

impl NixlMove {
    /// Checks all that can be checked without NIXL.
    pub fn prepare(
        source: &Arc<Layout>,
        destination: &Arc<Layout>,
        path: Path,
        plan: Plan,
        notification: Option<Vec<u8>>,
    ) -> Result<Self> {
        let reads = matches!(path, Path::NixlRead | Path::NixlFileRead);
        let (local, remote) = if reads { (destination, source) } else { (source, destination) };
        let agent = shared_agent(local, remote)?.clone();
        ensure_io_alignment(source, destination, &plan)?;
        let build = Build { local: local.clone(), remote: remote.clone(), reads, plan };
        let shared = Prepared { agent, build, requests: Mutex::default(), notification };
        let this = Self { shared: Arc::new(shared) };
        this.ensure_reachable()?;
        Ok(this)
    }

    /// How many stretches of memory it moves.
    pub fn moves(&self) -> u64 {
        let (source, destination) = self.shared.build.sides();
        self.shared.build.plan.moves(source.placement(), destination.placement()).count() as u64
    }

    /// How many requests it is made of.
    pub fn requests(&self) -> u64 {
        self.shared.build.request_count()
    }

    /// Refuses a peer that was invalidated.
    pub fn ensure_reachable(&self) -> Result<()> {
        self.shared.peer().map_or(Ok(()), |remote| remote.peer.ensure_valid())
    }

    /// Starts the transfer.
    pub fn submit(&self, run: Run) -> Result<()> {
        let flight = Flight {
            waiting: None,
            in_flight: Vec::new(),
            failure: None,
            last_progress: Instant::now(),
            run: Some(run),
            prepared: Some(self.shared.clone()),
        };
        self.shared.agent.start(Box::new(flight))
    }
}

impl Drop for Prepared {
    fn drop(&mut self) {
        let requests =
            std::mem::take(self.requests.get_mut().unwrap_or_else(|poisoned| poisoned.into_inner()));
        if !requests.is_empty() {
            self.agent.defer(move |driver| requests.into_iter().for_each(|id| driver.release_request(id)));
        }
    }
}

impl Prepared {
    fn peer(&self) -> Option<&RemoteMemory> {
        match self.build.remote.memory() {
            Memory::Remote(remote) => Some(remote),
            Memory::Local(_) => None,
        }
    }

    /// The requests, made if no run has made them before.
    fn requests(&self, driver: &mut Driver) -> Result<VecDeque<RequestId>> {
        let mut requests = self.requests.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        if requests.is_empty() {
            *requests = self.build.requests(driver)?;
        }
        Ok(requests.iter().copied().collect())
    }
}

/// The one agent that knows both layouts.
fn shared_agent<'a>(local: &'a Layout, remote: &'a Layout) -> Result<&'a Arc<Agent>> {
    let missing = |what: &str| {
        let message = format!(
            "the {what} layout is local only; NIXL moves its blocks once it is built with an agent (for files one \
             that has a POSIX backend)"
        );
        Error::new(Status::InvalidState, message)
    };
    let here = local.agent().ok_or_else(|| missing("host"))?;
    let there = remote.agent().ok_or_else(|| missing("disk"))?;
    ensure!(
        Arc::ptr_eq(here, there),
        InvalidArgument,
        "one layout is known to agent '{}', the other to agent '{}'; one agent must know both",
        here.name(),
        there.name()
    );
    Ok(here)
}

/// Direct I/O needs offsets, sizes and memory at multiples of what the file system says.
fn ensure_io_alignment(source: &Layout, destination: &Layout, plan: &Plan) -> Result<()> {
    let regions = [source, destination].into_iter().filter_map(|layout| layout.regions().ok()).flatten();
    let alignment = regions.map(|region| region.io_alignment()).max().unwrap_or(1);
    if alignment == 1 {
        return Ok(());
    }
    for each in plan.moves(source.placement(), destination.placement()) {
        ensure!(
            (each.source | each.destination | each.size).is_multiple_of(alignment),
            InvalidArgument,
            "direct I/O on this file needs multiples of {alignment} bytes, and a move of {} bytes from {:#x} to \
             {:#x} is none; build both layouts with that alignment, or the disk one buffered",
            each.size,
            each.source,
            each.destination
        );
    }
    Ok(())
}

/// Making the requests, on the agent's thread.
struct Build {
    local: Arc<Layout>,
    remote: Arc<Layout>,
    reads: bool,
    plan: Plan,
}

impl Build {
    fn requests(&self, driver: &mut Driver) -> Result<Vec<RequestId>> {
        let mut made = Vec::new();
        let result = match self.chosen_unit() {
            Some(unit) => self.over_lists(driver, unit, &mut made),
            None => self.over_spans(driver, &mut made),
        };
        if result.is_err() {
            made.drain(..).for_each(|id| driver.release_request(id));
        }
        result.map(|()| made)
    }

    /// Prepared lists save listing the spans, but every unit of every run has to be named: few large moves are
    /// cheaper to list.
    fn chosen_unit(&self) -> Option<Unit> {
        let unit = self.plan.unit();
        let units = self.plan.bytes() / unit.size(&self.local);
        let fits = [&self.local, &self.remote].iter().all(|layout| unit.count(layout) <= MOST_UNITS);
        let scattered = self.plan.most_moves() * UNITS_A_MOVE > units;
        let worth_a_list = unit.count(&self.local) + unit.count(&self.remote) <= 64 * units;
        let small_enough = unit.size(&self.local) <= REQUEST_BYTES;
        (fits && scattered && worth_a_list && small_enough).then_some(unit)
    }

    /// How many units one request takes.
    fn units_a_request(&self, unit: Unit) -> u64 {
        (REQUEST_BYTES / unit.size(&self.local)).max(1)
    }

    fn request_count(&self) -> u64 {
        match self.chosen_unit() {
            Some(unit) => (self.plan.bytes() / unit.size(&self.local)).div_ceil(self.units_a_request(unit)),
            None => self.plan.bytes().div_ceil(REQUEST_BYTES),
        }
    }

    fn operation(&self) -> Operation {
        if self.reads { Operation::Read } else { Operation::Write }
    }

    fn over_lists(&self, driver: &mut Driver, unit: Unit, made: &mut Vec<RequestId>) -> Result<()> {
        let local = self.local.prepared_list(driver, unit)?;
        let remote = self.remote.prepared_list(driver, unit)?;
        let (local_indices, remote_indices) = self.indices(unit);
        let each = self.units_a_request(unit) as usize;
        for (here, there) in local_indices.chunks(each).zip(remote_indices.chunks(each)) {
            made.push(driver.make_request(self.operation(), (local, here), (remote, there))?);
        }
        Ok(())
    }

    /// The units of both sides, block runs in order so that NIXL merges them.
    fn indices(&self, unit: Unit) -> (Vec<i32>, Vec<i32>) {
        let layers = self.plan.layers();
        let (first_local, first_remote) = if self.reads {
            (layers.destination, layers.source)
        } else {
            (layers.source, layers.destination)
        };
        let outers = if unit == Unit::Piece { self.local.geometry().dimensions().outer_dim } else { 1 };
        let count = if unit == Unit::Block { 1 } else { layers.count };
        let total = (self.plan.blocks() * count * outers) as usize;
        let (mut here, mut there) = (Vec::with_capacity(total), Vec::with_capacity(total));
        for layer in 0..count {
            for outer in 0..outers {
                let local = unit.index(&self.local, 0, first_local + layer, outer) as i32;
                let remote = unit.index(&self.remote, 0, first_remote + layer, outer) as i32;
                for run in self.plan.runs() {
                    let (mine, theirs) = if self.reads {
                        (run.destination, run.source)
                    } else {
                        (run.source, run.destination)
                    };
                    let blocks = 0..run.length as i32;
                    here.extend(blocks.clone().map(|block| local + mine as i32 + block));
                    there.extend(blocks.map(|block| remote + theirs as i32 + block));
                }
            }
        }
        (here, there)
    }

    fn over_spans(&self, driver: &mut Driver, made: &mut Vec<RequestId>) -> Result<()> {
        let (local_type, remote_type) = (self.local.memory_type(), self.remote.memory_type());
        let side = match self.remote.memory() {
            Memory::Remote(remote) => Side::Peer(remote.peer.clone()),
            Memory::Local(_) => Side::Own,
        };
        for spans in self.chunks() {
            let here = spans.iter().map(|(local, _)| *local);
            let there = spans.iter().map(|(_, remote)| *remote);
            made.push(driver.create_request(
                self.operation(),
                (local_type, here),
                (&side, remote_type, there),
            )?);
        }
        Ok(())
    }

    fn sides(&self) -> (&Layout, &Layout) {
        if self.reads { (&self.remote, &self.local) } else { (&self.local, &self.remote) }
    }

    /// The moves as (local, remote) spans, cut into requests.
    fn chunks(&self) -> Vec<Vec<(Span, Span)>> {
        let mut chunks = vec![Vec::new()];
        let mut filled = 0;
        let (source, destination) = self.sides();
        for each in self.plan.moves(source.placement(), destination.placement()) {
            let mut offset = 0;
            while offset < each.size {
                if filled == REQUEST_BYTES {
                    chunks.push(Vec::new());
                    filled = 0;
                }
                let size = (each.size - offset).min(REQUEST_BYTES - filled);
                if let Some(chunk) = chunks.last_mut() {
                    chunk.push(self.spans(&each, offset, size));
                }
                offset += size;
                filled += size;
            }
        }
        chunks
    }

    fn spans(&self, each: &Move, offset: u64, size: u64) -> (Span, Span) {
        let (source, destination) = self.sides();
        let span = |layout: &Layout, address: u64, region: u32| Span {
            address: address + offset,
            size,
            device_id: layout.descriptors()[region as usize].device_id,
        };
        let from = span(source, each.source, each.source_region);
        let to = span(destination, each.destination, each.destination_region);
        if self.reads { (to, from) } else { (from, to) }
    }
}

/// One run, in turns on the agent's thread. It ends when NIXL is done with the memory, however the peer fares.
struct Flight {
    /// `None` until the first step has seen to the requests.
    waiting: Option<VecDeque<RequestId>>,
    in_flight: Vec<RequestId>,
    failure: Option<(Error, Instant)>,
    last_progress: Instant,
    run: Option<Run>,
    /// Let go before anyone hears that the run is over: who hears it may free the memory.
    prepared: Option<Arc<Prepared>>,
}

impl Work for Flight {
    fn step(&mut self, driver: &mut Driver) -> Step {
        if self.waiting.is_none() {
            self.begin(driver);
            return Step::Progressed;
        }
        let before = self.left();
        self.poll(driver);
        self.post_next(driver);
        let left = self.left();
        if left == (0, 0) {
            if self.peer_may_be_dying() {
                return Step::Waiting;
            }
            self.finish(driver);
            return Step::Done;
        }
        if before != left {
            self.last_progress = Instant::now();
            return Step::Progressed;
        }
        self.look_after_peer();
        if self.failure.is_some() { Step::Waiting } else { Step::InFlight }
    }
}

impl Flight {
    fn peer(&self) -> Option<&RemoteMemory> {
        self.prepared.as_ref().and_then(|prepared| prepared.peer())
    }

    /// How many requests wait, and how many are in flight.
    fn left(&self) -> (usize, usize) {
        (self.waiting.as_ref().map_or(0, VecDeque::len), self.in_flight.len())
    }

    fn begin(&mut self, driver: &mut Driver) {
        let made = self.prepared.as_ref().map_or(Ok(VecDeque::new()), |prepared| prepared.requests(driver));
        self.waiting = Some(VecDeque::new());
        match made {
            Ok(requests) => self.waiting = Some(requests),
            Err(error) => self.fail(error),
        }
    }

    fn poll(&mut self, driver: &mut Driver) {
        let mut failure = None;
        self.in_flight.retain(|id| match driver.is_done(*id) {
            Ok(done) => !done,
            Err(error) => {
                failure = Some(error);
                false
            }
        });
        if let Some(error) = failure {
            self.fail(error);
        }
    }

    /// One request a step: each may take as long as its copy.
    fn post_next(&mut self, driver: &mut Driver) {
        if self.in_flight.len() >= WINDOW {
            return;
        }
        let Some(id) = self.waiting.as_mut().and_then(VecDeque::pop_front) else { return };
        match driver.post(id) {
            Ok(true) => {}
            Ok(false) => self.in_flight.push(id),
            Err(error) => self.fail(error),
        }
    }

    /// Nothing more is posted; what is in flight is waited for.
    fn fail(&mut self, error: Error) {
        self.waiting = Some(VecDeque::new());
        if self.failure.is_none() {
            self.failure = Some((error, Instant::now()));
        }
    }

    fn peer_may_be_dying(&self) -> bool {
        let recent = self.failure.as_ref().is_some_and(|(_, since)| since.elapsed() < DYING);
        recent && self.peer().is_some_and(|remote| !remote.process.is_gone())
    }

    /// NIXL does not say that a peer died; its process does.
    fn explain(&self, error: Error) -> Error {
        match self.peer() {
            // Whoever invalidated the peer knows already.
            _ if error.status() == Status::Stale => error,
            Some(remote) if remote.process.is_gone() => error
                .context(format!(
                    "agent '{}' is lost: its process {} has ended",
                    remote.peer.name(),
                    remote.process.pid
                ))
                .with_status(Status::PeerLost),
            Some(remote) => error.context(format!("with agent '{}'", remote.peer.name())),
            None => error,
        }
    }

    /// A request to a dead peer may never end. Its user is told; the memory stays until NIXL lets go of it.
    fn look_after_peer(&mut self) {
        if self.last_progress.elapsed() < LIVENESS {
            return;
        }
        self.last_progress = Instant::now();
        let gone = self.peer().is_some_and(|remote| remote.process.is_gone());
        if gone && self.failure.is_none() {
            let error = Error::new(Status::PeerLost, "requests to it are still in flight");
            let explained = self.explain(error.clone());
            log!(Warn, "{explained}");
            if let Some(run) = &mut self.run {
                run.tell_early(Err(explained));
            }
            self.fail(error);
        }
    }

    fn finish(&mut self, driver: &mut Driver) {
        let outcome = match self.failure.take() {
            Some((error, _)) => Err(self.explain(error)),
            None => self.notify(driver),
        };
        self.prepared = None;
        if let Some(run) = self.run.take() {
            run.end(outcome);
        }
    }

    fn notify(&self, driver: &mut Driver) -> Result<()> {
        let message = self.prepared.as_ref().and_then(|prepared| prepared.notification.as_ref());
        match (message, self.peer()) {
            (Some(message), Some(remote)) => driver.notify(remote.peer.name(), message).map_err(|error| {
                self.explain(error.context("the blocks have arrived, but the notification was not sent"))
            }),
            _ => Ok(()),
        }
    }
}
