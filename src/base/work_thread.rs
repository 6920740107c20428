// SPDX-License-Identifier: Apache-2.0
//! A thread that exists while there is work. Whether it runs is under the lock that the work is under: so a thread that ends leaves no
//! work, and nothing relies on a thread that could not be started. Each user waits for work by other means: in the kernel, for a
//! condition, or by polling a GPU.

use std::sync::Arc;

use crate::base::atomic::{AtomicUsize, Ordering};
use crate::base::error::Result;

#[derive(Default)]
pub struct WorkThread {
    is_running: bool,
    promises: Arc<AtomicUsize>,
}

/// A promise that work will be added to an object before this is dropped: its thread does not end while there are promises.
#[must_use]
pub struct Promise<T> {
    pub to: Arc<T>,
    promises: Arc<AtomicUsize>,
}

impl<T> Drop for Promise<T> {
    fn drop(&mut self) {
        self.promises.fetch_sub(1, Ordering::Release);
    }
}

impl WorkThread {
    /// Called before work is added or promised under the same lock: `start` starts the thread, unless it runs. What that returns is to be
    /// dropped without the lock, if it wakes the thread, which takes the lock first.
    pub fn ensure<W>(&mut self, start: impl FnOnce() -> Result<W>) -> Result<Option<W>> {
        if self.is_running {
            return Ok(None);
        }
        let started = start()?;
        self.is_running = true;
        Ok(Some(started))
    }

    /// Called after [`Self::ensure`], before the lock is released.
    pub fn promise<T>(&self, to: &Arc<T>) -> Promise<T> {
        self.promises.fetch_add(1, Ordering::Relaxed);
        Promise { to: to.clone(), promises: self.promises.clone() }
    }

    /// Called by the thread, which must end if this returns false.
    pub fn goes_on(&mut self, has_work: bool) -> bool {
        self.is_running = has_work || self.promises.load(Ordering::Acquire) > 0;
        self.is_running
    }

    pub fn is_running(&self) -> bool {
        self.is_running
    }
}

#[cfg(kvmem_model)]
mod models;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::error::{Error, Status};

    #[test]
    fn a_thread_that_could_not_be_started_is_started_again_and_one_that_runs_is_not() {
        let mut thread = WorkThread::default();
        let failed = thread.ensure(|| -> Result<()> { Err(Error::new(Status::OutOfMemory, "no thread")) });
        assert_eq!(failed.unwrap_err().status(), Status::OutOfMemory);
        assert_eq!(thread.ensure(|| Ok(1)).unwrap(), Some(1));
        assert_eq!(thread.ensure(|| -> Result<()> { panic!("a second thread") }).unwrap(), None);
    }

    #[test]
    fn a_thread_ends_without_work_and_promises_of_some() {
        let mut thread = WorkThread::default();
        let promise = thread.promise(&Arc::new(()));
        assert!(thread.goes_on(true) && thread.goes_on(false));
        drop(promise);
        assert!(thread.goes_on(true) && !thread.goes_on(false) && !thread.is_running());
        assert_eq!(thread.ensure(|| Ok(2)).unwrap(), Some(2));
    }
}
