// SPDX-License-Identifier: Apache-2.0
//! New work for a thread that exists while there is work.

use std::collections::VecDeque;

use crate::base::{Error, Mutex, Result};

pub struct Intake<T>(Mutex<State<T>>);

struct State<T> {
    new: VecDeque<T>,
    is_served: bool,
}

impl<T> Intake<T> {
    pub fn new() -> Self {
        Self(Mutex::new(State { new: VecDeque::new(), is_served: false }))
    }

    /// Adds work, and wakes the thread that serves it, or starts one: without the lock, which that thread takes first. If it cannot be
    /// started, returns what it would have served, also what was added meanwhile.
    pub fn add(
        &self,
        work: T,
        wake: impl FnOnce(),
        start: impl FnOnce() -> Result<()>,
    ) -> std::result::Result<(), (VecDeque<T>, Error)> {
        let mut state = self.0.lock();
        state.new.push_back(work);
        let is_served = std::mem::replace(&mut state.is_served, true);
        drop(state);
        if is_served {
            wake();
            return Ok(());
        }
        start().map_err(|error| {
            let mut state = self.0.lock();
            state.is_served = false;
            (std::mem::take(&mut state.new), error)
        })
    }

    /// Passes new work to the thread that serves it. Returns false if there is none, and the thread `is_idle`: then it must end.
    pub fn pass(&self, is_idle: bool, receive: impl FnOnce(&mut VecDeque<T>)) -> bool {
        let mut state = self.0.lock();
        state.is_served = !(state.new.is_empty() && is_idle);
        receive(&mut state.new);
        state.is_served
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::Status;

    /// As a thread that begins to run before the call that has started it returns.
    #[test]
    fn a_thread_that_is_started_finds_the_lock_free_and_the_work() {
        let (intake, mut served) = (Intake::new(), VecDeque::new());
        let start = || {
            assert!(intake.0.try_lock().is_some(), "the thread that is started waits for the lock");
            assert!(intake.pass(true, |new| served.append(new)));
            Ok(())
        };
        assert!(intake.add(1, || panic!("no thread to wake"), start).is_ok());
        let mut is_woken = false;
        assert!(intake.add(2, || is_woken = true, || panic!("a second thread")).is_ok());
        assert!(is_woken && intake.pass(true, |new| served.append(new)));
        assert_eq!(served, [1, 2]);
        assert!(!intake.pass(true, |new| assert!(new.is_empty())));
        assert!(intake.add(3, || panic!("it has ended"), || Ok(())).is_ok());
    }

    #[test]
    fn work_that_is_added_while_no_thread_can_be_started_is_returned_with_the_rest() {
        let intake = Intake::new();
        let start = || {
            assert!(intake.0.try_lock().is_some(), "others cannot add work");
            assert!(intake.add(2, || (), || panic!("a second thread")).is_ok());
            Err(Error::new(Status::OutOfMemory, "no thread"))
        };
        let (unserved, error) = intake.add(1, || panic!("no thread to wake"), start).unwrap_err();
        assert_eq!((error.status(), unserved), (Status::OutOfMemory, VecDeque::from([1, 2])));
        assert!(intake.add(3, || panic!("no thread to wake"), || Ok(())).is_ok());
        assert!(intake.pass(true, |new| assert_eq!(*new, [3])));
    }
}
