// SPDX-License-Identifier: Apache-2.0
//! A list of namespaces that is lost, and callers that evict by themselves.

use std::sync::Arc;

use super::namespaces::{Tenants, config, open_tenants, reopened};
use super::recorded::RecordedFiles;
use super::*;
use crate::base::Status;
use crate::store::StoreFile;

/// Opens the namespaces again after their list was lost. All blocks of theirs are misses, and only these.
fn open_without_list(files: &RecordedFiles, number: u32) {
    let store = open(files, Durability::Strict).unwrap();
    assert!(has(&store, 1), "in no namespace");
    drop(store);
    let tenants = open_tenants(files).unwrap();
    let [_, plain, sealed] = &tenants.spaces;
    assert!(plain.number().min(sealed.number()) > number + 1000, "a number was used again");
    assert!(tenants.has(1) && !tenants.has(6) && !tenants.has(12));
    assert_eq!(tenants.store.counts().stored, 5);
    // Those of unlisted namespaces go first.
    (0..3).for_each(|at| assert!(tenants.put(6 + at, None, 2).unwrap()));
    (12..14).for_each(|at| assert!(tenants.put(at, None, 2).unwrap()));
    let counts = tenants.store.counts();
    assert_eq!((counts.stored, counts.evicted), (8, 2));
    assert!((1..4).all(|number| tenants.has(number)));
}

#[test]
fn a_list_of_namespaces_that_is_missing_or_damaged_makes_their_blocks_misses() {
    let files = RecordedFiles::empty();
    let tenants = open_tenants(&files).unwrap();
    (1..4).chain([6, 12]).for_each(|number| assert!(tenants.put(number, None, 1).unwrap()));
    let sealed = tenants.spaces[2].number();
    drop(tenants);
    open_without_list(&files.without(StoreFile::Namespaces), sealed);
    let mut size = 0;
    files.change(StoreFile::Namespaces, |bytes| size = bytes.len());
    for at in 0..size {
        let damaged = reopened(&files);
        damaged.change(StoreFile::Namespaces, |bytes| bytes[at] ^= 0x40);
        open_without_list(&damaged, sealed);
    }
}

#[test]
fn a_list_that_is_older_than_the_index_has_its_own_namespaces() {
    let files = RecordedFiles::empty();
    let store = open(&files, Durability::Strict).unwrap();
    store.open_namespace(&config("plain", 3, None)).unwrap();
    let mut old = Vec::new();
    files.change(StoreFile::Namespaces, |bytes| old.extend_from_slice(bytes));
    drop(store);
    let tenants = open_tenants(&files).unwrap();
    [6, 12].into_iter().for_each(|number| assert!(tenants.put(number, None, 1).unwrap()));
    let sealed = tenants.spaces[2].number();
    drop(tenants);
    files.change(StoreFile::Namespaces, |bytes| *bytes = old);
    let tenants = open_tenants(&files).unwrap();
    assert!(tenants.has(6) && !tenants.has(12));
    assert!(tenants.spaces[2].number() > sealed + 1000);
}

#[test]
fn blocks_without_a_list_leave_their_slots_also_if_the_caller_evicts() {
    let files = RecordedFiles::empty();
    let tenants = open_tenants(&files).unwrap();
    [6, 7, 12].into_iter().for_each(|number| assert!(tenants.put(number, None, 1).unwrap()));
    drop(tenants);
    let files = files.without(StoreFile::Namespaces);
    let policy = Policy { evicts: false, ..policy(Durability::Strict) };
    let store = Store::open_or_create(files.clone(), &identity("llama"), SLOTS, policy).unwrap();
    let all: Vec<_> = (0..8).map(|number| (number, None, 1)).collect();
    assert_eq!(put(&store, &files, &all[..5]).unwrap().len(), 5);
    let too_many: Vec<_> = (20..24).map(|number| (number, None, 1)).collect();
    assert_eq!(put(&store, &files, &too_many).unwrap_err().status(), Status::OutOfMemory);
    assert_eq!(store.counts().evicted, 0, "a put that cannot succeed evicts nothing");
    assert_eq!(put(&store, &files, &all).unwrap(), [5, 6, 7]);
    assert_eq!((store.counts().stored, store.counts().evicted), (8, 3));
    assert_eq!(put(&store, &files, &[(20, None, 1)]).unwrap_err().status(), Status::OutOfMemory);
}

#[test]
fn a_put_above_a_quota_fails_if_the_caller_evicts_and_says_what_is_used() {
    let files = RecordedFiles::empty();
    let policy = Policy { evicts: false, ..policy(Durability::Strict) };
    let store = Store::open_or_create(files.clone(), &identity("llama"), SLOTS, policy).unwrap();
    let plain = store.open_namespace(&config("plain", 3, None)).unwrap();
    let tenants = Tenants { store, files, spaces: [Arc::default(), plain, Arc::default()] };
    (6..9).for_each(|number| assert!(tenants.put(number, None, 1).unwrap()));
    let error = tenants.put(9, None, 1).unwrap_err();
    assert_eq!(error.status(), Status::OutOfMemory);
    let message = error.message();
    for part in [
        "3 of the 3 slots of the quota are used; of the 8 of the store 5 are free, 0 retired, and 5 in no quota",
        "remove blocks by kvmem_store_remove, set a higher quota, or",
    ] {
        assert!(message.contains(part), "{message}");
    }
    assert!((6..9).all(|number| tenants.has(number)), "nothing is evicted");
    assert!(tenants.put(0, None, 1).unwrap(), "others have their slots");
    tenants.store.remove(&[tenants.key(7)]).unwrap();
    assert!(tenants.put(9, None, 1).unwrap() && tenants.has(9));
    // A lower quota is reached by removals.
    tenants.store.open_namespace(&config("plain", 2, None)).unwrap();
    tenants.store.remove(&[tenants.key(6)]).unwrap();
    assert_eq!(tenants.put(10, None, 1).unwrap_err().status(), Status::OutOfMemory);
    tenants.store.remove(&[tenants.key(8)]).unwrap();
    assert!(tenants.put(10, None, 1).unwrap());
}

#[test]
fn a_list_of_namespaces_without_a_header_is_no_new_store() {
    let files = RecordedFiles::empty();
    drop(open_tenants(&files).unwrap());
    let rest = [StoreFile::Header, StoreFile::Blocks, StoreFile::Journal];
    let rest = rest.into_iter().fold(files, |files, file| files.without(file));
    let error = open(&rest, Durability::Strict).err().unwrap();
    assert_eq!(error.status(), Status::Corrupt);
    assert!(error.message().contains("to which the file namespaces belongs"), "{error}");
}
