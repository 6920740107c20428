// SPDX-License-Identifier: Apache-2.0
//! Readers beside a writer, whose steps are interleaved.

use std::collections::BTreeMap;

use rustix::io::Errno;

use super::recorded::{Image, Omitted, Random, RecordedFiles};
use super::*;
use crate::base::Status;
use crate::store::StoreFile;

fn follow(files: &RecordedFiles, has_writer: bool) -> Result<Store<RecordedFiles>> {
    let policy = Policy { access: Access::Read, ..policy(Durability::Strict) };
    files.set_writer(has_writer);
    Store::open_to_read(files.clone(), &identity("llama"), policy)
}

#[test]
fn a_record_that_the_writer_withdraws_is_not_read() {
    // The writer cannot cut what it has written.
    let files = RecordedFiles::new(Image::default(), Omitted::SetSize(StoreFile::Journal));
    let store = open(&files, Durability::Strict).unwrap();
    let reader = follow(&files, true).unwrap();
    // The call after the sync of the blocks writes the first half of the records.
    files.fail(2, Errno::NOSPC, false);
    put(&store, &files, &[(6, None, 1), (7, None, 1)]).unwrap_err();
    reader.flush().unwrap();
    assert!(!has(&reader, 6));
    assert!(has(&follow(&files, false).unwrap(), 6), "it is in the file");
    files.set_writer(true);
    put(&store, &files, &[(8, None, 1)]).unwrap();
    reader.flush().unwrap();
    assert!(has(&reader, 8) && !has(&reader, 6));
}

#[test]
fn a_reader_waits_for_a_writer_that_opens_the_store() {
    let files = RecordedFiles::empty();
    assert_eq!(follow(&files, false).err().unwrap().status(), Status::NotFound);
    put(&open(&files, Durability::Strict).unwrap(), &files, &[(1, None, 1)]).unwrap();
    let reader = follow(&files, true).unwrap();
    files.change(StoreFile::Writer, |bytes| bytes.fill(0));
    assert_eq!(reader.flush().unwrap_err().status(), Status::Busy);
    assert!(has(&reader, 1));
    assert_eq!(follow(&files, true).err().unwrap().status(), Status::Busy);
    open(&files, Durability::Strict).unwrap();
    reader.flush().unwrap();
}

#[test]
fn a_reader_does_not_take_a_writer_that_publishes_for_one_that_opens_the_store() {
    let files = RecordedFiles::empty();
    let store = open(&files, Durability::Strict).unwrap();
    let reader = follow(&files, true).unwrap();
    put(&store, &files, &[(1, None, 1)]).unwrap();
    files.tear_read(StoreFile::Writer);
    reader.flush().unwrap();
    assert!(has(&reader, 1));
}

/// It was killed, or was refused the store, which has another identity.
#[test]
fn readers_go_on_after_a_writer_that_did_not_open_the_store() {
    let files = RecordedFiles::empty();
    let store = open(&files, Durability::Strict).unwrap();
    put(&store, &files, &[(1, None, 1)]).unwrap();
    let [reader, late] = [(); 2].map(|()| follow(&files, true).unwrap());
    put(&store, &files, &[(2, None, 1)]).unwrap();
    files.change(StoreFile::Writer, |bytes| bytes.fill(0));
    files.set_writer(false);
    reader.flush().unwrap();
    assert!(has(&reader, 1) && has(&reader, 2));
    assert!(has(&follow(&files, false).unwrap(), 2));
    files.set_writer(true);
    assert_eq!(late.flush().unwrap_err().status(), Status::Busy);
    assert!(!has(&late, 2));
    open(&files, Durability::Strict).unwrap();
    late.flush().unwrap();
    assert!(has(&late, 2));
}

