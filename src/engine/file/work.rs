// SPDX-License-Identifier: Apache-2.0
//! Reads or writes for io_uring or for threads.

use std::sync::Arc;

use super::file_requests::{FileRequest, FileRequests};
use super::planned::RequestSource;
use crate::base::{Error, Mutex, MutexGuard, Result, guarded, log};
use crate::run::completion::Outcome;
use crate::run::{FileProgress, Run, Stop, cancelled};

/// Some requests. The outcome is reported once the kernel no longer uses any memory that they name.
pub struct Work {
    pub requests: RequestSource,
    /// Whether the caller cancelled those that have not begun.
    pub stop: Stop,
    /// What the outcome is reported to.
    pub ending: Ending,
}

/// Receives the outcome of work, on any thread.
pub enum Ending {
    OfRun(Run),
    /// It is a part of a run, in a slot.
    OfSlot {
        to: Arc<dyn SlotOutcomes>,
        /// The index of the slot.
        slot: usize,
    },
}

/// Receives the outcomes of work in slots.
pub trait SlotOutcomes: Send + Sync {
    fn add(&self, slot: usize, outcome: Outcome);
}

#[cfg(test)]
impl<F: Fn(Outcome) + Send + Sync> SlotOutcomes for F {
    fn add(&self, _slot: usize, outcome: Outcome) {
        self(outcome);
    }
}

impl Ending {
    pub fn report(self, outcome: Outcome) {
        match self {
            Self::OfRun(run) => run.end(outcome),
            Self::OfSlot { to, slot } => to.add(slot, outcome),
        }
    }
}

/// Work in progress. Threads take requests of it, and those that are woken late still have it: it is empty when its end is reported, so
/// that it holds nothing of the run then.
pub struct FileJob(Mutex<Option<WorkLeft>>);

/// A request that was taken: its list and its index.
pub type Taken = (Arc<FileRequests>, usize);

/// What a request reports: that it has begun, or the bytes that it has moved. This may wake a thread, or compare blocks. So it is made without
/// a lock, and the thread of a ring submits first what can begin.
#[must_use]
pub struct Report(Arc<dyn FileProgress>, Option<FileRequest>);

impl Report {
    pub fn make(self) {
        match self.1 {
            None => self.0.begun(),
            Some(moved) => self.0.moved(moved.offset, moved.size),
        }
    }
}

struct WorkLeft {
    work: Work,
    /// Number of requests that have begun and not ended, and their bytes.
    executing: usize,
    in_flight: u64,
    /// Bytes of all requests that have not ended.
    bytes: u64,
    /// The next request waits for the end of another one.
    is_held_back: bool,
    /// The first failure; nothing begins after it.
    failure: Option<Error>,
}

impl FileJob {
    pub fn new(work: Work) -> Arc<Self> {
        let bytes = work.requests.sizes().0;
        let left = WorkLeft { work, executing: 0, in_flight: 0, bytes, is_held_back: false, failure: None };
        Arc::new(Self(Mutex::new(Some(left))))
    }

    /// Bytes of all requests, and the most requests there can be, if none was taken.
    pub fn sizes(&self) -> (u64, u64) {
        self.left().as_ref().map_or((0, 0), |left| left.work.requests.sizes())
    }

    /// The next request. There is none if the caller cancelled the run, or after a failure. The first call after a window lists the
    /// next one, while other threads execute the rest of it.
    pub fn take(&self) -> Option<(Taken, Option<Report>)> {
        self.left().as_mut()?.take()
    }

    /// Whether the next request may begin. If not, [`Self::goes_on`] says when it may.
    pub fn may_begin(&self) -> bool {
        self.left().as_mut().is_none_or(WorkLeft::may_begin)
    }

    /// After the end of a request: whether another one may have waited for it.
    pub fn goes_on(&self) -> bool {
        self.left().as_mut().is_some_and(|left| std::mem::take(&mut left.is_held_back))
    }

    /// Whether requests have not begun.
    pub fn has_more(&self) -> bool {
        self.left().as_ref().is_some_and(WorkLeft::has_more)
    }

    /// Handles the end of a request.
    pub fn ended(&self, outcome: Result<FileRequest>) -> Option<Report> {
        self.left().as_mut()?.ended(outcome)
    }

