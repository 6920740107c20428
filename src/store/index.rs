// SPDX-License-Identifier: Apache-2.0
//! Which key is in which slot, and what can be evicted. Pure.
//!
//! The least recently used blocks are evicted first, and leaves before their parents: a prefix keeps its head as long as it has
//! another block. A block is a parent by its key, whichever of the two is stored first.

use std::sync::Arc;

use super::blocks::{Counts, Located, NewBlock, Reserved, Written};
use super::key::{Key, KeyHashing};
use super::pools::Pools;
use super::record::Record;
use super::seal::Seal;
use super::table::Table;
use crate::base::{Result, ensure, fail, lists};

pub(super) enum Slot {
    /// Also while it is in quarantine.
    Free,
    Reserved(NewBlock),
    Stored(Stored),
    Retired,
}

pub(super) struct Stored {
    pub(super) block: NewBlock,
    pub(super) checksum: u32,
    pub(super) seal: Option<Arc<Seal>>,
    /// The clock when it was stored.
    since: u64,
    /// The clock at its last use.
    pub(super) used: u64,
    pub(super) children: u32,
    /// Above that of its parent.
    pub(super) rank: i64,
    /// The number of a count of evictable blocks, and how many children it has counted.
    pub(super) counted: (u32, u32),
    /// Reads in progress.
    holds: u32,
    pub(super) is_pinned: bool,
    /// It will be removed: no read begins.
    pub(super) is_hidden: bool,
}

impl Stored {
    pub(super) fn hold(&mut self, slot: u32) -> Located {
        self.holds += 1;
        Located { slot, checksum: self.checksum, since: self.since, seal: self.seal.clone() }
    }

    /// Whether it is read or pinned.
    pub(super) fn is_kept(&self) -> bool {
        self.holds > 0 || self.is_pinned
    }

    fn is_evictable(&self) -> bool {
        self.children == 0 && !self.is_kept()
    }
}

/// The stored children of a block that is not stored.
pub(super) struct Orphans {
    pub(super) count: u32,
    /// No child has a rank below this one.
    pub(super) rank: i64,
}

pub struct Index {
    pub(super) slots: Vec<Slot>,
    pub(super) stored: Table<u32>,
    pub(super) reserved: Table<u32>,
    /// Parents that are not stored, with their children that are.
    pub(super) absent_parents: Table<Orphans>,
    pub(super) pools: Pools,
    /// Not while the journal is replayed, and in the index of a reader, which evicts nothing.
    lists_evictable: bool,
    pub(super) free: Vec<u32>,
    pub(super) quarantine: Vec<u32>,
    pub(super) clock: u64,
    /// That of the last count of evictable blocks.
    pub(super) count_number: u32,
    pub(super) counts: Counts,
    /// Ancestors that were looked at.
    #[cfg(test)]
    pub visits: std::cell::Cell<usize>,
}

impl Index {
    pub fn new(count: u64) -> Result<Self> {
        let hashing = KeyHashing::new()?;
        Ok(Self {
            slots: lists::collect((0..count).map(|_| Slot::Free))?,
            stored: Table::with_memory(hashing.clone(), count)?,
            reserved: Table::new(hashing.clone(), count)?,
            absent_parents: Table::new(hashing, count)?,
            pools: Pools::default(),
            lists_evictable: true,
            free: lists::collect((0..count as u32).rev())?,
            quarantine: Vec::new(),
            clock: 0,
            count_number: 0,
            counts: Counts { slots: count, ..Counts::default() },
            #[cfg(test)]
            visits: Default::default(),
        })
    }

    /// For the records of a journal.
    pub fn to_replay(count: u64) -> Result<Self> {
        Ok(Self { lists_evictable: false, ..Self::new(count)? })
    }

