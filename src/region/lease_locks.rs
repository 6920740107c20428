// SPDX-License-Identifier: Apache-2.0
//! Leases on bytes of a region, as locks on its control block: the kernel keeps them, so that no process can take or end one for
//! another, and it releases them when the process ends in any way. It keeps no data with a lock, and names no process: what a lease
//! says of itself is where its locks are ([`lease_places`](super::lease_places)).
//!
//! A process that has the file can lock whatever it wants, so a question stops after a time.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

use super::file_lock::{FileLock, LockBudget, lock_shared, other_lock, unlock};
use super::lease_places::{
    ALL, BYTES, LeaseHolder, Level, NEVER, SLOTS, end_byte, end_of, header, holder_byte, holder_of, holders,
    pieces,
};
use crate::base::{LocalFd, Mutex, Result, ensure, fail, lists, log, random};

/// The maximum number of leases that a process takes of a region, and of ranges of bytes of all of them. For each lock the kernel
/// passes the others on the file.
pub const MAX_LEASES: usize = 256;
pub const MAX_RANGES: usize = 1024;
/// The maximum number of leases of all processes that are found at a time.
const MAX_FOUND: usize = 1024;
/// How often another slot is tried.
const TRIES: usize = 64;

/// Why a lease is not renewed.
pub const LEASE_IS_OVER: &str = "the lease is over, and the owner may have reused its blocks since; lease them again, and compare their epochs";

/// When a lease ends, on a clock that goes on while the machine is suspended, and that cannot be set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct LeaseEnd(u64);

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
fn now() -> Duration {
    let now = clock_gettime(ClockId::Boottime);
    let [seconds, nanoseconds] = [now.tv_sec, now.tv_nsec].map(|part| u64::try_from(part).unwrap_or(0));
    Duration::new(seconds, nanoseconds as u32)
}

