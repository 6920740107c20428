// SPDX-License-Identifier: Apache-2.0
//! A record of the journal, byte by byte as in docs/store.md.

use std::sync::Arc;

use super::key::Key;
use super::seal::{HASH, KEYS, NONCE, Seal, TAG};

/// A divisor of 512: a write that is torn at sectors leaves whole records.
pub const SIZE: usize = 256;

/// A change of the index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Record {
    /// The slot contains the block of the key, with this CRC32C.
    Stored { slot: u64, key: Key, parent: Option<Key>, checksum: u32, seal: Option<Arc<Seal>> },
    /// The slot no longer contains the block of a key.
    Removed { slot: u64 },
    /// Bytes that were read from the slot were damaged; it is not used again.
    Retired { slot: u64 },
}

const STORED: u8 = 1;
const REMOVED: u8 = 2;
const RETIRED: u8 = 3;
const SEALED: u8 = 4;
const NAMESPACE: usize = 28;
const KEY: usize = 32;
const PARENT: usize = 96;
const RESERVED: usize = 160;
// Of a block that is encrypted: hashes of both keys, the encrypted keys, nonce and tag.
const PARENT_HASH: usize = KEY + HASH;
const SEALED_KEYS: usize = PARENT_HASH + HASH;
const NONCE_AT: usize = SEALED_KEYS + KEYS;
const TAG_AT: usize = NONCE_AT + NONCE;
const SEALED_RESERVED: usize = TAG_AT + TAG;

/// What the bytes of a record are.
#[derive(Debug, PartialEq, Eq)]
pub enum Read {
    Record(Record),
    /// They were not written completely, or were damaged later, or are of another journal.
    Damaged,
    /// They are valid, with content that this version does not know.
    Newer,
}

impl Record {
    /// That of the block; 0 for none, and unless it is stored.
    pub fn namespace(&self) -> u32 {
        if let Self::Stored { key, .. } = self { key.namespace() } else { 0 }
    }

    /// Its bytes as the record with that number in the journal with that seed.
    pub fn to_bytes(&self, sequence: u64, seed: u32) -> [u8; SIZE] {
        let mut bytes = [0; SIZE];
        let (kind, slot) = match self {
            Self::Stored { slot, seal: None, .. } => (STORED, slot),
            Self::Stored { slot, .. } => (SEALED, slot),
            Self::Removed { slot } => (REMOVED, slot),
            Self::Retired { slot } => (RETIRED, slot),
        };
        bytes[4] = kind;
        bytes[8..16].copy_from_slice(&sequence.to_le_bytes());
        bytes[16..24].copy_from_slice(&slot.to_le_bytes());
        if let Self::Stored { key, parent, checksum, seal, .. } = self {
            bytes[24..28].copy_from_slice(&checksum.to_le_bytes());
            bytes[NAMESPACE..KEY].copy_from_slice(&key.namespace().to_le_bytes());
            let parent = parent.as_ref().map_or(&[][..], Key::bytes);
            match seal {
                None => {
                    bytes[5] = put(&mut bytes[KEY..PARENT], key.bytes());
                    bytes[6] = put(&mut bytes[PARENT..RESERVED], parent);
                }
                Some(seal) => {
                    bytes[5..7].copy_from_slice(&seal.sizes);
                    put(&mut bytes[KEY..PARENT_HASH], &seal.hash);
                    put(&mut bytes[PARENT_HASH..SEALED_KEYS], parent);
                    put(&mut bytes[SEALED_KEYS..NONCE_AT], &seal.keys);
                    put(&mut bytes[NONCE_AT..TAG_AT], &seal.nonce);
                    put(&mut bytes[TAG_AT..SEALED_RESERVED], &seal.tag);
                }
            }
        }
        let checksum = crc32c::crc32c_append(seed, &bytes[4..]);
        bytes[..4].copy_from_slice(&checksum.to_le_bytes());
        bytes
    }

