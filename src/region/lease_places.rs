// SPDX-License-Identifier: Apache-2.0
//! Where the locks of leases are on a control block: what a lease says of itself is where its locks are. docs/share-manifest.md has
//! that byte by byte.
//!
//! The kernel finds a lock by passing those before it, so a question must need few look-ups. It is about bytes, so locks are in the
//! order of the bytes: each chunk of bytes has a cell for each lease, and what has leased it is found without the other leases. There
//! are chunks of several sizes, and each range is in some that fit it: so it takes one or two locks, and has few neighbours.

use std::ops::Range;

/// The first byte.
const FIRST: u64 = 1 << 62;
/// All bytes for leases.
pub const ALL: Range<u64> = FIRST..1 << 63;
/// Each lease has a slot, whose number is random and less than this.
pub const SLOTS: u64 = (1 << 13) - 1;
/// Each slot has a header, in which one lock is a lease: it begins with the byte of its holder, and its last byte says when it ends.
const HEADER_SIZE: u64 = 1 << 47;
/// The first is that of the process id 0, or [`WRITES`] later if the holder may write.
const HOLDERS: Range<u64> = 0..2 * WRITES;
const WRITES: u64 = 1 << 32;
/// In milliseconds of the lease clock. The last byte is never locked, so that no lock touches one of the next header.
const ENDS: Range<u64> = HEADER_SIZE / 2..HEADER_SIZE;
/// When a lease without an end ends.
pub const NEVER: u64 = ENDS.end - ENDS.start - 2;

/// The bytes of a region that can be leased.
pub const BYTES: u64 = 1 << 44;
/// Where the chunks begin.
const LEVELS: u64 = FIRST + (1 << 61);
const NUM_LEVELS: u32 = 8;
/// A cell has twice the size of its chunk, so that no lock touches one of the next cell.
const LEVEL_SIZE: u64 = 2 * BYTES * (SLOTS + 1);

/// Who has a lease, as it says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct LeaseHolder {
    /// 0 if that is unknown.
    pub pid: u32,
    pub writes: bool,
}

impl LeaseHolder {
    /// It may be one that writes.
    pub const UNKNOWN: Self = Self { pid: 0, writes: true };
}

fn header_start(slot: u64) -> u64 {
    FIRST + slot * HEADER_SIZE
}

/// The header of a slot.
pub fn header(slot: u64) -> Range<u64> {
    header_start(slot)..header_start(slot) + HEADER_SIZE
}

/// The first byte of the lock in a header.
pub fn holder_byte(slot: u64, holder: LeaseHolder) -> u64 {
    header_start(slot) + u64::from(holder.pid) + if holder.writes { WRITES } else { 0 }
}

pub fn holders(slot: u64) -> Range<u64> {
    header_start(slot)..header_start(slot) + HOLDERS.end
}

/// The holder that a lock in a header says.
pub fn holder_of(slot: u64, locked: &Range<u64>) -> Option<LeaseHolder> {
    let number = locked.start.checked_sub(header_start(slot)).filter(|number| HOLDERS.contains(number))?;
    let holder = LeaseHolder { pid: (number % WRITES) as u32, writes: number >= WRITES };
    (holder.pid != 0).then_some(holder)
}

/// The byte of an end.
pub fn end_byte(slot: u64, end: u64) -> u64 {
    header_start(slot) + ENDS.start + end
}

/// The end that a lock in a header says.
pub fn end_of(slot: u64, locked: &Range<u64>) -> u64 {
    locked.end.saturating_sub(end_byte(slot, 0) + 1).min(NEVER)
}

/// What a lease of a range locks.
pub fn pieces(range: &Range<u64>, slot: u64) -> impl Iterator<Item = Range<u64>> {
    let level = Level::fitting(range.end - range.start);
    let (range, chunks) = (range.clone(), level.chunk_of(range.start)..=level.chunk_of(range.end - 1));
    chunks.map(move |chunk| {
        let bytes = level.bytes(chunk);
        let start = level.cell(chunk, slot) + range.start.saturating_sub(bytes.start);
        start..start + range.end.min(bytes.end) - range.start.max(bytes.start)
    })
}

/// Chunks of one size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Level(u32);

