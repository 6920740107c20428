// SPDX-License-Identifier: Apache-2.0
//! Slots for new blocks: how many a namespace may use, and which blocks are evicted for others.

use std::collections::HashSet;

use super::block_store::{LOOK_UPS, Store};
use super::blocks::{Counts, NewBlock, Reserved};
use super::files::Files;
use super::index::{Index, Slot};
use super::key::{Key, KeyHashing};
use super::pools::Missing;
use super::record::Record;
use super::statistics::EVICTED;
use crate::base::{Count, Error, Result, Status, ensure, error, lists};

/// If there is no free slot, this fraction of all slots is freed, so that not each block has to wait for the journal.
const EVICTED_FRACTION: u64 = 64;

impl Index {
    /// Slots that are not retired.
    pub(super) fn usable(&self) -> u64 {
        self.counts.slots - self.counts.retired
    }

    /// The number of slots that a namespace may use.
    pub fn limit(&self, namespace: u32) -> u64 {
        self.pools.limit(namespace, self.usable())
    }

    fn has_quotas(&self) -> bool {
        self.limit(0) < self.usable()
    }

    fn obtainable(&self, namespace: u32) -> u64 {
        self.pools.obtainable(namespace, self.usable())
    }

    /// How many of these blocks need a slot. Those that are stored, and parents, count as used.
    pub fn new_blocks(&mut self, blocks: &[NewBlock]) -> usize {
        let mut new = 0;
        for block in blocks {
            for key in block.parent.iter().chain([&block.key]) {
                let slot = self.stored.get(key).copied();
                self.clock += 1;
                let clock = self.clock;
                slot.and_then(|slot| self.change(slot, |stored| stored.used = clock));
            }
            new += usize::from(!self.contains(&block.key) && !self.reserved.contains_key(&block.key));
        }
        new
    }

    /// What must be freed before so many new blocks have a slot.
    pub fn missing(&self, namespace: u32, new: usize) -> Missing {
        self.pools.missing(namespace, new, self.free.len(), self.usable())
    }

    /// Removes up to so many of the blocks whose slots a namespace needs. Returns the records of them, and lowers what is missing.
    pub fn evict(&mut self, namespace: u32, missing: &mut Missing, count: usize) -> Vec<Record> {
        let (usable, mut from) = (self.usable(), 0);
        self.evict_each(count, |index| index.pools.victim(namespace, missing, usable, &mut from))
    }

    /// Removes up to so many blocks of namespaces that are not in the list of them. Returns the records of them.
    pub fn evict_unlisted(&mut self, count: usize) -> Vec<Record> {
        let mut from = 0;
        self.evict_each(count, |index| index.pools.unlisted(&mut from))
    }

    fn evict_each(&mut self, count: usize, mut next: impl FnMut(&mut Self) -> Option<u32>) -> Vec<Record> {
        let mut records = Vec::new();
        while records.len() < count
            && let Some(slot) = next(self)
        {
            if let Slot::Stored(stored) = &self.slots[slot as usize] {
                self.count(stored.block.key.namespace(), |counts| counts.evicted += 1);
            }
            records.push(self.remove_slot(slot));
        }
        records
    }

    /// What is used of the slots that a namespace may have, and what is left, for messages.
    fn usage(&self, namespace: u32) -> String {
        let used = self.pools.get(namespace).map_or(0, |pool| pool.used);
        let (limit, left) = (Count(self.limit(namespace), "slot"), self.limit(0));
        let of = if namespace == 0 { "that are in no quota" } else { "of the quota" };
        let Counts { slots, retired, .. } = self.counts;
        let free = self.free.len() as u64;
        if namespace == 0 && !self.has_quotas() {
            return format!(
                "of {}, {} are used, {free} free and {retired} retired",
                Count(slots, "slot"),
                slots - free - retired
            );
        }
        format!(
            "{used} of the {limit} {of} are used; of the {slots} of the store {free} are free, {retired} retired, and {left} in no quota"
        )
    }
}

/// The first block of each key: one that is given twice needs one slot.
fn distinct(blocks: &[NewBlock]) -> Result<Vec<NewBlock>> {
    let mut keys = HashSet::with_hasher(KeyHashing::new()?);
    lists::reserved(keys.try_reserve(blocks.len()), blocks.len(), size_of::<Key>())?;
    lists::collect(blocks.iter().filter(|block| keys.insert(block.key)).copied())
}

