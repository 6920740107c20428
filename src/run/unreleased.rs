// SPDX-License-Identifier: Apache-2.0
//! Memory that a run may still write after its end was reported: at its deadline, or because a request cannot be cancelled. A run
//! of another transfer into these bytes would be overwritten after it has succeeded, so it does not begin.
#![forbid(unsafe_code)]

use std::sync::atomic::{AtomicUsize, Ordering};

use crate::base::error::{Error, Result, Status};
use crate::base::lists;
use crate::base::log_id::LogId;
use crate::base::process::PerProcess;
use crate::base::sync::Mutex;
use crate::plan::Plan;

/// The runs of this process that have ended and still use their memory, and what they write in memory of this process.
#[derive(Default)]
pub struct Unreleased {
    /// Their number, which a run that begins reads without the lock.
    count: AtomicUsize,
    runs: Mutex<Vec<(LogId, Plan)>>,
}

impl Unreleased {
    /// Those of this process.
    pub fn get() -> &'static Self {
        static UNRELEASED: PerProcess<Unreleased> = PerProcess::new();
        UNRELEASED.get(Self::default)
    }

    /// Adds the run of a transfer, which has one at a time.
    pub(super) fn add(&self, transfer: LogId, plan: Plan) {
        let mut runs = self.runs.lock();
        runs.push((transfer, plan));
        self.count.store(runs.len(), Ordering::Release);
    }

    /// Removes the run of a transfer when it no longer uses its memory.
    pub(super) fn remove(&self, transfer: LogId) {
        if self.count.load(Ordering::Acquire) == 0 {
            return;
        }
        let mut runs = self.runs.lock();
        let index = runs.iter().position(|(known, _)| *known == transfer);
        let removed = index.map(|index| runs.swap_remove(index));
        self.count.store(runs.len(), Ordering::Release);
        drop(runs);
        drop(removed);
    }

    /// Fails if one of them may still write where a plan writes. Both write to memory of this process.
    #[inline]
    pub fn ensure_apart(&self, plan: &Plan) -> Result<()> {
        if self.count.load(Ordering::Acquire) == 0 { Ok(()) } else { self.compare(plan) }
    }

    #[cold]
    fn compare(&self, plan: &Plan) -> Result<()> {
        let runs = lists::collect(self.runs.lock().iter().cloned())?;
        let new = written(plan)?;
        runs.iter().try_for_each(|(transfer, old)| match common(&written(old)?, &new) {
            Some(address) => Err(still_written(*transfer, address)),
            None => Ok(()),
        })
    }
}

/// The ranges of addresses that a plan writes, each with its end, in order.
fn written(plan: &Plan) -> Result<Vec<(u64, u64)>> {
    let ranges = plan.footprints(1).map(|(_, address, size)| (address, address + size));
    let mut ranges = lists::collect(ranges)?;
    ranges.sort_unstable();
    Ok(ranges)
}

/// The first address that is in both.
fn common(old: &[(u64, u64)], new: &[(u64, u64)]) -> Option<u64> {
    let mut old = old.iter().peekable();
    new.iter().find_map(|(start, end)| {
        while old.next_if(|(_, old_end)| old_end <= start).is_some() {}
        old.peek().filter(|(old_start, _)| old_start < end).map(|(old_start, _)| *start.max(old_start))
    })
}

fn still_written(transfer: LogId, address: u64) -> Error {
    let message = format!(
        "an earlier run may still write to the destination, at {address:#x}: that of transfer {transfer} has ended, as at a timeout, \
         but its memory is still in use. Move to other blocks, or submit again later"
    );
    Error::new(Status::Busy, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_common_address_is_found() {
        let old = [(10, 20), (30, 40), (50, 60)];
        assert_eq!(common(&old, &[(0, 10), (20, 30), (40, 50), (60, 70)]), None);
        assert_eq!(common(&old, &[(0, 11)]), Some(10));
        assert_eq!(common(&old, &[(20, 30), (39, 41)]), Some(39));
        assert_eq!(common(&old, &[(0, 5), (45, 100)]), Some(50));
        assert_eq!(common(&[], &[(0, 5)]), None);
    }
}
