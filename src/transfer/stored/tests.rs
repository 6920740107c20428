// SPDX-License-Identifier: Apache-2.0
//! Stores in folders on disk, with blocks of host memory.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use super::*;
use crate::base::wire::tests::of_version;
use crate::base::{Error, Status};
use crate::engine::single_move::WaitLimits;
use crate::layout::{Arrangement, Dimensions};
use crate::plan::{Slots, Wanted};
use crate::region::DirectIo;
use crate::run::{Completion, Findings, Stop, Ticket, Verify};
use crate::store::{Header, NewBlock, StoreFile};
use crate::test_folder::TestFolder;
use crate::transfer::verify::host::HostBlocks;
use crate::transfer::{BlockPair, Step, Transfer, TransferRequest};
use crate::waiting::until;

mod last_thread;
mod readers;
mod tenants;

fn dimensions(num_blocks: u64) -> Dimensions {
    Dimensions { num_blocks, alignment: 4096, ..Dimensions::small() }
}

fn config(path: &Path, durability: Durability) -> OpenConfig {
    OpenConfig {
        path: path.into(),
        dimensions: dimensions(8),
        arrangement: Arrangement::FULLY_CONTIGUOUS,
        values: vec![("model".into(), b"llama".to_vec())],
        max_size: 0,
        direct_io: DirectIo::Preferred,
        must_exist: false,
        policy: Policy { durability, evicts: true, access: Access::Write },
        interval: Duration::from_millis(1),
    }
}

fn reader(path: &Path) -> OpenConfig {
    let policy = Policy { durability: Durability::Strict, evicts: true, access: Access::Read };
    OpenConfig {
        must_exist: true,
        policy,
        interval: Duration::from_secs(3600),
        ..config(path, Durability::Strict)
    }
}

fn keys(range: std::ops::Range<u8>) -> Vec<u8> {
    range.flat_map(|number| [number; 32]).collect()
}

fn stored<'a>(keys: &'a [u8], blocks: &'a [u32]) -> StoredBlocks<'a> {
    StoredBlocks {
        keys: Keys::new(keys, 32).unwrap(),
        blocks,
        parent: None,
        are_related: true,
        user_data: 0,
        timeout: None,
    }
}

/// Returns how many blocks have moved.
fn run(moved: Moved) -> usize {
    if let Some(transfer) = moved.transfer {
        transfer.wait(Some(Duration::from_secs(60))).unwrap();
    }
    moved.count
}

fn contains(store: &OpenStore, number: u8) -> bool {
    let mut found = false;
    store.contains(Keys::new(&keys(number..number + 1), 32).unwrap(), |is_stored| found = is_stored);
    found
}

/// A layout in host memory whose blocks differ.
fn filled() -> Arc<Layout> {
    let layout = Layout::in_host(dimensions(8), Arrangement::FULLY_CONTIGUOUS);
    for block in 0..8 {
        HostBlocks::new(&layout, vec![block], &Slots::all(layout.geometry())).unwrap().poison().unwrap();
    }
    layout
}

/// A new store in a folder, and blocks to put.
fn opened(durability: Durability) -> (TestFolder, Arc<OpenStore>, Arc<Layout>) {
    let folder = TestFolder::missing();
    let store = OpenStore::open(config(&folder, durability), None).unwrap();
    (folder, store, filled())
}

fn put(store: &Arc<OpenStore>, source: &Arc<Layout>, range: std::ops::Range<u8>) -> usize {
    let blocks: Vec<u32> = range.clone().map(u32::from).collect();
    run(store.put(source, TransferRequest::default(), &stored(&keys(range), &blocks)).unwrap())
}

#[test]
fn blocks_survive_and_a_get_takes_the_longest_run() {
    let (scratch, store, source) = opened(Durability::Strict);
    assert_eq!(put(&store, &source, 0..4), 4);
    assert_eq!(put(&store, &source, 0..4), 0, "they are stored once");
    drop(store);
    let store = OpenStore::open(config(&scratch, Durability::Strict), None).unwrap();
    assert!(contains(&store, 3) && !contains(&store, 4));
    let destination = Layout::in_host(dimensions(8), Arrangement::FULLY_CONTIGUOUS);
    let (keys, blocks) = (keys(0..6), [5, 4, 3, 2, 1, 0]);
    let got = store.get(&destination, TransferRequest::default(), &stored(&keys, &blocks)).unwrap();
    assert_eq!(run(got), 4);
    let sums = |layout, blocks: &[u32]| crate::transfer::checksum::of_blocks(layout, blocks, None).unwrap();
    assert_eq!(sums(&source, &[0, 1, 2, 3]), sums(&destination, &[5, 4, 3, 2]));
}