    /// Applies a record of the journal. [`Self::end_replay`] follows the last one, unless it is the index of a reader.
    pub fn replay(&mut self, record: Record) -> Result<()> {
        let (Record::Stored { slot, .. } | Record::Removed { slot } | Record::Retired { slot }) = record;
        let count = self.slots.len();
        ensure!(slot < count as u64, Corrupt, "the index names slot {slot} of a store with {count} slots");
        self.take(slot as u32);
        match record {
            Record::Stored { slot, key, parent, checksum, seal } => {
                // If the record of its removal was damaged.
                if let Some(before) = self.stored.get(&key).copied() {
                    self.take(before);
                }
                self.store(slot as u32, NewBlock { key, parent }, checksum, seal);
            }
            Record::Removed { .. } => {}
            Record::Retired { slot } => self.set_retired(slot as u32),
        }
        Ok(())
    }

    pub fn clock(&self) -> u64 {
        self.clock
    }

    /// Stores all blocks later than that.
    pub fn after(self, clock: u64) -> Self {
        Self { clock, ..self }
    }

    /// Goes on counting as the index of a reader whose journal was replaced.
    pub fn follow(&mut self, before: &Self) {
        self.counts = Counts { retired: self.counts.retired, ..before.counts };
        self.pools.follow(&before.pools);
    }

    /// Sets the quota of a namespace.
    pub fn set_quota(&mut self, namespace: u32, slots: u64) {
        self.pools.set_quota(namespace, slots);
    }

    /// Whether a slot still has the block that was located there.
    pub fn has(&self, block: &Located) -> bool {
        matches!(&self.slots[block.slot as usize], Slot::Stored(stored) if stored.since == block.since)
    }

    /// Lists the slots that are free, and those that can be evicted. To keep the second list during the replay would take as long as all
    /// else: most blocks get children.
    pub fn end_replay(&mut self) {
        let slots = &self.slots;
        self.free.retain(|slot| matches!(slots[*slot as usize], Slot::Free));
        let evictable = slots.iter().zip(0..).filter_map(|(state, slot)| match state {
            Slot::Stored(stored) if stored.is_evictable() => {
                Some((stored.block.key.namespace(), stored.used, slot))
            }
            _ => None,
        });
        self.pools.list(evictable);
        self.lists_evictable = true;
    }

    pub fn contains(&self, key: &Key) -> bool {
        self.stored.contains_key(key)
    }

    /// Reserves a slot for a block. `None` if its key is stored, or a slot is reserved for it.
    pub fn reserve(&mut self, block: NewBlock) -> Result<Option<Reserved>> {
        if self.contains(&block.key) || self.reserved.contains_key(&block.key) {
            return Ok(None);
        }
        // Without memory nothing has changed, and what is stored later needs none.
        self.reserved.make_space(&block.key)?;
        block.parent.iter().try_for_each(|parent| self.absent_parents.make_space(parent))?;
        let (namespace, usable) = (block.key.namespace(), self.usable());
        let has_space = self.pools.has_space(namespace, usable);
        let Some(slot) = has_space.then(|| self.free.pop()).flatten() else { fail!(Busy, "no slot is free") };
        self.pools.take(namespace, usable);
        block.parent.iter().for_each(|parent| self.absent_parents.promise(parent));
        self.reserved.insert(block.key, slot);
        self.slots[slot as usize] = Slot::Reserved(block);
        Ok(Some(Reserved(slot)))
    }

    /// The record that makes the block of a reserved slot a stored one.
    pub fn record(&self, Written { slot, checksum, seal }: &Written) -> Option<Record> {
        let Slot::Reserved(NewBlock { key, parent }) = self.slots[slot.0 as usize] else { return None };
        let (slot, checksum, seal) = (slot.0.into(), *checksum, seal.clone());
        Some(Record::Stored { slot, key, parent, checksum, seal })
    }

    /// Makes the block of a reserved slot visible.
    pub fn publish(&mut self, Written { slot, checksum, seal }: Written) {
        if let Some((slot, block)) = self.unreserve(slot) {
            self.store(slot, block, checksum, seal);
        }
    }

    /// Frees a reserved slot.
    pub fn abandon(&mut self, reserved: Reserved) {
        if let Some((slot, _)) = self.unreserve(reserved) {
            self.free.push(slot);
        }
    }

