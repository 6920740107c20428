// SPDX-License-Identifier: Apache-2.0
//! Divides a transfer into chunks that fit a slot of the staging ring. Pure.
#![forbid(unsafe_code)]

use std::ops::Range;

use super::super::requests::Piece;
use crate::cuda::copy::Copy;

/// The bytes that pass through a slot at a time.
#[derive(Debug, PartialEq, Eq)]
pub struct FileChunk {
    /// Its pieces, which are contiguous in the slot in order of the file.
    pub pieces: Range<usize>,
    /// Its size in bytes.
    pub size: u64,
}

/// A piece of a file and of GPU memory, and its offset in the slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlotPiece {
    /// In the file, and on the GPU.
    pub piece: Piece,
    /// Offset in the slot.
    pub at: u64,
}

/// A transfer in chunks.
#[derive(Debug, Default)]
pub struct Chunks {
    /// The pieces of all chunks.
    pub parts: Vec<SlotPiece>,
    /// The chunks.
    pub list: Vec<FileChunk>,
}

impl Chunks {
    /// Cuts pieces into chunks of at most `slot` bytes. `bound` returns how many bytes from an address of a
    /// region the driver sees as one range.
    pub fn cut(mut pieces: Vec<(Piece, u32)>, slot: u64, bound: impl Fn(u32, u64) -> u64) -> Self {
        let place = |(piece, _): &(Piece, u32)| (piece.file, piece.offset);
        if !pieces.is_sorted_by_key(place) {
            pieces.sort_unstable_by_key(place);
        }
        let mut chunks = Self::default();
        for (mut piece, region) in pieces {
            let mut left = piece.size;
            while left > 0 {
                piece.size = left.min(slot - chunks.filled(slot)).min(bound(region, piece.address));
                chunks.add(piece, slot);
                left -= piece.size;
                piece.offset += piece.size;
                piece.address += piece.size;
            }
        }
        chunks
    }

    /// Bytes of the chunk that is being filled; 0 if it is full.
    fn filled(&self, slot: u64) -> u64 {
        self.list.last().map_or(0, |chunk| chunk.size % slot)
    }

    fn add(&mut self, piece: Piece, slot: u64) {
        let (at, index) = (self.filled(slot), self.parts.len());
        self.parts.push(SlotPiece { piece, at });
        match self.list.last_mut() {
            Some(chunk) if at > 0 => {
                chunk.pieces.end += 1;
                chunk.size += piece.size;
            }
            _ => self.list.push(FileChunk { pieces: index..index + 1, size: piece.size }),
        }
    }

    /// The reads or writes for a slot at `base`: pieces that are adjacent in the file are adjacent there.
    pub fn in_file(&self, chunk: &FileChunk, base: u64) -> Vec<Piece> {
        let mut joined: Vec<Piece> = Vec::new();
        for SlotPiece { piece, at } in &self.parts[chunk.pieces.clone()] {
            match joined.last_mut() {
                Some(last) if last.file == piece.file && last.offset + last.size == piece.offset => {
                    last.size += piece.size;
                }
                _ => joined.push(Piece { address: base + at, ..*piece }),
            }
        }
        joined
    }

    /// The copies between a slot at `base` and the GPU.
    pub fn on_device(&self, chunk: &FileChunk, base: u64, to_device: bool) -> Vec<Copy> {
        let parts = self.parts[chunk.pieces.clone()].iter();
        parts
            .map(|SlotPiece { piece, at }| {
                let (host, device) = (base + at, piece.address);
                let (source, destination) = if to_device { (host, device) } else { (device, host) };
                Copy { source, destination, size: piece.size }
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SLOT: u64 = 1000;
    const BOUND: u64 = 700;

    fn to_the_bound(_: u32, address: u64) -> u64 {
        BOUND - address % BOUND
    }

    proptest! {
        #[test]
        fn units_of_direct_io_stay_whole(sizes in prop::collection::vec((1u64..40, 0u64..2), 1..30), slot in 1u64..16) {
            const UNIT: u64 = 512;
            let mut offset = 0;
            let mut pieces = Vec::new();
            for (units, gap) in sizes {
                offset += gap * UNIT;
                pieces.push((Piece { file: 1, offset, address: 7 + offset, size: units * UNIT }, 0));
                offset += units * UNIT;
            }
            let chunks = Chunks::cut(pieces, slot * UNIT, |_, _| u64::MAX);
            for chunk in &chunks.list {
                for Piece { offset, address, size, .. } in chunks.in_file(chunk, 0) {
                    prop_assert!([offset, address, size].iter().all(|each| each.is_multiple_of(UNIT)));
                }
            }
        }

        #[test]
        fn every_byte_passes_through_a_slot_once(sizes in prop::collection::vec((1u64..2500, 0u64..2), 1..30),
                                                 turn in 0usize..30) {
            let mut offset = 0;
            let mut pieces = Vec::new();
            for (size, gap) in sizes {
                offset += gap * 100;
                pieces.push((Piece { file: 1, offset, address: offset * 3, size }, 0));
                offset += size;
            }
            let turn = turn % pieces.len();
            pieces.rotate_left(turn);
            let bytes: u64 = pieces.iter().map(|(piece, _)| piece.size).sum();
            let chunks = Chunks::cut(pieces.clone(), SLOT, to_the_bound);
            prop_assert_eq!(chunks.list.iter().map(|chunk| chunk.size).sum::<u64>(), bytes);
            for chunk in &chunks.list {
                prop_assert!(chunk.size <= SLOT);
                let mut at = 0;
                for part in &chunks.parts[chunk.pieces.clone()] {
                    prop_assert_eq!(part.at, at);
                    prop_assert!(part.piece.size <= to_the_bound(0, part.piece.address));
                    at += part.piece.size;
                }
                prop_assert_eq!(at, chunk.size);
                let in_file: u64 = chunks.in_file(chunk, 5).iter().map(|piece| piece.size).sum();
                prop_assert_eq!(in_file, chunk.size);
                let copies: u64 = chunks.on_device(chunk, 5, true).iter().map(|copy| copy.size).sum();
                prop_assert_eq!(copies, chunk.size);
            }
            pieces.sort_unstable_by_key(|(piece, _)| piece.offset);
            let ends: Vec<_> = pieces.iter().map(|(piece, _)| piece.offset + piece.size).collect();
            for SlotPiece { piece, at } in &chunks.parts {
                let is_end = ends.contains(&(piece.offset + piece.size))
                    || at + piece.size == SLOT
                    || (piece.address + piece.size).is_multiple_of(BOUND);
                prop_assert!(is_end, "cut where nothing ends");
            }
            let (_, full) = chunks.list.split_last().unwrap();
            prop_assert!(full.iter().all(|chunk| chunk.size == SLOT));
            let mut parts = chunks.parts.iter();
            for (piece, _) in pieces {
                let mut done = 0;
                while done < piece.size {
                    let Some(part) = parts.next() else { panic!("bytes are missing") };
                    prop_assert_eq!(part.piece.offset, piece.offset + done);
                    prop_assert_eq!(part.piece.address, piece.address + done);
                    done += part.piece.size;
                }
            }
        }
    }
}
