// SPDX-License-Identifier: Apache-2.0
//! The control block: the states of all sessions. It is at the start of the owner's arena, and requesters read it by NIXL, so
//! the owner sends nothing to them. docs/served-transfers.md specifies it byte by byte. Pure.
//!
//! A reader may read an entry while it is written. Then the checksum is wrong, and the reader reads it again, however long that
//! takes: the owner's thread may not be scheduled meanwhile. The key is not torn, because it is replaced by itself.

use std::ops::Deref;
use std::time::Duration;

pub use super::message::MAX_SLOTS;
use super::message::SessionKey;
use crate::base::{Error, Result, Status, ensure, fail};
use crate::engine::peer::staged::Checksums;
use crate::nixl::ServiceId;
use crate::run::Granted;

pub const SIZE: usize = 4096;
/// Bytes of an entry, and of the head.
pub const ENTRY: usize = 256;
pub const ENTRIES: usize = SIZE / ENTRY - 1;

/// The first word of an entry that was not read yet: no service, no session and no memory that was freed begins with it.
pub const UNREAD: u64 = !u64::from_ne_bytes(*MAGIC);
const MAGIC: &[u8; 8] = b"KVMEMSRC";
const VERSION: u32 = 2;
const OPEN: u32 = 1;
const ENDED: u32 = 2;
const UNKNOWN: u32 = 3;
const LEASED: u32 = 4;
/// The offset of the checksum in an entry.
const CHECKSUM: usize = ENTRY - 4;
/// The offsets of the checksums of chunks, and of a reason.
const CHECKSUMS: usize = 64;
const REASON: usize = 64;
const MAX_REASON: usize = CHECKSUM - REASON;

/// The head, which identifies the service. Writes of a session begin within the lease.
pub fn head(service: &ServiceId, lease: Duration) -> [u8; ENTRY] {
    let milliseconds = u32::try_from(lease.as_millis()).unwrap_or(u32::MAX).max(1);
    let mut bytes = [0; ENTRY];
    bytes[..8].copy_from_slice(MAGIC);
    bytes[8..12].copy_from_slice(&VERSION.to_le_bytes());
    bytes[12..16].copy_from_slice(&milliseconds.to_le_bytes());
    bytes[16..32].copy_from_slice(&service.0);
    sealed(bytes)
}

/// The lease of writes. Fails if the bytes are not the control block of the service: its memory was freed, or its owner has
/// ended it.
pub fn lease_of(bytes: &[u8; SIZE], service: &ServiceId) -> Result<Duration> {
    let word = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
    let version = word(8);
    ensure!(
        bytes[..8] != UNREAD.to_ne_bytes(),
        Nixl,
        "NIXL reports that the owner's control block was read, and has moved nothing"
    );
    ensure!(
        bytes.starts_with(MAGIC) && bytes[16..32] == service.0,
        Stale,
        "the owner serves the layout no more; it has destroyed it, and its bytes may be anything now"
    );
    ensure!(
        version == VERSION,
        VersionMismatch,
        "the owner serves by version {version} of the protocol, this library by version {VERSION}; use the same version of kvmem on \
         both sides"
    );
    Ok(Duration::from_millis(word(12).into()))
}

/// Slots of an arena that a session has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GrantedSlots {
    slots: [u32; MAX_SLOTS],
    count: usize,
}

impl GrantedSlots {
    /// The slots; no more than a session can have.
    pub fn new(slots: &[u32]) -> Self {
        let mut granted = Self { count: slots.len().min(MAX_SLOTS), ..Self::default() };
        granted.slots.iter_mut().zip(slots).for_each(|(place, slot)| *place = *slot);
        granted
    }

    /// The slot of a chunk. Slots are used one after the other.
    pub fn of_chunk(&self, chunk: u64) -> u32 {
        self[self.index(chunk)]
    }

    pub fn index(&self, chunk: u64) -> usize {
        (chunk % self.count.max(1) as u64) as usize
    }
}

impl Deref for GrantedSlots {
    type Target = [u32];

    fn deref(&self) -> &[u32] {
        &self.slots[..self.count]
    }
}

/// What a control block has of a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Entry {
    /// The owner does not know the session yet, or it has ended long ago.
    Missing,
    /// It was read while it was written.
    Torn,
    State(SessionState),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SessionState {
    /// It has these slots of the arena, and the owner has gathered or scattered `chunks` chunks. The checksums are of the chunks that
    /// were last gathered in each slot.
    Open { slots: GrantedSlots, chunks: u64, checksums: [u32; MAX_SLOTS] },
    /// It was refused or has ended, with this status and reason.
    Ended { status: i32, reason: String },
    /// The owner got a report of it and knows no such session or lease: its request was lost.
    Unknown,
    /// It is a lease of blocks.
    Leased(Granted),
}

impl SessionState {
    /// The end of a session by an error.
    pub fn failed(error: &Error) -> Self {
        Self::Ended { status: error.status() as i32, reason: error.message().to_string() }
    }

    /// The error of a session that has ended. The text comes from another process.
    pub fn error(status: i32, reason: &str) -> Error {
        Error::new(Status::from_code(status).unwrap_or(Status::Corrupt), reason.to_string())
    }

