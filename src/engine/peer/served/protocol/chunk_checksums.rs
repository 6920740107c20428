// SPDX-License-Identifier: Apache-2.0
//! Checksums of the chunks of a session. The side that fills a slot computes that of its bytes, and the other one computes it again: so it
//! finds bytes that were damaged on the way, were not moved, or were written to the slot by another session. Pure.

use super::message::SessionKey;
use super::session_control::{GrantedSlots, MAX_SLOTS};
use crate::base::{Result, ensure};
use crate::engine::peer::staged::Checksums;

/// The checksum of what precedes the bytes of a chunk: its session and number. So the same bytes have another checksum in another session,
/// and in another chunk.
pub fn seed(session: SessionKey, chunk: u64) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&session.0), &chunk.to_le_bytes())
}

/// The checksums of the last chunks, one for each slot of a session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ChunkChecksums(pub [u32; MAX_SLOTS]);

impl ChunkChecksums {
    pub fn get(&self, slots: &GrantedSlots, chunk: u64) -> u32 {
        self.0[slots.index(chunk)]
    }

    /// Replaces that of the chunk that had the slot before.
    pub fn set(&mut self, slots: &GrantedSlots, chunk: u64, checksum: u32) {
        self.0[slots.index(chunk)] = checksum;
    }
}

/// Fails if what was copied from a slot is not what the other side has put there, or has not reached the layout.
pub fn ensure_intact(chunk: u64, expected: u32, found: Checksums) -> Result<()> {
    ensure!(
        found.slot == expected,
        Corrupt,
        "chunk {chunk} has CRC32C {:#010x}, and {expected:#010x} where it was sent: its bytes were damaged on the way, were not moved, or \
         a late write of another session has replaced them; the destination has other bytes than the source",
        found.slot
    );
    ensure!(
        found.layout == expected,
        Corrupt,
        "chunk {chunk} has CRC32C {:#010x} in the destination, and {expected:#010x} in the staging memory that it was copied from",
        found.layout
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::Status;

    #[test]
    fn the_same_bytes_differ_between_sessions_and_rounds() {
        let checksum = |key, chunk| crc32c::crc32c_append(seed(SessionKey([key; 16]), chunk), b"bytes");
        let all = [checksum(1, 0), checksum(1, 4), checksum(2, 0), checksum(2, 4)];
        assert!((1..all.len()).all(|index| !all[..index].contains(&all[index])), "{all:?}");
    }

    #[test]
    fn slots_and_layouts_that_differ_have_messages_of_their_own() {
        assert!(ensure_intact(3, 7, Checksums { slot: 7, layout: 7 }).is_ok());
        for (slot, layout, text) in [(8, 8, "damaged on the way"), (7, 8, "in the destination")] {
            let error = ensure_intact(3, 7, Checksums { slot, layout }).unwrap_err();
            assert_eq!(error.status(), Status::Corrupt);
            assert!(error.message().contains(text) && error.message().contains("chunk 3"), "{error}");
        }
    }
}