#[test]
fn relaxed_stores_become_durable_by_themselves() {
    let (scratch, store, source) = opened(Durability::Relaxed);
    assert_eq!(put(&store, &source, 0..1), 1);
    let path = scratch.join(StoreFile::Journal.name());
    until("no checkpoint was made", || std::fs::metadata(&path).unwrap().len() >= 512);
}

/// Changes bytes in the slot of a block.
fn damage(store: &OpenStore, scratch: &TestFolder, number: u8) {
    use std::os::unix::fs::FileExt;
    let mut slot = None;
    let mut find = |entry: &Entry, block: NewBlock| {
        slot = slot.or((block.key.bytes()[0] == number).then_some(entry.slot));
    };
    store.list(0, 10, &mut find).unwrap();
    let file = std::fs::OpenOptions::new().write(true).open(scratch.join(StoreFile::Blocks.name())).unwrap();
    file.write_all_at(&[0x5a; 64], u64::from(slot.unwrap()) * store.slot_size()).unwrap();
}

#[test]
fn damaged_blocks_are_misses_and_their_slots_retired() {
    let (scratch, store, source) = opened(Durability::Strict);
    assert_eq!(put(&store, &source, 0..4), 4);
    damage(&store, &scratch, 1);
    let destination = filled();
    let (all, blocks) = (keys(0..4), [0, 1, 2, 3]);
    let got = store.get(&destination, TransferRequest::default(), &stored(&all, &blocks)).unwrap();
    let transfer = got.transfer.unwrap();
    let error = transfer.wait(Some(Duration::from_secs(60))).unwrap_err();
    assert_eq!(error.status(), Status::Corrupt, "{error}");
    assert_eq!(transfer.findings(|findings| findings.mismatches.clone()).unwrap(), Some(vec![1]));
    assert!(contains(&store, 0) && !contains(&store, 1) && contains(&store, 2));
    damage(&store, &scratch, 3);
    assert_eq!(store.verify(None).unwrap(), 1);
    assert_eq!(store.verify(None).unwrap(), 0);
    let counts = store.counts();
    assert_eq!((counts.stored, counts.retired, counts.damaged), (2, 2, 2));
    drop(transfer);
}

#[test]
fn a_header_of_more_slots_than_there_are_is_refused_before_memory_is_allocated_for_them() {
    let scratch = TestFolder::missing();
    let valid = config(&scratch, Durability::Strict);
    drop(OpenStore::open(valid.clone(), None).unwrap());
    let slots = 1 << 31;
    let large = OpenConfig { dimensions: dimensions(slots), ..valid.clone() };
    let (_, identity) = opening::blocks(&large, None).unwrap();
    let files = StoreFolder::open(&scratch).unwrap();
    Header::new(&identity, slots).unwrap().write(&files).unwrap();
    drop(files);
    let error = OpenStore::open(OpenConfig { dimensions: dimensions(0), ..valid }, None).err().unwrap();
    assert_eq!(error.status(), Status::Corrupt, "{error}");
    assert!(error.message().contains("blocks.0 of the store was cut or replaced"), "{error}");
    let text = describe(&scratch).unwrap();
    assert!(text.contains("the file blocks.0 has ") && !text.contains("occupancy"), "{text}");
}

/// What a get of four blocks ends with, of which the second and third are found to be wrong. None of them is damaged, and all stay stored.
fn end_of_get_with_two_wrong(limits: &WaitLimits) -> String {
    let (_scratch, store, source) = opened(Durability::Strict);
    assert_eq!(put(&store, &source, 0..4), 4);
    let all: Vec<Key> = Keys::new(&keys(0..4), 32).unwrap().iter().collect();
    let held = run_ends::Held::new(&store, store.store.hold_run(&all).unwrap());
    let mut findings = Findings { mismatches: vec![1, 2], checksums: None };
    let error = held.end(Ok(()), &mut findings, limits).unwrap_err();
    assert_eq!(error.status(), Status::Corrupt, "{error}");
    assert!((0..4).all(|number| contains(&store, number)));
    assert_eq!((store.counts().retired, store.counts().damaged), (0, 0));
    error.to_string()
}

#[test]
fn blocks_that_something_else_overwrites_in_the_destination_stay_stored() {
    let message = end_of_get_with_two_wrong(&WaitLimits::default());
    assert!(
        message.contains("2 overwritten in the destination by something else, and still stored;"),
        "{message}"
    );
    assert!(!message.contains("slots"), "{message}");
}

#[test]
fn blocks_that_cannot_be_looked_at_again_stay_stored() {
    let late = WaitLimits { deadline: Some(Instant::now()), ..WaitLimits::default() };
    let message = end_of_get_with_two_wrong(&late);
    for part in [
        "2 whose slots could not be read again, still stored (",
        "timeout_ns has passed, and 0 of 2 slots are read",
    ] {
        assert!(message.contains(part), "{message}");
    }
    assert!(!message.contains("damaged") && !message.contains("overwritten"), "{message}");
}

