// SPDX-License-Identifier: Apache-2.0
//! How a transfer's user learns that a run is over: by polling, by waiting, or from a queue.

use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use super::history::Record;
use super::queue::{Entry, Queue};
use crate::error::{Error, Result, Status, fail};
use crate::region::ExtentHold;

/// How a run ended.
pub type Outcome = Result<()>;

/// How long a waiter polls before it sleeps: waking it costs more than that.
const SPIN: Duration = Duration::from_micros(200);

const NEVER_RUN: u8 = 0;
const RUNNING: u8 = 1;
const OVER: u8 = 2;

/// The state of one transfer, shared with whatever runs it.
pub struct Completion {
    phase: AtomicU8,
    last: Mutex<Last>,
    over: Condvar,
    bytes: u64,
    queue: Option<(Arc<Queue>, u64)>,
    /// Where it is noted how fast runs are.
    record: Option<Arc<Record>>,
}

struct Last {
    outcome: Outcome,
    duration: Duration,
}

impl Completion {
    /// A transfer of `bytes` that has not run yet.
    pub fn new(bytes: u64, queue: Option<(Arc<Queue>, u64)>, record: Option<Arc<Record>>) -> Self {
        let last = Mutex::new(Last { outcome: Ok(()), duration: Duration::ZERO });
        Self { phase: AtomicU8::new(NEVER_RUN), last, over: Condvar::new(), bytes, queue, record }
    }

    /// The outcome of the last run, or `None` while it is under way.
    pub fn poll(&self) -> Result<Option<()>> {
        match self.phase.load(Ordering::Acquire) {
            NEVER_RUN => fail!(InvalidState, "the transfer was not submitted"),
            RUNNING => Ok(None),
            _ => self.last().outcome.clone().map(Some),
        }
    }

    /// Waits for the outcome of the last run; `None` waits for ever.
    pub fn wait(&self, deadline: Option<Instant>) -> Result<()> {
        let now = Instant::now();
        let spin = deadline.map_or(now + SPIN, |deadline| deadline.min(now + SPIN));
        loop {
            if self.poll()?.is_some() {
                return Ok(());
            }
            if Instant::now() >= spin {
                return self.sleep(deadline);
            }
            std::thread::yield_now();
        }
    }

    fn sleep(&self, deadline: Option<Instant>) -> Result<()> {
        let mut last = self.last();
        while self.phase.load(Ordering::Acquire) == RUNNING {
            last = match deadline {
                None => self.over.wait(last).unwrap_or_else(|poisoned| poisoned.into_inner()),
                Some(deadline) => {
                    let left = deadline.saturating_duration_since(Instant::now());
                    if left.is_zero() {
                        fail!(TimedOut, "the transfer is still under way");
                    }
                    self.over.wait_timeout(last, left).unwrap_or_else(|poisoned| poisoned.into_inner()).0
                }
            };
        }
        last.outcome.clone()
    }

    /// How long the last finished run took.
    pub fn duration(&self) -> Duration {
        self.last().duration
    }

    /// `busy` is cleared before anyone can learn that the run is over, and under the lock that
    /// [`Run::start`] takes: the next run begins after all of this one was said.
    fn finish(&self, outcome: Outcome, duration: Duration, busy: Option<&AtomicBool>) {
        let status = outcome.as_ref().err().map(Error::status);
        if let (None, Some(record)) = (status, &self.record) {
            record.add(self.bytes, duration);
        }
        let mut last = self.last();
        if let Some(busy) = busy {
            busy.store(false, Ordering::Release);
        }
        *last = Last { outcome, duration };
        self.phase.store(OVER, Ordering::Release);
        drop(last);
        self.over.notify_all();
        if let Some((queue, user_data)) = &self.queue {
            let bytes = if status.is_none() { self.bytes } else { 0 };
            queue.push(Entry { user_data: *user_data, bytes, status });
        }
    }

    fn last(&self) -> MutexGuard<'_, Last> {
        self.last.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

/// One run of a transfer. Its outcome is told once: at the latest when it is dropped.
pub struct Run {
    completion: Arc<Completion>,
    busy: Arc<AtomicBool>,
    started: Instant,
    told: bool,
    ended: bool,
    /// What must stay while it runs; let go before anyone hears that it is over.
    held: Option<Held>,
}

/// Extents of the two layouts.
pub type Held = [Vec<ExtentHold>; 2];

impl Run {
    /// Begins a run; `busy` is cleared when it is over.
    pub fn start(completion: Arc<Completion>, busy: Arc<AtomicBool>, held: Held) -> Self {
        let last = completion.last();
        completion.phase.store(RUNNING, Ordering::Release);
        drop(last);
        Self { completion, busy, started: Instant::now(), told: false, ended: false, held: Some(held) }
    }

    /// Tells the outcome before the run is over: its user need not wait for what can't be stopped. No new run can
    /// begin yet, and what is told later is not heard.
    pub fn tell_early(&mut self, outcome: Outcome) {
        if !std::mem::replace(&mut self.told, true) {
            self.completion.finish(outcome, self.started.elapsed(), None);
        }
    }

    /// Ends the run: a new one may be submitted by whoever hears of it.
    pub fn end(mut self, outcome: Outcome) {
        self.over(outcome);
    }

    fn over(&mut self, outcome: Outcome) {
        if std::mem::replace(&mut self.ended, true) {
            return;
        }
        // Bytes of memory that its owner, another process, has taken back meanwhile are nobody's.
        let held = self.held.take();
        let mut extents = held.iter().flatten().flatten();
        let outcome = outcome.and_then(|()| extents.try_for_each(ExtentHold::ensure_unchanged));
        drop(held);
        if std::mem::replace(&mut self.told, true) {
            self.busy.store(false, Ordering::Release);
        } else {
            self.completion.finish(outcome, self.started.elapsed(), Some(&self.busy));
        }
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        self.over(Err(Error::new(Status::Panic, "the transfer was given up before its end")));
    }
}
