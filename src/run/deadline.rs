// SPDX-License-Identifier: Apache-2.0
//! The thread that ends runs at their deadlines. Other threads may be in a call of the kernel, of the driver or of NIXL that does
//! not return, so none of them can do this. It exists while there are runs with a deadline.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::base::{Condvar, Mutex, PerProcess, Pool, Promise, Result, Shared, WorkThread, guarded, log};

/// The deadline of one run: when it is, and a number that no other deadline has.
pub type Deadline = (Instant, u64);

/// Something with a run that ends at its deadline.
pub trait Expires: Send + Sync {
    /// Ends the run with this deadline, unless it has ended.
    fn expire(&self, deadline: Deadline);
}

#[derive(Default)]
pub struct Deadlines {
    state: Mutex<State>,
    /// There is an earlier deadline than the one that the thread waits for.
    changed: Condvar,
}

#[derive(Default)]
struct State {
    pending: BTreeMap<Deadline, Arc<dyn Expires>>,
    last_number: u64,
    thread: WorkThread,
    /// When the thread wakes up; `None` unless it waits.
    wakes: Option<Instant>,
}

/// A promise that a deadline will be watched.
pub type Reservation = Promise<Deadlines>;

/// How long the thread stays without deadlines.
const STAY: Duration = Duration::from_secs(1);

impl Deadlines {
    pub fn get() -> &'static Arc<Self> {
        static DEADLINES: PerProcess<Arc<Deadlines>> = PerProcess::new();
        DEADLINES.get(Arc::default)
    }

    /// Called before a run with a deadline is submitted, because no such run may begin if no thread can watch it.
    pub fn reserve(self: &Arc<Self>) -> Result<Reservation> {
        let mut state = self.state.lock();
        let _woken = state.thread.ensure(|| Pool::services().run_alone(self.clone()))?;
        let reservation = state.thread.promise(self);
        drop(state);
        Ok(reservation)
    }

    /// Removes the deadline of a run that has ended.
    pub fn remove(&self, deadline: Deadline) {
        let removed = self.state.lock().pending.remove(&deadline);
        drop(removed);
    }

    /// Ends runs at their deadlines until there are none.
    fn watch(&self) {
        while let Some(next) = self.next() {
            if let Some((deadline, run)) = next {
                run.expire(deadline);
            }
        }
    }

    /// Removes one that has passed, or else waits until the next one. `None` if the thread may end.
    fn next(&self) -> Option<Option<(Deadline, Arc<dyn Expires>)>> {
        let mut state = self.state.lock();
        let now = Instant::now();
        let until = match state.pending.first_entry() {
            Some(first) if first.key().0 <= now => return Some(Some(first.remove_entry())),
            Some(first) => first.key().0,
            None => now + STAY,
        };
        state.wakes = Some(until);
        let (mut state, has_timed_out) = self.changed.wait_timeout(state, until - now);
        state.wakes = None;
        let has_work = !has_timed_out || !state.pending.is_empty();
        state.thread.goes_on(has_work).then_some(None)
    }
}

impl Reservation {
    pub fn add(self, at: Instant, run: Arc<dyn Expires>) -> Deadline {
        let Deadlines { state, changed } = &*self.to;
        let mut state = state.lock();
        state.last_number += 1;
        let deadline = (at, state.last_number);
        state.pending.insert(deadline, run);
        // Runs usually have the same limit: then an earlier deadline wakes the thread, even if its run has ended.
        let wakes_late = state.wakes.is_some_and(|wakes| at < wakes);
        drop(state);
        if wakes_late {
            changed.notify_one();
        }
        deadline
    }
}

impl Shared for Deadlines {
    fn run(&self) {
        // The thread does not end by a panic: it was promised by a reservation.
        while let Err(panic) = guarded(|| self.watch()) {
            log!(Error, "panic on the thread that watches deadlines: {panic}");
        }
    }
}

#[cfg(kvmem_model)]
impl Reservation {
    /// That of a deadline which a thread of a model has passed by itself.
    pub fn of_model() -> Self {
        let deadlines = Deadlines::get();
        deadlines.state.lock().thread.promise(deadlines)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Sender, channel};

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(20);

    /// Sends a number at its deadline, or panics.
    struct Fake(u32, Mutex<Sender<u32>>);

    impl Expires for Fake {
        fn expire(&self, _: Deadline) {
            self.1.lock().send(self.0).unwrap();
            assert!(self.0 > 0, "deliberate");
        }
    }

    #[test]
    fn runs_expire_in_order_of_their_deadlines_unless_they_are_removed() {
        let deadlines = Arc::new(Deadlines::default());
        let (sender, expired) = channel();
        // All are added before the first one expires.
        let begin = Instant::now() + Duration::from_millis(50);
        let add = |number: u32| {
            let run = Arc::new(Fake(number, Mutex::new(sender.clone())));
            deadlines.reserve().unwrap().add(begin + Duration::from_millis(number.into()), run)
        };
        let [_, third, _, _] = [9, 3, 0, 5].map(add);
        deadlines.remove(third);
        let expired: Vec<_> = (0..3).map(|_| expired.recv_timeout(PATIENCE).unwrap()).collect();
        assert_eq!(expired, [0, 5, 9]);
    }

    /// Panics when it is dropped.
    struct Brittle;

    impl Expires for Brittle {
        fn expire(&self, _: Deadline) {}
    }

    impl Drop for Brittle {
        fn drop(&mut self) {
            panic!("deliberate");
        }
    }

    #[test]
    fn the_thread_survives_a_panic_between_two_deadlines() {
        let deadlines = Arc::new(Deadlines::default());
        let (sender, expired) = channel();
        let now = Instant::now();
        deadlines.reserve().unwrap().add(now, Arc::new(Brittle));
        deadlines.reserve().unwrap().add(now, Arc::new(Fake(1, Mutex::new(sender))));
        assert_eq!(expired.recv_timeout(PATIENCE), Ok(1));
    }

    #[test]
    fn an_earlier_deadline_does_not_wait_for_a_later_one() {
        let deadlines = Arc::new(Deadlines::default());
        let (sender, expired) = channel();
        let now = Instant::now();
        for (number, seconds) in [(1, 3600), (2, 0)] {
            let run = Arc::new(Fake(number, Mutex::new(sender.clone())));
            deadlines.reserve().unwrap().add(now + Duration::from_secs(seconds), run);
        }
        assert_eq!(expired.recv_timeout(PATIENCE), Ok(2));
        assert_eq!(deadlines.state.lock().pending.len(), 1);
    }
}
