// SPDX-License-Identifier: Apache-2.0
//! How a transfer divides into chunks that fit a slot of the staging ring. Pure.

#![forbid(unsafe_code)]

use std::ops::Range;

use super::super::requests::Piece;
use crate::cuda::copy::Copy;

/// What goes through a slot at a time.
#[derive(Debug, PartialEq, Eq)]
pub struct Chunk {
    /// Its pieces: they lie in the slot one after the other, in order of the file.
    pub pieces: Range<usize>,
    /// Its bytes.
    pub size: u64,
}

/// A piece of a file and of GPU memory, and where it lies in its slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// In the file, and on the GPU.
    pub piece: Piece,
    /// From the slot's first byte.
    pub at: u64,
}

/// A transfer in chunks.
#[derive(Debug, Default)]
pub struct Chunks {
    /// The pieces of all.
    pub parts: Vec<Part>,
    /// The chunks.
    pub list: Vec<Chunk>,
}

impl Chunks {
    /// Cuts pieces into chunks of at most `slot` bytes. `bound` tells how many bytes of a piece the driver sees as one,
    /// from an address of a region on.
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

    /// Bytes of the chunk that is being filled; a full one counts as none.
    fn filled(&self, slot: u64) -> u64 {
        self.list.last().map_or(0, |chunk| chunk.size % slot)
    }

    fn add(&mut self, piece: Piece, slot: u64) {
        let (at, index) = (self.filled(slot), self.parts.len());
        self.parts.push(Part { piece, at });
        match self.list.last_mut() {
            Some(chunk) if at > 0 => {
                chunk.pieces.end += 1;
                chunk.size += piece.size;
            }
            _ => self.list.push(Chunk { pieces: index..index + 1, size: piece.size }),
        }
    }

    /// What is read to, or written from, a slot at `base`: neighbours in the file are neighbours there.
    pub fn in_file(&self, chunk: &Chunk, base: u64) -> Vec<Piece> {
        let mut joined: Vec<Piece> = Vec::new();
        for Part { piece, at } in &self.parts[chunk.pieces.clone()] {
            match joined.last_mut() {
                Some(last) if last.file == piece.file && last.offset + last.size == piece.offset => {
                    last.size += piece.size;
                }
                _ => joined.push(Piece { address: base + at, ..*piece }),
            }
        }
        joined
    }

    /// What is copied between a slot at `base` and the GPU.
    pub fn on_device(&self, chunk: &Chunk, base: u64, to_device: bool) -> Vec<Copy> {
        let parts = self.parts[chunk.pieces.clone()].iter();
        parts
            .map(|Part { piece, at }| {
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
        fn every_byte_goes_once_through_a_slot(sizes in prop::collection::vec((1u64..2500, 0u64..2), 1..30),
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
            for Part { piece, at } in &chunks.parts {
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
