// SPDX-License-Identifier: Apache-2.0
//! Namespaces with blocks of host memory, also encrypted ones.

use super::*;
use crate::store::Secret;

fn tenant(store: &Arc<OpenStore>, name: &str, byte: u8, slots: u64) -> Arc<OpenStore> {
    let secret = (byte > 0).then(|| Secret::new(&[byte; 32]).unwrap());
    store.open_namespace(name, slots * store.slot_size(), secret, None).unwrap()
}

fn get(store: &Arc<OpenStore>, into: &Arc<Layout>, range: std::ops::Range<u8>) -> (usize, Result<()>) {
    let blocks: Vec<u32> = range.clone().map(u32::from).collect();
    let moved = store.get(into, TransferRequest::default(), &stored(&keys(range), &blocks)).unwrap();
    let outcome = moved.transfer.map_or(Ok(()), |transfer| transfer.wait(Some(Duration::from_secs(60))));
    (moved.count, outcome)
}

fn sums(layout: &Arc<Layout>, blocks: &[u32]) -> Vec<u32> {
    crate::transfer::checksum::of_blocks(layout, blocks, None).unwrap()
}

fn empty() -> Arc<Layout> {
    Layout::in_host(dimensions(8), Arrangement::FULLY_CONTIGUOUS)
}

#[test]
fn blocks_of_a_tenant_survive_and_are_those_that_were_stored() {
    let (scratch, source) = (TestFolder::missing(), filled());
    for byte in [0, 9] {
        let store = OpenStore::open(config(&scratch, Durability::Strict), None).unwrap();
        let own = tenant(&store, &format!("tenant-{byte}"), byte, 3);
        drop(store);
        assert_eq!(put(&own, &source, 0..3), 3, "a namespace keeps its store open");
        drop(own);
        let store = OpenStore::open(config(&scratch, Durability::Strict), None).unwrap();
        let (own, into) = (tenant(&store, &format!("tenant-{byte}"), byte, 0), empty());
        assert_eq!(get(&store, &into, 0..3).0, 0, "they are not in the store without a name");
        let (count, outcome) = get(&own, &into, 0..4);
        outcome.unwrap();
        assert_eq!(count, 3);
        assert_eq!(sums(&into, &[0, 1, 2]), sums(&source, &[0, 1, 2]));
        assert_eq!((own.counts().slots, own.counts().hits, own.counts().misses), (3, 3, 1));
        let mut listed = Vec::new();
        own.list(0, 8, |entry, block| {
            listed.push((block.key.bytes()[0], block.parent.is_some(), entry.slot))
        })
        .unwrap();
        let found: Vec<_> = listed.iter().map(|(key, has_parent, _)| (*key, *has_parent)).collect();
        assert_eq!(found, [(0, false), (1, true), (2, true)]);
        // Of another tenant, which evicts its own blocks only.
        let (other, others) = (tenant(&store, "other", 1, 2), empty());
        assert_eq!(put(&other, &source, 0..2), 2);
        assert_eq!(put(&other, &source, 4..6), 2);
        assert!(!contains(&other, 0) && contains(&other, 4) && contains(&own, 0));
        assert_eq!(get(&other, &others, 4..6).0, 2);
        drop(other);
        assert_eq!(store.remove_namespace("other", None).unwrap(), 2);
        assert_eq!(own.remove_namespace("other", None).unwrap_err().status(), Status::InvalidArgument);
    }
}

#[test]
fn tokens_of_encrypted_slots_move_to_blocks_of_another_size() {
    let (_scratch, store, source) = opened(Durability::Strict);
    let [own, again] = [("tenant", 3), ("again", 4)].map(|(name, byte)| tenant(&store, name, byte, 4));
    assert_eq!(put(&own, &source, 0..4), 4);
    // From slots to blocks of one token each, from these to slots, and back.
    let tokens = dimensions(8).page_size as u32;
    let small = Dimensions { page_size: 1, num_blocks: 4 * u64::from(tokens), ..dimensions(8) };
    let small = Layout::in_host(small, Arrangement::FULLY_CONTIGUOUS);
    let (keys, blocks): (Vec<u8>, Vec<u32>) = (keys(0..4), (0..4 * tokens).rev().collect());
    let what = stored(&keys, &blocks);
    assert_eq!(run(own.get(&small, TransferRequest::default(), &what).unwrap()), 4);
    assert_eq!(run(again.put(&small, TransferRequest::default(), &what).unwrap()), 4);
    let into = empty();
    let (count, outcome) = get(&again, &into, 0..4);
    outcome.unwrap();
    assert_eq!((count, sums(&into, &[0, 1, 2, 3])), (4, sums(&source, &[0, 1, 2, 3])));
}

/// Bytes of a slot, and its record, as an attacker may change both: the checksums are right.
#[test]
fn a_block_that_was_replaced_with_its_checksum_is_removed_and_no_data() {
    let (scratch, store, source) = opened(Durability::Strict);
    let own = tenant(&store, "tenant", 5, 4);
    assert_eq!(put(&own, &source, 0..2), 2);
    let mut slots = Vec::new();
    own.list(0, 8, |entry, _| slots.push(u64::from(entry.slot))).unwrap();
    let (id, size) = (store.store.id(), store.slot_size());
    drop((own, store));
    let flip = |name: &str, at: u64| {
        use std::os::unix::fs::FileExt;
        let file = std::fs::OpenOptions::new().read(true).write(true).open(scratch.join(name)).unwrap();
        let mut byte = [0];
        file.read_exact_at(&mut byte, at).unwrap();
        byte[0] ^= 1;
        file.write_all_at(&byte, at).unwrap();
        let mut record = [0; 256];
        if name == "index.0" {
            let start = at / 256 * 256;
            file.read_exact_at(&mut record, start).unwrap();
            let seed = crc32c::crc32c_append(crc32c::crc32c(&id), &0u64.to_le_bytes());
            let checksum = crc32c::crc32c_append(seed, &record[4..]);
            file.write_all_at(&checksum.to_le_bytes(), start).unwrap();
        }
    };
    // The tag of the first record.
    flip("index.0", 256 + 232);
    let store = OpenStore::open(config(&scratch, Durability::Strict), None).unwrap();
    assert_eq!(store.verify(None).unwrap(), 0, "without the key, the checksum is all that can be compared");
    let (own, into) = (tenant(&store, "tenant", 5, 0), empty());
    let before = sums(&into, &[0]);
    let (count, outcome) = get(&own, &into, 0..2);
    assert_eq!((count, outcome.unwrap_err().status()), (2, Status::Corrupt));
    assert_eq!(sums(&into, &[0]), before, "no byte has arrived");
    assert_eq!(sums(&into, &[1]), sums(&source, &[1]));
    assert!(!contains(&own, 0) && contains(&own, 1), "it is not found again");
    assert_eq!((own.counts().damaged, store.counts().retired), (1, 1));
    drop((own, store));
    // A damaged byte in the slot of the other one.
    flip("blocks.0", slots[1] * size);
    let store = OpenStore::open(config(&scratch, Durability::Strict), None).unwrap();
    let own = tenant(&store, "tenant", 5, 0);
    assert_eq!((own.verify(None).unwrap(), own.counts().stored), (1, 0));
}
