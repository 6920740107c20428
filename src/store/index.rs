// SPDX-License-Identifier: Apache-2.0
//! Which key is in which slot, and what can be evicted. Pure.
//!
//! The least recently used blocks are evicted first, and leaves before their parents: a prefix keeps its head as long as it has
//! another block. A block is a parent by its key, whichever of the two is stored first.

use std::collections::{BTreeSet, HashMap};
use std::ops::Range;

use super::blocks::{Counts, Entry, Located, NewBlock, Reserved};
use super::key::{Key, KeyHashing};
use super::record::Record;
use crate::base::{Result, ensure, fail, lists};

enum Slot {
    /// Also while it is in quarantine.
    Free,
    Reserved(NewBlock),
    Stored(Stored),
    Retired,
}

struct Stored {
    block: NewBlock,
    checksum: u32,
    /// The clock when it was stored.
    since: u64,
    /// The clock at its last use.
    used: u64,
    children: u32,
    /// Reads in progress.
    holds: u32,
    is_pinned: bool,
    /// It will be removed: no read begins.
    is_hidden: bool,
}

impl Stored {
    fn hold(&mut self, slot: u32) -> Located {
        self.holds += 1;
        Located { slot, checksum: self.checksum, since: self.since }
    }

    fn is_evictable(&self) -> bool {
        self.children == 0 && self.holds == 0 && !self.is_pinned
    }
}

pub struct Index {
    slots: Vec<Slot>,
    stored: HashMap<Key, u32, KeyHashing>,
    reserved: HashMap<Key, u32, KeyHashing>,
    /// Parents that are not stored, with the number of their children that are.
    absent_parents: HashMap<Key, u32, KeyHashing>,
    /// By last use; `None` while the journal is replayed, and in the index of a reader, which evicts nothing.
    evictable: Option<BTreeSet<(u64, u32)>>,
    pub(super) free: Vec<u32>,
    quarantine: Vec<u32>,
    clock: u64,
    counts: Counts,
}

/// Records of slots, of which the blocks have the time of their last use.
#[derive(Default)]
pub struct ListedRecords {
    retired: Vec<Record>,
    stored: Vec<(u64, Record)>,
}

impl ListedRecords {
    /// The least recently used block first.
    pub fn in_order(mut self) -> Result<Vec<Record>> {
        self.stored.sort_unstable_by_key(|(used, _)| *used);
        lists::extend(&mut self.retired, self.stored.into_iter().map(|(_, record)| record))?;
        Ok(self.retired)
    }
}

impl Index {
    pub fn new(count: u64) -> Result<Self> {
        let hashing = KeyHashing::new()?;
        let map = || HashMap::with_hasher(hashing.clone());
        let mut stored = map();
        let entry = size_of::<(Key, u32)>();
        lists::reserved(stored.try_reserve(count as usize), count as usize, entry)?;
        Ok(Self {
            slots: lists::collect((0..count).map(|_| Slot::Free))?,
            stored,
            reserved: map(),
            absent_parents: map(),
            evictable: Some(BTreeSet::new()),
            free: lists::collect((0..count as u32).rev())?,
            quarantine: Vec::new(),
            clock: 0,
            counts: Counts { slots: count, ..Counts::default() },
        })
    }

    /// For the records of a journal.
    pub fn to_replay(count: u64) -> Result<Self> {
        Ok(Self { evictable: None, ..Self::new(count)? })
    }

    /// Applies a record of the journal. [`Self::end_replay`] follows the last one, unless it is the index of a reader.
    pub fn replay(&mut self, record: Record) -> Result<()> {
        let (Record::Stored { slot, .. } | Record::Removed { slot } | Record::Retired { slot }) = record;
        let count = self.slots.len();
        ensure!(slot < count as u64, Corrupt, "the index names slot {slot} of a store with {count} slots");
        self.take(slot as u32);
        match record {
            Record::Stored { slot, key, parent, checksum } => {
                // If the record of its removal was damaged.
                if let Some(before) = self.stored.get(&key).copied() {
                    self.take(before);
                }
                self.store(slot as u32, NewBlock { key, parent }, checksum);
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
            Slot::Stored(stored) if stored.is_evictable() => Some((stored.used, slot)),
            _ => None,
        });
        self.evictable = Some(evictable.collect());
    }