impl<F: Files> Store<F> {
    /// Reserves a slot for each block of a namespace; `None` for blocks that are stored, or that another caller is storing. Evicts others if there are not
    /// enough free slots. Fails with BUSY, and evicts and reserves none, if that would not suffice.
    pub fn reserve(&self, blocks: &[NewBlock]) -> Result<Vec<Option<Reserved>>> {
        self.ensure_storable(blocks)?;
        let distinct = &distinct(blocks)?;
        let namespace = NewBlock::namespace_of(blocks);
        self.ensure_limit(distinct.len() as u64, namespace)?;
        loop {
            let mut can_free = true;
            // Slots of removed blocks are free after the next write of the journal, also if the caller evicts.
            while can_free && self.missing(distinct).count() > 0 {
                can_free = self.make_free(distinct)?;
            }
            match self.reserve_now(blocks) {
                // Another put has taken them meanwhile.
                Err(error) if can_free && error.status() == Status::Busy => {}
                outcome => return outcome.map_err(|error| self.full(error, distinct)),
            }
        }
    }

    fn ensure_storable(&self, blocks: &[NewBlock]) -> Result<()> {
        self.ensure_writable()?;
        blocks.iter().try_for_each(NewBlock::ensure_valid)
    }

    #[inline(never)] // it has long messages, and two callers
    fn ensure_limit(&self, count: u64, namespace: u32) -> Result<()> {
        let index = self.index.lock();
        ensure!(
            count <= index.limit(namespace),
            OutOfRange,
            "there are too few slots for {} ({}); {}",
            Count(count, "block"),
            index.usage(namespace),
            match namespace {
                0 if index.limit(0) == 0 => {
                    "lower quotas, open a namespace for these blocks, or create a store with more slots in another folder"
                }
                0 if !index.has_quotas() =>
                    "give fewer keys, or create a store with more slots in another folder",
                0 => "give fewer keys, lower quotas, or create a store with more slots in another folder",
                _ => "give fewer keys, or set a higher quota",
            }
        );
        ensure!(
            count <= index.obtainable(namespace),
            OutOfMemory,
            "too few slots are left for {} ({}): a retired slot, whose bytes were damaged, is not used again, and other namespaces keep \
             what they use of their quotas; remove their blocks, lower their quotas, or create a store in another folder",
            Count(count, "block"),
            index.usage(namespace)
        );
        Ok(())
    }

    /// The same if it has not to wait for a file; otherwise `None`.
    pub fn reserve_free(&self, blocks: &[NewBlock]) -> Option<Vec<Option<Reserved>>> {
        self.ensure_storable(blocks).ok()?;
        if self.missing(blocks).count() == 0 { self.reserve_now(blocks).ok() } else { None }
    }

    /// The slots that must be freed before all of these blocks have one.
    fn missing(&self, blocks: &[NewBlock]) -> Missing {
        let new = blocks.chunks(LOOK_UPS).map(|part| self.index.lock().new_blocks(part)).sum();
        self.index.lock().missing(NewBlock::namespace_of(blocks), new)
    }

    fn reserve_now(&self, blocks: &[NewBlock]) -> Result<Vec<Option<Reserved>>> {
        let mut reserved = Vec::new();
        lists::reserve(&mut reserved, blocks.len())?;
        let outcome = blocks.chunks(LOOK_UPS).try_for_each(|part| {
            let mut index = self.index.lock();
            part.iter().try_for_each(|block| index.reserve(*block).map(|slot| reserved.push(slot)))
        });
        match outcome {
            Ok(()) => Ok(reserved),
            Err(error) => {
                self.abandon(reserved.into_iter().flatten());
                Err(error)
            }
        }
    }

