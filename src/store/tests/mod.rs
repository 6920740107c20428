// SPDX-License-Identifier: Apache-2.0
//! Stores on recorded files: crashes, failures of each call, damage.

mod commits;
mod crash;
mod damage;
mod evictable;
mod index;
mod lost_namespaces;
mod namespaces;
mod ranks;
mod reading;
mod recorded;
mod turns;

use super::{Access, Durability, Identity, Key, NewBlock, Policy, Reserved, Store, Written};
use crate::base::Result;
use crate::region::Label;
use recorded::RecordedFiles;

/// Bytes of a block. Each is two sectors.
pub const BLOCK: usize = 1024;
pub const SLOTS: u64 = 8;

pub fn identity(model: &str) -> Identity {
    let label = Label { bytes: b"layout".to_vec(), differences: |_, _| Ok(Vec::new()) };
    Identity::new(&[("model", model.as_bytes()), ("dtype", b"bf16")], label).unwrap()
}

pub fn key(number: u64) -> Key {
    Key::new(&[&number.to_le_bytes()[..], &[0xaa; 24]].concat()).unwrap()
}

/// The bytes of a block that is stored under a key for the nth time.
pub fn bytes(number: u64, version: u64) -> Vec<u8> {
    let mut state = number << 32 | version << 1 | 1;
    let next = |_| {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 56) as u8
    };
    (0..BLOCK).map(next).collect()
}

pub fn policy(durability: Durability) -> Policy {
    Policy { durability, evicts: true, access: Access::Write }
}

pub fn open(files: &RecordedFiles, durability: Durability) -> Result<Store<RecordedFiles>> {
    let store = Store::open_or_create(files.clone(), &identity("llama"), SLOTS, policy(durability))?;
    files.fill_new_blocks();
    Ok(store)
}

/// Stores blocks, each with its parent, as a transfer would. Returns the numbers of those that were written.
pub fn put(
    store: &Store<RecordedFiles>,
    files: &RecordedFiles,
    blocks: &[(u64, Option<u64>, u64)],
) -> Result<Vec<u64>> {
    let new = |(number, parent, _): &(u64, Option<u64>, u64)| NewBlock {
        key: key(*number),
        parent: parent.map(key),
    };
    let reserved = store.reserve(&blocks.iter().map(new).collect::<Vec<_>>())?;
    let (mut written, mut numbers) = (Vec::new(), Vec::new());
    for (reserved, (number, _, version)) in reserved.into_iter().zip(blocks) {
        let Some(reserved) = reserved else { continue };
        let bytes = bytes(*number, *version);
        files.write_block(reserved.slot(), &bytes);
        numbers.push(*number);
        written.push(super::tests::written(reserved, &bytes));
    }
    store.commit(written).map(|()| numbers)
}

pub fn written(slot: Reserved, bytes: &[u8]) -> Written {
    Written { slot, checksum: crc32c::crc32c(bytes), seal: None }
}

pub fn has(store: &Store<RecordedFiles>, number: u64) -> bool {
    let mut found = false;
    store.contains([key(number)].into_iter(), |is_stored| found = is_stored);
    found
}

/// The bytes that the store has under a key, and whether they have their checksum.
pub fn get(store: &Store<RecordedFiles>, files: &RecordedFiles, number: u64) -> Option<(Vec<u8>, bool)> {
    let run = store.hold_run(&[key(number)]).unwrap();
    let found = run.first().map(|located| {
        let bytes = files.read_block(located.slot());
        let is_whole = crc32c::crc32c(&bytes) == located.checksum();
        (bytes, is_whole)
    });
    store.release(run);
    found
}
