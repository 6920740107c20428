// SPDX-License-Identifier: Apache-2.0
//! A run that several threads check: the watcher, threads that wait for the run, and threads that poll it. The first thread
//! that detects its end reports it. A poll never blocks in the driver. Later runs of the same copy use the object again.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use super::cuda_run::CudaRun;
use super::run_cell::{Abandon, RunCell, State};
use super::watcher::{Exhausted, Watched};
use crate::base::{Error, MutexGuard, Pool, Result, Shared, fail, guarded, leak, log, thread};
use crate::copy::gpu::{DeviceState, Resource};
use crate::cuda::CallerStream;
use crate::run::Spares;

/// How long a polling thread sleeps between checks if processors are busy.
const BUSY_SLEEP: Duration = Duration::from_micros(20);

/// A run and its state.
#[derive(Default)]
pub struct InFlight {
    cell: RunCell<CudaRun>,
    /// Starting it takes a thread little time. Otherwise a thread of the pool starts it.
    is_quick: bool,
    waiters: AtomicUsize,
}

/// Counts a polling thread until it stops, even by a panic: the watcher leaves the run to counted threads.
struct Waiter<'a>(&'a AtomicUsize);

impl<'a> Waiter<'a> {
    fn begin(waiters: &'a AtomicUsize) -> Self {
        waiters.fetch_add(1, Ordering::AcqRel);
        Self(waiters)
    }
}

impl Drop for Waiter<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

impl InFlight {
    /// Takes a run, and starts it unless earlier runs wait for the same resources.
    pub fn new(spares: &Spares<Self>, run: CudaRun, is_quick: bool) -> Arc<Self> {
        if run.is_behind() {
            return Self::with(spares, State::Waiting(run), is_quick);
        }
        if is_quick && run.cancelled().is_none() {
            return Self::started_now(spares, run);
        }
        let in_flight = Self::with(spares, State::Waiting(run), is_quick);
        // If a resource is in use, the watcher starts it later.
        let _ = in_flight.start(|starts, run| {
            starts.run(run, 1);
            Ok(())
        });
        in_flight
    }

    /// Starts a run that no other thread knows yet, so that nothing is locked. If a resource is in use, the watcher
    /// starts it later.
    fn started_now(spares: &Spares<Self>, mut run: CudaRun) -> Arc<Self> {
        if run.take(false).is_err() {
            return Self::with(spares, State::Waiting(run), true);
        }
        run.start();
        Self::with(spares, State::Started(run), true)
    }

    /// A run that was started on a stream of the caller.
    pub fn started(spares: &Spares<Self>, run: CudaRun) -> Arc<Self> {
        Self::with(spares, State::Started(run), true)
    }

    /// A run on a stream of the caller whose end can't be detected, for this reason: the stream may be destroyed before it is
    /// queried. So the run ends now, and its resources are intentionally leaked.
    pub fn undetected(spares: &Spares<Self>, run: CudaRun, error: Error) -> Arc<Self> {
        let error = error.context("the transfer may still move blocks until the stream has passed it");
        log!(Error, "{error}; kvmem intentionally leaks the memory that it uses; {}", leak::COUNTED);
        let in_flight = Self::with(spares, State::Over(Err(error.clone())), true);
        run.abandon(error);
        in_flight
    }

    fn with(spares: &Spares<Self>, state: State<CudaRun>, is_quick: bool) -> Arc<Self> {
        spares.take(|in_flight| {
            in_flight.cell.set(state);
            in_flight.is_quick = is_quick;
        })
    }

    /// Starts the run if all resources are free. Returns whether it was started, or the resource that is in
    /// use. If starting may block, has a thread of a pool start it by `pass`; if that fails, the run ends.
    fn start(
        self: &Arc<Self>,
        pass: impl FnOnce(&Arc<Pool>, &Arc<dyn Shared>) -> Result<()>,
    ) -> std::result::Result<bool, Resource> {
        let is_waiting = |state: &State<CudaRun>| matches!(state, State::Waiting(_));
        let Some(mut run) = self.cell.take_if(is_waiting) else { return Ok(false) };
        if let Some(cancelled) = run.cancelled() {
            self.end(run, Err(cancelled));
            return Ok(true);
        }
        if let Err(resource) = run.take(false) {
            self.cell.settle(State::Waiting(run));
            return Err(resource);
        }
        if self.is_quick {
            let _ = self.begin(run).map(|run| self.cell.settle(State::Started(run)));
        } else {
            let starts = Pool::starts(run.device().context().device().ordinal());
            self.cell.settle(State::Queued(run));
            if let Err(error) = pass(&starts, &(self.clone() as Arc<dyn Shared>))
                && let Some(run) = self.cell.take_if(State::is_queued)
            {
                self.end(run, Err(error));
            }
        }
        Ok(true)
    }