/// Such as that for its writer: a reader that took one for none would read what the writer may withdraw.
#[test]
fn a_question_of_a_reader_that_fails_changes_nothing() {
    let files = RecordedFiles::new(Image::default(), Omitted::SetSize(StoreFile::Journal));
    let store = open(&files, Durability::Strict).unwrap();
    put(&store, &files, &[(1, None, 1)]).unwrap();
    let reader = follow(&files, true).unwrap();
    files.fail(2, Errno::NOSPC, false);
    put(&store, &files, &[(6, None, 1)]).unwrap_err();
    for call in 1.. {
        files.fail(call, Errno::MFILE, false);
        let outcome = reader.flush();
        assert!(!has(&reader, 6), "after call {call}");
        if outcome.is_ok() {
            assert!(call > 3, "size, bytes, and the writer");
            break;
        }
    }
    files.fail(1 << 20, Errno::MFILE, false);
    put(&store, &files, &[(8, None, 1)]).unwrap();
    reader.flush().unwrap();
    assert!(has(&reader, 1) && has(&reader, 8) && !has(&reader, 6));
}

/// It has replaced the journal, and was killed before it could publish that.
#[test]
fn readers_go_on_after_a_writer_that_published_an_older_journal() {
    let files = RecordedFiles::empty();
    put(&open(&files, Durability::Strict).unwrap(), &files, &[(1, None, 1)]).unwrap();
    let reader = follow(&files, true).unwrap();
    let mut published = Vec::new();
    files.change(StoreFile::Writer, |bytes| published.clone_from(bytes));
    let store = open(&files, Durability::Strict).unwrap();
    put(&store, &files, &[(2, None, 1)]).unwrap();
    let generation = || store.journal.lock().journal.published().generation;
    let before = generation();
    while generation() == before {
        put(&store, &files, &[(3, None, 1)]).unwrap();
        store.remove(&[key(3)]).unwrap();
    }
    files.change(StoreFile::Writer, |bytes| *bytes = published);
    files.set_writer(false);
    reader.flush().unwrap();
    assert!(has(&reader, 1) && has(&reader, 2) && has(&follow(&files, false).unwrap(), 2));
}

#[test]
fn no_reader_takes_the_bytes_of_another_block() {
    for durability in [Durability::Strict, Durability::None] {
        let (files, mut random) = (RecordedFiles::empty(), Random(5));
        let store = open(&files, durability).unwrap();
        let readers = [(); 2].map(|()| follow(&files, true).unwrap());
        let (mut versions, mut refused, mut right) = (BTreeMap::new(), 0, 0);
        for version in 1..4000 {
            let reader = &readers[random.below(2)];
            if random.below(3) > 0 {
                reader.flush().unwrap();
            }
            let wanted = random.below(12) as u64;
            let run = reader.hold_run(&[key(wanted)]).unwrap();
            let expected = versions.get(&wanted).copied();
            // The writer reuses slots meanwhile, and may have committed that or not.
            let number = random.below(12) as u64;
            let new = NewBlock { key: key(number), parent: None };
            if random.below(6) == 0 {
                store.remove(&[key(number)]).unwrap();
            }
            let reserved = store.reserve(&[new]).unwrap().remove(0);
            let bytes = bytes(number, version);
            if let Some(reserved) = &reserved {
                files.write_block(reserved.slot(), &bytes);
            }
            let commits_first = random.below(2) == 0;
            let commit = |reserved| store.commit(vec![written(reserved, &bytes)]).unwrap();
            let (now, later) = if commits_first { (reserved, None) } else { (None, reserved) };
            let is_new = now.is_some() || later.is_some();
            now.map(commit);
            if let Some(located) = run.first() {
                let found = files.read_block(located.slot());
                match reader.replaced(&run).unwrap().is_empty() {
                    true => {
                        right += 1;
                        assert_eq!(found, super::bytes(wanted, expected.unwrap()), "block {wanted}");
                    }
                    false => refused += 1,
                }
            }
            reader.release(run);
            later.map(commit);
            if is_new {
                versions.insert(number, version);
            }
        }
        assert!(right > 500 && refused > 50, "{right} right, {refused} refused");
    }
}
