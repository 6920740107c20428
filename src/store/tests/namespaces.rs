// SPDX-License-Identifier: Apache-2.0
//! Tenants of one store: their keys, quotas and ciphers.

use std::collections::HashSet;
use std::sync::Arc;

use rustix::io::Errno;

use super::recorded::{Omitted, RecordedFiles};
use super::*;
use crate::base::{Mutex, Status};
use crate::store::{Namespace, NamespaceConfig, Secret, StoreFile};

pub fn secret(byte: u8) -> Option<Secret> {
    Some(Secret::new(&[byte; 32]).unwrap())
}

pub fn config(name: &str, slots: u64, secret: Option<Secret>) -> NamespaceConfig {
    NamespaceConfig { name: name.into(), slots: (slots > 0).then_some(slots), secret }
}

/// A store with three namespaces, of which the last one is encrypted. Numbers of keys below 6 are in the first one, those below 12 in the second.
pub struct Tenants {
    pub store: Store<RecordedFiles>,
    pub files: RecordedFiles,
    pub spaces: [Arc<Namespace>; 3],
}

pub fn open_tenants(files: &RecordedFiles) -> Result<Tenants> {
    let store = open(files, Durability::Strict)?;
    let plain = store.open_namespace(&config("plain", 3, None))?;
    let sealed = store.open_namespace(&config("sealed", 2, secret(7)))?;
    Ok(Tenants { store, files: files.clone(), spaces: [Arc::default(), plain, sealed] })
}

/// The nonces of all blocks that were ever encrypted.
static NONCES: Mutex<Option<HashSet<[u8; 24]>>> = Mutex::new(None);

impl Tenants {
    fn space(&self, number: u64) -> &Namespace {
        &self.spaces[(number as usize / 6).min(2)]
    }

    pub fn key(&self, number: u64) -> Key {
        self.space(number).key(key(number))
    }

    /// Returns whether the block was not stored before.
    pub fn put(&self, number: u64, parent: Option<u64>, version: u64) -> Result<bool> {
        self.put_in(self.space(number), number, parent, version)
    }

    pub fn put_in(&self, space: &Namespace, number: u64, parent: Option<u64>, version: u64) -> Result<bool> {
        let block = NewBlock { key: key(number), parent: parent.map(key) };
        let Some(slot) = self.store.reserve(&[space.block(block)])?.remove(0) else { return Ok(false) };
        let mut bytes = bytes(number, version);
        let seal = space.cipher().map(|cipher| cipher.seal(&block, &mut bytes).unwrap());
        if let Some(seal) = &seal {
            let mut nonces = NONCES.lock();
            assert!(nonces.get_or_insert_default().insert(seal.nonce), "a nonce was used twice");
        }
        self.files.write_block(slot.slot(), &bytes);
        let checksum = crc32c::crc32c(&bytes);
        self.store.commit(vec![Written { slot, checksum, seal: seal.map(Arc::new) }]).map(|()| true)
    }

    pub fn has(&self, number: u64) -> bool {
        let mut found = false;
        self.store.contains([self.key(number)].into_iter(), |is_stored| found = is_stored);
        found
    }

    /// The bytes under a key, and whether they are those that were stored.
    pub fn get(&self, number: u64) -> Option<(Vec<u8>, bool)> {
        let run = self.store.hold_run(&[self.key(number)]).unwrap();
        let found = run.first().map(|located| {
            let mut bytes = self.files.read_block(located.slot());
            let is_whole = crc32c::crc32c(&bytes) == located.checksum();
            let is_sound = match (self.space(number).cipher(), located.seal()) {
                (None, None) => true,
                (Some(cipher), Some(seal)) => is_whole && cipher.unseal(seal, &mut bytes),
                _ => false,
            };
            (bytes, is_whole && is_sound)
        });
        self.store.release(run);
        found
    }
}

pub fn reopened(files: &RecordedFiles) -> RecordedFiles {
    RecordedFiles::new(files.image(), Omitted::Nothing)
}

