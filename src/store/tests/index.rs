// SPDX-License-Identifier: Apache-2.0
//! The order of eviction, holds, pins and quarantine.

use super::key;
use crate::store::Key;
use crate::store::NewBlock;
use crate::store::block_store::LOOK_UPS;
use crate::store::blocks::*;
use crate::store::index::*;
use crate::store::pools::{MAX_LOWERED, Missing};
use crate::store::record::Record;

pub fn put(index: &mut Index, number: u64, parent: Option<u64>) {
    let block = NewBlock { key: key(number), parent: parent.map(key) };
    let reserved = index.reserve(block).unwrap().unwrap();
    publish(index, reserved, number as u32);
}

fn missing(own: usize, any: usize) -> Missing {
    Missing { own, any, ..Missing::default() }
}

fn publish(index: &mut Index, slot: Reserved, checksum: u32) {
    index.publish(Written { slot, checksum, seal: None });
}

fn hold(index: &mut Index, keys: &[Key]) -> Vec<Located> {
    keys.iter().map_while(|key| index.hold(key)).collect()
}

/// The numbers of the keys in the order in which they are evicted.
fn evicted(index: &mut Index) -> Vec<u64> {
    let mut order = Vec::new();
    loop {
        let before: Vec<u64> = (0..20).filter(|number| index.contains(&key(*number))).collect();
        if index.evict(0, &mut missing(1, 0), 1).is_empty() {
            return order;
        }
        order.extend(before.into_iter().find(|number| !index.contains(&key(*number))));
    }
}

#[test]
fn leaves_are_evicted_before_their_parents_and_old_ones_first() {
    let mut index = Index::new(8).unwrap();
    put(&mut index, 2, Some(1));
    put(&mut index, 0, None);
    put(&mut index, 1, Some(0));
    put(&mut index, 5, None);
    put(&mut index, 3, Some(1));
    let held = hold(&mut index, &[key(0), key(1), key(2), key(9)]);
    assert_eq!(held.iter().map(Located::checksum).collect::<Vec<_>>(), [0, 1, 2]);
    held.iter().for_each(|block| index.release(block));
    assert_eq!(evicted(&mut index), [5, 3, 2, 1, 0]);
}

#[test]
fn a_key_that_a_journal_stores_again_without_its_removal_has_the_later_slot_and_its_children() {
    let mut index = Index::to_replay(4).unwrap();
    for (slot, number, parent) in [(0, 1, None), (1, 2, Some(1)), (2, 1, None)] {
        let (key, parent) = (key(number), parent.map(key));
        index.replay(Record::Stored { slot, key, parent, checksum: slot as u32, seal: None }).unwrap();
    }
    index.end_replay();
    assert_eq!((index.counts().stored, index.free.len()), (2, 2));
    let held = hold(&mut index, &[key(1)]);
    assert_eq!((held[0].slot(), held[0].checksum()), (2, 2));
    held.iter().for_each(|block| index.release(block));
    assert_eq!(evicted(&mut index), [2, 1]);
}

#[test]
fn a_cycle_of_parents_is_evicted() {
    let mut index = Index::new(8).unwrap();
    put(&mut index, 1, Some(3));
    put(&mut index, 2, Some(1));
    put(&mut index, 3, Some(2));
    assert_eq!(evicted(&mut index).len(), 3);
}

#[test]
fn held_and_pinned_blocks_stay() {
    let mut index = Index::new(4).unwrap();
    (0..3).for_each(|number| put(&mut index, number, None));
    assert!(index.pin(&key(0), true) && !index.pin(&key(7), true));
    let held = hold(&mut index, &[key(1)]);
    assert!(!index.hide(&key(1)), "it is read");
    assert_eq!(evicted(&mut index), [2]);
    held.iter().for_each(|block| index.release(block));
    assert!(index.hide(&key(1)) && index.hide(&key(7)));
    assert!(index.hold(&key(1)).is_none() && index.contains(&key(1)));
    let mut shown = Vec::new();
    index.hold_in(None, 0..4, 4, &mut shown);
    assert_eq!(shown.iter().map(Located::checksum).collect::<Vec<_>>(), [0]);
    index.show(&key(1));
    shown.iter().chain(&hold(&mut index, &[key(1)])).for_each(|block| index.release(block));
    index.pin(&key(0), false);
    assert_eq!(evicted(&mut index), [0, 1]);
}

