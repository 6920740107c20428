// SPDX-License-Identifier: Apache-2.0
//! The thread that makes a store with relaxed durability durable from time to time, or reads what others have stored.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::base::{Condvar, Mutex, Pool, Result, deadline_of, log};

/// Ends the thread when it is dropped.
pub struct Checkpoints(Arc<End>);

#[derive(Default)]
struct End {
    has_come: Mutex<bool>,
    changed: Condvar,
}

impl Checkpoints {
    /// Calls `flush` after each interval, until it returns `None`: then the store has ended.
    pub fn start(
        interval: Duration,
        flush: impl Fn() -> Option<Result<()>> + Send + 'static,
    ) -> Result<Self> {
        let end = Arc::new(End::default());
        let ends = end.clone();
        Pool::services().run_once_alone(move || flush_regularly(&flush, &ends, interval))?;
        Ok(Self(end))
    }
}

impl Drop for Checkpoints {
    fn drop(&mut self) {
        *self.0.has_come.lock() = true;
        self.0.changed.notify_all();
    }
}

fn flush_regularly(flush: &impl Fn() -> Option<Result<()>>, end: &End, interval: Duration) {
    let mut has_failed = false;
    while !end.comes_before(deadline_of(Some(interval))) {
        let Some(flushed) = flush() else { return };
        if let (Err(error), false) = (&flushed, has_failed) {
            log!(Error, "{error}");
        }
        has_failed = flushed.is_err();
    }
}

impl End {
    /// Waits until then. Returns whether the end has come.
    fn comes_before(&self, deadline: Option<Instant>) -> bool {
        self.changed.wait_while_until(self.has_come.lock(), deadline, |has_come| !*has_come).is_ok()
    }
}