#[test]
fn a_block_is_found_in_its_namespace_only_also_after_a_restart() {
    let files = RecordedFiles::empty();
    let tenants = open_tenants(&files).unwrap();
    for (at, space) in tenants.spaces.iter().enumerate() {
        assert!(
            tenants.put_in(space, 1, None, at as u64).unwrap(),
            "the key of another namespace is another one"
        );
    }
    drop(tenants);
    let tenants = open_tenants(&reopened(&files)).unwrap();
    let slots = tenants.spaces.each_ref().map(|space| {
        let run = tenants.store.hold_run(&[space.key(key(1))]).unwrap();
        let slot = run[0].slot();
        tenants.store.release(run);
        slot
    });
    assert_eq!(slots.iter().collect::<HashSet<_>>().len(), 3);
    for space in &tenants.spaces {
        assert_eq!(tenants.store.counts_of(space.number()).stored, 1);
        let mut listed = Vec::new();
        tenants.store.list(space.number(), 0, 8, |entry| listed.push(entry));
        let [entry] = &listed[..] else { panic!("{listed:?}") };
        let seal = entry.seal.as_ref().zip(space.cipher());
        let found = seal.map_or(entry.block, |(seal, cipher)| cipher.block(seal).unwrap());
        assert_eq!(found.key.bytes(), key(1).bytes());
    }
    assert_eq!(tenants.store.counts().stored, 3);
}

#[test]
fn neither_keys_nor_bytes_of_an_encrypted_namespace_are_in_the_files() {
    let files = RecordedFiles::empty();
    let tenants = open_tenants(&files).unwrap();
    for number in [1, 12] {
        assert!(tenants.put(number, Some(number - 1), 1).unwrap());
        let mut all = Vec::new();
        for file in [StoreFile::Journal, StoreFile::Blocks, StoreFile::Namespaces] {
            files.change(file, |bytes| all.extend_from_slice(bytes));
        }
        let is_there = |wanted: &[u8]| all.windows(wanted.len()).any(|found| found == wanted);
        for wanted in [key(number).bytes(), key(number - 1).bytes(), &bytes(number, 1)[..16]] {
            assert_eq!(is_there(wanted), number == 1, "{wanted:x?} of block {number}");
        }
        assert!(!is_there(&[7; 32]), "the secret");
    }
}

#[test]
fn a_namespace_is_opened_with_its_own_secret_only() {
    let files = RecordedFiles::empty();
    drop(open_tenants(&files).unwrap());
    let store = open(&files, Durability::Strict).unwrap();
    let refused = [
        (
            config("sealed", 0, secret(8)),
            Status::PermissionDenied,
            "key is not that of the namespace 'sealed'",
        ),
        (config("sealed", 0, None), Status::PermissionDenied, "is encrypted, and key is NULL"),
        (config("plain", 0, secret(7)), Status::InvalidArgument, "is not encrypted, and a key is given"),
        (config("other", 0, secret(7)), Status::InvalidArgument, "is new, and quota is 0"),
        (
            config("other", 4, None),
            Status::OutOfRange,
            "the quotas of all namespaces would have 9 slots, 1 more than the store",
        ),
        (
            config("sealed", 6, secret(7)),
            Status::OutOfRange,
            "the quotas of all namespaces would have 9 slots",
        ),
        (config(&"n".repeat(129), 1, None), Status::InvalidArgument, "has 129 bytes"),
    ];
    for (config, status, message) in refused {
        store.open_namespace(&config).err().unwrap().assert_is(status, message);
    }
    store.open_namespace(&config("sealed", 0, secret(7))).unwrap();
    assert_eq!(Secret::new(&[1; 31]).err().unwrap().status(), Status::InvalidArgument);
}

#[test]
fn a_quota_that_is_changed_is_kept_over_a_restart() {
    let files = RecordedFiles::empty();
    let tenants = open_tenants(&files).unwrap();
    (6..9).for_each(|number| assert!(tenants.put(number, None, 1).unwrap()));
    drop(tenants);
    let store = open(&files, Durability::Strict).unwrap();
    let plain = store.open_namespace(&config("plain", 1, None)).unwrap();
    drop(store);
    let store = open(&reopened(&files), Durability::Strict).unwrap();
    let counts = store.counts_of(plain.number());
    assert_eq!((counts.slots, counts.stored), (1, 3), "they are evicted when slots are needed");
    assert_eq!(store.counts().slots, 8);
}

