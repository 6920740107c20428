// SPDX-License-Identifier: Apache-2.0
//! What comes to the thread that serves a staging ring: new runs, and how the I/O of slots went. The thread holds no
//! more than this, so that a ring goes with the last of those who use it, before anyone hears of the last run's end.

#![forbid(unsafe_code)]

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use super::flight::Flight;
use super::session::Session;
use crate::error::{Error, Result};
use crate::guarded::guarded;
use crate::log::log;
use crate::sync::{Condvar, Mutex, MutexGuard};
use crate::transfer::run::threads::{Pool, Shared};

/// What has come.
#[derive(Default)]
pub struct Inbox {
    state: Mutex<State>,
    arrival: Condvar,
}

#[derive(Default)]
struct State {
    new: Vec<Flight>,
    answers: VecDeque<Answer>,
    is_served: bool,
    /// The thread has panicked, and may have left slots in use.
    failure: Option<Error>,
}

/// How a slot's I/O went.
pub struct Answer {
    /// Which slot.
    pub slot: usize,
    /// How it went.
    pub outcome: Result<()>,
}

impl Inbox {
    /// Has a run go through its ring.
    pub fn start(self: &Arc<Self>, flight: Flight) {
        let mut state = self.state();
        if let Some(error) = state.failure.clone() {
            drop(state);
            return flight.refuse(error);
        }
        if !state.is_served {
            // Within the lock: other runs must not count on a thread that could not be started.
            if let Err(error) = Pool::services().run_alone(self.clone()) {
                drop(state);
                return flight.refuse(error);
            }
            state.is_served = true;
        }
        state.new.push(flight);
        drop(state);
        self.arrival.notify_one();
    }

    /// Tells how a slot's I/O went; from any thread.
    pub fn answer(&self, answer: Answer) {
        self.state().answers.push_back(answer);
        self.arrival.notify_one();
    }

    /// What has come, or `None` when the thread may go.
    pub fn take_new(&self, is_idle: bool) -> Option<(Vec<Flight>, VecDeque<Answer>)> {
        let mut state = self.state();
        if is_idle && state.new.is_empty() {
            state.is_served = false;
            return None;
        }
        Some((std::mem::take(&mut state.new), std::mem::take(&mut state.answers)))
    }

    /// Takes nothing more: who comes from now on hears of the failure at once.
    fn close(&self, failure: &Error) {
        let mut state = self.state();
        state.failure = Some(failure.clone());
        let left = std::mem::take(&mut state.new);
        drop(state);
        left.into_iter().for_each(|flight| flight.refuse(failure.clone()));
    }

    /// Sleeps until something comes, or for so long.
    pub fn sleep(&self, at_most: Duration) {
        let state = self.state();
        if state.new.is_empty() && state.answers.is_empty() {
            drop(self.arrival.wait_timeout(state, at_most));
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }
}

impl Shared for Inbox {
    fn run(&self) {
        let mut session = Session::new(self);
        if let Err(panic) = guarded(|| session.run()) {
            log!(Error, "on the thread of a staging ring: {panic}");
            session.give_up(&panic);
            self.close(&panic);
        }
    }
}
