// SPDX-License-Identifier: Apache-2.0
//! Runs that the driver is at, and those that wait for a stream, a slot or staging memory: started and watched by one
//! thread while there are any.

use std::collections::HashSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use once_cell::sync::OnceCell;

use super::engine::Engine;
use super::held::Held;
use super::jobs::Jobs;
use crate::cuda::stream::CallerStream;
use crate::error::{Error, Result, Status, fail};
use crate::layout::Layout;
use crate::transfer::completion::{Run, cancelled};
use crate::transfer::pool::{Pool, Shared};

/// One run.
pub struct Flight {
    jobs: Arc<Jobs>,
    engine: Arc<Engine>,
    layouts: [Arc<Layout>; 2],
    run: Run,
    failure: Option<Error>,
    /// What it uses since it was started.
    held: Option<Held>,
    waits: bool,
    layers_told: usize,
}

impl Flight {
    /// A run that has not begun.
    pub fn new(jobs: &Arc<Jobs>, engine: &Arc<Engine>, layouts: &[Arc<Layout>; 2], run: Run) -> Self {
        Self {
            jobs: jobs.clone(),
            engine: engine.clone(),
            layouts: layouts.clone(),
            run,
            failure: None,
            held: None,
            waits: false,
            layers_told: 0,
        }
    }

    /// One that was started on a stream of the caller's.
    pub fn started(mut self, held: Held, outcome: Result<()>) -> Self {
        self.failure = outcome.err();
        self.held = Some(held);
        self
    }

    /// Starts it where all it needs is free; answers whether it is on its way, or over.
    fn start(&mut self) -> bool {
        let taken = self.jobs.take(&self.engine);
        self.start_with(taken)
    }

    /// The same before others that wait, and beyond what runs may use at a time.
    fn start_urgently(&mut self) -> bool {
        let taken = self.jobs.take_urgently(&self.engine);
        self.start_with(taken)
    }

    fn start_with(&mut self, taken: Result<Option<Held>>) -> bool {
        match taken {
            Ok(None) => {
                if !std::mem::replace(&mut self.waits, true) {
                    self.engine.add_waiting();
                }
                return false;
            }
            Ok(Some(held)) => {
                // SAFETY: the plan checked all spans against their layouts, which are held until the run is over.
                self.failure = unsafe { self.jobs.start(&held) }.err();
                self.held = Some(held);
            }
            Err(error) => self.failure = Some(error),
        }
        self.stop_waiting();
        true
    }

    fn stop_waiting(&mut self) {
        if std::mem::replace(&mut self.waits, false) {
            self.engine.remove_waiting();
        }
    }

    /// Whether it has been started, or could not be.
    fn is_started(&self) -> bool {
        self.held.is_some() || self.failure.is_some()
    }

    /// Takes it back where its user wants no more of it and it has not begun.
    fn is_taken_back(&mut self) -> bool {
        let is_taken_back = !self.is_started() && self.run.is_cancelled();
        if is_taken_back {
            self.failure = Some(cancelled());
            self.stop_waiting();
        }
        is_taken_back
    }

    /// Tells of the layers that the driver is done with. A failure is told with the end of the run.
    fn tell_layers(&mut self) {
        let (Some(held), None) = (&self.held, &self.failure) else { return };
        match held.layers_done(self.layers_told) {
            Ok(done) if done > self.layers_told => {
                self.layers_told = done;
                self.run.advance(done as u64);
            }
            Ok(_) => {}
            Err(error) => self.failure = Some(error),
        }
    }

    /// Whether the driver is done with it.
    fn is_done(&mut self) -> Result<bool> {
        self.held.as_mut().map_or(Ok(true), Held::is_done)
    }

    /// All that it used is let go before anyone hears that the run is over: who hears it may free their memory.
    fn end(self, outcome: Result<()>) {
        let Self { jobs, engine, layouts, run, held, .. } = self;
        if outcome.as_ref().is_err_and(|error| error.status() != Status::Cancelled) {
            engine.retire();
        }
        if let Some(held) = held {
            held.let_go(outcome.is_ok());
        }
        drop((jobs, layouts, engine));
        run.end(outcome);
    }
}

/// A run that the watching thread and those who wait for it look at, whoever sees its end first.
pub struct Flying {
    flight: Mutex<State>,
    /// Threads that look all the time.
    waiters: AtomicUsize,
}

/// How it stands with a run.
enum State {
    UnderWay(Box<Flight>),
    Over(Result<()>),
}

impl Flying {
    /// A run, started at once where that is `quick` and nobody waits before it.
    pub fn new(mut flight: Flight, quick: bool) -> Arc<Self> {
        if flight.held.is_none() && quick && !flight.engine.has_waiting() {
            flight.start();
        }
        Arc::new(Self { flight: Mutex::new(State::UnderWay(Box::new(flight))), waiters: AtomicUsize::new(0) })
    }