    /// The record in some bytes, if it has that number in the journal with that seed.
    pub fn from_bytes(bytes: &[u8; SIZE], sequence: u64, seed: u32) -> Read {
        let number =
            |at: usize| bytes[at..at + 8].iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte));
        let half = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        if half(0) != crc32c::crc32c_append(seed, &bytes[4..]) || number(8) != sequence {
            return Read::Damaged;
        }
        let namespace = half(NAMESPACE);
        let (is_stored, reserved) = match bytes[4] {
            STORED => (true, RESERVED),
            SEALED => (namespace > 0, SEALED_RESERVED),
            _ => (namespace == 0, RESERVED),
        };
        let known = is_stored && bytes[7] == 0 && bytes[reserved..].iter().all(|byte| *byte == 0);
        let slot = number(16);
        let key = |at: usize, size: u8| {
            let key = Key::new(&bytes[at..bytes.len().min(at + usize::from(size))]);
            key.ok().map(|key| key.in_namespace(namespace))
        };
        let checksum = half(24);
        let record = match bytes[4] {
            STORED => key(KEY, bytes[5]).and_then(|stored| {
                let parent = (bytes[6] > 0).then(|| key(PARENT, bytes[6]));
                let is_known = parent != Some(None);
                let parent = parent.flatten();
                is_known.then_some(Self::Stored { slot, key: stored, parent, checksum, seal: None })
            }),
            SEALED => key(KEY, HASH as u8).map(|stored| {
                let parent = (bytes[6] > 0).then(|| key(PARENT_HASH, HASH as u8)).flatten();
                let seal = Seal {
                    hash: part(bytes, KEY),
                    sizes: part(bytes, 5),
                    keys: part(bytes, SEALED_KEYS),
                    nonce: part(bytes, NONCE_AT),
                    tag: part(bytes, TAG_AT),
                };
                Self::Stored { slot, key: stored, parent, checksum, seal: Some(Arc::new(seal)) }
            }),
            REMOVED => Some(Self::Removed { slot }),
            RETIRED => Some(Self::Retired { slot }),
            _ => None,
        };
        record.filter(|_| known).map_or(Read::Newer, Read::Record)
    }
}

/// The bytes of a record from there on.
fn part<const N: usize>(bytes: &[u8; SIZE], at: usize) -> [u8; N] {
    let mut part = [0; N];
    part.copy_from_slice(&bytes[at..at + N]);
    part
}

/// Copies bytes, such as those of a key. Returns their number.
fn put(to: &mut [u8], bytes: &[u8]) -> u8 {
    to[..bytes.len()].copy_from_slice(bytes);
    bytes.len() as u8
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stored() -> Record {
        let key = |byte, size| Key::new(&vec![byte; size]).unwrap().in_namespace(7);
        let (key, parent) = (key(3, 16), Some(key(4, 64)));
        Record::Stored { slot: 1 << 40, key, parent, checksum: 0x1234_5678, seal: None }
    }

    fn sealed(has_parent: bool) -> Record {
        let key = |byte| Key::new(&[byte; HASH]).unwrap().in_namespace(7);
        let sizes = [16, if has_parent { 64 } else { 0 }];
        let seal = Seal { hash: [3; HASH], sizes, keys: [5; KEYS], nonce: [6; NONCE], tag: [7; TAG] };
        let (key, parent) = (key(3), has_parent.then(|| key(4)));
        Record::Stored { slot: 1 << 40, key, parent, checksum: 0x1234_5678, seal: Some(Arc::new(seal)) }
    }

    #[test]
    fn records_are_read_as_they_were_written() {
        let (removed, retired) = (Record::Removed { slot: 7 }, Record::Retired { slot: u64::MAX });
        let records = [stored(), sealed(true), sealed(false), removed, retired];
        for record in records {
            let bytes = record.to_bytes(9, 5);
            assert_eq!(Record::from_bytes(&bytes, 9, 5), Read::Record(record));
            assert_eq!(Record::from_bytes(&bytes, 10, 5), Read::Damaged, "another number");
            assert_eq!(Record::from_bytes(&bytes, 9, 6), Read::Damaged, "another journal");
        }
    }

    #[test]
    fn each_flipped_bit_is_found() {
        for bytes in [stored(), sealed(true)].map(|record| record.to_bytes(9, 5)) {
            for bit in 0..8 * SIZE {
                let mut damaged = bytes;
                damaged[bit / 8] ^= 1 << (bit % 8);
                assert_eq!(Record::from_bytes(&damaged, 9, 5), Read::Damaged, "bit {bit}");
            }
        }
    }

    #[test]
    fn what_a_later_version_adds_is_no_damage() {
        let removed = Record::Removed { slot: 7 };
        let cases =
            [(stored(), [4, 7, RESERVED, SIZE - 1]), (sealed(true), [4, 7, SEALED_RESERVED, SIZE - 1])];
        let of_a_removal = (removed, [4, 7, NAMESPACE, RESERVED]);
        for (record, places) in cases.into_iter().chain([of_a_removal]) {
            for at in places {
                let mut newer = record.to_bytes(9, 5);
                newer[at] = 77;
                let checksum = crc32c::crc32c_append(5, &newer[4..]);
                newer[..4].copy_from_slice(&checksum.to_le_bytes());
                assert_eq!(Record::from_bytes(&newer, 9, 5), Read::Newer, "byte {at}");
            }
        }
    }
}
