// SPDX-License-Identifier: Apache-2.0
//! The index while long lists are looked up.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use super::{Durability, RecordedFiles, identity, key, policy};
use crate::base::Status;
use crate::store::block_store::{LISTED, LOOK_UPS};
use crate::store::{Key, Keys, NewBlock, Store, Written};
use crate::waiting::until;

/// Passes on a list in two turns, of which the first has `first` elements. In the first, another thread begins to wait for the index: it
/// has been there when the second begins.
fn interrupt(store: &Store<RecordedFiles>, first: usize, pass_on: impl FnOnce(&mut dyn FnMut())) {
    let (own, was_there, mut count) = (key(0), &AtomicBool::new(false), 0);
    let own = Keys::new(own.bytes(), 32).unwrap();
    thread::scope(|scope| {
        pass_on(&mut || {
            if count == 0 {
                scope.spawn(move || store.contains(own.iter(), |_| was_there.store(true, Ordering::Relaxed)));
                until("no thread waits for the index", || store.index.is_awaited());
            }
            assert_eq!(was_there.load(Ordering::Relaxed), count >= first, "element {count}");
            count += 1;
        });
    });
    assert_eq!(count, first + 10);
}

/// While the last one is read, none is removed, and all are found again.
fn remove_all_or_none(store: &Store<RecordedFiles>, blocks: &[NewBlock]) {
    let keys: Vec<Key> = blocks.iter().map(|block| block.key).collect();
    let read = store.hold_run(&keys[keys.len() - 1..]).unwrap();
    assert_eq!(store.remove(&keys).unwrap_err().status(), Status::Busy);
    store.release(read);
    let found = store.hold_run(&keys).unwrap();
    assert_eq!(found.len(), keys.len());
    store.release(found);
    assert_eq!(store.remove(&keys).unwrap(), keys.len() as u64);
    assert_eq!(store.remove(&keys).unwrap(), 0);
}

#[test]
fn a_thread_that_waits_for_the_index_gets_it_in_the_middle_of_a_long_list() {
    let slots = 2 * LISTED as u64;
    let store =
        Store::open_or_create(RecordedFiles::empty(), &identity("llama"), slots, policy(Durability::None))
            .unwrap();
    let numbers = 0..LISTED as u64 + 10;
    let blocks: Vec<_> = numbers.map(|number| NewBlock { key: key(number), parent: None }).collect();
    let reserved = store.reserve(&blocks).unwrap();
    store
        .commit(
            reserved.into_iter().flatten().map(|slot| Written { slot, checksum: 7, seal: None }).collect(),
        )
        .unwrap();
    interrupt(&store, LISTED, |element| store.list(0, 0, usize::MAX, |_| element()));
    let keys: Vec<u8> = blocks[..LOOK_UPS + 10].iter().flat_map(|block| block.key.bytes().to_vec()).collect();
    interrupt(&store, LOOK_UPS, |element| {
        store.contains(Keys::new(&keys, 32).unwrap().iter(), |_| element())
    });
    assert_eq!(store.pin(Keys::new(&keys, 32).unwrap().iter(), true).unwrap(), LOOK_UPS as u64 + 10);
    remove_all_or_none(&store, &blocks[..LOOK_UPS + 10]);
}