    pub fn entry(&self, session: SessionKey) -> [u8; ENTRY] {
        let mut bytes = [0; ENTRY];
        bytes[..16].copy_from_slice(&session.0);
        match self {
            Self::Open { slots, chunks, checksums } => {
                bytes[16..20].copy_from_slice(&OPEN.to_le_bytes());
                bytes[20..24].copy_from_slice(&(slots.len() as u32).to_le_bytes());
                bytes[24..32].copy_from_slice(&chunks.to_le_bytes());
                for (place, slot) in bytes[32..].chunks_exact_mut(4).zip(slots.iter()) {
                    place.copy_from_slice(&slot.to_le_bytes());
                }
                for (place, checksum) in bytes[CHECKSUMS..].chunks_exact_mut(4).zip(checksums) {
                    place.copy_from_slice(&checksum.to_le_bytes());
                }
            }
            Self::Ended { status, reason } => {
                bytes[16..20].copy_from_slice(&ENDED.to_le_bytes());
                bytes[24..28].copy_from_slice(&status.to_le_bytes());
                let mut length = reason.len().min(MAX_REASON);
                while !reason.is_char_boundary(length) {
                    length -= 1;
                }
                bytes[20..24].copy_from_slice(&(length as u32).to_le_bytes());
                bytes[REASON..REASON + length].copy_from_slice(&reason.as_bytes()[..length]);
            }
            Self::Unknown => bytes[16..20].copy_from_slice(&UNKNOWN.to_le_bytes()),
            Self::Leased(Granted { number, milliseconds }) => {
                bytes[16..20].copy_from_slice(&LEASED.to_le_bytes());
                bytes[24..32].copy_from_slice(&number.to_le_bytes());
                bytes[32..36].copy_from_slice(&milliseconds.to_le_bytes());
            }
        }
        sealed(bytes)
    }

    /// Returns the entry of a session. The bytes may be invalid.
    pub fn find(bytes: &[u8; SIZE], session: SessionKey, max_slots: u32) -> Result<Entry> {
        let mut entries = bytes[ENTRY..].chunks_exact(ENTRY);
        let Some(entry) = entries.find(|entry| entry.starts_with(&session.0)) else {
            return Ok(Entry::Missing);
        };
        let word = |at: usize| u32::from_le_bytes([entry[at], entry[at + 1], entry[at + 2], entry[at + 3]]);
        if word(CHECKSUM) != crc32c::crc32c(&entry[..CHECKSUM]) {
            return Ok(Entry::Torn);
        }
        let (state, length) = (word(16), word(20) as usize);
        let number = u64::from(word(24)) | u64::from(word(28)) << 32;
        match state {
            OPEN if (1..=MAX_SLOTS).contains(&length) => {
                let words: [u32; MAX_SLOTS] = std::array::from_fn(|index| word(32 + 4 * index));
                let slots = GrantedSlots::new(&words[..length]);
                let are_different = (1..length).all(|index| !slots[..index].contains(&slots[index]));
                ensure!(
                    are_different && slots.iter().all(|slot| *slot < max_slots),
                    Corrupt,
                    "the owner granted slots that its arena does not have, or one twice"
                );
                let checksums = std::array::from_fn(|index| word(CHECKSUMS + 4 * index));
                Ok(Entry::State(Self::Open { slots, chunks: number, checksums }))
            }
            ENDED if length <= MAX_REASON => {
                let reason = String::from_utf8_lossy(&entry[REASON..REASON + length]).into_owned();
                Ok(Entry::State(Self::Ended { status: word(24) as i32, reason }))
            }
            UNKNOWN => Ok(Entry::State(Self::Unknown)),
            LEASED => Ok(Entry::State(Self::Leased(Granted { number, milliseconds: word(32) }))),
            _ => fail!(Corrupt, "the owner's entry is damaged: it has state {state} and length {length}"),
        }
    }
}