#[test]
fn a_removed_namespace_leaves_its_quota_and_its_number_is_not_used_again() {
    let files = RecordedFiles::empty();
    let tenants = open_tenants(&files).unwrap();
    assert!(tenants.put(12, None, 1).unwrap() && tenants.put(6, None, 1).unwrap());
    tenants
        .store
        .remove_namespace("sealed")
        .unwrap_err()
        .assert_is(Status::Busy, "is open by 1 handle; destroy it, and wait");
    let Tenants { store, spaces: [_, plain, sealed], .. } = tenants;
    let held = store.hold_run(&[sealed.key(key(12))]).unwrap();
    let number = sealed.number();
    drop(sealed);
    assert_eq!(store.remove_namespace("sealed").unwrap_err().status(), Status::Busy, "its block is read");
    store.release(held);
    assert_eq!(store.remove_namespace("sealed").unwrap(), 1);
    assert_eq!(store.remove_namespace("sealed").unwrap_err().status(), Status::NotFound);
    assert_eq!((store.counts().stored, store.counts_of(number).stored), (1, 0));
    drop(store);
    let store = open(&reopened(&files), Durability::Strict).unwrap();
    let again = store.open_namespace(&config("sealed", 5, None)).unwrap();
    assert!(again.number() > number && again.number() != plain.number());
    assert_eq!(store.counts().stored, 1);
}

#[test]
fn each_call_that_fails_while_a_namespace_is_opened_leaves_the_list_before_or_the_new_one() {
    for after in 1.. {
        let files = RecordedFiles::empty();
        let store = open(&files, Durability::Strict).unwrap();
        let before = files.calls();
        files.fail(after, Errno::NOSPC, false);
        let made = store.open_namespace(&config("a", 2, None));
        if files.calls() - before < after {
            assert!(made.is_ok(), "a failure was not reported");
            return;
        }
        assert_eq!(made.err().unwrap().status(), Status::OutOfMemory, "call {after}");
        store.open_namespace(&config("b", 2, secret(1))).unwrap();
        drop(store);
        let store = open(&reopened(&files), Durability::Strict).unwrap();
        store.open_namespace(&config("b", 0, secret(1))).unwrap();
        assert_eq!(
            store.open_namespace(&config("a", 0, None)).err().unwrap().status(),
            Status::InvalidArgument
        );
    }
}

#[test]
fn a_reader_finds_the_namespaces_of_its_writer() {
    let files = RecordedFiles::empty();
    let tenants = open_tenants(&files).unwrap();
    let policy = Policy { access: Access::Read, ..policy(Durability::Strict) };
    let reader = Store::open_to_read(files.clone(), &identity("llama"), policy).unwrap();
    let late = tenants.store.open_namespace(&config("late", 1, secret(3))).unwrap();
    assert!(tenants.put_in(&late, 1, None, 1).unwrap());
    reader.open_namespace(&config("none", 1, None)).err().unwrap().assert_is(Status::NotFound, "");
    assert_eq!(
        reader.open_namespace(&config("late", 0, secret(4))).err().unwrap().status(),
        Status::PermissionDenied
    );
    let space = reader.open_namespace(&config("late", 0, secret(3))).unwrap();
    reader.flush().unwrap();
    let run = reader.hold_run(&[space.key(key(1))]).unwrap();
    let mut found = files.read_block(run[0].slot());
    assert!(space.cipher().unwrap().unseal(run[0].seal().unwrap(), &mut found));
    assert_eq!(found, bytes(1, 1));
    reader.release(run);
    assert_eq!(reader.remove_namespace("late").unwrap_err().status(), Status::PermissionDenied);
}