#[test]
fn of_blocks_that_differ_only_those_that_are_damaged_are_removed() {
    let (scratch, store, source) = opened(Durability::Strict);
    assert_eq!(put(&store, &source, 0..8), 8);
    damage(&store, &scratch, 5);
    let all: Vec<Key> = Keys::new(&keys(0..8), 32).unwrap().iter().collect();
    let held = run_ends::Held::new(&store, store.store.hold_run(&all).unwrap());
    let mut findings = Findings { mismatches: vec![2, 5, 7], checksums: None };
    let error = held.end(Ok(()), &mut findings, &WaitLimits::default()).unwrap_err();
    for part in [
        "did not arrive as stored: 1 damaged in the store, and no longer stored; ",
        "; 2 overwritten in the destination",
    ] {
        assert!(error.message().contains(part), "{error}");
    }
    assert!((0..8).all(|number| contains(&store, number) == (number != 5)));
}

/// Nothing looks which blocks have arrived.
#[test]
fn a_get_that_is_cancelled_after_a_read_has_failed_names_all_blocks() {
    let (scratch, source, destination) = (TestFolder::missing(), filled(), filled());
    let store = OpenStore::open(config(&scratch, Durability::Strict), None).unwrap();
    assert_eq!(put(&store, &source, 0..3), 3);
    let all: Vec<Key> = Keys::new(&keys(0..3), 32).unwrap().iter().collect();
    let held = run_ends::Held::new(&store, store.store.hold_run(&all).unwrap());
    let pairs = [0, 1, 2].map(|at| BlockPair { source: held.blocks()[at].slot(), destination: at as u32 });
    let step = Step { pairs: &pairs, checksums: Some(&[0; 3]), ..Step::default() };
    let completion = Arc::new(Completion::new(1, None));
    let cancelled = Ticket::unheld(&completion, Default::default()).start();
    completion.cancel().unwrap();
    let (layouts, mut findings) = ([store.layout.clone(), destination.clone()], Findings::default());
    let transfer = Transfer::create(&store.layout, &destination, TransferRequest::default()).unwrap();
    let ended = transfer.started_once(step, |checks| {
        let end = run_ends::RunEnd::new(run_ends::Uses::Get(held), run_ends::Work::Checks(checks), None, 0);
        let failed = Err(Error::new(Status::Io, "a read"));
        let error = end.outcome(failed, &layouts, cancelled.stop(), &mut findings).unwrap_err();
        assert_eq!(error.status(), Status::Io);
        assert!(error.message().starts_with("a read; ") && error.message().contains("cancelled"), "{error}");
        Ok(end)
    });
    ended.unwrap().wait(Some(Duration::from_secs(60))).unwrap();
    assert_eq!(findings.mismatches, [0, 1, 2]);
    assert!((0..3).all(|number| contains(&store, number)));
}

#[test]
fn a_get_that_does_not_begin_counts_no_keys() {
    let (_scratch, store, source) = opened(Durability::Strict);
    assert_eq!(put(&store, &source, 0..2), 2);
    let large = Layout::in_host(Dimensions { page_size: 32, ..dimensions(8) }, Arrangement::FULLY_CONTIGUOUS);
    let (all, hits) = (keys(0..3), || (store.counts().hits, store.counts().misses));
    for (layout, blocks) in [(&source, &[0, 99, 1][..]), (&large, &[99, 0])] {
        let got = store.get(layout, TransferRequest::default(), &stored(&all, blocks));
        let error = got.err().unwrap();
        assert_eq!(error.status(), Status::OutOfRange);
        assert!(error.message().contains("] is 99; the layout has 8 blocks"), "{error}");
        assert_eq!(hits(), (0, 0));
    }
    assert_eq!(run(store.get(&source, TransferRequest::default(), &stored(&all, &[0, 1, 2])).unwrap()), 2);
    assert_eq!(hits(), (2, 1));
}

#[test]
fn a_put_reports_the_bytes_that_it_moves() {
    let (_scratch, store, source) = opened(Durability::Strict);
    assert_eq!(put(&store, &source, 0..2), 2);
    let large = Layout::in_host(Dimensions { page_size: 32, ..dimensions(8) }, Arrangement::FULLY_CONTIGUOUS);
    let all = keys(0..3);
    let moved = store.put(&large, TransferRequest::default(), &stored(&all, &[0, 1])).unwrap();
    assert_eq!(moved.count, 1);
    assert_eq!(moved.transfer.as_ref().unwrap().summary().unwrap().bytes, store.slot_size());
    assert_eq!(run(moved), 1);
}

