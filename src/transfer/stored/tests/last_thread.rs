// SPDX-License-Identifier: Apache-2.0
//! Which thread ends a run.

use super::*;
use crate::base::Pool;
use crate::base::thread_pool::tests::occupy;

/// No thread for checks is free.
#[test]
fn a_small_get_ends_on_the_thread_that_has_moved_its_last_byte() {
    let (scratch, source) = (Scratch::new(), filled());
    let store = OpenStore::open(config(&scratch.0, Durability::None), None).unwrap();
    assert_eq!(put(&store, &source, 0..2), 2);
    let go = occupy(&Pool::checks(store.layout.file_systems()));
    let destination = Layout::in_host(dimensions(8), Arrangement::FULLY_CONTIGUOUS);
    let (keys, blocks) = (keys(0..2), [5, 4]);
    assert_eq!(run(store.get(&destination, TransferRequest::default(), &stored(&keys, &blocks)).unwrap()), 2);
    drop(go);
    let all = |layout: &Layout, blocks| {
        HostBlocks::new(layout, blocks, &Slots::all(layout.geometry())).checksums().unwrap()
    };
    assert_eq!(all(&destination, vec![5, 4]), all(&source, vec![0, 1]));
}
