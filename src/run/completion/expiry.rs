// SPDX-License-Identifier: Apache-2.0
//! The end of a run at its deadline.

use super::{Completion, Last, Limit};
use crate::base::atomic::Ordering;
use crate::base::{Error, Milliseconds, error, log};
use crate::run::deadline::{Deadline, Expires};
use crate::run::state::MemoryUse;

impl Completion {
    /// The outcome of the run in flight at its deadline.
    fn timed_out(&self, limit: &Limit, bytes: u64) -> Error {
        let of_layers = bytes / self.layers.max(1) * self.moved.load(Ordering::Acquire);
        let moved = self.moved_bytes.load(Ordering::Relaxed).max(of_layers).min(bytes);
        let Limit { after, what, advice } = limit;
        let after = Milliseconds(*after);
        error!(
            TimedOut,
            "{what} was not complete after {after}: at least {moved} of {bytes} bytes have moved. {advice}"
        )
    }
}

impl Expires for Completion {
    /// The end is reported at once, because parts that have begun may never end.
    fn expire(&self, deadline: Deadline) {
        let is_its = |last: &Last| last.deadline.as_ref() == Some(&deadline);
        let range = Some(self.last()).filter(|last| is_its(last)).map(|_| self.shown.take());
        drop(range);
        let mut last = self.last();
        let is_its = last.deadline.take_if(|known| *known == deadline).is_some();
        let Some(limit) = last.account.limit.clone().filter(|_| is_its) else { return };
        self.is_cancelled.store(true, Ordering::Release);
        let error = self.timed_out(&limit, last.account.bytes);
        log!(Warn, "transfer {}: {error}", self.log_id);
        self.report(last, Err(error), self.clock.elapsed(), MemoryUse::GoesOn);
    }
}
