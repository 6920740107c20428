// SPDX-License-Identifier: Apache-2.0
//! Readers of a store beside its writer.

use super::*;

#[test]
fn readers_see_what_the_writer_stores_and_removes() {
    let (scratch, source) = (TestFolder::missing(), filled());
    assert_eq!(OpenStore::open(reader(&scratch), None).err().unwrap().status(), Status::NotFound);
    let store = OpenStore::open(config(&scratch, Durability::Strict), None).unwrap();
    let readers = [(); 3].map(|()| OpenStore::open(reader(&scratch), None).unwrap());
    assert_eq!(put(&store, &source, 0..4), 4);
    let destination = Layout::in_host(dimensions(8), Arrangement::FULLY_CONTIGUOUS);
    let (all, blocks) = (keys(0..6), [5, 4, 3, 2, 1, 0]);
    for reader in &readers {
        assert!(!contains(reader, 0), "it has not looked yet");
        let got = reader.get(&destination, TransferRequest::default(), &stored(&all, &blocks)).unwrap();
        assert_eq!(run(got), 4);
        let sums =
            |layout, blocks: &[u32]| crate::transfer::checksum::of_blocks(layout, blocks, None).unwrap();
        assert_eq!(sums(&source, &[0, 1, 2, 3]), sums(&destination, &[5, 4, 3, 2]));
    }
    let removed = keys(1..2);
    assert_eq!(store.remove(Keys::new(&removed, 32).unwrap(), None).unwrap(), 1);
    readers[0].flush(None).unwrap();
    assert!(contains(&readers[0], 0) && !contains(&readers[0], 1));
    drop(store);
    let late = OpenStore::open(reader(&scratch), None).unwrap();
    assert!(contains(&late, 0) && !contains(&late, 1));
    let store = OpenStore::open(config(&scratch, Durability::None), None).unwrap();
    assert_eq!(put(&store, &source, 6..7), 1);
    late.flush(None).unwrap();
    assert!(contains(&late, 6), "of another writer");
}

#[test]
fn readers_change_nothing() {
    let (scratch, store, source) = opened(Durability::Strict);
    assert_eq!(put(&store, &source, 0..1), 1);
    let reader = OpenStore::open(reader(&scratch), None).unwrap();
    let (one, blocks) = (keys(0..1), [0]);
    let refused = [
        reader.put(&source, TransferRequest::default(), &stored(&one, &blocks)).map(drop),
        reader.remove(Keys::new(&one, 32).unwrap(), None).map(drop),
        reader.pin(Keys::new(&one, 32).unwrap(), true).map(drop),
        reader.verify(None).map(drop),
    ];
    for refused in refused {
        assert_eq!(refused.unwrap_err().status(), Status::PermissionDenied);
    }
}

#[test]
fn a_block_that_is_replaced_while_a_reader_gets_it_is_no_block_of_its_key() {
    let (scratch, store, source) = opened(Durability::Strict);
    assert_eq!(put(&store, &source, 0..8), 8);
    let reader = OpenStore::open(reader(&scratch), None).unwrap();
    let all: Vec<Key> = Keys::new(&keys(0..8), 32).unwrap().iter().collect();
    let run = reader.store.hold_run(&all).unwrap();
    let removed = keys(2..4);
    store.remove(Keys::new(&removed, 32).unwrap(), None).unwrap();
    assert_eq!(
        put(&store, &source, 2..3),
        1,
        "with the same bytes, but others may have been there meanwhile"
    );
    assert_eq!(reader.store.replaced(&run).unwrap(), [2, 3]);
    reader.store.release(run);
}

#[test]
fn readers_follow_a_journal_that_is_replaced() {
    let (scratch, store, source) = opened(Durability::None);
    let reader = OpenStore::open(reader(&scratch), None).unwrap();
    let one = keys(0..1);
    let journal = || std::fs::metadata(scratch.join(StoreFile::Journal.name())).unwrap();
    let (before, mut rounds) = (std::os::unix::fs::MetadataExt::ino(&journal()), 0);
    while std::os::unix::fs::MetadataExt::ino(&journal()) == before {
        rounds += 1;
        assert!(rounds < 2000, "the journal is not replaced");
        assert_eq!(put(&store, &source, 0..1), 1);
        assert_eq!(store.remove(Keys::new(&one, 32).unwrap(), None).unwrap(), 1);
    }
    assert_eq!(put(&store, &source, 5..7), 2);
    reader.flush(None).unwrap();
    assert!(contains(&reader, 5) && contains(&reader, 6) && !contains(&reader, 0));
}
