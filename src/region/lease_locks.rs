// SPDX-License-Identifier: Apache-2.0
//! Leases on bytes of a region, as locks on its control block: the kernel keeps them, so that no process can take or end one for
//! another, and it releases them when the process ends in any way. It keeps no data with a lock, and names no process: what a lease
//! says of itself is where its locks are. docs/share-manifest.md has that byte by byte.
//!
//! A process that has the file can lock whatever it wants, so a question stops after a number of leases, and a time.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

use super::file_lock::{FileLock, LockBudget, lock_shared, other_lock, unlock};
use crate::base::{LocalFd, Mutex, Result, ensure, fail, lists, log, random};

/// The first byte of the first slot. Each lease has a slot, whose number is random.
const FIRST: u64 = 1 << 62;
const SLOT_SIZE: u64 = 1 << 48;
const SLOTS: u64 = (1 << 14) - 1;
const ALL: Range<u64> = FIRST..FIRST + SLOTS * SLOT_SIZE;
/// In a slot: the bytes of the region that are leased.
const BYTES: Range<u64> = 0..1 << 47;
/// Then a byte whose offset is the process id, [`WRITES`] more if the holder may write.
const HOLDERS: Range<u64> = BYTES.end..BYTES.end + (1 << 46);
const WRITES: u64 = 1 << 32;
/// Then a byte whose offset is when the lease ends, in milliseconds of the lease clock. The last byte is never locked, so
/// that no lock touches one of the next slot.
const ENDS: Range<u64> = HOLDERS.end..SLOT_SIZE;
/// When a lease without an end ends.
const NEVER: u64 = ENDS.end - ENDS.start - 2;

/// The maximum number of leases that a process takes of a region, and of ranges of bytes of all of them. For each lock the kernel
/// passes the others on the file.
pub const MAX_LEASES: usize = 256;
pub const MAX_RANGES: usize = 1024;
/// The maximum number of leases of all processes that a question returns.
pub const MAX_FOUND: usize = 1024;
/// How often another slot is tried.
const TRIES: usize = 64;

/// When a lease ends, on a clock that goes on while the machine is suspended, and that cannot be set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct LeaseEnd(u64);

impl LeaseEnd {
    /// After a duration from now on; never without one.
    pub fn after(duration: Option<Duration>) -> Self {
        let duration = duration.map(|duration| duration.as_nanos().div_ceil(1_000_000));
        let end = duration.and_then(|duration| now().checked_add(u64::try_from(duration).ok()?));
        Self(end.map_or(NEVER, |end| end.min(NEVER)))
    }

    /// The time until then: 0 after it, `None` if it is never.
    pub fn remaining(self) -> Option<Duration> {
        (self.0 < NEVER).then(|| Duration::from_millis(self.0.saturating_sub(now())))
    }

    pub fn is_over(self) -> bool {
        self.remaining() == Some(Duration::ZERO)
    }

    pub const fn as_number(self) -> u64 {
        self.0
    }

    pub const fn from_number(number: u64) -> Self {
        Self(number)
    }
}

/// Milliseconds since this machine started.
fn now() -> u64 {
    let now = clock_gettime(ClockId::Boottime);
    let [seconds, nanoseconds] = [now.tv_sec, now.tv_nsec].map(|part| u64::try_from(part).unwrap_or(0));
    seconds * 1000 + nanoseconds / 1_000_000
}

/// Who has a lease, as it says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseHolder {
    /// 0 if that is unknown.
    pub pid: u32,
    pub writes: bool,
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
    /// Whether it is another part of a lease, in another region. Its end may be about to change there.
    pub fn is_part_of(&self, other: &Self) -> bool {
        (self.slot, self.holder) == (other.slot, other.holder)
    }
}

fn slot_start(slot: u64) -> u64 {
    FIRST + slot * SLOT_SIZE
}

fn part(slot: u64, part: &Range<u64>) -> Range<u64> {
    slot_start(slot) + part.start..slot_start(slot) + part.end
}

fn byte(slot: u64, part: &Range<u64>, offset: u64) -> Range<u64> {
    let first = slot_start(slot) + part.start + offset;
    first..first + 1
}

fn holder_byte(slot: u64, holder: LeaseHolder) -> Range<u64> {
    byte(slot, &HOLDERS, u64::from(holder.pid) + if holder.writes { WRITES } else { 0 })
}

/// The leases that all processes have on bytes of one region.
pub struct LeaseLocks<'a> {
    /// An open of the file that has no leases.
    file: &'a FileLock,
    budget: &'a LockBudget,
}

impl<'a> LeaseLocks<'a> {
    pub(super) fn new(file: &'a FileLock, budget: &'a LockBudget) -> Self {
        Self { file, budget }
    }

    /// Those that are not over; `None` if locks of a process hide others, or there are too many to find all.
    pub fn all(&self) -> Result<Option<Vec<FoundLease>>> {
        let mut found = Vec::new();
        let mut spans = vec![ALL];
        while let Some(span) = spans.pop() {
            let Some(locked) = self.file.any_other(span.clone())? else { continue };
            if found.len() > MAX_FOUND || self.budget.is_spent() {
                return Ok(None);
            }
            let slot = (locked.start.max(span.start) - FIRST) / SLOT_SIZE;
            let bytes = part(slot, &(0..SLOT_SIZE));
            // A lock that is in several slots hides what else is in them.
            if locked.start < bytes.start || locked.end > bytes.end {
                return Ok(None);
            }
            lists::extend(&mut found, self.lease(slot)?)?;
            let around = [span.start..bytes.start, bytes.end..span.end];
            spans.extend(around.into_iter().filter(|rest| !rest.is_empty()));
        }
        Ok((found.len() <= MAX_FOUND).then_some(found))
    }

