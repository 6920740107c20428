// SPDX-License-Identifier: Apache-2.0
//! A map with keys of blocks in many small parts. A map that grows, or cleans up after removals, moves all its entries at once: with a million
//! that takes 0.1 s, and the index is locked meanwhile. A part of this one takes less than a millisecond.

use std::hash::BuildHasher;

use hashbrown::HashTable;
use hashbrown::hash_table::Entry;

use super::key::{Key, KeyHashing};
use crate::base::{Result, lists};

/// How many entries a part has on average if the table is full. A map of 2048 buckets has space for them, and for what some have more by
/// chance.
const PART: u64 = 1480;

pub struct Table<V> {
    hashing: KeyHashing,
    parts: Vec<Part<V>>,
    count: usize,
}

struct Part<V> {
    entries: HashTable<(Key, V)>,
    /// Entries that will be inserted when there may be no memory.
    promised: usize,
}

impl<V> Table<V> {
    /// A table for up to so many entries, without memory for them.
    pub fn new(hashing: KeyHashing, entries: u64) -> Result<Self> {
        let part = || Part { entries: HashTable::new(), promised: 0 };
        let parts = lists::collect((0..entries.div_ceil(PART).max(1)).map(|_| part()))?;
        Ok(Self { hashing, parts, count: 0 })
    }

    /// The same with memory for the entries.
    pub fn with_memory(hashing: KeyHashing, entries: u64) -> Result<Self> {
        let mut table = Self::new(hashing, entries)?;
        let average = entries.div_ceil(table.parts.len() as u64);
        // No part has more than eight standard deviations more.
        let most = entries.min(average + 8 * average.isqrt());
        table.parts.iter_mut().try_for_each(|part| part.reserve(most as usize, &table.hashing))?;
        Ok(table)
    }

    pub fn len(&self) -> usize {
        self.count
    }

    pub fn get(&self, key: &Key) -> Option<&V> {
        let hash = self.hashing.hash_one(key);
        let entries = &self.parts[part_of(hash, self.parts.len())].entries;
        entries.find(hash, |(known, _)| known == key).map(|(_, value)| value)
    }

    pub fn get_mut(&mut self, key: &Key) -> Option<&mut V> {
        let (hash, part) = self.part(key);
        part.entries.find_mut(hash, |(known, _)| known == key).map(|(_, value)| value)
    }

    pub fn contains_key(&self, key: &Key) -> bool {
        self.get(key).is_some()
    }

    pub fn insert(&mut self, key: Key, value: V) {
        match self.get_mut(&key) {
            Some(known) => *known = value,
            None => _ = self.get_or_insert(key, value),
        }
    }

    /// The value of a key, which is this one if the key is new.
    pub fn get_or_insert(&mut self, key: Key, value: V) -> &mut V {
        let Self { hashing, parts, count } = self;
        let hash = hashing.hash_one(key);
        let at = part_of(hash, parts.len());
        let entries = &mut parts[at].entries;
        let entry = entries.entry(hash, |(known, _)| *known == key, |(known, _)| hashing.hash_one(known));
        *count += usize::from(matches!(entry, Entry::Vacant(_)));
        &mut entry.or_insert((key, value)).into_mut().1
    }

    pub fn remove(&mut self, key: &Key) -> Option<V> {
        let (hash, part) = self.part(key);
        let found = part.entries.find_entry(hash, |(known, _)| known == key).ok()?;
        let ((_, value), _) = found.remove();
        self.count -= 1;
        Some(value)
    }

    /// Makes space for a key beside those that were promised to be inserted.
    pub fn make_space(&mut self, key: &Key) -> Result<()> {
        let hashing = self.hashing.clone();
        let (_, part) = self.part(key);
        part.reserve(part.promised + 1, &hashing)
    }

    /// Keeps the space that was made for a key, until [`Self::end_promise`].
    pub fn promise(&mut self, key: &Key) {
        self.part(key).1.promised += 1;
    }

    pub fn end_promise(&mut self, key: &Key) {
        let (_, part) = self.part(key);
        part.promised = part.promised.saturating_sub(1);
    }

    /// The hash of a key, which is computed once, and its part.
    fn part(&mut self, key: &Key) -> (u64, &mut Part<V>) {
        let hash = self.hashing.hash_one(key);
        let at = part_of(hash, self.parts.len());
        (hash, &mut self.parts[at])
    }
}

/// The map of a part uses other bits of the hash: the lowest and the highest ones.
fn part_of(hash: u64, parts: usize) -> usize {
    let middle = hash >> 20 & u64::from(u32::MAX);
    ((middle * parts as u64) >> 32) as usize
}

impl<V> Part<V> {
    fn reserve(&mut self, entries: usize, hashing: &KeyHashing) -> Result<()> {
        let outcome = self.entries.try_reserve(entries, |(known, _)| hashing.hash_one(known));
        outcome.map_err(|_| lists::no_memory(entries, size_of::<(Key, V)>()))
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::key;
    use super::*;

    /// How many entries the largest part has, which are moved at once.
    fn largest<V>(table: &Table<V>) -> u64 {
        table.parts.iter().map(|part| part.entries.len() as u64).max().unwrap()
    }

    #[test]
    fn no_part_has_many_entries_however_many_the_table_has() {
        const ENTRIES: u64 = 100_000;
        let hashing = KeyHashing::new().unwrap();
        let mut table = Table::with_memory(hashing.clone(), ENTRIES).unwrap();
        let capacity =
            |table: &Table<u64>| Vec::from_iter(table.parts.iter().map(|part| part.entries.capacity()));
        let before = capacity(&table);
        (0..ENTRIES).for_each(|number| table.insert(key(number), number));
        assert_eq!(capacity(&table), before, "no part has grown");
        assert!(largest(&table) < 2 * PART, "{}", largest(&table));
        // One without memory grows by its parts.
        let mut growing = Table::new(hashing, ENTRIES).unwrap();
        (0..ENTRIES).for_each(|number| *growing.get_or_insert(key(number), 0) += number);
        assert!(largest(&growing) < 2 * PART, "{}", largest(&growing));
        for number in 0..ENTRIES {
            assert_eq!(
                (table.get(&key(number)), growing.remove(&key(number))),
                (Some(&number), Some(number))
            );
        }
        assert_eq!((table.len(), growing.len(), growing.remove(&key(0))), (ENTRIES as usize, 0, None));
    }

    #[test]
    fn a_promised_entry_has_space_until_it_is_inserted() {
        let mut table = Table::new(KeyHashing::new().unwrap(), 64).unwrap();
        let capacity = |table: &Table<()>| table.parts[0].entries.capacity();
        for number in 0..64 {
            table.make_space(&key(number)).unwrap();
            table.promise(&key(number));
        }
        let before = capacity(&table);
        assert!(before >= 64 && table.len() == 0);
        for number in 0..64 {
            table.insert(key(number), ());
            table.end_promise(&key(number));
        }
        assert_eq!((capacity(&table), table.parts[0].promised), (before, 0));
    }
}