#[test]
fn one_block_of_a_key_is_stored_once_and_removed_slots_wait() {
    let mut index = Index::new(2).unwrap();
    let block = NewBlock { key: key(1), parent: None };
    let reserved = index.reserve(block).unwrap().unwrap();
    assert!(index.reserve(block).unwrap().is_none() && !index.contains(&key(1)));
    publish(&mut index, reserved, 1);
    assert!(index.reserve(block).unwrap().is_none());
    put(&mut index, 2, None);
    assert!(index.remove(&key(1)).is_some() && index.remove(&key(1)).is_none());
    assert!(index.reserve(block).is_err(), "its slot is in quarantine");
    assert!(!index.end_quarantine(usize::MAX));
    put(&mut index, 1, None);
    [1, 2].iter().for_each(|number| assert!(index.remove(&key(*number)).is_some()));
    assert!(index.end_quarantine(1) && index.free.len() == 1 && !index.end_quarantine(1));
    put(&mut index, 2, None);
    let again = index.reserve(block).unwrap().unwrap();
    index.abandon(again);
    let run = hold(&mut index, &[key(2)]);
    assert!(index.retire(&run[0]).is_some() && index.retire(&run[0]).is_none());
    assert_eq!((index.counts().retired, index.free.len()), (1, 1));
}

/// Keys of a namespace.
fn put_in(index: &mut Index, namespace: u32, numbers: std::ops::Range<u64>) -> usize {
    let mut stored = 0;
    for number in numbers {
        let block = NewBlock { key: key(number).in_namespace(namespace), parent: None };
        let Ok(Some(reserved)) = index.reserve(block) else { return stored };
        publish(index, reserved, 0);
        stored += 1;
    }
    stored
}

/// As many namespaces as a store has, with more than their quotas, and blocks that are pinned.
#[test]
fn who_evicts_many_blocks_looks_once_at_each_namespace() {
    const NAMESPACES: u32 = 4096;
    let mut index = Index::new(u64::from(2 * NAMESPACES) + 2 * LOOK_UPS as u64).unwrap();
    for namespace in 1..=NAMESPACES {
        index.set_quota(namespace, 2);
        assert_eq!(put_in(&mut index, namespace, 0..2), 2);
        (0..2).for_each(|number| assert!(index.pin(&key(number).in_namespace(namespace), true)));
        index.set_quota(namespace, 1);
    }
    assert_eq!(put_in(&mut index, 0, 0..LOOK_UPS as u64), LOOK_UPS);
    let evicted = index.evict(0, &mut missing(0, LOOK_UPS), LOOK_UPS);
    assert_eq!((evicted.len(), index.counts_of(0).stored), (LOOK_UPS, 0));
    index.set_quota(NAMESPACES + 1, LOOK_UPS as u64);
    assert_eq!(put_in(&mut index, NAMESPACES + 1, 0..LOOK_UPS as u64), LOOK_UPS);
    (1..=NAMESPACES + 1).for_each(|namespace| index.set_quota(namespace, 0));
    assert_eq!(index.evict_unlisted(LOOK_UPS).len(), LOOK_UPS);
    assert!(index.pools.looks.get() < 3 * NAMESPACES as usize, "{:?}", index.pools.looks);
}

fn stored(index: &Index) -> [u64; 3] {
    [0, 1, 2].map(|namespace| index.counts_of(namespace).stored)
}

/// Evicts for some new blocks of a namespace. Returns how many blocks of each namespace are stored then.
fn evict_for(index: &mut Index, namespace: u32, new: usize) -> [u64; 3] {
    let mut missing = index.missing(namespace, new);
    index.evict(namespace, &mut missing, usize::MAX);
    assert!(!index.end_quarantine(usize::MAX));
    stored(index)
}

#[test]
fn a_namespace_has_the_slots_of_its_quota_and_evicts_its_own_blocks() {
    let mut index = Index::new(8).unwrap();
    index.set_quota(1, 3);
    index.set_quota(2, 2);
    assert_eq!([0, 1, 2, 3].map(|namespace| index.limit(namespace)), [3, 3, 2, 0]);
    // The same keys in all three.
    assert_eq!([0, 1, 2].map(|namespace| put_in(&mut index, namespace, 0..8)), [3, 3, 2]);
    assert_eq!(index.counts().stored, 8);
    assert_eq!(evict_for(&mut index, 1, 2), [3, 1, 2]);
    assert!(!index.contains(&key(0).in_namespace(1)) && index.contains(&key(0)), "the oldest of its own");
    assert_eq!(put_in(&mut index, 0, 8..9), 0, "what one namespace has freed is not for another one");
    assert_eq!(evict_for(&mut index, 0, 1), [2, 1, 2]);
}

#[test]
fn a_quota_that_is_granted_or_lowered_later_takes_the_slots_above_it() {
    let mut index = Index::new(8).unwrap();
    assert_eq!(put_in(&mut index, 0, 0..8), 8);
    index.set_quota(1, 4);
    assert_eq!(evict_for(&mut index, 1, 3), [5, 0, 0], "those of the namespace that has more than its limit");
    assert_eq!(put_in(&mut index, 1, 0..3), 3);
    index.set_quota(1, 2);
    index.set_quota(2, 2);
    assert_eq!(evict_for(&mut index, 1, 1), [5, 1, 0], "its own first");
    assert_eq!(evict_for(&mut index, 2, 2), [5, 1, 0], "two are free");
    assert_eq!(index.missing(0, 0), Missing::default());
    assert_eq!(put_in(&mut index, 2, 0..2), 2);
    assert_eq!(index.missing(2, 1), missing(1, 0));
    assert_eq!(index.missing(0, 1), missing(2, 0));
}