    fn unreserve(&mut self, Reserved(slot): Reserved) -> Option<(u32, NewBlock)> {
        let Slot::Reserved(block) = self.slots[slot as usize] else { return None };
        self.reserved.remove(&block.key);
        block.parent.iter().for_each(|parent| self.absent_parents.end_promise(parent));
        self.pools.of_mut(block.key.namespace()).used -= 1;
        self.slots[slot as usize] = Slot::Free;
        Some((slot, block))
    }

    /// Holds the block of a key, if it is stored.
    pub fn hold(&mut self, key: &Key) -> Option<Located> {
        let slot = self.stored.get(key).copied()?;
        self.clock += 1;
        let clock = self.clock;
        self.change(slot, |stored| {
            (!stored.is_hidden).then(|| {
                stored.used = clock;
                stored.hold(slot)
            })
        })?
    }

    /// Counts the blocks of a get.
    pub fn count_get(&mut self, namespace: u32, hits: usize, misses: usize) {
        self.count(namespace, |counts| {
            counts.hits += hits as u64;
            counts.misses += misses as u64;
        });
    }

    /// Counts for the store and for a namespace.
    pub(super) fn count(&mut self, namespace: u32, count: impl Fn(&mut Counts)) {
        count(&mut self.counts);
        count(&mut self.pools.of_mut(namespace).counts);
    }

    pub fn release(&mut self, block: &Located) {
        self.change(block.slot, |stored| stored.holds = stored.holds.saturating_sub(1));
    }

    /// Protects a block from eviction, or no longer. Returns false if it is not stored.
    pub fn pin(&mut self, key: &Key, is_pinned: bool) -> bool {
        let slot = self.stored.get(key).copied();
        slot.and_then(|slot| self.change(slot, |stored| stored.is_pinned = is_pinned)).is_some()
    }

    /// Has no read of a block begin, so that it can be removed. Returns false if it is read now.
    pub fn hide(&mut self, key: &Key) -> bool {
        let slot = self.stored.get(key).copied();
        let hide = |stored: &mut Stored| {
            stored.is_hidden = stored.holds == 0;
            stored.is_hidden
        };
        slot.and_then(|slot| self.change(slot, hide)).unwrap_or(true)
    }

    /// Ends that.
    pub fn show(&mut self, key: &Key) {
        let slot = self.stored.get(key).copied();
        slot.and_then(|slot| self.change(slot, |stored| stored.is_hidden = false));
    }

    /// Removes a hidden block; its slot is in quarantine then. Returns the record of it, unless the key is not stored.
    pub fn remove(&mut self, key: &Key) -> Option<Record> {
        let slot = self.stored.get(key).copied();
        slot.map(|slot| self.remove_slot(slot))
    }

    pub(super) fn remove_slot(&mut self, slot: u32) -> Record {
        self.take(slot);
        self.quarantine.push(slot);
        Record::Removed { slot: slot.into() }
    }

    /// Removes the block of a slot, if it is of that namespace, and returns the record of it. Fails if it is read now.
    pub fn remove_of(&mut self, namespace: u32, slot: u32) -> Option<std::result::Result<Record, ()>> {
        match &self.slots[slot as usize] {
            Slot::Stored(stored) if stored.block.key.namespace() == namespace => {
                Some(if stored.holds > 0 { Err(()) } else { Ok(self.remove_slot(slot)) })
            }
            _ => None,
        }
    }

    /// Removes the block of a slot whose bytes are damaged; the slot is not used again. Returns the record of it, unless another reader
    /// was first.
    pub fn retire(&mut self, &Located { slot, .. }: &Located) -> Option<Record> {
        let Some(Slot::Stored(stored)) = self.slots.get(slot as usize) else { return None };
        self.count(stored.block.key.namespace(), |counts| counts.damaged += 1);
        self.take(slot);
        self.set_retired(slot);
        Some(Record::Retired { slot: slot.into() })
    }

    /// Frees up to so many slots in quarantine: the records of their removal are in the journal. Returns whether some are left.
    pub fn end_quarantine(&mut self, count: usize) -> bool {
        let left = self.quarantine.len().saturating_sub(count);
        self.free.extend(self.quarantine.drain(left..));
        left > 0
    }

