// SPDX-License-Identifier: Apache-2.0
//! A run that several threads look at: the one that watches all runs, those that wait for this one, and those that ask
//! about it. Whoever sees its end first ends it. Nobody who asks waits for what the driver takes its time to accept.

#![forbid(unsafe_code)]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use super::super::device::need::Need;
use super::super::device::state::DeviceState;
use super::run::Flight;
use super::watcher::{Full, Watched};
use crate::cuda::stream::CallerStream;
use crate::error::{Error, Result, fail};
use crate::guarded::guarded;
use crate::log::log;
use crate::sync::{Condvar, Mutex, MutexGuard};
use crate::transfer::run::threads::{Pool, Shared};

/// A run, and how it stands with it.
pub struct Flying {
    state: Mutex<State>,
    /// Nobody has it in hand any more.
    settled: Condvar,
    /// Starting it costs a thread little; if not, it is left to one that has nothing else to do.
    is_quick: bool,
    /// Threads that look all the time.
    waiters: AtomicUsize,
}

enum State {
    /// It waits for what others use.
    Waiting(Box<Flight>),
    /// It has taken all that it needs, and waits for a thread that starts it.
    Queued(Box<Flight>),
    /// A thread has it in hand: starts it, or has a stream wait for it, for which the driver may take its time.
    InHand,
    /// It has been started, or could not be.
    UnderWay(Box<Flight>),
    Over(Result<()>),
}

/// Counts a thread that looks all the time, also if looking panics: the watcher leaves the run to counted threads.
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

impl Flying {
    /// A run that has not begun. It does at once where nobody waits before it.
    pub fn new(flight: Flight, is_quick: bool) -> Arc<Self> {
        let is_behind = flight.is_behind();
        let flying = Self::with(State::Waiting(Box::new(flight)), is_quick);
        if !is_behind {
            // What it goes on waiting for it tells the one that watches.
            let _ = flying.start();
        }
        flying
    }

    /// One that was started on a stream of the caller's.
    pub fn started(flight: Flight) -> Arc<Self> {
        Self::with(State::UnderWay(Box::new(flight)), true)
    }

    /// One on a stream of the caller's that did not take a mark of its end: nobody can tell when it is over, for the
    /// stream may be gone when it is asked. It ends now, and what it uses is never let go.
    pub fn unmarked(flight: Flight, error: Error) -> Arc<Self> {
        let error = error.context(
            "the stream takes no mark of where the transfer ends: it may still move blocks until the stream is past it",
        );
        log!(Error, "{error}; memory of the library's that it uses is never let go");
        let flying = Self::with(State::Over(Err(error.clone())), true);
        flight.give_up(error);
        flying
    }

    fn with(state: State, is_quick: bool) -> Arc<Self> {
        let (state, settled, waiters) = (Mutex::new(state), Condvar::new(), AtomicUsize::new(0));
        Arc::new(Self { state, settled, is_quick, waiters })
    }

    /// Starts it where all it needs is free; answers whether it began, or what it goes on waiting for.
    fn start(self: &Arc<Self>) -> std::result::Result<bool, Need> {
        let is_waiting = |state: &State| matches!(state, State::Waiting(_));
        let Some(mut flight) = self.take_if(is_waiting) else { return Ok(false) };
        if let Some(cancelled) = flight.cancelled() {
            self.end(flight, Err(cancelled));
            return Ok(true);
        }
        if let Err(need) = flight.take() {
            self.settle(State::Waiting(flight));
            return Err(need);
        }
        if self.is_quick {
            let _ = self.begin(flight).map(|flight| self.settle(State::UnderWay(flight)));
        } else {
            self.settle(State::Queued(flight));
            Pool::starts().run(&(Arc::new(Start(self.clone())) as Arc<dyn Shared>), 1);
        }
        Ok(true)
    }

    /// Starts a run that has all it needs, unless it was cancelled before: then it ends so.
    fn begin(&self, mut flight: Box<Flight>) -> Result<Box<Flight>> {
        if let Some(cancelled) = flight.cancelled() {
            self.end(flight, Err(cancelled.clone()));
            return Err(cancelled);
        }
        flight.start();
        Ok(flight)
    }

    fn end(&self, flight: Box<Flight>, outcome: Result<()>) {
        self.settle(State::Over(outcome.clone()));
        flight.end(outcome);
    }

    /// Takes a run that stands so in hand.
    fn take_if(&self, stands: impl FnOnce(&State) -> bool) -> Option<Box<Flight>> {
        let mut state = self.lock();
        if !stands(&state) {
            return None;
        }
        match take_in_hand(&mut state) {
            State::Waiting(flight) | State::Queued(flight) | State::UnderWay(flight) => Some(flight),
            State::InHand | State::Over(_) => None,
        }
    }