    /// What to do if too few slots can be freed.
    pub(super) fn full(&self, error: Error, blocks: &[NewBlock]) -> Error {
        if error.status() != Status::Busy {
            return error;
        }
        let namespace = NewBlock::namespace_of(blocks);
        let usage = self.index.lock().usage(namespace);
        if self.policy.evicts {
            // Others may have taken slots of their quotas meanwhile: they keep these, and to wait for them does not help.
            if let Err(error) = self.ensure_limit(blocks.len() as u64, namespace) {
                return error;
            }
            return error!(
                Busy,
                "too few blocks can be evicted for {} now: {}, or precede such blocks ({usage}); wait for the end of puts and gets, or \
                 unpin blocks",
                Count(blocks.len() as u64, "block"),
                match self.index.lock().pools.get(namespace).is_some_and(|pool| pool.used > 0) {
                    true => "the others are written, read or pinned",
                    false =>
                        "those of namespaces above their quotas, or of none, are written, read or pinned by other handles",
                }
            );
        }
        error!(
            OutOfMemory,
            "there are not enough free slots to put {} ({usage}); {}, or let the store evict them with KVMEM_EVICTION_STORE",
            Count(blocks.len() as u64, "block"),
            match (self.missing(blocks).own, namespace) {
                (0, _) => {
                    "the others are retired, or used by blocks of other namespaces or of none: remove such blocks by their handles"
                }
                (_, 0) => "remove blocks by kvmem_store_remove",
                _ => "remove blocks by kvmem_store_remove, set a higher quota",
            }
        )
    }

    /// Whether blocks can be evicted for all slots that are missing for a put of these blocks. Evicts none.
    fn can_free(&self, blocks: &[NewBlock], missing: Missing) -> bool {
        let (all, evicts) = (missing.count(), self.policy.evicts);
        let namespace = NewBlock::namespace_of(blocks);
        let own = if evicts { self.count_evictable(namespace, all, blocks) } else { 0 };
        let (mut found, mut next) = (own, Some(0));
        while let Some(from) = next
            && own >= missing.own
            && found < all
        {
            let other = {
                let index = self.index.lock();
                index.pools.evicted_for(namespace, from, index.usable(), evicts)
            };
            let Some((other, above)) = other else { break };
            found += self.count_evictable(other, (all - found).min(above as usize), &[]);
            next = other.checked_add(1);
        }
        own >= missing.own && found >= all
    }

    /// The number of blocks of a namespace that can be evicted, up to `wanted`. Without those that a put is to store: if one of them is
    /// evicted, the put needs its slot.
    fn count_evictable(&self, namespace: u32, wanted: usize, put: &[NewBlock]) -> usize {
        let all = wanted + put.len();
        let mut blocks = self.index.lock().evictable(namespace, all);
        while !self.index.lock().count_evictable(&mut blocks, LOOK_UPS) {}
        if blocks.found < all {
            // All that there are were counted.
            self.in_steps(put.iter(), |index, block| blocks.exclude(index, &block.key));
        }
        blocks.found.min(wanted)
    }

    /// Evicts blocks, and ends the quarantine of their slots. Returns false, and evicts none, if slots are missing, and not all of them can be
    /// freed.
    pub(super) fn make_free(&self, blocks: &[NewBlock]) -> Result<bool> {
        let mut pending = self.journal.lock();
        if pending.is_behind {
            // Puts that fail, as on a full disk, do not empty the store.
            return self.write_pending(&mut pending).map(|()| true);
        }
        let (namespace, missing) = (NewBlock::namespace_of(blocks), self.missing(blocks));
        let quarantined = self.index.lock().quarantine.len();
        if !self.can_free(blocks, missing.after_freeing(quarantined).least()) {
            return Ok(false);
        }
        let fraction = self.index.lock().limit(namespace) / EVICTED_FRACTION;
        // The write below frees those in quarantine. They are no help to a namespace that is above its quota.
        let mut wanted = missing.after_freeing(quarantined);
        let count = match self.policy.evicts {
            true => {
                wanted = wanted.at_least(fraction as usize);
                wanted.count()
            }
            false => wanted.any,
        };
        // Each block that is removed has a record.
        lists::reserve(&mut pending.records, count)?;
        let mut evicted = Vec::new();
        lists::reserve(&mut evicted, count)?;
        while evicted.len() < count {
            let most = LOOK_UPS.min(count - evicted.len());
            let mut index = self.index.lock();
            let part = match self.policy.evicts {
                true => index.evict(namespace, &mut wanted, most),
                false => index.evict_unlisted(most),
            };
            drop(index);
            if part.is_empty() {
                break;
            }
            evicted.extend(part);
        }
        EVICTED.add(evicted.len() as u64);
        // Others may use by now what could be evicted before.
        let is_freed = missing.own == 0 && missing.any <= quarantined || !evicted.is_empty();
        lists::extend(&mut pending.records, evicted)?;
        self.write_pending(&mut pending)?;
        Ok(is_freed)
    }

    /// Frees reserved slots whose blocks were not written.
    pub fn abandon(&self, reserved: impl Iterator<Item = Reserved>) {
        self.in_steps(reserved, Index::abandon);
    }
}