    pub fn counts(&self) -> Counts {
        Counts { stored: self.stored.len() as u64, ..self.counts }
    }

    /// Those of a namespace, whose slots are those of its quota.
    pub fn counts_of(&self, namespace: u32) -> Counts {
        let (slots, pool) = (self.limit(namespace), self.pools.get(namespace));
        pool.map_or(Counts { slots, ..Counts::default() }, |pool| Counts { slots, ..pool.counts })
    }

    fn store(&mut self, slot: u32, mut block: NewBlock, checksum: u32, seal: Option<Arc<Seal>>) {
        let orphans = self.absent_parents.remove(&block.key).unwrap_or(Orphans::NONE);
        let mut parent = block.parent.and_then(|parent| self.stored.get(&parent).copied());
        let rank = self.rank(&block, parent, &orphans).unwrap_or_else(|| {
            // The blocks of a cycle would never be leaves.
            (block.parent, parent) = (None, None);
            orphans.first_rank()
        });
        self.clock += 1;
        let (since, used) = (self.clock, self.clock);
        let stored = Stored {
            block,
            checksum,
            seal,
            since,
            used,
            children: orphans.count,
            rank,
            counted: (0, 0),
            holds: 0,
            is_pinned: false,
            is_hidden: false,
        };
        self.slots[slot as usize] = Slot::Stored(stored);
        let pool = self.pools.of_mut(block.key.namespace());
        pool.used += 1;
        pool.counts.stored += 1;
        self.stored.insert(block.key, slot);
        self.change(slot, |_| ());
        match (parent, block.parent) {
            (Some(parent), _) => drop(self.change(parent, |parent| parent.children += 1)),
            (None, Some(parent)) => {
                let orphans = self.absent_parents.get_or_insert(parent, Orphans::NONE);
                orphans.count += 1;
                orphans.rank = orphans.rank.min(rank);
            }
            (None, None) => {}
        }
    }

    /// Removes the block of a slot, if it has one, from all lists; the slot is free then.
    fn take(&mut self, slot: u32) {
        let before = std::mem::replace(&mut self.slots[slot as usize], Slot::Free);
        self.counts.retired -= u64::from(matches!(before, Slot::Retired));
        let Slot::Stored(stored) = before else { return };
        let pool = self.pools.of_mut(stored.block.key.namespace());
        pool.used -= 1;
        pool.counts.stored -= 1;
        if self.lists_evictable {
            pool.evictable.remove(&(stored.used, slot));
        }
        self.stored.remove(&stored.block.key);
        if stored.children > 0 {
            let orphans = Orphans { count: stored.children, rank: stored.rank + 1 };
            self.absent_parents.insert(stored.block.key, orphans);
        }
        let Some(parent) = stored.block.parent else { return };
        match self.stored.get(&parent).copied() {
            Some(parent) => drop(self.change(parent, |parent| parent.children -= 1)),
            None => {
                if let Some(orphans) = self.absent_parents.get_mut(&parent) {
                    orphans.count -= 1;
                    if orphans.count == 0 {
                        self.absent_parents.remove(&parent);
                    }
                }
            }
        }
    }

    fn set_retired(&mut self, slot: u32) {
        self.slots[slot as usize] = Slot::Retired;
        self.counts.retired += 1;
    }

    /// Changes a stored block, and its place among those that can be evicted. `None` if the slot has no block.
    pub(super) fn change<T>(&mut self, slot: u32, change: impl FnOnce(&mut Stored) -> T) -> Option<T> {
        let Some(Slot::Stored(stored)) = self.slots.get_mut(slot as usize) else { return None };
        let before = (stored.used, slot);
        let result = change(stored);
        let (after, is_evictable) = ((stored.used, slot), stored.is_evictable());
        if self.lists_evictable {
            let evictable = &mut self.pools.of_mut(stored.block.key.namespace()).evictable;
            if before != after || !is_evictable {
                evictable.remove(&before);
            }
            if is_evictable {
                evictable.insert(after);
            }
        }
        Some(result)
    }
}