#[test]
fn an_encrypted_block_is_that_of_its_key_namespace_and_store() {
    let (files, others) = (RecordedFiles::empty(), RecordedFiles::empty());
    let (own, other) = (open_tenants(&files).unwrap(), open_tenants(&others).unwrap());
    let second = own.store.open_namespace(&config("second", 1, secret(7))).unwrap();
    let ciphers = [&own.spaces[2], &other.spaces[2], &second].map(|space| space.cipher().unwrap());
    let block = NewBlock { key: key(1), parent: Some(key(2)) };
    let plain = bytes(1, 1);
    let mut sealed = plain.clone();
    let seal = ciphers[0].seal(&block, &mut sealed).unwrap();
    let opened = |cipher: &crate::store::Cipher, change: &dyn Fn(&mut crate::store::Seal, &mut Vec<u8>)| {
        let (mut seal, mut bytes) = (seal.clone(), sealed.clone());
        change(&mut seal, &mut bytes);
        let before = bytes.clone();
        let is_sound = cipher.unseal(&seal, &mut bytes);
        assert_eq!(
            bytes,
            if is_sound { plain.clone() } else { before },
            "no byte of a wrong block is decrypted"
        );
        is_sound
    };
    assert!(opened(ciphers[0], &|_, _| ()));
    assert!(!opened(ciphers[1], &|_, _| ()), "the same name and secret in another store");
    assert!(!opened(ciphers[2], &|_, _| ()), "the same secret in another namespace");
    assert!(!opened(ciphers[0], &|_, bytes| bytes[BLOCK - 1] ^= 1));
    assert!(!opened(ciphers[0], &|seal, _| seal.nonce[23] ^= 1));
    assert!(!opened(ciphers[0], &|seal, _| seal.tag[0] ^= 1));
    assert!(!opened(ciphers[0], &|seal, _| seal.hash[0] ^= 1), "the block of another key");
    assert!(!opened(ciphers[0], &|seal, _| seal.keys[127] ^= 1), "another parent");
    assert!(!opened(ciphers[0], &|seal, _| seal.sizes[1] = 0), "no parent");
    assert_eq!(ciphers[0].block(&seal).unwrap().parent.unwrap(), key(2));
    assert_eq!(ciphers[2].block(&seal).unwrap_err().status(), Status::Corrupt);
    let damaged = crate::store::Seal { keys: [0; 128], ..seal.clone() };
    assert_eq!(ciphers[0].block(&damaged).unwrap_err().status(), Status::Corrupt);
}

/// Others could write records for ever, and none of them would help.
#[test]
fn records_of_others_are_no_space_for_a_namespace_whose_blocks_are_all_pinned() {
    for evicts in [true, false] {
        let policy = Policy { evicts, ..policy(Durability::Relaxed) };
        let files = RecordedFiles::empty();
        let store = Store::open_or_create(files.clone(), &identity("llama"), SLOTS, policy).unwrap();
        let plain = store.open_namespace(&config("plain", 3, None)).unwrap();
        let others = Tenants { store, files, spaces: [Arc::default(), plain.clone(), Arc::default()] };
        (6..9).for_each(|number| assert!(others.put(number, None, 1).unwrap()));
        others.store.pin((6..9).map(|number| others.key(number)), true).unwrap();
        let new = [plain.block(NewBlock { key: key(9), parent: None })];
        assert!(others.put(1, None, 1).unwrap() && others.put(2, None, 1).unwrap(), "stored by others");
        assert_eq!(others.store.remove(&[key(1)]).unwrap(), 1);
        assert!(!others.store.make_free(&new).unwrap(), "nothing was freed for it");
        let expected = if evicts { Status::Busy } else { Status::OutOfMemory };
        assert_eq!(others.store.reserve(&new).unwrap_err().status(), expected);
    }
}

/// Quotas keep their slots when slots are retired: what a quota permits may not be there, and what others use of theirs is not evicted.
#[test]
fn slots_that_were_retired_are_not_waited_for() {
    for (evicts, of_other) in [(true, 0), (false, 0), (true, 4), (false, 4)] {
        let (files, policy) = (RecordedFiles::empty(), Policy { evicts, ..policy(Durability::Relaxed) });
        let store = Store::open_or_create(files.clone(), &identity("llama"), SLOTS, policy).unwrap();
        let plain = store.open_namespace(&config("plain", SLOTS - of_other, None)).unwrap();
        let other = match of_other {
            0 => plain.clone(),
            _ => store.open_namespace(&config("other", of_other, None)).unwrap(),
        };
        let tenants = Tenants { store, files, spaces: [Arc::default(), plain.clone(), other] };
        let (retired, kept) = (6..6 + SLOTS - of_other - 1, 12..12 + of_other);
        for number in retired {
            assert!(tenants.put_in(&plain, number, None, 1).unwrap());
            let run = tenants.store.hold_run(&[plain.key(key(number))]).unwrap();
            tenants.store.release_damaged(run, &[0]).unwrap();
        }
        kept.clone().for_each(|number| assert!(tenants.put(number, None, 1).unwrap()));
        let blocks = [20, 21].map(|number| plain.block(NewBlock { key: key(number), parent: None }));
        tenants
            .store
            .reserve(&blocks)
            .unwrap_err()
            .assert_is(Status::OutOfMemory, "a retired slot, whose bytes were damaged, is not used again");
        assert_eq!(tenants.store.reserve(&blocks[..1]).unwrap().len(), 1, "one is left");
        kept.for_each(|number| assert!(tenants.has(number)));
    }
}

