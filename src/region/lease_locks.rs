// SPDX-License-Identifier: Apache-2.0
//! Leases on bytes of a region, as locks on its control block: the kernel keeps them, so that no process can take or end one for
//! another, and it releases them when the process ends in any way. It keeps no data with a lock, and names no process: what a lease
//! says of itself is where its locks are ([`lease_places`](super::lease_places)).
//!
//! A process that has the file can lock whatever it wants, so a question stops after a time.

use std::collections::BTreeMap;
use std::ops::Range;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

use super::file_lock::{FileLock, LockBudget};
use super::lease_places::{
    ALL, BYTES, LeaseHolder, Level, NEVER, end_byte, end_of, header, holder_of, holders,
};
use crate::base::{Result, ensure, lists};

/// The maximum number of leases of all processes that are found at a time.
pub(super) const MAX_FOUND: usize = 1024;

/// Why a lease is not renewed.
pub const LEASE_IS_OVER: &str = "the lease is over, and the owner may have reused its blocks since; lease them again, and compare their epochs";

/// When a lease ends, on a clock that goes on while the machine is suspended, and that cannot be set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct LeaseEnd(pub(super) u64);

impl LeaseEnd {
    /// After a duration from now on, rounded up; never without one.
    pub fn after(duration: Option<Duration>) -> Self {
        let end = duration.and_then(|duration| now().checked_add(duration));
        let end = end.and_then(|end| u64::try_from(end.as_nanos().div_ceil(1_000_000)).ok());
        Self(end.map_or(NEVER, |end| end.min(NEVER)))
    }

    /// The time until then, rounded up: 0 after it, `None` if it is never.
    pub fn remaining(self) -> Option<Duration> {
        self.since(milliseconds(now()))
    }

    /// The same, rounded down, as its holder may rely on it.
    pub fn guaranteed(self) -> Option<Duration> {
        self.since(now().as_nanos().div_ceil(1_000_000) as u64)
    }

    fn since(self, now: u64) -> Option<Duration> {
        (self.0 < NEVER).then(|| Duration::from_millis(self.0.saturating_sub(now)))
    }

    /// So much earlier.
    pub fn earlier_by(self, duration: Duration) -> Self {
        Self(self.0.saturating_sub(milliseconds(duration)))
    }

    /// Whether it has passed.
    pub fn is_over(self) -> bool {
        self.remaining() == Some(Duration::ZERO)
    }

    /// Fails if it may have passed.
    pub fn ensure_to_come(self) -> Result<()> {
        ensure!(self.guaranteed() != Some(Duration::ZERO), Stale, "{LEASE_IS_OVER}");
        Ok(())
    }

    /// An end that has passed.
    pub const fn passed() -> Self {
        Self(0)
    }

    /// When a lease of an unknown process ends.
    pub const fn never() -> Self {
        Self(NEVER)
    }
}

/// The time since this machine started.
pub(super) fn now() -> Duration {
    let now = clock_gettime(ClockId::Boottime);
    let [seconds, nanoseconds] = [now.tv_sec, now.tv_nsec].map(|part| u64::try_from(part).unwrap_or(0));
    Duration::new(seconds, nanoseconds as u32)
}

pub(super) fn milliseconds(time: Duration) -> u64 {
    time.as_millis() as u64
}

/// A lease that was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FoundLease {
    /// Its number.
    pub slot: u64,
    pub holder: LeaseHolder,
    pub end: LeaseEnd,
}

impl FoundLease {
    /// By this it is known in another region. Its end may be about to change there.
    pub fn identity(&self) -> (u64, LeaseHolder) {
        (self.slot, self.holder)
    }
}

/// The leases on some ranges of bytes.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Leased {
    /// Those that are not over, and the indices of the ranges of which each has bytes.
    pub leases: Vec<(FoundLease, Vec<usize>)>,
    /// The indices of ranges that may have more leases: locks hide them, there was no time to look, or there are too many.
    pub unknown: Vec<usize>,
}

/// The leases that all processes have on bytes of one region.
pub struct LeaseLocks<'a> {
    /// An open of the file that has no leases.
    file: &'a FileLock,
    budget: &'a LockBudget,
    /// Those with locks.
    levels: Vec<Level>,
}

impl<'a> LeaseLocks<'a> {
    pub(super) fn new(file: &'a FileLock, budget: &'a LockBudget) -> Result<Self> {
        let mut levels = Vec::new();
        let may_be_locked = |bytes| Ok(budget.is_spent() || file.has_others(bytes)?);
        if may_be_locked(ALL)? {
            for level in Level::all() {
                if may_be_locked(level.area())? {
                    lists::push(&mut levels, level)?;
                }
            }
        }
        Ok(Self { file, budget, levels })
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.levels.is_empty()
    }