/// A byte of a level.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Place {
    chunk: u64,
    slot: u64,
    /// That of the byte of the chunk; beyond it between two cells.
    offset: u64,
}

impl Level {
    pub fn all() -> impl Iterator<Item = Self> {
        (0..NUM_LEVELS).map(Self)
    }

    /// Chunks of at least four times as many bytes, unless they have all.
    fn fitting(size: u64) -> Self {
        Self::all().find(|level| level.chunk_size() / 4 >= size).unwrap_or(Self(NUM_LEVELS - 1))
    }

    const fn chunk_size(self) -> u64 {
        1 << (16 + 4 * self.0)
    }

    const fn start(self) -> u64 {
        LEVELS + self.0 as u64 * LEVEL_SIZE
    }

    pub fn area(self) -> Range<u64> {
        self.start()..self.start() + LEVEL_SIZE
    }

    const fn chunk_of(self, byte: u64) -> u64 {
        byte / self.chunk_size()
    }

    fn bytes(self, chunk: u64) -> Range<u64> {
        chunk * self.chunk_size()..(chunk + 1) * self.chunk_size()
    }

    fn cell(self, chunk: u64, slot: u64) -> u64 {
        self.start() + (chunk * (SLOTS + 1) + slot) * 2 * self.chunk_size()
    }

    fn place(self, position: u64) -> Place {
        let (cell, offset) =
            ((position - self.start()) / (2 * self.chunk_size()), position % (2 * self.chunk_size()));
        Place { chunk: cell / (SLOTS + 1), slot: cell % (SLOTS + 1), offset }
    }

    /// The slot of a lock, if it is in one cell.
    pub fn slot_of(self, locked: &Range<u64>) -> Option<u64> {
        let area = self.area();
        if locked.start < area.start || locked.end > area.end {
            return None;
        }
        let [first, last] = [locked.start, locked.end - 1].map(|position| self.place(position));
        let is_in_one =
            (first.chunk, first.slot) == (last.chunk, last.slot) && last.offset < self.chunk_size();
        is_in_one.then_some(first.slot)
    }

    /// The part of a span, from the first to the last position at which a lease can have locked bytes of some ranges. Those are in
    /// ascending order and apart from each other.
    pub fn narrowed(self, asked: &[Range<u64>], span: &Range<u64>) -> Option<Range<u64>> {
        let narrowed = self.first_from(asked, span.start)?..self.last_until(asked, span.end)?;
        (!narrowed.is_empty()).then_some(narrowed)
    }

    fn first_from(self, asked: &[Range<u64>], position: u64) -> Option<u64> {
        let Place { chunk, slot, offset } = self.place(position);
        let bytes = self.bytes(chunk);
        let from = |byte: u64| {
            let range = asked.get(asked.partition_point(|range| range.end <= byte))?;
            Some(range.start.max(byte))
        };
        for (slot, byte) in [(slot, bytes.start + offset), (slot + 1, bytes.start)] {
            let byte = from(byte).filter(|found| slot <= SLOTS && byte < bytes.end && *found < bytes.end);
            if let Some(byte) = byte {
                return Some(self.cell(chunk, slot) + byte - bytes.start);
            }
        }
        let byte = from(bytes.end)?;
        Some(self.cell(self.chunk_of(byte), 0) + byte % self.chunk_size())
    }

    /// The end of the last.
    fn last_until(self, asked: &[Range<u64>], end: u64) -> Option<u64> {
        let Place { chunk, slot, offset } = self.place(end - 1);
        let bytes = self.bytes(chunk);
        let until = |byte: u64| {
            let range = asked[..asked.partition_point(|range| range.start < byte)].last()?;
            Some(range.end.min(byte))
        };
        let here = Some((slot, (bytes.start + offset + 1).min(bytes.end)));
        for (slot, byte) in [here, slot.checked_sub(1).map(|slot| (slot, bytes.end))].into_iter().flatten() {
            if let Some(byte) = until(byte).filter(|byte| *byte > bytes.start) {
                return Some(self.cell(chunk, slot) + byte - bytes.start);
            }
        }
        let byte = until(bytes.start)?;
        let chunk = self.chunk_of(byte - 1);
        Some(self.cell(chunk, SLOTS) + byte - self.bytes(chunk).start)
    }