    /// The lease of a slot, if it is not over. Its end is locked last, so one that is being taken is none.
    fn lease(&self, slot: u64) -> Result<Option<FoundLease>> {
        let mut end = None;
        let mut later = byte(slot, &ENDS, now() + 1).start..slot_start(slot) + ENDS.end;
        // One that is being renewed has two ends. With more, which other processes have locked, it never ends: a search has a limit.
        for looks in 0.. {
            let Some(locked) = self.file.any_other(later.clone())? else { break };
            let last = locked.end.min(later.end) - 1;
            end = Some(if looks < 3 { last - (slot_start(slot) + ENDS.start) } else { NEVER });
            later.start = locked.end;
            if looks == 3 || later.is_empty() {
                break;
            }
        }
        let Some(end) = end else { return Ok(None) };
        let holder = match self.file.any_other(part(slot, &HOLDERS))? {
            Some(locked) if locked.end - locked.start == 1 => {
                let number = locked.start - part(slot, &HOLDERS).start;
                LeaseHolder { pid: (number % WRITES) as u32, writes: number >= WRITES }
            }
            _ => LeaseHolder { pid: 0, writes: true },
        };
        Ok(Some(FoundLease { slot, holder, end: LeaseEnd(end.min(NEVER)) }))
    }

    /// Which of some ranges, in ascending order and apart from each other, have bytes that a lease has; `None` if there are too
    /// many locks to find them.
    pub fn leased(&self, lease: &FoundLease, ranges: &[Range<u64>]) -> Result<Option<Vec<usize>>> {
        let mut found = Vec::new();
        let mut rest = Vec::from_iter(std::iter::once(0..ranges.len()));
        while let Some(indices) = rest.pop() {
            let some = &ranges[indices.clone()];
            let (Some(first), Some(last)) = (some.first(), some.last()) else { continue };
            let all = first.start.min(BYTES.end)..last.end.min(BYTES.end);
            let locked = match all.is_empty() {
                true => None,
                false => self.file.any_other(part(lease.slot, &all))?,
            };
            let Some(locked) = locked else { continue };
            if self.budget.is_spent() {
                return Ok(None);
            }
            let offset = |byte: u64| byte.saturating_sub(slot_start(lease.slot));
            let (start, end) = (offset(locked.start), offset(locked.end));
            let before = indices.start + some.partition_point(|range| range.end <= start);
            let after = indices.start + some.partition_point(|range| range.start < end);
            lists::extend(&mut found, before..after)?;
            rest.extend([indices.start..before, after..indices.end]);
        }
        Ok(Some(found))
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
            "this process has {} leases of a region, of {} separate ranges of bytes, and needs another of {ranges}; at most \
             {MAX_LEASES} leases and {MAX_RANGES} ranges are possible: destroy leases, or lease fewer blocks",
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
    ranges: usize,
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
        if other_lock(&own.file, part(slot, &(0..SLOT_SIZE)))?.is_some() || !own.enter(slot, ranges.len())? {
            return Ok(None);
        }
        let this = Self { own: own.clone(), slot, ranges: ranges.len() };
        lock_shared(&own.file, holder_byte(slot, holder))?;
        // Each of two processes that take a slot at the same time has locked a byte of it before it looks again.
        if other_lock(&own.file, part(slot, &(0..SLOT_SIZE)))?.is_some() {
            return Ok(None);
        }
        for range in ranges {
            lock_shared(&own.file, part(slot, range))?;
            ensure!(
                !budget.is_spent(),
                Busy,
                "there are so many locks on the control block of the region that a lease takes too long; destroy leases, or \
                 close the region in processes that have many"
            );
        }
        Ok(Some(this))
    }

    fn lock_end(&self, end: LeaseEnd) -> Result<()> {
        lock_shared(&self.own.file, byte(self.slot, &ENDS, end.0))
    }

    fn unlock_end(&self, end: LeaseEnd) -> Result<()> {
        unlock(&self.own.file, byte(self.slot, &ENDS, end.0))
    }
}

impl Drop for SlotLease {
    /// In a forked child the file is closed, and the locks are the parent's.
    fn drop(&mut self) {
        if !self.own.file.is_own() {
            return;
        }
        match unlock(&self.own.file, part(self.slot, &(0..SLOT_SIZE))) {
            Ok(()) => self.own.leave(self.slot, self.ranges),
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
    end: Mutex<Option<LeaseEnd>>,
}

impl RegionLease {
    pub fn take(regions: &[LeasedBytes], holder: LeaseHolder, end: LeaseEnd) -> Result<Self> {
        for LeasedBytes { ranges, .. } in regions {
            ensure!(
                ranges.last().is_none_or(|last| last.end <= BYTES.end),
                Unsupported,
                "leases are for the first {} bytes of a region",
                BYTES.end
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
                let this = Self { slots, end: Mutex::default() };
                this.set_end(end)?;
                return Ok(this);
            }
        }
        fail!(
            Busy,
            "processes have locked each of {TRIES} slots for leases in the control block of the region"
        )
    }

    /// Begins or renews the lease. The old end is released when the new one is locked in all regions: it has one at any time, and keeps
    /// the old one everywhere if this fails.
    pub fn set_end(&self, end: LeaseEnd) -> Result<()> {
        let mut current = self.end.lock();
        if *current == Some(end) {
            return Ok(());
        }
        if let Err(error) = self.slots.iter().try_for_each(|slot| slot.lock_end(end)) {
            // Otherwise some regions would keep the new end, also after later renewals.
            self.slots.iter().try_for_each(|slot| slot.unlock_end(end))?;
            return Err(error);
        }
        match current.replace(end) {
            Some(old) => self.slots.iter().try_for_each(|slot| slot.unlock_end(old)),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests;