    /// Looks whether it is over, and ends it where it is.
    pub fn look(&self) -> bool {
        let mut state = self.lock();
        let State::UnderWay(flight) = &mut *state else { return true };
        if !flight.is_started() && !flight.is_taken_back() {
            return false;
        }
        flight.tell_layers();
        let outcome = match flight.is_done() {
            Ok(false) => return false,
            Ok(true) => flight.failure.take().map_or(Ok(()), Err),
            Err(error) => Err(flight.failure.take().unwrap_or(error)),
        };
        let ended = std::mem::replace(&mut *state, State::Over(outcome.clone()));
        drop(state);
        if let State::UnderWay(flight) = ended {
            flight.end(outcome);
        }
        true
    }

    /// Looks all the time until it is over, or it is `until`, or there is enough.
    pub fn look_until(&self, until: Instant, is_enough: impl Fn() -> bool) {
        self.waiters.fetch_add(1, Ordering::AcqRel);
        while !self.look() && !is_enough() && Instant::now() < until {
            std::thread::yield_now();
        }
        self.waiters.fetch_sub(1, Ordering::AcqRel);
    }

    /// Has what comes later on a stream of the caller's wait for the first `layers`, or for all of it. A run that has
    /// not begun begins now: nothing that the stream is to wait for may itself wait for the stream.
    pub fn hold_back(&self, stream: CallerStream, layers: Option<u64>) -> Result<()> {
        let mut state = self.lock();
        let flight = match &mut *state {
            State::UnderWay(flight) => flight,
            State::Over(outcome) => return outcome.clone(),
        };
        if !flight.is_started() && (flight.is_taken_back() || !flight.start_urgently()) {
            match &flight.failure {
                Some(error) => return Err(error.clone()),
                None => fail!(
                    Busy,
                    "the run waits for staging memory that other transfers use, and has not begun"
                ),
            }
        }
        match (&flight.failure, &flight.held) {
            (None, Some(held)) => held.hold_back(&flight.engine, stream, layers),
            (Some(error), _) => Err(error.clone()),
            _ => Ok(()),
        }
    }

    /// Starts it where it waits and nobody does before it; answers whether it did.
    fn start(&self, full: &mut HashSet<*const Engine>) -> bool {
        let mut state = self.lock();
        let State::UnderWay(flight) = &mut *state else { return false };
        if flight.is_started() {
            return false;
        }
        if flight.is_taken_back() {
            return true;
        }
        let engine = Arc::as_ptr(&flight.engine);
        if full.contains(&engine) {
            return false;
        }
        let started = flight.start();
        if !started {
            full.insert(engine);
        }
        started
    }

    /// As the watching thread looks, which leaves it to those who wait where there are any.
    fn is_over(&self) -> bool {
        match self.waiters.load(Ordering::Acquire) {
            0 => self.look(),
            _ => matches!(*self.lock(), State::Over(_)),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.flight.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

/// All runs of this process, watched by one thread while there are any.
#[derive(Default)]
pub struct Flights(Mutex<Watch>);

#[derive(Default)]
struct Watch {
    new: Vec<Arc<Flying>>,
    watched: bool,
}

/// How long the thread polls after the last run ended before it begins to sleep in between.
const SPIN: Duration = Duration::from_micros(200);
const SLEEP: Duration = Duration::from_micros(20);
/// How long it stays with nothing to watch: to wake a thread that has gone takes several times such a sleep.
const STAY: Duration = Duration::from_millis(5);

impl Flights {
    /// Those of this process.
    pub fn get() -> &'static Arc<Self> {
        static FLIGHTS: OnceCell<Arc<Flights>> = OnceCell::new();
        FLIGHTS.get_or_init(Arc::default)
    }

    /// Has a run started, where it is not, and watched until it is over.
    pub fn add(self: &Arc<Self>, flying: Arc<Flying>) {
        let mut watch = self.lock();
        watch.new.push(flying);
        if !std::mem::replace(&mut watch.watched, true) {
            drop(watch);
            Pool::get().run(&(self.clone() as Arc<dyn Shared>), 1);
        }
    }

    /// What was added, or `None` when the thread may go.
    fn take_new(&self, idle: bool) -> Option<Vec<Arc<Flying>>> {
        let mut watch = self.lock();
        if watch.new.is_empty() && idle {
            watch.watched = false;
            return None;
        }
        Some(std::mem::take(&mut watch.new))
    }

    fn lock(&self) -> MutexGuard<'_, Watch> {
        self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

impl Shared for Flights {
    fn run(&self) {
        let mut flights: Vec<Arc<Flying>> = Vec::new();
        let mut progress = Instant::now();
        wake_precisely();
        while let Some(new) = self.take_new(flights.is_empty() && progress.elapsed() > STAY) {
            flights.extend(new);
            let before = flights.len();
            // In the order of submission: on each device nobody overtakes one that waits.
            let mut full = HashSet::new();
            let started = flights.iter().filter(|flying| flying.start(&mut full)).count();
            flights.retain(|flying| !flying.is_over());
            if started > 0 || flights.len() < before {
                progress = Instant::now();
            } else if progress.elapsed() < SPIN {
                std::thread::yield_now();
            } else {
                std::thread::sleep(SLEEP);
            }
        }
    }
}

/// Has this thread, which is the library's own, wake when it should: the kernel saves wake-ups by 50 µs otherwise.
fn wake_precisely() {
    const SLACK_NANOSECONDS: libc::c_ulong = 1000;
    // SAFETY: changes nothing but the calling thread's timer slack.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, SLACK_NANOSECONDS) };
}
