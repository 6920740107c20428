// SPDX-License-Identifier: Apache-2.0
//! A record of the journal, byte by byte as in docs/store.md.

use super::key::Key;

/// A divisor of 512: a write that is torn at sectors leaves whole records.
pub const SIZE: usize = 256;

/// A change of the index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Record {
    /// The slot contains the block of the key, with this CRC32C.
    Stored { slot: u64, key: Key, parent: Option<Key>, checksum: u32 },
    /// The slot no longer contains the block of a key.
    Removed { slot: u64 },
    /// Bytes that were read from the slot were damaged; it is not used again.
    Retired { slot: u64 },
}

const STORED: u8 = 1;
const REMOVED: u8 = 2;
const RETIRED: u8 = 3;
const KEY: usize = 32;
const PARENT: usize = 96;
const RESERVED: usize = 160;

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
    /// Its bytes as the record with that number in the journal with that seed.
    pub fn to_bytes(self, sequence: u64, seed: u32) -> [u8; SIZE] {
        let mut bytes = [0; SIZE];
        let (kind, slot) = match self {
            Self::Stored { slot, .. } => (STORED, slot),
            Self::Removed { slot } => (REMOVED, slot),
            Self::Retired { slot } => (RETIRED, slot),
        };
        bytes[4] = kind;
        bytes[8..16].copy_from_slice(&sequence.to_le_bytes());
        bytes[16..24].copy_from_slice(&slot.to_le_bytes());
        if let Self::Stored { key, parent, checksum, .. } = self {
            bytes[24..28].copy_from_slice(&checksum.to_le_bytes());
            bytes[5] = put(&mut bytes[KEY..PARENT], key.bytes());
            bytes[6] = parent.map_or(0, |parent| put(&mut bytes[PARENT..RESERVED], parent.bytes()));
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
        let known = bytes[7] == 0 && half(28) == 0 && bytes[RESERVED..].iter().all(|byte| *byte == 0);
        let slot = number(16);
        let key = |at: usize, size: u8| Key::new(&bytes[at..bytes.len().min(at + usize::from(size))]).ok();
        let record = match bytes[4] {
            STORED => key(KEY, bytes[5]).and_then(|stored| {
                let parent = (bytes[6] > 0).then(|| key(PARENT, bytes[6]));
                let is_known = parent != Some(None);
                is_known.then_some(Self::Stored {
                    slot,
                    key: stored,
                    parent: parent.flatten(),
                    checksum: half(24),
                })
            }),
            REMOVED => Some(Self::Removed { slot }),
            RETIRED => Some(Self::Retired { slot }),
            _ => None,
        };
        record.filter(|_| known).map_or(Read::Newer, Read::Record)
    }
}

/// Copies the bytes of a key. Returns their number.
fn put(to: &mut [u8], key: &[u8]) -> u8 {
    to[..key.len()].copy_from_slice(key);
    key.len() as u8
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stored() -> Record {
        let key = |byte, size| Key::new(&vec![byte; size]).unwrap();
        Record::Stored { slot: 1 << 40, key: key(3, 16), parent: Some(key(4, 64)), checksum: 0x1234_5678 }
    }

    #[test]
    fn records_are_read_as_they_were_written() {
        let records = [stored(), Record::Removed { slot: 7 }, Record::Retired { slot: u64::MAX }];
        for record in records {
            let bytes = record.to_bytes(9, 5);
            assert_eq!(Record::from_bytes(&bytes, 9, 5), Read::Record(record));
            assert_eq!(Record::from_bytes(&bytes, 10, 5), Read::Damaged, "another number");
            assert_eq!(Record::from_bytes(&bytes, 9, 6), Read::Damaged, "another journal");
        }
    }

    #[test]
    fn each_flipped_bit_is_found() {
        let bytes = stored().to_bytes(9, 5);
        for bit in 0..8 * SIZE {
            let mut damaged = bytes;
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(Record::from_bytes(&damaged, 9, 5), Read::Damaged, "bit {bit}");
        }
    }

    #[test]
    fn what_a_later_version_adds_is_no_damage() {
        for at in [4, 7, 28, RESERVED, SIZE - 1] {
            let mut newer = stored().to_bytes(9, 5);
            newer[at] = 77;
            let checksum = crc32c::crc32c_append(5, &newer[4..]);
            newer[..4].copy_from_slice(&checksum.to_le_bytes());
            assert_eq!(Record::from_bytes(&newer, 9, 5), Read::Newer, "byte {at}");
        }
    }
}
