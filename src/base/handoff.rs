// SPDX-License-Identifier: Apache-2.0
//! One value, from one thread to another that waits for it until a deadline. Of a value that comes too late the
//! giver learns that, and keeps it: a channel would take it, and drop it with the receiver. Its code is also a tenth of a
//! channel's, and each type of value has its own.

use std::sync::Arc;
use std::time::Instant;

use crate::base::sync::{Condvar, Mutex};
use crate::base::thread::yields_soon;

pub struct Taker<T>(Arc<Shared<T>>);

/// The side that has the value, sooner or later.
pub struct Giver<T>(Arc<Shared<T>>);

#[derive(Debug, PartialEq, Eq)]
pub enum Taken<T> {
    Value(T),
    /// The sender was dropped without a value.
    Gone,
    /// The deadline has passed. Nothing is given any more.
    TooLate,
}

struct Shared<T> {
    state: Mutex<State<T>>,
    changed: Condvar,
}

enum State<T> {
    Waiting,
    Given(T),
    GiverGone,
    TakerGone,
}

/// Both sides.
pub fn handoff<T>() -> (Giver<T>, Taker<T>) {
    let shared = Arc::new(Shared { state: Mutex::new(State::Waiting), changed: Condvar::new() });
    (Giver(shared.clone()), Taker(shared))
}

impl<T> Giver<T> {
    /// Gives the value; returns it if the taker waits no more.
    pub fn give(&self, value: T) -> Result<(), T> {
        let mut value = Some(value);
        self.give_with(|| value.take());
        value.map_or(Ok(()), Err)
    }

    /// Gives what `value` returns, if anything. It is called only if the taker still waits, which does not leave meanwhile.
    pub fn give_with(&self, value: impl FnOnce() -> Option<T>) {
        let mut state = self.0.state.lock();
        if let State::Waiting = *state
            && let Some(value) = value()
        {
            *state = State::Given(value);
            self.0.changed.notify_one();
        }
    }

    pub fn is_awaited(&self) -> bool {
        matches!(*self.0.state.lock(), State::Waiting)
    }
}

impl<T> Drop for Giver<T> {
    fn drop(&mut self) {
        let mut state = self.0.state.lock();
        if matches!(*state, State::Waiting) {
            *state = State::GiverGone;
            self.0.changed.notify_one();
        }
    }
}

impl<T> Drop for Taker<T> {
    fn drop(&mut self) {
        let mut state = self.0.state.lock();
        if matches!(*state, State::Waiting) {
            *state = State::TakerGone;
        }
    }
}

impl<T> Taker<T> {
    /// Waits until there is a value, or none will come; without a deadline for ever. False if the time is over.
    pub fn wait(&self, deadline: Option<Instant>) -> bool {
        self.poll_briefly();
        let is_awaited = |state: &mut State<T>| matches!(state, State::Waiting);
        self.0.changed.wait_while_until(self.0.state.lock(), deadline, is_awaited).is_ok()
    }

    /// Waits for the value and takes it.
    pub fn take(self, deadline: Option<Instant>) -> Taken<T> {
        self.wait(deadline);
        match std::mem::replace(&mut *self.0.state.lock(), State::TakerGone) {
            State::Given(value) => Taken::Value(value),
            State::GiverGone => Taken::Gone,
            State::Waiting | State::TakerGone => Taken::TooLate,
        }
    }

    /// Many values come within microseconds, sooner than a thread falls asleep and wakes.
    fn poll_briefly(&self) {
        for _ in 0..YIELDS {
            if !matches!(*self.0.state.lock(), State::Waiting) || !yields_soon() {
                return;
            }
        }
    }
}

/// How often a taker looks for the value before it sleeps: for about 5 µs.
const YIELDS: usize = 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_available_value_is_taken_even_after_the_deadline() {
        let (giver, taker) = handoff();
        assert_eq!(giver.give(7), Ok(()));
        assert_eq!(taker.take(Some(Instant::now())), Taken::Value(7));
    }

    #[test]
    fn a_value_after_the_deadline_is_returned_to_the_sender() {
        let (giver, taker) = handoff();
        assert!(giver.is_awaited());
        assert_eq!(taker.take(Some(Instant::now())), Taken::TooLate);
        assert!(!giver.is_awaited());
        assert_eq!(giver.give(7), Err(7));
    }

    #[test]
    fn dropping_the_sender_ends_the_wait() {
        let (giver, taker) = handoff::<u32>();
        std::thread::scope(|scope| {
            scope.spawn(move || drop(giver));
            assert_eq!(taker.take(None), Taken::Gone);
        });
    }

    #[test]
    fn a_value_ends_the_wait() {
        let (giver, taker) = handoff();
        std::thread::scope(|scope| {
            scope.spawn(move || giver.give(7));
            assert_eq!(taker.take(None), Taken::Value(7));
        });
    }
}