    /// Prevents further requests from beginning. Those that have begun end.
    pub fn fail(&self, error: Error) {
        if let Some(left) = &mut *self.left() {
            left.fail(error);
        }
    }

    /// Reports the end if all requests have ended. Returns whether they have.
    pub fn end_if_over(&self) -> bool {
        let ended = self.left().take_if(|left| left.is_over());
        if let Some(left) = ended {
            left.report();
        }
        self.left().is_none()
    }

    /// Reports the end of work that the kernel no longer executes, and of which nothing more begins.
    pub fn end_with(&self, error: Error) {
        let left = self.left().take();
        if let Some(mut left) = left {
            left.fail(error);
            left.report();
        }
    }

    /// The same for several.
    pub fn end_all(jobs: impl IntoIterator<Item = Arc<Self>>, error: &Error) {
        end_each(jobs, |job| job.end_with(error.clone()));
    }

    /// Reports the end if the caller cancelled the run and no request has begun, or all that have begun have ended: a thread that takes
    /// requests may wait for a file system that does not respond.
    pub fn end_if_cancelled(&self) {
        let is_cancelled = self.left().as_mut().is_some_and(WorkLeft::fail_if_cancelled);
        if is_cancelled {
            self.end_if_over();
        }
    }

    fn left(&self) -> MutexGuard<'_, Option<WorkLeft>> {
        self.0.lock()
    }
}

/// Ends several runs. If a panic ends one of them, dropping it has reported its end, and the others end as well.
pub fn end_each<T>(runs: impl IntoIterator<Item = T>, end: impl Fn(T)) {
    for run in runs {
        if let Err(panic) = guarded(|| end(run)) {
            log!(Error, "panic at the end of a run: {panic}");
        }
    }
}

impl WorkLeft {
    fn take(&mut self) -> Option<(Taken, Option<Report>)> {
        self.fail_if_cancelled();
        let taken = self.work.requests.take().unwrap_or_else(|error| {
            self.fail(error);
            None
        })?;
        // These may panic: only a request that is returned is one whose end is awaited.
        let size = taken.0.get(taken.1).size;
        self.work.stop.begun();
        let begun = self.report_of(None);
        self.executing += 1;
        self.in_flight += size;
        Some((taken, begun))
    }

    fn may_begin(&mut self) -> bool {
        let may_begin = |progress: &Arc<dyn FileProgress>| progress.may_begin(self.in_flight, self.bytes);
        self.is_held_back =
            self.executing > 0 && self.has_more() && !self.work.stop.progress().is_none_or(may_begin);
        !self.is_held_back
    }

    fn has_more(&self) -> bool {
        !self.work.requests.is_over()
    }

    /// Returns whether the caller cancelled requests that have not begun.
    fn fail_if_cancelled(&mut self) -> bool {
        let is_cancelled = self.has_more() && self.work.stop.is_asked();
        if is_cancelled {
            self.fail(cancelled());
        }
        is_cancelled
    }

    fn ended(&mut self, outcome: Result<FileRequest>) -> Option<Report> {
        self.executing -= 1;
        let request = outcome.map_err(|error| self.fail(error)).ok()?;
        self.in_flight -= request.size;
        self.bytes = self.bytes.saturating_sub(request.size);
        self.work.stop.count(request.size);
        self.report_of(Some(request))
    }

    fn report_of(&self, moved: Option<FileRequest>) -> Option<Report> {
        self.work.stop.progress().map(|progress| Report(progress.clone(), moved))
    }

    fn fail(&mut self, error: Error) {
        self.work.requests.clear();
        self.failure.get_or_insert(error);
    }

    fn is_over(&self) -> bool {
        self.executing == 0 && !self.has_more()
    }

    /// Drops all but what the outcome is reported to, and reports it.
    fn report(self) {
        let Self { work: Work { requests, stop, ending }, failure, .. } = self;
        drop((requests, stop));
        ending.report(failure.map_or(Ok(()), Err));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_at_the_end_of_a_run_does_not_prevent_the_ends_of_others() {
        let ended = Mutex::new(Vec::new());
        end_each(0..3, |run| {
            assert!(run != 1, "deliberate");
            ended.lock().push(run);
        });
        assert_eq!(*ended.lock(), [0, 2]);
    }
}