#[test]
fn each_namespace_above_its_quota_is_found_also_after_none_was() {
    let mut index = Index::new(8).unwrap();
    (1..=3).for_each(|number| index.set_quota(number, 2));
    (1..=3).for_each(|number| assert_eq!(put_in(&mut index, number, 0..2), 2));
    assert_eq!(put_in(&mut index, 0, 0..2), 2);
    let held = index.hold(&key(0)).unwrap();
    // None is above: what all slots are too few for is its own.
    assert_eq!((index.evict(0, &mut missing(0, 1), 9).len(), stored(&index)), (1, [1, 2, 2]));
    index.set_quota(3, 1);
    index.set_quota(1, 1);
    let pinned = [0, 1].map(|number| key(number).in_namespace(1));
    pinned.iter().for_each(|key| assert!(index.pin(key, true)));
    // The first one has no block to give, and keeps its turn.
    assert_eq!(index.evict(2, &mut missing(0, 1), 9).len(), 1);
    assert_eq!(index.counts_of(3).stored, 1);
    pinned.iter().for_each(|key| assert!(index.pin(key, false)));
    assert_eq!(index.evict(2, &mut missing(0, 1), 9).len(), 1);
    assert_eq!(stored(&index), [1, 1, 2]);
    index.release(&held);
}

/// Puts blocks of a namespace one by one, and evicts for each. Returns the largest number that was evicted for one.
fn put_and_evict(index: &mut Index, namespace: u32, numbers: std::ops::Range<u64>) -> usize {
    let evicted = numbers.map(|number| {
        let mut missing = index.missing(namespace, 1);
        let evicted = index.evict(namespace, &mut missing, usize::MAX).len();
        assert!(!index.end_quarantine(usize::MAX));
        assert_eq!(put_in(index, namespace, number..number + 1), 1);
        evicted
    });
    evicted.max().unwrap()
}

#[test]
fn a_namespace_far_above_its_quota_loses_some_blocks_with_each_put() {
    let mut index = Index::new(6000).unwrap();
    index.set_quota(1, 5000);
    assert_eq!(put_in(&mut index, 1, 0..5000), 5000);
    index.set_quota(1, 10);
    assert_eq!(index.missing(1, 20), Missing { own: 20 + MAX_LOWERED, any: 0, credit: 20 });
    let mut before = index.counts_of(1).stored;
    for round in 0.. {
        assert!(put_and_evict(&mut index, 1, 5000 + round..5001 + round) <= 3 + 2 * MAX_LOWERED);
        let stored = index.counts_of(1).stored;
        assert!(stored < before || stored == 10, "{stored} after {before}");
        before = stored;
        if stored == 10 {
            assert!((3..5).contains(&round), "{round}");
            break;
        }
    }
    assert_eq!(put_and_evict(&mut index, 1, 6000..6030), 1);
    assert_eq!(index.counts_of(1).stored, 10, "nothing is left of what it was allowed meanwhile");
}

#[test]
fn what_a_put_has_not_used_of_a_quota_that_was_lowered_is_not_above_the_quota_later() {
    let mut index = Index::new(6000).unwrap();
    index.set_quota(1, 5000);
    assert_eq!(put_in(&mut index, 1, 0..5000), 5000);
    index.set_quota(1, 10);
    let mut missing = index.missing(1, 20);
    index.evict(1, &mut missing, usize::MAX);
    assert_eq!(index.missing(1, 20).own, 0);
    assert_eq!(put_in(&mut index, 1, 6000..6007), 7, "the put fails then");
    let rest: Vec<_> = (0..6007).map(|number| key(number).in_namespace(1)).collect();
    rest.iter().skip(10).for_each(|key| drop(index.remove(key)));
    assert!(!index.end_quarantine(usize::MAX));
    let stored = index.counts_of(1).stored as usize;
    assert_eq!(put_in(&mut index, 1, 7000..7100), 10 - stored);
}

#[test]
fn retired_slots_are_taken_from_those_in_no_quota_and_then_from_who_needs_one() {
    let mut index = Index::new(8).unwrap();
    index.set_quota(1, 4);
    index.set_quota(2, 3);
    assert_eq!(put_in(&mut index, 1, 0..4), 4);
    for (number, limit) in [(0, 0), (1, 0)] {
        let held = index.hold(&key(number).in_namespace(1)).unwrap();
        assert!(index.retire(&held).is_some());
        assert_eq!(index.limit(0), limit);
    }
    assert_eq!((put_in(&mut index, 1, 4..6), put_in(&mut index, 2, 0..3)), (2, 2));
    // It is below its quota, and there is no slot: it evicts its own.
    assert_eq!(index.missing(2, 1), missing(0, 1));
    assert_eq!(evict_for(&mut index, 2, 1), [0, 4, 1]);
}