fn milliseconds(time: Duration) -> u64 {
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

/// The leases that this process has taken by one open of a control block.
pub struct OwnLeases {
    file: LocalFd,
    taken: Mutex<Taken>,
}

#[derive(Default)]
struct Taken {
    slots: BTreeSet<u64>,
    ranges: usize,
}

impl OwnLeases {
    pub(super) fn new(file: LocalFd) -> Self {
        Self { file, taken: Mutex::default() }
    }

    /// Enters a slot, unless this process uses it.
    fn enter(&self, slot: u64, ranges: usize) -> Result<bool> {
        let mut taken = self.taken.lock();
        ensure!(
            taken.slots.len() < MAX_LEASES && ranges <= MAX_RANGES.saturating_sub(taken.ranges),
            OutOfMemory,
            "this process has {} leases of the region, with {} ranges of bytes, and the new one has {ranges}; at most {MAX_LEASES} \
             leases and {MAX_RANGES} ranges are possible: destroy leases, or lease fewer blocks",
            taken.slots.len(),
            taken.ranges
        );
        let is_new = taken.slots.insert(slot);
        if is_new {
            taken.ranges += ranges;
        }
        Ok(is_new)
    }

    fn leave(&self, slot: u64, ranges: usize) {
        let mut taken = self.taken.lock();
        taken.slots.remove(&slot);
        taken.ranges -= ranges;
    }
}

/// A lease of this process on bytes of one region.
struct SlotLease {
    own: Arc<OwnLeases>,
    slot: u64,
    holder: LeaseHolder,
    ranges: Vec<Range<u64>>,
}

impl SlotLease {
    /// Locks the bytes; `None` if the slot is used. The lease begins with its end.
    fn take(
        bytes: &LeasedBytes,
        slot: u64,
        holder: LeaseHolder,
        budget: &LockBudget,
    ) -> Result<Option<Self>> {
        let LeasedBytes { own, ranges } = bytes;
        let ranges = lists::collect(ranges.iter().cloned())?;
        if other_lock(&own.file, header(slot))?.is_some() || !own.enter(slot, ranges.len())? {
            return Ok(None);
        }
        let this = Self { own: own.clone(), slot, holder, ranges };
        let first = holder_byte(slot, holder);
        lock_shared(&own.file, first..first + 1)?;
        // Each of two processes that take a slot at the same time has locked a byte of it before it looks again.
        if other_lock(&own.file, header(slot))?.is_some() {
            return Ok(None);
        }
        for piece in this.pieces() {
            lock_shared(&own.file, piece)?;
            ensure!(
                !budget.is_spent(),
                Busy,
                "there are so many locks on the control block of the region that a lease takes too long; destroy leases, or \
                 close the region in processes that have many"
            );
        }
        Ok(Some(this))
    }

    fn pieces(&self) -> impl Iterator<Item = Range<u64>> {
        self.ranges.iter().flat_map(|range| pieces(range, self.slot))
    }

    /// Has it end at a time, if that is later.
    fn extend(&self, end: LeaseEnd) -> Result<()> {
        lock_shared(&self.own.file, holder_byte(self.slot, self.holder)..end_byte(self.slot, end.0) + 1)
    }

    /// Has it end at a time, if that is earlier than another one.
    fn shorten(&self, from: LeaseEnd, to: LeaseEnd) -> Result<()> {
        match from > to {
            true => unlock(&self.own.file, end_byte(self.slot, to.0) + 1..end_byte(self.slot, from.0) + 1),
            false => Ok(()),
        }
    }
}

impl Drop for SlotLease {
    /// In a forked child the file is closed, and the locks are the parent's. The header is last: until then no other lease has the slot.
    fn drop(&mut self) {
        if !self.own.file.is_own() {
            return;
        }
        let mut locked = self.pieces().chain(std::iter::once(header(self.slot)));
        match locked.try_for_each(|bytes| unlock(&self.own.file, bytes)) {
            Ok(()) => self.own.leave(self.slot, self.ranges.len()),
            Err(error) => log!(Warn, "end a lease: {error}; the kernel ends it with this process"),
        }
    }
}

/// What is leased of one region: ranges in ascending order that do not touch each other.
pub struct LeasedBytes {
    pub own: Arc<OwnLeases>,
    pub ranges: Vec<Range<u64>>,
}

/// A lease of this process on bytes of some regions.
pub struct RegionLease {
    slots: Vec<SlotLease>,
    /// Changed by one renewal at a time.
    end: AtomicU64,
    renewals: Mutex<()>,
}

impl RegionLease {
    pub fn take(regions: &[LeasedBytes], holder: LeaseHolder, end: LeaseEnd) -> Result<Self> {
        for LeasedBytes { ranges, .. } in regions {
            ensure!(
                ranges.last().is_none_or(|last| last.end <= BYTES),
                Unsupported,
                "leases are for the first {} bytes of a region",
                BYTES
            );
        }
        let budget = LockBudget::default();
        for _ in 0..TRIES {
            // The same in all regions: by that an owner knows that it is one lease.
            let slot = u64::from_le_bytes(random()?) % SLOTS;
            let mut slots = Vec::new();
            while let Some(bytes) = regions.get(slots.len()) {
                match SlotLease::take(bytes, slot, holder, &budget)? {
                    Some(taken) => lists::push(&mut slots, taken)?,
                    None => break,
                }
            }
            if slots.len() == regions.len() {
                slots.iter().try_for_each(|slot| slot.extend(end))?;
                return Ok(Self { slots, end: AtomicU64::new(end.0), renewals: Mutex::default() });
            }
        }
        fail!(
            Busy,
            "processes have locked each of {TRIES} slots for leases in the control block of the region"
        )
    }

    /// Has it end at another time. Fails if it is over, and then changes its end in no region.
    pub fn renew(&self, end: LeaseEnd) -> Result<()> {
        let _turn = self.renewals.lock();
        let last = self.end();
        last.ensure_to_come()?;
        self.replace(last, end)
    }

    fn replace(&self, last: LeaseEnd, end: LeaseEnd) -> Result<()> {
        let extended = self.slots.iter().try_for_each(|slot| slot.extend(end));
        // The last end may pass meanwhile, as in a process that is stopped: then the owner has seen no lease.
        if let Err(error) = extended.and_then(|()| last.ensure_to_come()) {
            self.slots.iter().try_for_each(|slot| slot.shorten(end, last))?;
            return Err(error);
        }
        let shortened = self.slots.iter().try_for_each(|slot| slot.shorten(last, end));
        // If it was in some regions, it is restored there, or else its holder relies on no more than the new end.
        if shortened.is_err() && self.slots.iter().try_for_each(|slot| slot.extend(last)).is_ok() {
            return shortened;
        }
        self.end.store(end.0, Ordering::Release);
        shortened
    }

    pub fn end(&self) -> LeaseEnd {
        LeaseEnd(self.end.load(Ordering::Acquire))
    }

    /// As in the middle of a renewal, which has reached one region.
    #[cfg(test)]
    pub fn extend_one(&self, region: usize, end: LeaseEnd) -> Result<()> {
        self.slots[region].extend(end)
    }
}

#[cfg(test)]
mod tests;
