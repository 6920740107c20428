// SPDX-License-Identifier: Apache-2.0
//! Runs that the driver is at, and those that wait for a stream, a slot or staging memory: started and watched by one
//! thread while there are any.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use once_cell::sync::OnceCell;

use super::engine::Engine;
use super::job::{Held, Job};
use crate::error::{Error, Result};
use crate::layout::Layout;
use crate::transfer::completion::Run;
use crate::transfer::pool::{Pool, Shared};

/// One run.
pub struct Flight {
    job: Arc<Job>,
    engine: Arc<Engine>,
    layouts: [Arc<Layout>; 2],
    run: Run,
    failure: Option<Error>,
    /// What it uses since it was started.
    held: Option<Held>,
    waits: bool,
}

impl Flight {
    /// A run that has not begun.
    pub fn new(job: &Arc<Job>, engine: &Arc<Engine>, layouts: &[Arc<Layout>; 2], run: Run) -> Self {
        Self {
            job: job.clone(),
            engine: engine.clone(),
            layouts: layouts.clone(),
            run,
            failure: None,
            held: None,
            waits: false,
        }
    }

    /// One that was started on a stream of the caller's.
    pub fn started(mut self, held: Held, outcome: Result<()>) -> Self {
        self.failure = outcome.err();
        self.held = Some(held);
        self
    }

    /// Starts it where all it needs is free; answers whether it is on its way, or over.
    pub fn start(&mut self) -> bool {
        match self.job.take(&self.engine) {
            Ok(None) => {
                if !std::mem::replace(&mut self.waits, true) {
                    self.engine.add_waiting();
                }
                return false;
            }
            Ok(Some(held)) => {
                // SAFETY: the plan checked all spans against their layouts, which are held until the run is over.
                self.failure = unsafe { self.job.start(&self.engine, &held) }.err();
                self.held = Some(held);
            }
            Err(error) => self.failure = Some(error),
        }
        if std::mem::replace(&mut self.waits, false) {
            self.engine.remove_waiting();
        }
        true
    }

    /// Whether it has been started, or could not be.
    fn is_started(&self) -> bool {
        self.held.is_some() || self.failure.is_some()
    }

    /// Whether the driver is done with it.
    fn is_done(&self) -> Result<bool> {
        self.held.as_ref().map_or(Ok(true), Held::is_done)
    }

    /// All that it used is let go before anyone hears that the run is over: who hears it may free their memory.
    fn end(self, outcome: Result<()>) {
        let Self { job, engine, layouts, run, failure, held, .. } = self;
        let outcome = failure.map_or(outcome, Err);
        if outcome.is_err() {
            engine.retire();
        }
        if let Some(held) = held {
            held.let_go(outcome.is_ok());
        }
        drop((job, layouts, engine));
        run.end(outcome);
    }
}

/// All runs of this process, watched by one thread while there are any.
#[derive(Default)]
pub struct Flights(Mutex<Watch>);

#[derive(Default)]
struct Watch {
    new: Vec<Flight>,
    watched: bool,
}

/// How long the thread polls after the last run ended before it begins to sleep in between.
const SPIN: Duration = Duration::from_micros(200);
const SLEEP: Duration = Duration::from_micros(20);

impl Flights {
    /// Those of this process.
    pub fn get() -> &'static Arc<Self> {
        static FLIGHTS: OnceCell<Arc<Flights>> = OnceCell::new();
        FLIGHTS.get_or_init(Arc::default)
    }

    /// Has a run started, where it is not, and watched until it is over.
    pub fn add(self: &Arc<Self>, flight: Flight) {
        let mut watch = self.lock();
        watch.new.push(flight);
        if !std::mem::replace(&mut watch.watched, true) {
            drop(watch);
            Pool::get().run(&(self.clone() as Arc<dyn Shared>), 1);
        }
    }

    /// What was added, or `None` when the thread may go.
    fn take_new(&self, idle: bool) -> Option<Vec<Flight>> {
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
        let mut flights: Vec<Flight> = Vec::new();
        let mut progress = Instant::now();
        while let Some(new) = self.take_new(flights.is_empty()) {
            flights.extend(new);
            let before = flights.len();
            let started = start_all(&mut flights);
            flights = flights.into_iter().filter_map(watched).collect();
            if started || flights.len() < before {
                progress = Instant::now();
            } else if progress.elapsed() < SPIN {
                std::thread::yield_now();
            } else {
                std::thread::sleep(SLEEP);
            }
        }
    }
}

/// Starts what can be, in the order of submission: on each device nobody overtakes one that waits.
fn start_all(flights: &mut [Flight]) -> bool {
    let mut full: HashSet<*const Engine> = HashSet::new();
    let mut any = false;
    for flight in flights.iter_mut().filter(|flight| !flight.is_started()) {
        let engine = Arc::as_ptr(&flight.engine);
        if full.contains(&engine) {
            continue;
        }
        if flight.start() {
            any = true;
        } else {
            full.insert(engine);
        }
    }
    any
}

/// The flight while it goes on.
fn watched(flight: Flight) -> Option<Flight> {
    if !flight.is_started() {
        return Some(flight);
    }
    match flight.is_done() {
        Ok(false) => return Some(flight),
        Ok(true) => flight.end(Ok(())),
        Err(error) => flight.end(Err(error)),
    }
    None
}
