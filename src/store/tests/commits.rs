// SPDX-License-Identifier: Apache-2.0
//! Commits of several threads, and slots that the caller frees.

use std::thread;

use super::recorded::{Operation, RecordedFiles};
use super::*;
use crate::base::Status;
use crate::store::StoreFile;
use crate::waiting::until;

#[test]
fn commits_that_wait_share_the_syncs_of_one() {
    let files = RecordedFiles::empty();
    let store = open(&files, Durability::Strict).unwrap();
    let held = files.hold_sync(StoreFile::Blocks);
    let before = files.count();
    thread::scope(|scope| {
        scope.spawn(|| put(&store, &files, &[(0, None, 1)]).unwrap());
        held.wait();
        for number in 1..5 {
            let (store, files) = (&store, &files);
            scope.spawn(move || put(store, files, &[(number, None, 1)]).unwrap());
        }
        until("too few commits wait", || store.waiting_commits() == 4);
        held.release();
    });
    let syncs = |operation: &Operation| matches!(operation, Operation::Sync(_));
    let syncs = files.operations()[before..].iter().filter(|operation| syncs(operation)).count();
    assert_eq!(syncs, 4, "two files for the first, and two for all others");
    assert!((0..5).all(|number| has(&store, number)));
}

#[test]
fn a_commit_that_fails_fails_for_all_that_share_it() {
    let files = RecordedFiles::empty();
    let store = open(&files, Durability::Strict).unwrap();
    let held = files.hold_sync(StoreFile::Blocks);
    thread::scope(|scope| {
        let first = scope.spawn(|| put(&store, &files, &[(0, None, 1)]));
        held.wait();
        let others = [1, 2].map(|number| {
            let (store, files) = (&store, &files);
            scope.spawn(move || put(store, files, &[(number, None, 1)]))
        });
        until("too few commits wait", || store.waiting_commits() == 2);
        // The sync that is held, a write and a sync of the journal, and its publication succeed.
        files.fail(5, rustix::io::Errno::IO, true);
        held.release();
        assert!(first.join().unwrap().is_ok());
        for other in others {
            assert!(other.join().unwrap().is_err());
        }
    });
    assert!(has(&store, 0) && !has(&store, 1) && !has(&store, 2));
}

#[test]
fn without_eviction_the_caller_frees_slots() {
    let files = RecordedFiles::empty();
    let policy = Policy { durability: Durability::Relaxed, evicts: false, access: Access::Write };
    let store = Store::open_or_create(files.clone(), &identity("llama"), SLOTS, policy).unwrap();
    for number in 0..SLOTS {
        put(&store, &files, &[(number, None, 1)]).unwrap();
    }
    assert_eq!(put(&store, &files, &[(20, None, 1)]).unwrap_err().status(), Status::OutOfMemory);
    assert_eq!(store.remove(&[key(3), key(50)]).unwrap(), 1);
    put(&store, &files, &[(20, None, 1)]).unwrap();
    assert!(has(&store, 20) && has(&store, 0) && !has(&store, 3));
}

#[test]
fn slots_that_another_put_takes_meanwhile_are_freed_again() {
    let files = RecordedFiles::empty();
    let store = open(&files, Durability::None).unwrap();
    // All of them together fill half of the slots, so each finds blocks to evict.
    thread::scope(|scope| {
        for writer in 0..SLOTS / 2 {
            let store = &store;
            scope.spawn(move || {
                for round in 0..2000 {
                    let block = NewBlock { key: key(1000 * (1 + round) + writer), parent: None };
                    let reserved = store.reserve(&[block]).unwrap().into_iter().flatten();
                    store.commit(reserved.map(|slot| written(slot, &[])).collect()).unwrap();
                }
            });
        }
    });
    assert_eq!(store.counts().stored, SLOTS);
}

#[test]
fn damaged_blocks_are_removed_and_their_slots_retired() {
    let files = RecordedFiles::empty();
    let store = open(&files, Durability::Strict).unwrap();
    put(&store, &files, &[(0, None, 1), (1, None, 1), (2, None, 1)]).unwrap();
    let run = store.hold_run(&[key(0), key(1), key(2)]).unwrap();
    store.release_damaged(run, &[2]).unwrap();
    assert!(has(&store, 0) && has(&store, 1) && !has(&store, 2));
    let counts = store.counts();
    assert_eq!((counts.stored, counts.retired, counts.damaged), (2, 1, 1));
    assert_eq!(store.remove(&[key(0), key(1)]).unwrap(), 2, "nothing holds them");
}
