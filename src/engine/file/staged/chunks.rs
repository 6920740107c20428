// SPDX-License-Identifier: Apache-2.0
//! Divides a transfer into chunks that fit a slot of the staging ring. Pure.

use super::super::file_requests::Piece;
use crate::base::{Result, lists};
use crate::cuda::Copy;

/// A piece of a file and of GPU memory, and its offset in the slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlotPiece {
    /// In the file, and on the GPU.
    pub piece: Piece,
    /// Offset in the slot.
    pub at: u64,
}

/// The bytes that pass through a slot at a time: pieces that are contiguous in the slot, in order of the file.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct FileChunk {
    pub parts: Vec<SlotPiece>,
    pub size: u64,
}

/// Cuts pieces into chunks of at most `slot` bytes.
pub struct Cutter<I> {
    /// Pieces in the order of the file, with their region on the GPU.
    pieces: I,
    rest: Option<(Piece, u32)>,
    slot: u64,
    pub taken: u64,
}

impl<I: Iterator<Item = Result<(Piece, u32)>>> Cutter<I> {
    pub fn new(pieces: I, slot: u64) -> Self {
        Self { pieces, rest: None, slot, taken: 0 }
    }

    /// Replaces `chunk` by the next one, which is empty after the last. `bound` returns how many bytes from an address of a
    /// region the driver sees as one range.
    pub fn cut(&mut self, chunk: &mut FileChunk, bound: impl Fn(u32, u64) -> u64) -> Result<()> {
        chunk.parts.clear();
        chunk.size = 0;
        while chunk.size < self.slot {
            let next = self.rest.take().map(Ok).or_else(|| self.pieces.next().inspect(|_| self.taken += 1));
            let Some((piece, region)) = next.transpose()? else { break };
            let size = piece.size.min(self.slot - chunk.size).min(bound(region, piece.address));
            lists::push(&mut chunk.parts, SlotPiece { piece: Piece { size, ..piece }, at: chunk.size })?;
            chunk.size += size;
            let (offset, address) = (piece.offset + size, piece.address + size);
            let rest = Piece { offset, address, size: piece.size - size, ..piece };
            self.rest = (rest.size > 0).then_some((rest, region));
        }
        Ok(())
    }
}

impl FileChunk {
    /// The reads or writes for a slot at `base`: pieces that are adjacent in the file are adjacent there.
    pub fn in_file(&self, base: u64) -> impl Iterator<Item = Piece> {
        let mut parts = self.parts.iter().peekable();
        std::iter::from_fn(move || {
            let SlotPiece { piece, at } = parts.next()?;
            let mut joined = Piece { address: base + at, ..*piece };
            let goes_on = |joined: &Piece, next: &SlotPiece| {
                next.piece.file == joined.file && next.piece.offset == joined.offset + joined.size
            };
            while let Some(next) = parts.next_if(|next| goes_on(&joined, next)) {
                joined.size += next.piece.size;
            }
            Some(joined)
        })
    }

    /// The copies between a slot at `base` and the GPU.
    pub fn on_device(&self, base: u64, to_device: bool) -> impl Iterator<Item = Copy> {
        self.parts.iter().map(move |SlotPiece { piece, at }| {
            let (host, device) = (base + at, piece.address);
            let (source, destination) = if to_device { (host, device) } else { (device, host) };
            Copy { source, destination, size: piece.size }
        })
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

    fn all(pieces: Vec<(Piece, u32)>, slot: u64, bound: fn(u32, u64) -> u64) -> Vec<FileChunk> {
        let mut cutter = Cutter::new(pieces.into_iter().map(Ok), slot);
        let next = || {
            let mut chunk = FileChunk::default();
            cutter.cut(&mut chunk, bound).unwrap();
            chunk
        };
        std::iter::repeat_with(next).take_while(|chunk| chunk.size > 0).collect()
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
            for chunk in all(pieces, slot * UNIT, |_, _| u64::MAX) {
                for Piece { offset, address, size, .. } in chunk.in_file(0) {
                    prop_assert!([offset, address, size].iter().all(|each| each.is_multiple_of(UNIT)));
                }
            }
        }

        #[test]
        fn every_byte_passes_through_a_slot_once(sizes in prop::collection::vec((1u64..2500, 0u64..2), 1..30)) {
            let mut offset = 0;
            let mut pieces = Vec::new();
            for (size, gap) in sizes {
                offset += gap * 100;
                pieces.push((Piece { file: 1, offset, address: offset * 3, size }, 0));
                offset += size;
            }
            let bytes: u64 = pieces.iter().map(|(piece, _)| piece.size).sum();
            let chunks = all(pieces.clone(), SLOT, to_the_bound);
            prop_assert_eq!(chunks.iter().map(|chunk| chunk.size).sum::<u64>(), bytes);
            for chunk in &chunks {
                prop_assert!(chunk.size <= SLOT);
                let mut at = 0;
                for part in &chunk.parts {
                    prop_assert_eq!(part.at, at);
                    prop_assert!(part.piece.size <= to_the_bound(0, part.piece.address));
                    at += part.piece.size;
                }
                prop_assert_eq!(at, chunk.size);
                let in_file: u64 = chunk.in_file(5).map(|piece| piece.size).sum();
                prop_assert_eq!(in_file, chunk.size);
                let copies: u64 = chunk.on_device(5, true).map(|copy| copy.size).sum();
                prop_assert_eq!(copies, chunk.size);
            }
            let ends: Vec<_> = pieces.iter().map(|(piece, _)| piece.offset + piece.size).collect();
            for SlotPiece { piece, at } in chunks.iter().flat_map(|chunk| &chunk.parts) {
                let is_end = ends.contains(&(piece.offset + piece.size))
                    || at + piece.size == SLOT
                    || (piece.address + piece.size).is_multiple_of(BOUND);
                prop_assert!(is_end, "cut where nothing ends");
            }
            let (_, full) = chunks.split_last().unwrap();
            prop_assert!(full.iter().all(|chunk| chunk.size == SLOT));
            let mut parts = chunks.iter().flat_map(|chunk| &chunk.parts);
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