fn sealed(mut bytes: [u8; ENTRY]) -> [u8; ENTRY] {
    let checksum = crc32c::crc32c(&bytes[..CHECKSUM]);
    bytes[CHECKSUM..].copy_from_slice(&checksum.to_le_bytes());
    bytes
}

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
    use proptest::prelude::*;

    const SERVICE: ServiceId = ServiceId([5; 16]);
    const KEY: SessionKey = SessionKey([6; 16]);
    const LEASE: Duration = Duration::from_millis(30_000);

    fn block(entries: &[[u8; ENTRY]]) -> [u8; SIZE] {
        let mut bytes = [0; SIZE];
        bytes[..ENTRY].copy_from_slice(&head(&SERVICE, LEASE));
        for (place, entry) in bytes[ENTRY..].chunks_exact_mut(ENTRY).zip(entries) {
            place.copy_from_slice(entry);
        }
        bytes
    }

    #[test]
    fn an_entry_is_found_by_its_session() {
        let open = SessionState::Open {
            slots: GrantedSlots::new(&[3, 0, 7]),
            chunks: 1 << 40,
            checksums: [5, 1 << 31, 6, 0, 0, 0, 0, 9],
        };
        let other = SessionState::Ended { status: -7, reason: "come again".into() };
        let unknown = SessionState::Unknown.entry(SessionKey([3; 16]));
        let leased = SessionState::Leased(Granted { number: 1 << 40, milliseconds: 1 << 31 });
        let lease = leased.entry(SessionKey([4; 16]));
        let bytes = block(&[other.entry(SessionKey([1; 16])), open.entry(KEY), unknown, lease]);
        assert_eq!(SessionState::find(&bytes, SessionKey([4; 16]), 8).unwrap(), Entry::State(leased));
        let found = SessionState::find(&bytes, SessionKey([3; 16]), 8).unwrap();
        assert_eq!(found, Entry::State(SessionState::Unknown));
        assert_eq!(lease_of(&bytes, &SERVICE).unwrap(), LEASE);
        assert_eq!(SessionState::find(&bytes, KEY, 8).unwrap(), Entry::State(open));
        assert_eq!(SessionState::find(&bytes, SessionKey([1; 16]), 8).unwrap(), Entry::State(other));
        assert_eq!(SessionState::find(&bytes, SessionKey([2; 16]), 8).unwrap(), Entry::Missing);
        for (bytes, id) in [(bytes, 0), ([0; SIZE], 1), ([0xff; SIZE], 1)] {
            let error = lease_of(&bytes, &ServiceId([id; 16])).unwrap_err();
            assert_eq!(error.status(), Status::Stale);
        }
        assert_eq!(SessionState::error(-7, "a\nb").message(), r"a\nb");
        assert_eq!(SessionState::error(77, "").status(), Status::Corrupt);
    }

    #[test]
    fn an_owner_of_another_version_is_refused() {
        let mut bytes = block(&[]);
        let mut head = head(&SERVICE, LEASE);
        head[8..12].copy_from_slice(&1u32.to_le_bytes());
        bytes[..ENTRY].copy_from_slice(&sealed(head));
        lease_of(&bytes, &SERVICE)
            .unwrap_err()
            .assert_is(Status::VersionMismatch, "by version 1 of the protocol, this library by version 2");
    }

    #[test]
    fn half_written_entries_are_not_taken_for_ended_sessions() {
        let before =
            SessionState::Open { slots: GrantedSlots::new(&[1]), chunks: 1, checksums: [0; 8] }.entry(KEY);
        let after = SessionState::Open { slots: GrantedSlots::new(&[1, 2]), chunks: 300, checksums: [1; 8] }
            .entry(KEY);
        for written in 1..ENTRY {
            let mut torn = before;
            torn[..written].copy_from_slice(&after[..written]);
            if torn != after && torn != before {
                assert_eq!(SessionState::find(&block(&[torn]), KEY, 8).unwrap(), Entry::Torn, "{written}");
            }
        }
    }

    #[test]
    fn long_reasons_are_cut_between_characters() {
        let long = SessionState::Ended { status: -1, reason: "ü".repeat(300) };
        let Ok(Entry::State(SessionState::Ended { reason, .. })) =
            SessionState::find(&block(&[long.entry(KEY)]), KEY, 8)
        else {
            panic!("it is not found");
        };
        assert_eq!(reason, "ü".repeat(MAX_REASON / 2));
    }

    #[test]
    fn grants_of_slots_that_do_not_exist_are_refused() {
        for slots in [&[8][..], &[1, 1]] {
            let slots = GrantedSlots::new(slots);
            let bytes = block(&[SessionState::Open { slots, chunks: 0, checksums: [0; 8] }.entry(KEY)]);
            assert_eq!(SessionState::find(&bytes, KEY, 8).unwrap_err().status(), Status::Corrupt);
        }
    }

    proptest! {
        #[test]
        fn any_entry_with_a_right_checksum_is_read_or_refused(
            words in prop::collection::vec((0usize..63, any::<u32>()), 0..8), state in 0u32..6, length in 0u32..300,
        ) {
            let mut entry = [0; ENTRY];
            for (at, word) in words {
                entry[4 * at..][..4].copy_from_slice(&word.to_le_bytes());
            }
            entry[..16].copy_from_slice(&KEY.0);
            entry[16..20].copy_from_slice(&state.to_le_bytes());
            entry[20..24].copy_from_slice(&length.to_le_bytes());
            match SessionState::find(&block(&[sealed(entry)]), KEY, 8) {
                Ok(Entry::State(SessionState::Open { slots, .. })) => prop_assert!(slots.iter().all(|slot| *slot < 8)),
                Ok(Entry::State(SessionState::Ended { reason, .. })) => prop_assert!(reason.len() <= 3 * MAX_REASON),
                Ok(Entry::State(SessionState::Unknown)) => prop_assert_eq!(state, UNKNOWN),
                Ok(Entry::State(SessionState::Leased(_))) => prop_assert_eq!(state, LEASED),
                Ok(other) => prop_assert!(false, "{other:?}"),
                Err(error) => prop_assert_eq!(error.status(), Status::Corrupt),
            }
        }
    }

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
