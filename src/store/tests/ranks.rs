// SPDX-License-Identifier: Apache-2.0
//! Blocks that are stored after their children, and cycles of parents.

use std::collections::{BTreeMap, BTreeSet};

use super::index::put;
use super::key;
use crate::base::random::random;
use crate::store::index::{Index, Slot};
use crate::store::key::Key;

/// Numbers that differ with each run of the tests.
struct Random(u64);

impl Random {
    fn new() -> Self {
        Self(u64::from_le_bytes(random::<8>().unwrap()) | 1)
    }

    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) % end
    }

    fn shuffle(&mut self, numbers: &mut [u64]) {
        (1..numbers.len()).for_each(|at| numbers.swap(at, self.below(at as u64 + 1) as usize));
    }
}

const LENGTH: u64 = 4096;

fn put_chain(index: &mut Index, numbers: impl IntoIterator<Item = u64>) {
    numbers.into_iter().for_each(|number| put(index, number, Some(number + 1)));
}

/// A block has the next number as its parent, so 0 is the last one of the chain. What is never stored is its begin.
#[test]
fn blocks_of_a_long_prefix_are_stored_in_any_order_with_few_looks_at_their_ancestors() {
    let mut random = Random::new();
    let mut shuffled: Vec<u64> = (0..LENGTH).collect();
    random.shuffle(&mut shuffled);
    let half = |first: u64| Vec::from_iter((first..LENGTH).step_by(2));
    let reversed = |numbers: Vec<u64>| Vec::from_iter(numbers.into_iter().rev());
    let orders = [
        (0..LENGTH).rev().collect(),
        (0..LENGTH).collect(),
        [half(0), half(1)].concat(),
        [reversed(half(1)), reversed(half(0))].concat(),
        [half(0), reversed(half(1))].concat(),
        shuffled,
    ];
    for order in orders {
        let mut index = Index::new(LENGTH).unwrap();
        put_chain(&mut index, order.iter().copied());
        // Those that were damaged, or removed, are stored again.
        for again in [half(1), reversed(half(0)), (1000..2000).collect()] {
            again.iter().for_each(|number| assert!(index.remove(&key(*number)).is_some()));
            assert!(!index.end_quarantine(usize::MAX));
            put_chain(&mut index, again.into_iter().rev());
        }
        let visits = index.visits.get() as u64;
        assert!(visits < 32 * LENGTH, "{visits} for {LENGTH} blocks in the order {:?}…", &order[..8]);
    }
}

/// The parents of the stored blocks.
fn parents(index: &Index) -> BTreeMap<u64, Option<u64>> {
    let number = |key: Key| u64::from_le_bytes(key.bytes()[..8].try_into().unwrap());
    let entries = index.entries(0, 0..index.slots.len());
    entries.map(|entry| (number(entry.block.key), entry.block.parent.map(number))).collect()
}

fn assert_ranks(index: &Index) {
    for slot in &index.slots {
        let Slot::Stored(stored) = slot else { continue };
        let Some(parent) = stored.block.parent else { continue };
        match index.stored.get(&parent).map(|slot| &index.slots[*slot as usize]) {
            Some(Slot::Stored(parent)) => assert!(parent.rank < stored.rank),
            _ => assert!(index.absent_parents.get(&parent).unwrap().rank <= stored.rank),
        }
    }
}

/// Whether a block that is not stored is an ancestor of a parent.
fn precedes(stored: &BTreeMap<u64, Option<u64>>, number: u64, parent: Option<u64>) -> bool {
    let mut ancestor = parent;
    while let Some(at) = ancestor.filter(|at| *at != number) {
        ancestor = stored.get(&at).copied().flatten();
    }
    ancestor.is_some()
}

#[test]
fn a_block_has_the_parent_that_it_is_put_with_unless_it_precedes_that() {
    const KEYS: u64 = 12;
    let (mut random, mut cycles) = (Random::new(), 0);
    for _ in 0..200 {
        let (mut index, mut expected) = (Index::new(KEYS).unwrap(), BTreeMap::new());
        for _ in 0..200 {
            let (number, parent) = (random.below(KEYS), random.below(KEYS + 1));
            if expected.remove(&number).is_some() {
                assert!(index.remove(&key(number)).is_some() && !index.end_quarantine(usize::MAX));
            } else if number != parent {
                let parent = Some(parent).filter(|parent| *parent < KEYS);
                put(&mut index, number, parent);
                let is_cycle = precedes(&expected, number, parent);
                cycles += u64::from(is_cycle);
                expected.insert(number, parent.filter(|_| !is_cycle));
            }
            assert_eq!(parents(&index), expected);
            assert_ranks(&index);
        }
        let absent: BTreeSet<_> =
            expected.values().flatten().filter(|at| !expected.contains_key(at)).collect();
        assert_eq!(index.absent_parents.len(), absent.len());
    }
    assert!(cycles > 100, "{cycles}");
}
