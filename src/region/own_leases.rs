// SPDX-License-Identifier: Apache-2.0
//! The leases that this process holds on bytes of regions: the locks of [`lease_places`](super::lease_places) that say so.

use std::collections::HashSet;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::file_lock::{LockBudget, lock_shared, other_lock, unlock};
use super::lease_locks::LeaseEnd;
use super::lease_places::{BYTES, LeaseHolder, SLOTS, end_byte, header, holder_byte, pieces};
use crate::base::{LocalFd, Mutex, Result, ensure, fail, lists, log, random};

/// The maximum number of leases that a process takes of a region, and of ranges of bytes of all of them. For each lock the kernel
/// passes the others on the file.
pub const MAX_LEASES: usize = 256;
pub const MAX_RANGES: usize = 1024;
/// How often another slot is tried.
const TRIES: usize = 64;

/// The leases that this process has taken by one open of a control block.
pub struct OwnLeases {
    file: LocalFd,
    taken: Mutex<Taken>,
}

#[derive(Default)]
struct Taken {
    slots: HashSet<u64>,
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
