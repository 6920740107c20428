// SPDX-License-Identifier: Apache-2.0
//! A put that cannot succeed evicts nothing, and one that can is not refused.

use std::sync::Arc;

use super::namespaces::config;
use super::recorded::RecordedFiles;
use super::*;
use crate::base::{Error, Status};
use crate::store::Namespace;

struct Full {
    store: Store<RecordedFiles>,
    files: RecordedFiles,
}

/// A store with these blocks in no namespace, each with its parent.
fn full(blocks: &[(u64, Option<u64>)]) -> Full {
    let files = RecordedFiles::empty();
    let full = Full { store: open(&files, Durability::Strict).unwrap(), files };
    let blocks: Vec<_> = blocks.iter().map(|(number, parent)| (*number, *parent, 1)).collect();
    put(&full.store, &full.files, &blocks).unwrap();
    full
}

/// Eight blocks, the first of which are a chain, each the parent of the next one.
fn chain(length: u64) -> Full {
    let parent = |number: u64| number.checked_sub(1).filter(|_| number < length);
    full(&Vec::from_iter((0..SLOTS).map(|number| (number, parent(number)))))
}

fn new_blocks(space: &Namespace, count: u64) -> Vec<NewBlock> {
    (100..100 + count).map(|number| space.block(NewBlock { key: key(number), parent: None })).collect()
}

impl Full {
    fn pin(&self, space: &Namespace, numbers: impl Iterator<Item = u64>) {
        self.store.pin(numbers.map(|number| space.key(key(number))), true).unwrap();
    }

    fn space(&self, name: &str, quota: u64) -> Arc<Namespace> {
        self.store.open_namespace(&config(name, quota, None)).unwrap()
    }

    fn put_in(&self, space: &Namespace, numbers: std::ops::Range<u64>) {
        let blocks: Vec<_> =
            numbers.map(|number| space.block(NewBlock { key: key(number), parent: None })).collect();
        let reserved = self.store.reserve(&blocks).unwrap().into_iter().flatten();
        self.store.commit(reserved.map(|slot| Written { slot, checksum: 0, seal: None }).collect()).unwrap();
    }

    /// A put of so many new blocks fails, and leaves all that is stored.
    fn refuses(&self, space: &Namespace, count: u64) -> Error {
        self.refuses_blocks(&new_blocks(space, count), Status::Busy)
    }

    fn refuses_blocks(&self, blocks: &[NewBlock], status: Status) -> Error {
        let before = self.store.counts();
        let error = self.store.reserve(blocks).unwrap_err();
        assert_eq!(error.status(), status, "{error}");
        assert_eq!(self.store.counts(), before, "blocks were evicted for a put that failed: {error}");
        error
    }

    /// A put of so many new blocks evicts as many as it has to.
    fn takes(&self, space: &Namespace, count: u64, evicted: u64) {
        self.takes_blocks(&new_blocks(space, count), evicted);
    }

    fn takes_blocks(&self, blocks: &[NewBlock], evicted: u64) {
        let before = self.store.counts().evicted;
        let reserved = self.store.reserve(blocks).unwrap();
        assert_eq!(reserved.iter().flatten().count(), blocks.len());
        assert_eq!(self.store.counts().evicted - before, evicted);
        self.store.abandon(reserved.into_iter().flatten());
    }
}

#[test]
fn pinned_blocks_and_those_that_are_read() {
    let none = Namespace::default();
    let full = chain(0);
    full.pin(&none, 0..1);
    let run = full.store.hold_run(&[key(5)]).unwrap();
    let error = full.refuses(&none, 7);
    assert!(error.message().contains("the others are written, read or pinned, or precede such"), "{error}");
    full.takes(&none, 6, 6);
    full.store.release(run);
}

#[test]
fn blocks_that_precede_a_pinned_one() {
    let none = Namespace::default();
    for (pinned, left) in [(7, 0), (3, 4), (1, 6), (0, 7)] {
        let full = chain(8);
        full.pin(&none, pinned..pinned + 1);
        full.refuses(&none, left + 1);
        full.takes(&none, left, left);
    }
    chain(8).takes(&none, 8, 8);
}

#[test]
fn parents_of_several_blocks() {
    let none = Namespace::default();
    let parents = [0, 0, 0, 2, 2, 0].map(Some);
    let tree: Vec<_> = (0..).zip([None].into_iter().chain(parents)).chain([(7, None)]).collect();
    full(&tree).takes(&none, 8, 8);
    // Of 0 to 6, 0 has the children 1, 2, 3 and 6, and 2 has 4 and 5.
    for (pinned, left) in [(1, 6), (4, 5), (2, 6)] {
        let full = full(&tree);
        full.pin(&none, pinned..pinned + 1);
        full.refuses(&none, left + 1);
        full.takes(&none, left, left);
    }
}