    pub fn contains(&self, key: &Key) -> bool {
        self.stored.contains_key(key)
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

    pub fn free_slots(&self) -> usize {
        self.free.len()
    }

    /// Reserves a slot for a block. `None` if its key is stored, or a slot is reserved for it.
    pub fn reserve(&mut self, block: NewBlock) -> Result<Option<Reserved>> {
        ensure!(
            block.parent != Some(block.key),
            InvalidArgument,
            "the key {:?} is its own parent: two keys in sequence are equal; give each block a key of its own, or set \
             KVMEM_STORE_UNRELATED",
            block.key
        );
        if self.contains(&block.key) || self.reserved.contains_key(&block.key) {
            return Ok(None);
        }
        // Without memory nothing has changed, and what is stored later needs none.
        let entries = self.reserved.len() + 1;
        lists::reserved(self.reserved.try_reserve(1), entries, size_of::<(Key, u32)>())?;
        lists::reserved(self.absent_parents.try_reserve(entries), entries, size_of::<(Key, u32)>())?;
        let Some(slot) = self.free.pop() else {
            fail!(Busy, "all slots of the store are written, read or pinned now")
        };
        self.reserved.insert(block.key, slot);
        self.slots[slot as usize] = Slot::Reserved(block);
        Ok(Some(Reserved(slot)))
    }

    /// The record that makes the block of a reserved slot a stored one.
    pub fn record(&self, reserved: &Reserved, checksum: u32) -> Option<Record> {
        let Slot::Reserved(NewBlock { key, parent }) = self.slots[reserved.0 as usize] else { return None };
        Some(Record::Stored { slot: reserved.0.into(), key, parent, checksum })
    }

    /// Makes the block of a reserved slot visible.
    pub fn publish(&mut self, reserved: Reserved, checksum: u32) {
        if let Some((slot, block)) = self.unreserve(reserved) {
            self.store(slot, block, checksum);
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
    pub fn count_get(&mut self, hits: usize, misses: usize) {
        self.counts.hits += hits as u64;
        self.counts.misses += misses as u64;
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

    fn remove_slot(&mut self, slot: u32) -> Record {
        self.take(slot);
        self.quarantine.push(slot);
        Record::Removed { slot: slot.into() }
    }

    /// Removes up to so many blocks. Returns the records of them.
    pub fn evict(&mut self, count: usize) -> Vec<Record> {
        let mut records = Vec::new();
        while records.len() < count
            && let Some((_, slot)) = self.evictable.as_ref().and_then(|slots| slots.first().copied())
        {
            records.push(self.remove_slot(slot));
            self.counts.evicted += 1;
        }
        records
    }

    /// Removes the block of a slot whose bytes are damaged; the slot is not used again. Returns the record of it, unless another reader
    /// was first.
    pub fn retire(&mut self, &Located { slot, .. }: &Located) -> Option<Record> {
        matches!(self.slots.get(slot as usize), Some(Slot::Stored(_))).then(|| {
            self.take(slot);
            self.set_retired(slot);
            self.counts.damaged += 1;
            Record::Retired { slot: slot.into() }
        })
    }

    /// Frees the slots in quarantine: the records of their removal are in the journal.
    pub fn end_quarantine(&mut self) {
        self.free.append(&mut self.quarantine);
    }

    /// Adds the records of some slots.
    pub fn list_records(&self, slots: Range<usize>, listed: &mut ListedRecords) -> Result<()> {
        for (slot, state) in (slots.start as u64..).zip(&self.slots[slots]) {
            match state {
                Slot::Retired => lists::push(&mut listed.retired, Record::Retired { slot })?,
                Slot::Stored(Stored { block: NewBlock { key, parent }, checksum, used, .. }) => {
                    let record = Record::Stored { slot, key: *key, parent: *parent, checksum: *checksum };
                    lists::push(&mut listed.stored, (*used, record))?;
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// The stored blocks in some slots, in the order of these. Not those that are hidden.
    pub fn entries(&self, slots: Range<usize>) -> impl Iterator<Item = Entry> {
        (slots.start as u32..).zip(&self.slots[slots]).filter_map(|(slot, state)| {
            let Slot::Stored(Stored { block, checksum, is_pinned, is_hidden: false, .. }) = state else {
                return None;
            };
            Some(Entry { slot, block: *block, checksum: *checksum, is_pinned: *is_pinned })
        })
    }

    /// Holds stored blocks in some slots, until so many are held. This is no use of them: nothing changes in the order of eviction.
    pub fn hold_in(&mut self, slots: Range<usize>, count: usize, held: &mut Vec<Located>) {
        for slot in slots.start as u32..slots.end as u32 {
            if held.len() == count {
                return;
            }
            held.extend(self.change(slot, |stored| (!stored.is_hidden).then(|| stored.hold(slot))).flatten());
        }
    }

    pub fn counts(&self) -> Counts {
        Counts { stored: self.stored.len() as u64, ..self.counts }
    }

    fn store(&mut self, slot: u32, mut block: NewBlock, checksum: u32) {
        let children = self.absent_parents.remove(&block.key).unwrap_or(0);
        if children > 0 && self.is_descendant(block) {
            // The blocks of a cycle would never be leaves.
            block.parent = None;
        }
        self.clock += 1;
        let (since, used) = (self.clock, self.clock);
        let stored =
            Stored { block, checksum, since, used, children, holds: 0, is_pinned: false, is_hidden: false };
        self.slots[slot as usize] = Slot::Stored(stored);
        self.stored.insert(block.key, slot);
        self.change(slot, |_| ());
        if let Some(parent) = block.parent {
            match self.stored.get(&parent).copied() {
                Some(parent) => drop(self.change(parent, |parent| parent.children += 1)),
                None => *self.absent_parents.entry(parent).or_default() += 1,
            }
        }
    }

    /// Whether a block that is not stored yet is an ancestor of its own parent.
    fn is_descendant(&self, block: NewBlock) -> bool {
        let mut ancestor = block.parent;
        while let Some(key) = ancestor {
            if key == block.key {
                return true;
            }
            ancestor = match self.stored.get(&key).map(|slot| &self.slots[*slot as usize]) {
                Some(Slot::Stored(stored)) => stored.block.parent,
                _ => None,
            };
        }
        false
    }

    /// Removes the block of a slot, if it has one, from all lists; the slot is free then.
    fn take(&mut self, slot: u32) {
        let before = std::mem::replace(&mut self.slots[slot as usize], Slot::Free);
        self.counts.retired -= u64::from(matches!(before, Slot::Retired));
        let Slot::Stored(stored) = before else { return };
        if let Some(evictable) = &mut self.evictable {
            evictable.remove(&(stored.used, slot));
        }
        self.stored.remove(&stored.block.key);
        if stored.children > 0 {
            self.absent_parents.insert(stored.block.key, stored.children);
        }
        let Some(parent) = stored.block.parent else { return };
        match self.stored.get(&parent).copied() {
            Some(parent) => drop(self.change(parent, |parent| parent.children -= 1)),
            None => {
                if let Some(count) = self.absent_parents.get_mut(&parent) {
                    *count -= 1;
                    if *count == 0 {
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
    fn change<T>(&mut self, slot: u32, change: impl FnOnce(&mut Stored) -> T) -> Option<T> {
        let Some(Slot::Stored(stored)) = self.slots.get_mut(slot as usize) else { return None };
        let before = (stored.used, slot);
        let result = change(stored);
        let (after, is_evictable) = ((stored.used, slot), stored.is_evictable());
        if let Some(evictable) = &mut self.evictable {
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
