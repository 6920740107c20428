// SPDX-License-Identifier: Apache-2.0
//! The order of eviction, holds, pins and quarantine.

use super::key;
use crate::store::Key;
use crate::store::NewBlock;
use crate::store::blocks::*;
use crate::store::index::*;

fn put(index: &mut Index, number: u64, parent: Option<u64>) {
    let block = NewBlock { key: key(number), parent: parent.map(key) };
    let reserved = index.reserve(block).unwrap().unwrap();
    index.publish(reserved, number as u32);
}

fn hold(index: &mut Index, keys: &[Key]) -> Vec<Located> {
    keys.iter().map_while(|key| index.hold(key)).collect()
}

/// The numbers of the keys in the order in which they are evicted.
fn evicted(index: &mut Index) -> Vec<u64> {
    let mut order = Vec::new();
    loop {
        let before: Vec<u64> = (0..20).filter(|number| index.contains(&key(*number))).collect();
        if index.evict(1).is_empty() {
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
fn a_cycle_of_parents_is_evicted() {
    let mut index = Index::new(8).unwrap();
    put(&mut index, 1, Some(3));
    put(&mut index, 2, Some(1));
    put(&mut index, 3, Some(2));
    assert_eq!(evicted(&mut index).len(), 3);
    let own = NewBlock { key: key(1), parent: Some(key(1)) };
    assert!(index.reserve(own).is_err());
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
    index.hold_in(0..4, 4, &mut shown);
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
    index.publish(reserved, 1);
    assert!(index.reserve(block).unwrap().is_none());
    put(&mut index, 2, None);
    assert!(index.remove(&key(1)).is_some() && index.remove(&key(1)).is_none());
    assert!(index.reserve(block).is_err(), "its slot is in quarantine");
    index.end_quarantine();
    let again = index.reserve(block).unwrap().unwrap();
    index.abandon(again);
    let run = hold(&mut index, &[key(2)]);
    assert!(index.retire(&run[0]).is_some() && index.retire(&run[0]).is_none());
    assert_eq!((index.counts().retired, index.free.len()), (1, 1));
}
