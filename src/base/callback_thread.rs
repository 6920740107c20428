// SPDX-License-Identifier: Apache-2.0
//! A thread that runs callbacks of the caller, in order. No other thread of the library runs them, so a callback may call any
//! function of the library, and block for any time.

use std::cell::Cell;
use std::collections::VecDeque;

use crate::base::error::{Error, Result};
use crate::base::guarded::guarded;
use crate::base::handoff::{Taker, handoff};
use crate::base::sync::{Condvar, Mutex, MutexGuard};
use crate::base::thread;
use crate::base::work_thread::WorkThread;

type Job = Box<dyn FnOnce() + Send>;

/// A callback thread of this process. It runs while there are handles or jobs.
pub struct CallbackThread {
    name: &'static str,
    report: fn(&Error),
    state: Mutex<State>,
    change: Condvar,
}

#[derive(Default)]
struct State {
    jobs: VecDeque<Job>,
    handles: usize,
    thread: WorkThread,
}

thread_local! {
    /// The callback thread that this thread is; NULL for any other thread.
    static CURRENT: Cell<*const CallbackThread> = const { Cell::new(std::ptr::null()) };
}

impl CallbackThread {
    /// A thread that is not started yet. It calls `report` if a callback panics.
    pub fn new(name: &'static str, report: fn(&Error)) -> Self {
        Self { name, report, state: Mutex::default(), change: Condvar::new() }
    }

    /// Keeps the thread running while the handle exists, and starts it if needed. The thread is started here and not when a
    /// job is posted, because the caller here can still report that this failed.
    pub fn acquire(&'static self) -> Result<CallbackHandle> {
        let mut state = self.lock();
        let started = state.thread.ensure(|| thread::spawn(self.name, || self.serve()));
        started.map_err(|error| error.context("run callbacks"))?;
        state.handles += 1;
        Ok(CallbackHandle(self))
    }

    /// Whether the calling thread is this thread, which means that it is in a callback.
    pub fn is_current(&self) -> bool {
        std::ptr::eq(CURRENT.get(), self)
    }

    /// A fence after all jobs posted so far. Waiting for it on this thread itself would never return.
    pub fn fence(&self) -> Fence {
        let (reached, fence) = handoff();
        let mut state = self.lock();
        // A thread that has ended has run all of its jobs.
        if state.thread.is_running() {
            state.jobs.push_back(Box::new(move || drop(reached)));
            self.change.notify_one();
        }
        Fence(fence)
    }

    fn post(&self, job: Job) {
        self.lock().jobs.push_back(job);
        self.change.notify_one();
    }

    fn serve(&self) {
        CURRENT.set(self);
        while let Some(job) = self.next() {
            if let Err(error) = guarded(job) {
                (self.report)(&error);
            }
        }
    }

    /// Waits for a job; `None` once there are neither jobs nor handles.
    fn next(&self) -> Option<Job> {
        let idle = |state: &mut State| state.jobs.is_empty() && state.handles > 0;
        let mut state = self.change.wait_while(self.lock(), idle);
        let job = state.jobs.pop_front();
        state.thread.goes_on(job.is_some());
        job
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }
}

/// Keeps a callback thread running.
pub struct CallbackHandle(&'static CallbackThread);

impl CallbackHandle {
    /// Has the thread run `job` after all jobs posted before. Never blocks and never fails.
    pub fn post(&self, job: impl FnOnce() + Send + 'static) {
        self.0.post(Box::new(job));
    }
}

impl Drop for CallbackHandle {
    fn drop(&mut self) {
        self.0.lock().handles -= 1;
        self.0.change.notify_one();
    }
}

/// A point in the order of a callback thread's jobs.
#[must_use]
pub struct Fence(Taker<()>);

impl Fence {
    /// Waits until the thread has passed it.
    pub fn wait(self) {
        // The giver is dropped at the fence, and nothing is given.
        self.0.wait(None);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::mpsc::{channel, sync_channel};

    use super::*;

    fn thread() -> &'static CallbackThread {
        Box::leak(Box::new(CallbackThread::new("kvmem-test", |_| ())))
    }

    #[test]
    fn jobs_run_in_order_on_one_other_thread_and_before_the_fence() {
        let thread = thread();
        let handle = thread.acquire().unwrap();
        let ran = Arc::new(Mutex::new(Vec::new()));
        for number in 0..1000 {
            let ran = ran.clone();
            handle.post(move || ran.lock().push((number, std::thread::current().id(), thread.is_current())));
        }
        thread.fence().wait();
        let ran = ran.lock();
        assert!(ran.iter().map(|(number, ..)| *number).eq(0..1000));
        let own = std::thread::current().id();
        assert!(ran.iter().all(|(_, id, is_current)| *id != own && *id == ran[0].1 && *is_current));
        assert!(!thread.is_current());
    }

    #[test]
    fn a_panic_ends_the_job_and_not_the_thread() {
        let thread = thread();
        let handle = thread.acquire().unwrap();
        let (ran, seen) = channel();
        handle.post(|| panic!("deliberate"));
        handle.post(move || ran.send(()).unwrap());
        assert!(seen.recv().is_ok());
    }

    #[test]
    fn jobs_left_by_the_last_handle_still_run_and_the_thread_starts_again() {
        let thread = thread();
        for _ in 0..100 {
            let (ran, seen) = channel();
            let handle = thread.acquire().unwrap();
            handle.post(move || ran.send(()).unwrap());
            drop(handle);
            assert!(seen.recv().is_ok());
        }
        thread.fence().wait();
    }

    #[test]
    fn a_handle_dropped_by_a_job_on_the_thread_itself_does_not_block_it() {
        let thread = thread();
        let handle = thread.acquire().unwrap();
        let (go, gate) = sync_channel::<()>(0);
        handle.post(move || gate.recv().unwrap());
        let last = thread.acquire().unwrap();
        handle.post(move || drop(last));
        drop(handle);
        go.send(()).unwrap();
        thread.fence().wait();
    }
}