    /// Those on some ranges, which are in ascending order and apart from each other.
    pub fn on(&self, ranges: &[Range<u64>]) -> Result<Leased> {
        let asked = &ranges[..ranges.partition_point(|range| range.start < BYTES)];
        let unknown = lists::collect(asked.iter().map(|_| false))?;
        let mut search = Search { locks: self, asked, found: BTreeMap::new(), num_found: 0, unknown };
        if !search.all()? {
            search.unknown.fill(true);
        }
        let mut leased = Leased::default();
        for (lease, mut indices) in search.found.into_values().flatten() {
            indices.sort_unstable();
            indices.dedup();
            lists::push(&mut leased.leases, (lease, indices))?;
        }
        let unknown = search.unknown.iter().enumerate().filter(|(_, is_unknown)| **is_unknown);
        lists::extend(&mut leased.unknown, unknown.map(|(index, _)| index))?;
        Ok(leased)
    }

    /// The lease of a slot, if it is not over. Its end is locked last, so one that is being taken is none.
    fn lease(&self, slot: u64) -> Result<Option<FoundLease>> {
        let (mut end, mut holder) = (None, None);
        let mut later = end_byte(slot, milliseconds(now()) + 1)..header(slot).end - 1;
        // Other processes can add ends. With many of them it never ends: a search has a limit.
        for looks in 0..4 {
            let Some(locked) = self.file.any_other(later.clone())? else { break };
            end = Some(if looks < 3 { end_of(slot, &locked) } else { NEVER });
            holder = holder.or_else(|| holder_of(slot, &locked));
            later.start = locked.end;
            if later.is_empty() {
                break;
            }
        }
        let Some(end) = end else { return Ok(None) };
        if holder.is_none() {
            holder = self.file.any_other(holders(slot))?.and_then(|locked| holder_of(slot, &locked));
        }
        let holder = holder.unwrap_or(LeaseHolder::UNKNOWN);
        Ok(Some(FoundLease { slot, holder, end: LeaseEnd(end) }))
    }
}

/// One question.
struct Search<'a> {
    locks: &'a LeaseLocks<'a>,
    asked: &'a [Range<u64>],
    /// By its slot each lease, unless it is over, and the indices of ranges, each once or more.
    found: BTreeMap<u64, Option<(FoundLease, Vec<usize>)>>,
    num_found: usize,
    /// Of each range.
    unknown: Vec<bool>,
}

impl Search<'_> {
    /// Returns false if there are too many leases, or there is no time to find all.
    fn all(&mut self) -> Result<bool> {
        for level in &self.locks.levels {
            if !self.level(*level)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Adds what is locked of chunks of one size. A lock that is found divides the span in which it was in two.
    fn level(&mut self, level: Level) -> Result<bool> {
        let mut spans = Vec::from_iter(std::iter::once(level.area()));
        while let Some(span) = spans.pop() {
            let Some(span) = level.narrowed(self.asked, &span) else { continue };
            if self.locks.budget.is_spent() {
                return Ok(false);
            }
            let Some(locked) = self.locks.file.any_other(span.clone())? else { continue };
            let within = locked.start.max(span.start)..locked.end.min(span.end);
            let indices = level.meeting(self.asked, &within);
            match level.slot_of(&locked) {
                Some(slot) if self.add(slot, &indices)? => {}
                Some(_) => return Ok(false),
                // It hides what else is in these cells.
                None => self.unknown[indices].fill(true),
            }
            let around = [span.start..within.start, within.end..span.end];
            lists::extend(&mut spans, around.into_iter().filter(|rest| !rest.is_empty()))?;
        }
        Ok(true)
    }

    /// Adds ranges, if any, to the lease of a slot, if it is not over.
    fn add(&mut self, slot: u64, indices: &Range<usize>) -> Result<bool> {
        if indices.is_empty() {
            return Ok(true);
        }
        if !self.found.contains_key(&slot) {
            if self.locks.budget.is_spent() {
                return Ok(false);
            }
            let lease = self.locks.lease(slot)?;
            if lease.is_some() && self.num_found == MAX_FOUND {
                return Ok(false);
            }
            self.num_found += usize::from(lease.is_some());
            self.found.insert(slot, lease.map(|lease| (lease, Vec::new())));
        }
        if let Some(Some((_, known))) = self.found.get_mut(&slot) {
            lists::extend(known, indices.clone())?;
        }
        Ok(true)
    }
}
