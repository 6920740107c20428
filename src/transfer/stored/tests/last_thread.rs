// SPDX-License-Identifier: Apache-2.0
//! Which thread ends a run.

use super::*;
use crate::base::Pool;
use crate::base::thread_pool::tests::occupy;
use crate::transfer::verify::Verification;

/// The end of a get of one block, which has arrived.
fn arrived(store: &Arc<OpenStore>) -> Arc<run_ends::RunEnd> {
    let destination = filled();
    assert_eq!(put(store, &destination, 0..1), 1);
    let key: Vec<Key> = Keys::new(&keys(0..1), 32).unwrap().iter().collect();
    let held = run_ends::Held::new(store, store.store.hold_run(&key).unwrap());
    let slot = held.blocks()[0].slot();
    let found = HostBlocks::new(&destination, vec![0], &Slots::all(destination.geometry()))
        .unwrap()
        .checksums()
        .unwrap();
    let pairs = [BlockPair { source: slot, destination: 0 }];
    let step = Step { pairs: &pairs, checksums: Some(&found), ..Step::default() };
    let transfer = Transfer::create(&store.layout, &destination, TransferRequest::default()).unwrap();
    let mut end = None;
    let refused = transfer.started_once(step, |checks| {
        let begin = |checks: &Verification| checks.begin_on_arrival([&store.layout, &destination]);
        let work = run_ends::Work::checks(checks, begin)?;
        end = Some(run_ends::RunEnd::new(run_ends::Uses::Get(held), work, None, 0));
        Err(Error::new(Status::Cancelled, "the test moves the block"))
    });
    assert_eq!(refused.err().unwrap().status(), Status::Cancelled);
    let end = end.unwrap();
    end.progress().unwrap().moved(u64::from(slot) * store.slot_size(), store.slot_size());
    end
}

#[test]
fn a_get_that_ends_at_once_leaves_its_store_before_the_handle_can_be_closed() {
    let scratch = TestFolder::missing();
    let store = OpenStore::open(config(&scratch, Durability::None), None).unwrap();
    let end = arrived(&store);
    assert!(end.ends_at_once(&Ok(())));
    assert_eq!(Arc::strong_count(&store), 1);
    drop(store);
    drop(OpenStore::open(config(&scratch, Durability::None), None).unwrap());
}

#[test]
fn the_last_holder_of_a_store_does_not_end_at_once() {
    let scratch = TestFolder::missing();
    let store = OpenStore::open(config(&scratch, Durability::None), None).unwrap();
    let (end, layout) = (arrived(&store), store.layout.clone());
    drop(store);
    assert!(!end.ends_at_once(&Ok(())) && !end.ends_at_once(&Ok(())));
    assert_eq!(
        OpenStore::open(config(&scratch, Durability::None), None).err().unwrap().status(),
        Status::Busy
    );
    end.outcome(Ok(()), &[layout.clone(), layout], Stop::default(), &mut Findings::default()).unwrap();
    drop(OpenStore::open(config(&scratch, Durability::None), None).unwrap());
}

/// No thread for checks is free.
#[test]
fn a_small_get_ends_on_the_thread_that_has_moved_its_last_byte() {
    let (_scratch, store, source) = opened(Durability::None);
    assert_eq!(put(&store, &source, 0..2), 2);
    let occupied = occupy(&Pool::checks(store.layout.file_systems()));
    let destination = Layout::in_host(dimensions(8), Arrangement::FULLY_CONTIGUOUS);
    let (keys, blocks) = (keys(0..2), [5, 4]);
    assert_eq!(run(store.get(&destination, TransferRequest::default(), &stored(&keys, &blocks)).unwrap()), 2);
    drop(occupied);
    let all = |layout: &Layout, blocks| {
        HostBlocks::new(layout, blocks, &Slots::all(layout.geometry())).unwrap().checksums().unwrap()
    };
    assert_eq!(all(&destination, vec![5, 4]), all(&source, vec![0, 1]));
}