#[test]
fn blocks_that_pass_through_memory_of_the_store_do_so_until_the_deadline_of_their_run() {
    let (_scratch, store, source) = opened(Durability::Strict);
    assert_eq!(put(&store, &source, 0..4), 4);
    let all: Vec<Key> = Keys::new(&keys(0..4), 32).unwrap().iter().collect();
    let (destination, blocks) = (filled(), [0, 1, 2, 3]);
    for (deadline, expected) in [(Some(Instant::now()), Some(Status::TimedOut)), (None, None)] {
        let held = run_ends::Held::new(&store, store.store.hold_run(&all).unwrap());
        let bytes = keys(0..4);
        let conversion = store.conversion(Wanted::default(), &stored(&bytes, &blocks), Vec::new()).unwrap();
        let (uses, work) = (run_ends::Uses::Get(held), run_ends::Work::Moves(conversion));
        let end = run_ends::RunEnd::new(uses, work, deadline, 0);
        let layouts = [store.layout.clone(), destination.clone()];
        let outcome = end.outcome(Ok(()), &layouts, Stop::default(), &mut Findings::default());
        assert_eq!(outcome.err().map(|error| error.status()), expected);
    }
}

#[test]
fn a_store_of_an_earlier_version_is_named_as_such() {
    let scratch = TestFolder::missing();
    drop(OpenStore::open(config(&scratch, Durability::Strict), None).unwrap());
    let path = scratch.join(StoreFile::Header.name());
    let bytes = std::fs::read(&path).unwrap();
    std::fs::write(&path, of_version(&bytes, 1)).unwrap();
    for config in [config(&scratch, Durability::Strict), reader(&scratch)] {
        let error = OpenStore::open(config, None).err().unwrap();
        assert_eq!(error.status(), Status::VersionMismatch, "{error}");
        assert!(error.message().contains("has version 1, this library reads version 2"), "{error}");
    }
}

#[test]
fn a_second_writer_is_refused_with_the_process_of_the_first() {
    let scratch = TestFolder::missing();
    let store = OpenStore::open(config(&scratch, Durability::Strict), None).unwrap();
    let error = OpenStore::open(config(&scratch, Durability::Strict), None).err().unwrap();
    assert_eq!(error.status(), Status::Busy);
    assert!(error.message().contains("in this process"), "{error}");
    assert!(describe(&scratch).unwrap().contains("this process"));
    drop(store);
    OpenStore::open(config(&scratch, Durability::Strict), None).unwrap();
}

#[test]
fn a_run_of_a_put_is_not_repeated() {
    let (_scratch, store, source) = opened(Durability::None);
    let all = keys(0..1);
    let transfer =
        store.put(&source, TransferRequest::default(), &stored(&all, &[0])).unwrap().transfer.unwrap();
    transfer.wait(None).unwrap();
    assert_eq!(transfer.submit(None).unwrap_err().status(), Status::InvalidState);
}

#[test]
fn a_put_without_all_checksums_stores_nothing_and_loses_no_slot() {
    let scratch = TestFolder::missing();
    let store = OpenStore::open(config(&scratch, Durability::Strict), None).unwrap();
    let all = keys(0..8);
    let blocks: Vec<_> =
        Keys::new(&all, 32).unwrap().iter().map(|key| NewBlock { key, parent: None }).collect();
    for checksums in 0..8 {
        let slots = run_ends::Slots::new(&store, store.store.reserve_free(&blocks).unwrap());
        let error = slots.commit(&vec![0; checksums], Vec::new()).unwrap_err();
        assert_eq!(error.status(), Status::Panic, "{error}");
        assert_eq!(store.counts().stored, 0);
    }
    assert_eq!(put(&store, &filled(), 0..8), 8, "all slots are free");
}

#[test]
fn an_opening_that_fails_leaves_no_folder() {
    let scratch = TestFolder::missing();
    let valid = config(&scratch, Durability::Strict);
    let empty = Dimensions { num_blocks: 0, ..valid.dimensions.clone() };
    for wrong in [
        OpenConfig { must_exist: true, ..valid.clone() },
        OpenConfig { dimensions: empty, ..valid.clone() },
        OpenConfig { values: vec![("model".into(), vec![1]), ("model".into(), vec![2])], ..valid.clone() },
        OpenConfig { values: (0..600).map(|name| (name.to_string(), vec![0; 2048])).collect(), ..valid },
    ] {
        let error = OpenStore::open(wrong, None).err().unwrap();
        assert!(matches!(error.status(), Status::NotFound | Status::InvalidArgument), "{error}");
        assert!(!scratch.exists(), "{error}");
    }
}
