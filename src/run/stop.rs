// SPDX-License-Identifier: Apache-2.0
//! What threads that move bytes ask and report of a run, without access to it.

use std::sync::Arc;

use super::completion::Completion;
use super::phases::Milestone;

/// Reports whether a run was cancelled, and passes on what has moved, for threads without access to it.
#[derive(Clone, Default)]
pub struct Stop {
    /// `None` for that of no run.
    pub(super) completion: Option<Arc<Completion>>,
    pub(super) is_counting: bool,
    pub(super) progress: Option<Arc<dyn FileProgress>>,
}

impl Stop {
    /// That of no run, whose requests are reported.
    #[cfg(test)]
    pub fn reporting_to(progress: Arc<dyn FileProgress>) -> Self {
        Self { progress: Some(progress), ..Self::default() }
    }

    /// Whether the run was cancelled: then no further part may begin.
    pub fn is_asked(&self) -> bool {
        self.completion.as_ref().is_some_and(|completion| completion.is_cancelled())
    }

    /// Notes that the work has begun. The first call reads the clock.
    pub fn begun(&self) {
        self.completion.iter().for_each(|completion| completion.reach(Milestone::Begun));
    }

    /// Counts bytes that have moved, if the run has a deadline.
    pub fn count(&self, bytes: u64) {
        if let (true, Some(completion)) = (self.is_counting, &self.completion) {
            completion.add_moved(bytes);
        }
    }

    /// What the requests to a file are reported to.
    pub fn progress(&self) -> Option<&Arc<dyn FileProgress>> {
        self.progress.as_ref()
    }
}

/// Receives reports of requests to the only file of a run, on any thread, also after the run has ended.
pub trait FileProgress: Send + Sync {
    /// Whether another request may begin while requests of so many bytes have begun, and `left` bytes, with these, have not moved.
    fn may_begin(&self, _in_flight: u64, _left: u64) -> bool {
        true
    }
    /// A thread that submits requests has another one.
    fn begun(&self) {}
    /// Bytes of the file were read or written.
    fn moved(&self, _offset: u64, _size: u64) {}
}