    /// The indices of ranges that may have bytes in a span: exactly those that have, if it is within one cell.
    pub fn meeting(self, asked: &[Range<u64>], span: &Range<u64>) -> Range<usize> {
        let [first, last] = [span.start, span.end - 1].map(|position| self.place(position));
        let is_in_one = (first.chunk, first.slot) == (last.chunk, last.slot);
        let [start, end] = [self.bytes(first.chunk), self.bytes(last.chunk)];
        let (start, end) = match is_in_one {
            true => (start.start + first.offset, end.end.min(start.start + last.offset + 1)),
            false => (start.start, end.end),
        };
        let first = asked.partition_point(|range| range.end <= start);
        first..asked.partition_point(|range| range.start < end).max(first)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The positions of some bytes, one by one.
    fn positions(level: Level, asked: &[Range<u64>], slots: Range<u64>) -> Vec<u64> {
        let bytes: Vec<u64> = asked.iter().flat_map(|range| range.start..range.end).collect();
        let of = |slot| {
            let bytes = bytes.iter();
            bytes.map(move |byte| level.cell(level.chunk_of(*byte), slot) + byte % level.chunk_size())
        };
        let mut all: Vec<u64> = slots.flat_map(of).collect();
        all.sort_unstable();
        all
    }

    #[test]
    fn headers_and_levels_are_apart_and_end_with_all_bytes() {
        assert!(header(SLOTS).end <= LEVELS && holders(0).end < end_byte(0, 0));
        assert!(
            Level::all().zip(Level::all().skip(1)).all(|(one, next)| one.area().end == next.area().start)
        );
        let last = Level::all().last().unwrap();
        assert_eq!((last.area().end, last.chunk_size()), (ALL.end, BYTES));
        let all: Vec<_> = pieces(&(0..BYTES), SLOTS - 1).collect();
        let cell = last.cell(0, SLOTS - 1);
        assert!(all.len() == 1 && all[0] == (cell..cell + BYTES));
        assert_eq!(last.slot_of(&all[0]), Some(SLOTS - 1));
        assert_eq!(end_of(5, &(0..end_byte(5, 77) + 1)), 77);
    }

    proptest! {
        #[test]
        fn a_range_has_one_or_two_locks_with_each_of_its_bytes(
            size in prop_oneof![1u64..1 << 20, 1u64..1 << 40], start in 0u64..1 << 43, slot in 0..SLOTS,
        ) {
            let range = start..start + size;
            let (level, found) = (Level::fitting(size), pieces(&range, slot).collect::<Vec<_>>());
            prop_assert!(found.len() <= 2);
            let mut next = start;
            for piece in &found {
                prop_assert_eq!(level.slot_of(piece), Some(slot));
                let place = level.place(piece.start);
                prop_assert_eq!(level.bytes(place.chunk).start + place.offset, next);
                prop_assert_eq!(level.meeting(std::slice::from_ref(&range), piece), 0..1);
                next += piece.end - piece.start;
            }
            prop_assert_eq!(next, range.end);
        }

        #[test]
        fn a_span_is_narrowed_to_what_is_asked(
            asked in prop::collection::vec((0u64..1 << 17, 1u64..40), 0..4),
            ends in [(0u64..4, 0u64..4, 0u64..1 << 17), (0u64..4, 0u64..4, 0u64..1 << 17)],
        ) {
            let level = Level(0);
            let mut end = 0;
            let asked: Vec<Range<u64>> = asked.into_iter().map(|(gap, size)| {
                let start = end + gap;
                end = start + size;
                start..end
            }).collect();
            let position = |(chunk, slot, offset): (u64, u64, u64)| level.cell(chunk, slot) + offset;
            let [one, other] = ends.map(position);
            let span = one.min(other)..one.max(other) + 1;
            // Only the slots at the ends of a chunk, and those of the span, can be the first or the last.
            let mut all: Vec<u64> = positions(level, &asked, 0..6);
            all.extend(positions(level, &asked, SLOTS..SLOTS + 1));
            all.retain(|position| span.contains(position));
            all.sort_unstable();
            let expected = all.first().zip(all.last()).map(|(first, last)| *first..last + 1);
            prop_assert_eq!(level.narrowed(&asked, &span), expected);
        }
    }
}
