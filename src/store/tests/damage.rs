// SPDX-License-Identifier: Apache-2.0
//! Calls that fail, bytes that change, and stores of other owners.

use rustix::io::Errno;

use super::recorded::{Omitted, RecordedFiles};
use super::*;
use crate::base::Status;
use crate::store::StoreFile;

fn filled() -> RecordedFiles {
    let files = RecordedFiles::empty();
    let store = open(&files, Durability::Strict).unwrap();
    for number in 0..6 {
        put(&store, &files, &[(number, None, 1)]).unwrap();
    }
    store.remove(&[key(2)]).unwrap();
    files
}

/// Each block that the store has is right, or its checksum shows that it is not.
fn ensure_no_wrong_block(files: &RecordedFiles, versions: u64) -> u64 {
    let store = open(files, Durability::Strict).unwrap();
    let is_right = |number: &u64| match get(&store, files, *number) {
        None => false,
        Some((found, is_whole)) => {
            let is_known = (1..=versions).any(|version| found == bytes(*number, version));
            assert!(is_known || !is_whole, "block {number} has other bytes");
            is_known && is_whole
        }
    };
    (0..20).filter(is_right).count() as u64
}

#[test]
fn each_byte_that_changes_is_found() {
    let image = filled().image();
    for file in [StoreFile::Header, StoreFile::Journal, StoreFile::Blocks] {
        let mut size = 0;
        RecordedFiles::new(image.clone(), Omitted::Nothing).change(file, |bytes| size = bytes.len());
        for at in 0..size {
            let files = RecordedFiles::new(image.clone(), Omitted::Nothing);
            files.change(file, |bytes| bytes[at] ^= 0x40);
            match open(&files, Durability::Strict).map(drop) {
                Ok(()) => assert!(ensure_no_wrong_block(&files, 1) >= 4, "byte {at} of {}", file.name()),
                Err(error) => {
                    let expected = [Status::Corrupt, Status::VersionMismatch];
                    assert!(expected.contains(&error.status()) && file != StoreFile::Blocks, "{at}: {error}");
                }
            }
        }
    }
}

#[test]
fn a_call_that_fails_leaves_the_store_intact() {
    for for_ever in [false, true] {
        for after in 1.. {
            let files = filled();
            let store = open(&files, Durability::Strict).unwrap();
            let before = files.calls();
            files.fail(after, Errno::NOSPC, for_ever);
            // Evicts two blocks.
            let outcome = (6..10).try_for_each(|number| put(&store, &files, &[(number, None, 1)]).map(drop));
            if let Err(error) = &outcome {
                assert!([Status::OutOfMemory, Status::InvalidState].contains(&error.status()), "{error}");
                // The slots of what failed are not used for other blocks while their records may survive.
                let _ = put(&store, &files, &[(11, None, 2)]);
            }
            drop(store);
            let reopened = RecordedFiles::new(files.image(), Omitted::Nothing);
            assert!(ensure_no_wrong_block(&reopened, 2) >= 4, "call {after}: {outcome:?}");
            if outcome.is_ok() {
                assert!(files.calls() - before < after, "a failure was not reported");
                break;
            }
        }
    }
}

#[test]
fn a_store_without_space_for_once_is_used_further() {
    let files = filled();
    let store = open(&files, Durability::Strict).unwrap();
    // The call after the sync of the block: the record is written.
    files.fail(2, Errno::NOSPC, false);
    assert_eq!(put(&store, &files, &[(6, None, 1)]).unwrap_err().status(), Status::OutOfMemory);
    assert!(!has(&store, 6));
    put(&store, &files, &[(7, None, 1), (6, None, 2)]).unwrap();
    drop(store);
    assert_eq!(ensure_no_wrong_block(&files, 2), 7);
}

#[test]
fn puts_without_space_do_not_empty_the_store() {
    let files = filled();
    let store = open(&files, Durability::Strict).unwrap();
    // Each needs one slot more than there are.
    for first in (10..50).step_by(4) {
        files.fail(1, Errno::NOSPC, false);
        let blocks: Vec<_> = (first..first + 4).map(|number| (number, None, 1)).collect();
        assert_eq!(put(&store, &files, &blocks).unwrap_err().status(), Status::OutOfMemory);
    }
    assert_eq!(store.counts().stored, 4);
}

#[test]
fn an_index_with_a_damaged_record_is_used_without_space_for_another_one() {
    let damaged = || {
        let files = filled();
        files.change(StoreFile::Journal, |bytes| bytes[2 * 256 + 40] ^= 1);
        files
    };
    let files = damaged();
    let before = files.calls();
    drop(open(&files, Durability::Strict).unwrap());
    let calls = files.calls() - before;
    // The last ones are the header, its size, the records, the sync, the rename, the sync of the folder and what readers may read.
    for after in calls - 6..=calls {
        let files = damaged();
        files.fail(after, Errno::NOSPC, false);
        let store = open(&files, Durability::Strict).unwrap();
        assert_eq!((0..6).filter(|number| has(&store, *number)).count(), 4, "call {after} of {calls}");
        drop(store);
        let reopened = RecordedFiles::new(files.image(), Omitted::Nothing);
        assert_eq!(ensure_no_wrong_block(&reopened, 1), 4, "call {after} of {calls}");
    }
}

#[test]
fn a_store_of_another_identity_is_named_with_both_values() {
    let files = filled();
    let error = Store::open_or_create(files.clone(), &identity("qwen"), SLOTS, policy(Durability::Strict))
        .err()
        .unwrap();
    error.assert_is(Status::InvalidArgument, "model is 'llama' in the store and 'qwen' here");
    assert!(!error.message().contains("dtype"), "{error}");
    let label = crate::region::Label { bytes: Vec::new(), differences: |_, _| Ok(Vec::new()) };
    let other = Identity::new(&[("model", b"llama")], label.clone()).unwrap();
    let error = Store::open_or_create(files, &other, SLOTS, policy(Durability::Strict)).err().unwrap();
    assert!(error.message().contains("dtype is 'bf16' in the store and missing here"), "{error}");
    assert!(Identity::new(&[("a", b"1"), ("a", b"2")], label).is_err());
}

#[test]
fn an_index_of_another_store_is_refused() {
    let (files, other) = (filled(), filled());
    let mut index = Vec::new();
    other.change(StoreFile::Journal, |bytes| index = bytes.clone());
    files.change(StoreFile::Journal, |bytes| *bytes = index);
    open(&files, Durability::Strict).err().unwrap().assert_is(Status::Corrupt, "another store");
}

#[test]
fn an_index_whose_header_has_no_length_is_refused() {
    for length in [0, u32::MAX] {
        let files = filled();
        files.change(StoreFile::Journal, |bytes| bytes[..4].copy_from_slice(&length.to_le_bytes()));
        let error = open(&files, Durability::Strict).err().unwrap();
        assert_eq!(error.status(), Status::Corrupt);
        let expected = format!("the header of the store's index is damaged: its length is {length}");
        assert!(error.message().contains(&expected), "{error}");
    }
}

#[test]
fn relaxed_commits_are_durable_after_a_flush() {
    let files = filled();
    let store = open(&files, Durability::Relaxed).unwrap();
    put(&store, &files, &[(6, None, 1)]).unwrap();
    let reopened = |files: &RecordedFiles| {
        let files = RecordedFiles::new(files.image(), Omitted::Nothing);
        has(&open(&files, Durability::Strict).unwrap(), 6)
    };
    assert!(has(&store, 6) && !reopened(&files));
    store.flush().unwrap();
    assert!(reopened(&files));
}
