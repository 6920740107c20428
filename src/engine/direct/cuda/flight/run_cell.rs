// SPDX-License-Identifier: Apache-2.0
//! The state of a run that several threads check. One thread at a time takes the run out, because the driver may block it meanwhile.
#![forbid(unsafe_code)]

use std::time::{Duration, Instant};

use crate::base::{Condvar, Error, Mutex, MutexGuard, Result};

/// How long another thread may hold the lock of a run: much longer than a call of the driver takes that does not wait.
const SOON: Duration = Duration::from_millis(10);

/// A run that can be abandoned: it ends now, although the driver may still execute it.
pub trait Abandon {
    fn abandon(self, error: Error);
}

/// Not boxed: a box would be allocated for each run.
pub enum State<R> {
    /// Waits for resources that other runs use.
    Waiting(R),
    /// Has all its resources, and waits for a thread that starts it.
    Queued(R),
    /// A thread starts it, or makes a stream wait for it. Both may block in the driver.
    Locked,
    /// The same, and the run is abandoned for this reason when that thread is done with it.
    Abandoned(Error),
    /// Started, or failed to start.
    Started(R),
    Over(Result<()>),
}

/// A run and its state.
pub struct RunCell<R> {
    state: Mutex<State<R>>,
    /// Signalled when no thread has the run.
    settled: Condvar,
}

impl<R> Default for RunCell<R> {
    /// No run.
    fn default() -> Self {
        Self { state: Mutex::new(State::Over(Ok(()))), settled: Condvar::new() }
    }
}

impl<R: Abandon> RunCell<R> {
    pub fn set(&mut self, state: State<R>) {
        *self.state.get_mut() = state;
    }

    pub fn lock(&self) -> MutexGuard<'_, State<R>> {
        self.state.lock()
    }

    pub fn try_lock(&self) -> Option<MutexGuard<'_, State<R>>> {
        self.state.try_lock()
    }

    /// Locks it, unless another thread holds the lock for long.
    pub fn lock_soon(&self) -> Option<MutexGuard<'_, State<R>>> {
        let mut until = None;
        loop {
            let locked = self.try_lock();
            if locked.is_some() || Instant::now() > *until.get_or_insert_with(|| Instant::now() + SOON) {
                return locked;
            }
            std::thread::yield_now();
        }
    }

    /// Waits until no thread has the run.
    pub fn settled(&self) -> MutexGuard<'_, State<R>> {
        self.settled.wait_while(self.lock(), |state| state.is_taken())
    }

    /// Takes the run out of a state.
    pub fn take_if(&self, is_expected: impl FnOnce(&State<R>) -> bool) -> Option<R> {
        let mut state = self.lock();
        if is_expected(&state) { state.take().into_run() } else { None }
    }

    /// Puts the run back, or sets its outcome. A run that was abandoned meanwhile ends.
    pub fn settle(&self, next: State<R>) {
        let mut state = self.lock();
        let abandoned = match &*state {
            State::Abandoned(error) if !matches!(next, State::Over(_)) => Some(error.clone()),
            _ => None,
        };
        let left = match &abandoned {
            Some(error) => {
                *state = State::Over(Err(error.clone()));
                next.into_run()
            }
            None => {
                *state = next;
                None
            }
        };
        drop(state);
        self.settled.notify_all();
        if let (Some(run), Some(error)) = (left, abandoned) {
            run.abandon(error);
        }
    }

    /// Abandons the run, now or when the thread that has it is done.
    pub fn abandon(&self, error: &Error) {
        let mut state = self.lock();
        let left = match &*state {
            State::Over(_) => return,
            State::Locked | State::Abandoned(_) => {
                *state = State::Abandoned(error.clone());
                return;
            }
            _ => std::mem::replace(&mut *state, State::Over(Err(error.clone()))),
        };
        drop(state);
        self.settled.notify_all();
        if let Some(run) = left.into_run() {
            run.abandon(error.clone());
        }
    }
}

impl<R> State<R> {
    /// A thread has the run.
    pub fn is_taken(&self) -> bool {
        matches!(self, Self::Locked | Self::Abandoned(_))
    }

    pub fn is_queued(&self) -> bool {
        matches!(self, Self::Queued(_))
    }

    /// Sets `Locked` and returns the state before. A run that a thread has or that has ended is unchanged.
    pub fn take(&mut self) -> Self {
        match self {
            Self::Locked | Self::Abandoned(_) => Self::Locked,
            Self::Over(outcome) => Self::Over(outcome.clone()),
            _ => std::mem::replace(self, Self::Locked),
        }
    }

    fn into_run(self) -> Option<R> {
        match self {
            Self::Waiting(run) | Self::Queued(run) | Self::Started(run) => Some(run),
            Self::Locked | Self::Abandoned(_) | Self::Over(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, Sender, channel};

    use super::*;
    use crate::base::Status;

    /// Reports why it was abandoned.
    struct Fake(Sender<Status>);

    impl Abandon for Fake {
        fn abandon(self, error: Error) {
            self.0.send(error.status()).unwrap();
        }
    }

    fn with(state: fn(Fake) -> State<Fake>) -> (RunCell<Fake>, Receiver<Status>) {
        let (sender, ends) = channel();
        let mut cell = RunCell::default();
        cell.set(state(Fake(sender)));
        (cell, ends)
    }

    fn bug() -> Error {
        Error::new(Status::Panic, "deliberate")
    }

    fn is_over(cell: &RunCell<Fake>) -> bool {
        matches!(&*cell.settled(), State::Over(outcome) if outcome.as_ref().is_err_and(|error| error.status() == Status::Panic))
    }

    #[test]
    fn a_run_that_no_thread_has_is_abandoned_at_once_and_once() {
        for state in [State::Waiting, State::Queued, State::Started] {
            let (cell, ends) = with(state);
            cell.abandon(&bug());
            cell.abandon(&bug());
            assert!(is_over(&cell) && ends.try_recv() == Ok(Status::Panic) && ends.try_recv().is_err());
        }
    }

    /// Otherwise that thread would put it back, and no thread would check it any more.
    #[test]
    fn a_run_that_a_thread_has_is_abandoned_when_the_thread_puts_it_back() {
        for state in [State::Waiting, State::Queued, State::Started] {
            let (cell, ends) = with(State::Waiting);
            let run = cell.take_if(|state| !state.is_taken()).unwrap();
            cell.abandon(&bug());
            assert!(ends.try_recv().is_err() && cell.lock().is_taken());
            cell.settle(state(run));
            assert!(is_over(&cell) && ends.try_recv() == Ok(Status::Panic) && ends.try_recv().is_err());
        }
    }

    #[test]
    fn a_run_that_has_ended_meanwhile_keeps_its_outcome() {
        let (cell, ends) = with(State::Started);
        let run = cell.take_if(|_| true);
        cell.abandon(&bug());
        cell.settle(State::Over(Ok(())));
        cell.abandon(&bug());
        assert!(matches!(&*cell.settled(), State::Over(Ok(()))) && ends.try_recv().is_err());
        drop(run);
    }
}