    /// Starts a run that has its resources, or ends it if it was cancelled.
    fn begin(&self, mut run: CudaRun) -> Result<CudaRun> {
        if let Some(cancelled) = run.cancelled() {
            self.end(run, Err(cancelled.clone()));
            return Err(cancelled);
        }
        run.start();
        Ok(run)
    }

    fn end(&self, run: CudaRun, outcome: Result<()>) {
        self.cell.settle(State::Over(outcome.clone()));
        run.end(outcome);
    }

    /// Checks whether the run has ended, and reports its end. Returns whether it has.
    pub fn check(&self) -> bool {
        // Another thread may ask the driver about the run, which may not return.
        self.cell.lock_soon().is_some_and(|state| self.check_locked(state))
    }

    fn check_locked(&self, mut state: MutexGuard<'_, State<CudaRun>>) -> bool {
        let outcome = match &mut *state {
            State::Waiting(run) | State::Queued(run) => run.cancelled().map(Err),
            State::Locked | State::Abandoned(_) => None,
            State::Started(run) => run.ended(),
            State::Over(_) => return true,
        };
        let Some(outcome) = outcome else { return false };
        let ended = std::mem::replace(&mut *state, State::Over(outcome.clone()));
        drop(state);
        if let State::Waiting(run) | State::Queued(run) | State::Started(run) = ended {
            run.end(outcome);
        }
        true
    }

    /// Polls until the run has ended, until the deadline, or until `is_enough`.
    pub fn check_until(&self, until: Instant, is_enough: impl Fn() -> bool) {
        let _waiter = Waiter::begin(&self.waiters);
        while !self.check() && !is_enough() && Instant::now() < until {
            if !thread::yields_soon() {
                std::thread::sleep(BUSY_SLEEP);
            }
        }
    }

    /// Makes later work on a stream of the caller wait for the first `layers`, or for the whole run. A run
    /// that has not begun is started now: otherwise it could wait for a resource that is freed only after the
    /// stream's wait, and both would deadlock.
    pub fn delay(&self, stream: CallerStream, layers: Option<u64>) -> Result<()> {
        self.check_locked(self.cell.settled());
        let taken = self.cell.settled().take();
        let run = match taken {
            State::Waiting(run) => self.start_urgently(run)?,
            State::Queued(run) => self.begin(run)?,
            State::Started(run) => run,
            State::Locked | State::Abandoned(_) | State::Over(_) => return self.outcome(),
        };
        let delayed = guarded(|| run.delay(stream, layers)).and_then(|outcome| outcome);
        self.cell.settle(State::Started(run));
        delayed
    }

    fn start_urgently(&self, mut run: CudaRun) -> Result<CudaRun> {
        if run.take(true).is_err() {
            self.cell.settle(State::Waiting(run));
            fail!(Busy, "the run has not begun: it waits for staging memory that other transfers use");
        }
        self.begin(run)
    }

    /// The outcome of a run that has ended.
    fn outcome(&self) -> Result<()> {
        match &*self.cell.lock() {
            State::Over(outcome) => outcome.clone(),
            _ => fail!(Panic, "a run that had ended is in flight"),
        }
    }

    /// The device of a run that waits, unless one of its resources is exhausted there.
    fn may_start(&self, full: &Exhausted) -> Option<*const DeviceState> {
        let state = self.cell.lock();
        let State::Waiting(run) = &*state else { return None };
        let device = Arc::as_ptr(run.device());
        let is_behind = run.resources_needed().any(|resource| full.contains(&(device, resource)));
        (!is_behind).then_some(device)
    }
}

impl Watched for InFlight {
    fn start_unless(self: Arc<Self>, full: &mut Exhausted) -> bool {
        let Some(device) = self.may_start(full) else { return false };
        // Not started here, even if there is no thread: all runs of the device are checked by this one.
        self.start(|starts, run| starts.pass(run, 1)).unwrap_or_else(|resource| {
            full.insert((device, resource));
            false
        })
    }

    fn is_over(&self) -> bool {
        match self.waiters.load(Ordering::Acquire) {
            0 => self.check(),
            // The polling threads report its end.
            _ => matches!(*self.cell.lock(), State::Over(_)),
        }
    }

    fn is_known_over(&self) -> bool {
        self.cell.try_lock().is_some_and(|state| matches!(*state, State::Over(_)))
    }

    fn abandon(&self, error: &Error) {
        self.cell.abandon(error);
    }
}

/// Starts the run on a thread of the pool, because the driver may block.
impl Shared for InFlight {
    fn run(&self) {
        if let Some(run) = self.cell.take_if(State::is_queued) {
            let _ = self.begin(run).map(|run| self.cell.settle(State::Started(run)));
        }
    }
}