    fn settle(&self, state: State) {
        *self.lock() = state;
        self.settled.notify_all();
    }

    /// Looks whether it is over, and ends it where it is.
    pub fn look(&self) -> bool {
        self.look_at(self.lock())
    }

    fn look_at(&self, mut state: MutexGuard<'_, State>) -> bool {
        let outcome = match &mut *state {
            State::Waiting(flight) | State::Queued(flight) => flight.cancelled().map(Err),
            State::InHand => None,
            State::UnderWay(flight) => flight.ended(),
            State::Over(_) => return true,
        };
        let Some(outcome) = outcome else { return false };
        let ended = std::mem::replace(&mut *state, State::Over(outcome.clone()));
        drop(state);
        if let State::Waiting(flight) | State::Queued(flight) | State::UnderWay(flight) = ended {
            flight.end(outcome);
        }
        true
    }

    /// Looks all the time until it is over, or it is `until`, or there is enough.
    pub fn look_until(&self, until: Instant, is_enough: impl Fn() -> bool) {
        let _waiter = Waiter::begin(&self.waiters);
        while !self.look() && !is_enough() && Instant::now() < until {
            std::thread::yield_now();
        }
    }

    /// Has what comes later on a stream of the caller's wait for the first `layers`, or for all of it. A run that has
    /// not begun begins now: nothing that the stream is to wait for may itself wait for the stream.
    pub fn hold_back(&self, stream: CallerStream, layers: Option<u64>) -> Result<()> {
        self.look_at(self.settled());
        let taken = take_in_hand(&mut self.settled());
        let flight = match taken {
            State::Waiting(flight) => self.start_urgently(flight)?,
            State::Queued(flight) => self.begin(flight)?,
            State::UnderWay(flight) => flight,
            State::InHand | State::Over(_) => return self.outcome(),
        };
        let held_back = guarded(|| flight.hold_back(stream, layers)).and_then(|outcome| outcome);
        self.settle(State::UnderWay(flight));
        held_back
    }

    fn start_urgently(&self, mut flight: Box<Flight>) -> Result<Box<Flight>> {
        if flight.take_urgently().is_err() {
            self.settle(State::Waiting(flight));
            fail!(Busy, "the run waits for staging memory that other transfers use, and has not begun");
        }
        self.begin(flight)
    }

    /// How it ended.
    fn outcome(&self) -> Result<()> {
        match &*self.lock() {
            State::Over(outcome) => outcome.clone(),
            _ => fail!(Panic, "a run that was over is under way"),
        }
    }

    /// The device of a run that waits, unless something that it needs is in use there.
    fn may_start(&self, full: &Full) -> Option<*const DeviceState> {
        let state = self.lock();
        let State::Waiting(flight) = &*state else { return None };
        let engine = Arc::as_ptr(flight.engine());
        let is_behind = flight.needs().any(|need| full.contains(&(engine, need)));
        (!is_behind).then_some(engine)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// How it stands once nobody has it in hand.
    fn settled(&self) -> MutexGuard<'_, State> {
        let is_in_hand = |state: &mut State| matches!(state, State::InHand);
        self.settled.wait_while(self.lock(), is_in_hand)
    }
}

impl Watched for Flying {
    fn start_unless(self: Arc<Self>, full: &mut Full) -> bool {
        let Some(engine) = self.may_start(full) else { return false };
        self.start().unwrap_or_else(|need| {
            full.insert((engine, need));
            false
        })
    }

    fn is_over(&self) -> bool {
        match self.waiters.load(Ordering::Acquire) {
            0 => self.look(),
            // It is left to those who look all the time.
            _ => matches!(*self.lock(), State::Over(_)),
        }
    }

    fn give_up(&self, error: &Error) {
        let left = std::mem::replace(&mut *self.lock(), State::Over(Err(error.clone())));
        self.settled.notify_all();
        if let State::Waiting(flight) | State::Queued(flight) | State::UnderWay(flight) = left {
            flight.give_up(error.clone());
        }
    }
}

/// Takes what a thread may have in hand; what it may not stays as it is.
fn take_in_hand(state: &mut State) -> State {
    match state {
        State::InHand => State::InHand,
        State::Over(outcome) => State::Over(outcome.clone()),
        _ => std::mem::replace(state, State::InHand),
    }
}

/// A start that takes its time, on a thread that has nothing else to do.
struct Start(Arc<Flying>);

impl Shared for Start {
    fn run(&self) {
        let is_queued = |state: &State| matches!(state, State::Queued(_));
        if let Some(flight) = self.0.take_if(is_queued) {
            let _ = self.0.begin(flight).map(|flight| self.0.settle(State::UnderWay(flight)));
        }
    }
}
