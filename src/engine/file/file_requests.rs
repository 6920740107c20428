// SPDX-License-Identifier: Apache-2.0
//! From pieces of files to few reads or writes: adjacent pieces of a file are one request, whatever their
//! addresses in memory. Pure.

use std::os::fd::RawFd;

use crate::base::{Result, lists};

/// The maximum size of a request: larger ones gain nothing, and several saturate a device better than one. A multiple of any unit of
/// direct I/O, so that a piece of whole units is cut into such.
pub const MAX_BYTES: u64 = 1 << 20;
/// The maximum number of spans of a request, a limit of the kernel.
const MAX_SPANS: usize = 1024;

/// Bytes that are contiguous in a file and in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    pub file: RawFd,
    pub offset: u64,
    pub address: u64,
    pub size: u64,
}

/// A span of memory, with the layout of `struct iovec`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IoSpan {
    pub address: usize,
    pub size: usize,
}
const _: () = assert!(size_of::<IoSpan>() == size_of::<libc::iovec>());

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileRequest {
    pub file: RawFd,
    pub offset: u64,
    pub size: u64,
    first: usize,
    count: usize,
}

#[derive(Debug, Default)]
pub struct FileRequests {
    writes: bool,
    pieces: u64,
    spans: Vec<IoSpan>,
    list: Vec<FileRequest>,
}

impl FileRequests {
    /// Merges pieces that are adjacent in a file.
    pub fn gather(pieces: impl IntoIterator<Item = Piece>, writes: bool) -> Result<Self> {
        let mut sorted = lists::collect(pieces)?;
        let place = |piece: &Piece| (piece.file, piece.offset);
        if !sorted.is_sorted_by_key(place) {
            sorted.sort_unstable_by_key(place);
        }
        let mut requests = Self { writes, pieces: sorted.len() as u64, ..Self::default() };
        lists::reserve(&mut requests.spans, sorted.len())?;
        sorted.into_iter().flat_map(cut).try_for_each(|piece| requests.add(piece))?;
        Ok(requests)
    }

    fn add(&mut self, piece: Piece) -> Result<()> {
        let Piece { file, offset, address, size } = piece;
        match self.list.last_mut() {
            Some(last)
                if last.file == file
                    && last.offset + last.size == offset
                    && last.size + size <= MAX_BYTES
                    && last.count < MAX_SPANS =>
            {
                last.size += size;
                last.count += 1;
            }
            _ => {
                let first = self.spans.len();
                lists::push(&mut self.list, FileRequest { file, offset, size, first, count: 1 })?;
            }
        }
        lists::push(&mut self.spans, IoSpan { address: address as usize, size: size as usize })
    }

    pub fn writes(&self) -> bool {
        self.writes
    }

    pub fn pieces(&self) -> u64 {
        self.pieces
    }

    pub fn len(&self) -> usize {
        self.list.len()
    }

    pub fn get(&self, index: usize) -> &FileRequest {
        &self.list[index]
    }

    /// The buffers of a request.
    pub fn spans(&self, index: usize) -> &[IoSpan] {
        let FileRequest { first, count, .. } = self.list[index];
        &self.spans[first..first + count]
    }

    pub fn bytes(&self) -> u64 {
        self.list.iter().map(|request| request.size).sum()
    }
}

fn cut(piece: Piece) -> impl Iterator<Item = Piece> {
    (0..piece.size).step_by(MAX_BYTES as usize).map(move |done| Piece {
        offset: piece.offset + done,
        address: piece.address + done,
        size: MAX_BYTES.min(piece.size - done),
        ..piece
    })
}

/// The spans without their first `done` bytes.
pub fn after(spans: &[IoSpan], mut done: usize) -> Vec<IoSpan> {
    let mut left = Vec::new();
    for span in spans {
        let skipped = done.min(span.size);
        done -= skipped;
        if skipped < span.size {
            left.push(IoSpan { address: span.address + skipped, size: span.size - skipped });
        }
    }
    left
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn piece(offset: u64, address: u64, size: u64) -> Piece {
        Piece { file: 3, offset, address, size }
    }

    #[test]
    fn adjacent_pieces_of_a_file_are_one_request() {
        let pieces = vec![piece(4096, 100, 4096), piece(0, 90_000, 4096), piece(12288, 0, 10)];
        let requests = FileRequests::gather(pieces, false).unwrap();
        assert_eq!(requests.len(), 2);
        assert_eq!((requests.get(0).offset, requests.get(0).size), (0, 8192));
        assert_eq!(requests.spans(0)[0].address, 90_000);
        assert_eq!(requests.spans(0)[1].address, 100);
        assert_eq!(requests.get(1).offset, 12288);
    }

    #[test]
    fn pieces_of_different_files_are_not_merged() {
        let other = Piece { file: 4, ..piece(4096, 100, 4096) };
        assert_eq!(FileRequests::gather(vec![piece(0, 0, 4096), other], true).unwrap().len(), 2);
    }

    #[test]
    fn remaining_spans_start_after_the_bytes_that_are_done() {
        let spans = [IoSpan { address: 1000, size: 10 }, IoSpan { address: 50, size: 5 }];
        assert_eq!(after(&spans, 0), spans);
        assert_eq!(after(&spans, 4), [IoSpan { address: 1004, size: 6 }, spans[1]]);
        assert_eq!(after(&spans, 10), [spans[1]]);
        assert_eq!(after(&spans, 15), []);
    }

    proptest! {
        #[test]
        fn every_byte_is_requested_once(sizes in prop::collection::vec((1u64..3 << 20, 0u64..3, 1i32..3), 1..40),
                                      turn in 0usize..40) {
            let (mut offset, mut pieces) = (0, Vec::new());
            for (size, gap, file) in sizes {
                offset += gap * 512;
                pieces.push(Piece { file, offset, address: offset.wrapping_mul(7919), size });
                offset += size;
            }
            let turn = turn % pieces.len();
            pieces.rotate_left(turn);
            let requests = FileRequests::gather(pieces.clone(), true).unwrap();
            let mut asked = Vec::new();
            for index in 0..requests.len() {
                let request = requests.get(index);
                prop_assert!(request.size <= MAX_BYTES && request.count <= MAX_SPANS);
                let mut at = request.offset;
                for span in requests.spans(index) {
                    asked.push((request.file, at, span.address as u64, span.size as u64));
                    at += span.size as u64;
                }
                prop_assert_eq!(at, request.offset + request.size);
            }
            for (index, next) in (1..requests.len()).enumerate() {
                let (last, next) = (requests.get(index), requests.get(next));
                let first = requests.spans(index + 1)[0].size as u64;
                let goes_on = last.file == next.file && last.offset + last.size == next.offset;
                let has_room = last.size + first <= MAX_BYTES && last.count < MAX_SPANS;
                prop_assert!(!(goes_on && has_room), "two requests could be one");
            }
            pieces.sort_unstable_by_key(|piece| (piece.file, piece.offset));
            let mut asked = asked.into_iter();
            for Piece { file, offset, address, size } in pieces {
                let mut done = 0;
                while done < size {
                    let Some((in_file, at, to, part)) = asked.next() else { panic!("bytes are missing") };
                    prop_assert_eq!((in_file, at, to), (file, offset + done, address + done));
                    done += part;
                }
                prop_assert_eq!(done, size);
            }
            prop_assert!(asked.next().is_none());
        }
    }
}