#[test]
fn a_put_without_space_names_what_takes_it() {
    let (files, policy) = (RecordedFiles::empty(), Policy { evicts: false, ..policy(Durability::Relaxed) });
    let store = Store::open_or_create(files.clone(), &identity("llama"), SLOTS, policy).unwrap();
    let mut tenants = Tenants { store, files, spaces: Default::default() };
    (0..6).for_each(|number| assert!(tenants.put(number, None, 1).unwrap()));
    let plain = tenants.store.open_namespace(&config("plain", 5, None)).unwrap();
    tenants.spaces[1] = plain.clone();
    let refused = |space: &Namespace, numbers: std::ops::Range<u64>, status, expected: &str| {
        let blocks: Vec<_> =
            numbers.map(|number| space.block(NewBlock { key: key(number), parent: None })).collect();
        tenants.store.reserve(&blocks).unwrap_err().assert_is(status, expected);
    };
    // Blocks in no namespace use three more than their slots.
    refused(
        &plain,
        6..9,
        Status::OutOfMemory,
        "); the others are retired, or used by blocks of other namespaces or of none: ",
    );
    let unnamed = tenants.spaces[0].clone();
    refused(
        &unnamed,
        20..21,
        Status::OutOfMemory,
        "); remove blocks by kvmem_store_remove, or let the store evict",
    );
    (6..8).for_each(|number| assert!(tenants.put(number, None, 1).unwrap()));
    tenants.store.open_namespace(&config("plain", 2, None)).unwrap();
    refused(
        &plain,
        8..9,
        Status::OutOfMemory,
        "); remove blocks by kvmem_store_remove, set a higher quota, or let the store",
    );
    tenants.store.open_namespace(&config("plain", SLOTS, None)).unwrap();
    refused(
        &unnamed,
        20..21,
        Status::OutOfRange,
        "); lower quotas, open a namespace for these blocks, or create",
    );
}

#[test]
fn slots_of_removed_blocks_are_used_before_others_are_evicted() {
    let files = RecordedFiles::empty();
    let store = open(&files, Durability::Relaxed).unwrap();
    let all: Vec<_> = (0..SLOTS).map(|number| (number, None, 1)).collect();
    assert_eq!(put(&store, &files, &all).unwrap().len(), SLOTS as usize);
    assert_eq!(store.remove(&[key(3), key(4)]).unwrap(), 2);
    assert_eq!(put(&store, &files, &[(20, None, 1), (21, None, 1)]).unwrap(), [20, 21]);
    assert_eq!((store.counts().stored, store.counts().evicted), (SLOTS, 0));
}

#[test]
fn a_removed_namespace_leaves_nothing_in_memory() {
    let mut pools = crate::store::pools::Pools::default();
    (1..=3).for_each(|number| pools.set_quota(number, 2));
    pools.of_mut(2).used = 1;
    (1..=3).for_each(|number| pools.set_quota(number, 0));
    assert!(pools.get(1).is_none() && pools.get(3).is_none() && pools.limit(0, 8) == 8);
    assert!(pools.get(2).is_some(), "its block has a slot");
    // A journal may have records of namespaces that were removed since.
    assert!(pools.of_mut(4).used == 0 && pools.get(4).is_some());
    pools.list(std::iter::empty());
    assert!(pools.get(4).is_none() && pools.get(2).is_some());
}

#[test]
fn a_reader_goes_on_counting_for_namespaces_that_have_a_quota_or_slots() {
    let [mut before, mut after] = [(); 2].map(|()| crate::store::pools::Pools::default());
    before.set_quota(1, 2);
    (0..=3).for_each(|number| before.of_mut(number).counts.hits = 5);
    after.of_mut(3).used = 1;
    after.follow(&before);
    let hits = |number| after.get(number).map(|pool| pool.counts.hits);
    assert_eq!([0, 1, 2, 3].map(hits), [Some(5), Some(5), None, Some(5)]);
}

#[test]
fn a_name_adds_no_line_to_a_description() {
    let store = open(&RecordedFiles::empty(), Durability::Strict).unwrap();
    for name in ["a\nwriter     none", "\x1b[2J", "\u{85}"] {
        let error = store.open_namespace(&config(name, 1, None)).err().unwrap();
        assert_eq!(error.status(), Status::InvalidArgument);
        assert!(!error.message().contains(char::is_control), "{error}");
    }
    store.open_namespace(&config("Mandant 7 – ü", 1, None)).unwrap();
}