fn blocks(numbers: impl Iterator<Item = u64>) -> Vec<NewBlock> {
    numbers.map(|number| NewBlock { key: key(number), parent: None }).collect()
}

/// What the put itself evicts of them, it needs slots for.
#[test]
fn blocks_that_the_put_is_to_store() {
    let none = Namespace::default();
    let full = chain(0);
    full.pin(&none, 7..8);
    full.refuses_blocks(&blocks((0..7).chain([100])), Status::Busy);
    full.refuses_blocks(&blocks((2..6).chain(100..104)), Status::Busy);
    // 0 and 1 make space for two blocks: 1 itself, and a new one.
    let full = chain(2);
    full.pin(&none, 2..8);
    full.refuses_blocks(&blocks([1, 100, 101].into_iter()), Status::Busy);
    full.takes_blocks(&blocks([1, 100].into_iter()), 2);
}

#[test]
fn keys_that_are_given_twice() {
    for (numbers, new) in [([0, 0, 100], 1), ([100, 100, 101], 2)] {
        let full = chain(0);
        full.pin(&Namespace::default(), 2..SLOTS);
        let reserved = full.store.reserve(&blocks(numbers.into_iter())).unwrap();
        assert_eq!((reserved.iter().flatten().count() as u64, full.store.counts().evicted), (new, new));
        full.store.abandon(reserved.into_iter().flatten());
    }
}

#[test]
fn blocks_that_a_put_with_an_error_could_evict() {
    let own = NewBlock { key: key(100), parent: Some(key(100)) };
    chain(0).refuses_blocks(&[own], Status::InvalidArgument);
    let empty = full(&[]);
    assert!(empty.store.reserve_free(&[own]).is_none());
}

#[test]
fn blocks_of_a_namespace_at_its_quota() {
    let full = full(&[(0, None), (1, None)]);
    let space = full.space("own", 3);
    full.put_in(&space, 10..13);
    full.pin(&space, 10..11);
    full.refuses(&space, 3);
    full.takes(&space, 2, 2);
}

#[test]
fn blocks_of_others_above_their_quotas() {
    let none = Namespace::default();
    for (of_none, of_other, possible) in [(0, 1, 4), (0, 2, 3), (4, 1, 3), (4, 4, 0)] {
        let full = full(&[(0, None), (1, None), (2, None), (3, None)]);
        let other = full.space("other", 4);
        full.put_in(&other, 10..14);
        // One of those in no namespace, and three of the other, are above what these may have.
        full.space("other", 1);
        let space = full.space("own", 4);
        full.pin(&none, 0..of_none);
        full.pin(&other, 10..10 + of_other);
        if possible < 4 {
            let error = full.refuses(&space, possible + 1);
            assert!(error.message().contains("written, read or pinned by other handles"), "{error}");
        }
        full.takes(&space, possible, possible);
    }
}

#[test]
fn blocks_that_retired_slots_have_left() {
    let full = full(&[]);
    let space = full.space("own", SLOTS);
    full.put_in(&space, 10..18);
    for number in 10..15 {
        let run = full.store.hold_run(&[space.key(key(number))]).unwrap();
        full.store.release_damaged(run, &[0]).unwrap();
    }
    full.pin(&space, 17..18);
    full.refuses(&space, 3);
    full.takes(&space, 2, 2);
}

/// It is to lose more than it stores, and stores also if it cannot.
#[test]
fn a_namespace_far_above_its_quota() {
    let files = RecordedFiles::empty();
    let policy = policy(Durability::Strict);
    let store = Store::open_or_create(files.clone(), &identity("llama"), 1200, policy).unwrap();
    let full = Full { store, files };
    let space = full.space("own", 1200);
    full.put_in(&space, 1000..2200);
    full.space("own", 10);
    full.pin(&space, 1000..2200);
    full.refuses(&space, 1);
    full.store.pin((1000..1005).map(|number| space.key(key(number))), false).unwrap();
    full.takes(&space, 1, 5);
}

/// They took them after a put had found them free.
#[test]
fn slots_that_another_namespace_has_taken_of_its_quota_are_not_waited_for() {
    let full = full(&[]);
    let (space, other) = (full.space("own", 4), full.space("other", 4));
    full.put_in(&space, 10..13);
    for number in 10..13 {
        let run = full.store.hold_run(&[space.key(key(number))]).unwrap();
        full.store.release_damaged(run, &[0]).unwrap();
    }
    let blocks = new_blocks(&space, 2);
    let busy = || Error::new(Status::Busy, "no slot is free");
    assert_eq!(full.store.full(busy(), &blocks).status(), Status::Busy);
    full.put_in(&other, 20..24);
    assert_eq!(full.store.full(busy(), &blocks).status(), Status::OutOfMemory);
}
