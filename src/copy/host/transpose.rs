// SPDX-License-Identifier: Apache-2.0
//! Transposes small elements: one side has them in rows, the other in columns.
//!
//! A line of each source row is read at once, because rows whose distance is a power of two share few places of a cache. Squares
//! of elements are transposed in registers, and collected in a buffer until a destination row has several lines.
#![allow(unsafe_code)]

use std::mem::MaybeUninit;

use super::rows::{HostRows, LINE, RowLoop};
use super::streaming;
use super::vector::{is_available, load_rows, prefetch, transposed};

/// Elements of a matrix. On each side the elements of one axis are adjacent.
#[derive(Clone, Copy, Debug)]
pub struct Transposed {
    pub from: *const u8,
    pub to: *mut u8,
    /// Number of rows of the source, and of elements in each. The destination has a row for each element of a source row.
    pub counts: [usize; 2],
    /// Bytes from a row to the next, in source and destination.
    pub strides: [usize; 2],
    /// Bytes from the first element of the source to that of the next matrix, which is prefetched.
    pub ahead: isize,
}

/// Bytes of a buffer, a small part of the first-level cache.
pub const BUFFER: usize = 8 << 10;

/// What is written to the destination at once. It starts with a cache line.
#[repr(align(64))]
pub struct Buffer(pub MaybeUninit<[u8; BUFFER]>);

impl Buffer {
    #[inline(always)]
    pub fn new() -> Self {
        Self(MaybeUninit::uninit())
    }
}

impl Transposed {
    /// Transposes elements of `size` bytes, which is 1, 2, 4 or 8. `is_streamed` is as for [`super::rows::HostRows::copy`].
    ///
    /// # Safety
    /// All elements of the source are readable and all of the destination writable, no byte is in both, and streaming is
    /// supported if it is requested.
    pub unsafe fn copy(&self, size: usize, is_streamed: bool) {
        // SAFETY: the caller's promise.
        unsafe {
            match size {
                1 => self.copy_by::<1, 8>(is_available(), is_streamed),
                2 => self.copy_by::<2, 4>(is_available(), is_streamed),
                4 => self.copy_by::<4, 2>(is_available(), is_streamed),
                8 => self.copy_by::<8, 1>(is_available(), is_streamed),
                _ => unreachable!("elements of 1, 2, 4 or 8 bytes"),
            }
        }
    }

    /// By squares of `2 * N` rows of elements of `SIZE` bytes, in `N` vectors, or element by element.
    unsafe fn copy_by<const SIZE: usize, const N: usize>(&self, has_vectors: bool, is_streamed: bool) {
        let mut buffer = Buffer::new();
        let buffer = buffer.0.as_mut_ptr().cast::<u8>();
        let (columns, rows) = (LINE / SIZE, BUFFER / LINE);
        let length = self.counts[1] * SIZE;
        // So many bytes of each row are read that prefetched lines arrive meanwhile.
        let distance = (BUFFER / self.counts[0]).next_multiple_of(LINE).max(2 * LINE).min(length);
        for column in (0..self.counts[1]).step_by(columns) {
            let ahead = match column * SIZE + distance < length {
                true => distance as isize,
                false => self.ahead + distance as isize - length as isize,
            };
            for row in (0..self.counts[0]).step_by(rows) {
                let part = Self {
                    ahead,
                    from: self.from.wrapping_add(row * self.strides[0] + column * SIZE),
                    to: self.to.wrapping_add(column * self.strides[1] + row * SIZE),
                    counts: [rows.min(self.counts[0] - row), columns.min(self.counts[1] - column)],
                    ..*self
                };
                let pitch = part.counts[0] * SIZE;
                // SAFETY: the caller's promise for a part of the elements, which fits into the buffer.
                unsafe {
                    match has_vectors {
                        true => part.collect::<SIZE, N>(buffer, pitch),
                        false => part.collect_elements::<SIZE>(buffer, pitch),
                    }
                    part.write_rows(buffer, pitch, is_streamed);
                }
            }
        }
    }

    /// Writes the destination's rows to a buffer, one behind the other, so many bytes apart.
    #[cfg_attr(target_arch = "x86_64", target_feature(enable = "avx2"))]
    unsafe fn collect<const SIZE: usize, const N: usize>(&self, buffer: *mut u8, pitch: usize) {
        let [rows, columns] = self.counts;
        let (whole_rows, whole_columns) = (rows / (2 * N) * (2 * N), columns / (2 * N) * (2 * N));
        for row in (0..whole_rows).step_by(2 * N) {
            let from = self.from.wrapping_add(row * self.strides[0]);
            for ahead in 0..2 * N {
                prefetch(from.wrapping_add(ahead * self.strides[0]).wrapping_offset(self.ahead));
            }
            for column in (0..whole_columns).step_by(2 * N) {
                // SAFETY: inside of the source and the buffer; a square has rows of one lane on both sides.
                unsafe {
                    let to = buffer.add(column * pitch + row * SIZE);
                    let columns = transposed::<SIZE, N>(load_rows(from.add(column * SIZE), self.strides[0]));
                    for (index, columns) in columns.iter().enumerate() {
                        let to = to.add(2 * index * pitch);
                        columns.joined().store_lanes([to, to.add(pitch)]);
                    }
                }
            }
            for column in whole_columns..columns {
                // SAFETY: inside of the source and the buffer.
                (row..row + 2 * N)
                    .for_each(|row| unsafe { self.copy_one::<SIZE>(row, column, buffer, pitch) });
            }
        }
        for row in whole_rows..rows {
            // SAFETY: inside of the source and the buffer.
            (0..columns).for_each(|column| unsafe { self.copy_one::<SIZE>(row, column, buffer, pitch) });
        }
    }

    /// The same for a machine without vectors.
    #[cold]
    unsafe fn collect_elements<const SIZE: usize>(&self, buffer: *mut u8, pitch: usize) {
        let [rows, columns] = self.counts;
        for (row, column) in (0..rows).flat_map(|row| (0..columns).map(move |column| (row, column))) {
            // SAFETY: inside of the source and the buffer.
            unsafe { self.copy_one::<SIZE>(row, column, buffer, pitch) };
        }
    }

    /// Writes an element to its place in the buffer.
    #[inline(always)]
    unsafe fn copy_one<const SIZE: usize>(&self, row: usize, column: usize, buffer: *mut u8, pitch: usize) {
        // SAFETY: the caller's promise.
        unsafe {
            let from = self.from.add(row * self.strides[0] + column * SIZE).cast::<[u8; SIZE]>();
            buffer.add(column * pitch + row * SIZE).cast::<[u8; SIZE]>().write(from.read());
        }
    }

    /// Writes rows of the buffer to the destination.
    unsafe fn write_rows(&self, buffer: *const u8, size: usize, is_streamed: bool) {
        let [count, stride] = [self.counts[1], self.strides[1]];
        let inner = RowLoop { count, strides: [size, stride] };
        let rows = HostRows { from: buffer, to: self.to, size, outer: RowLoop::ONCE, inner, ahead: 0 };
        // SAFETY: the caller's promise.
        unsafe {
            match is_streamed {
                true if stride == size => streaming::copy(buffer, self.to, count * size),
                // Behind the rows are those of the next columns.
                true if size >= 2 * LINE && !rows.are_lines() => rows.copy_lines_and_ends(count * stride),
                _ => rows.copy(is_streamed),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Compares with a copy of one element after the other, by vectors and without.
    fn check(size: usize, counts: [usize; 2], [from, to]: [usize; 2], gaps: [usize; 2]) {
        let strides = [counts[1] * size + gaps[0], (counts[0] * size).next_multiple_of(LINE) + gaps[1]];
        let source: Vec<u8> =
            (0..from + counts[0] * strides[0]).map(|i| (i * 7 + 1 + i / 251) as u8).collect();
        for is_streamed in [false, streaming::suits(u64::MAX)] {
            let mut found = vec![0xEEu8; to + (counts[1] + 2) * strides[1] + LINE];
            let mut expected = found.clone();
            let start = found.as_ptr().align_offset(LINE) + to;
            for (row, column) in (0..counts[0]).flat_map(|row| (0..counts[1]).map(move |at| (row, at))) {
                let here = from + row * strides[0] + column * size;
                let there = start + column * strides[1] + row * size;
                expected[there..there + size].copy_from_slice(&source[here..here + size]);
            }
            let transposed = Transposed {
                from: source.as_ptr().wrapping_add(from),
                to: found.as_mut_ptr().wrapping_add(start),
                counts,
                strides,
                ahead: 64,
            };
            let what = format!("{size} bytes, {counts:?}, strides {strides:?}, from {from} to {to}");
            // SAFETY: all elements are inside of the vectors, which are distinct.
            unsafe { transposed.copy(size, is_streamed) };
            streaming::settle();
            assert!(found == expected, "{what}");
            found.fill(0xEE);
            // SAFETY: as above.
            unsafe {
                match size {
                    1 => transposed.copy_by::<1, 8>(false, is_streamed),
                    2 => transposed.copy_by::<2, 4>(false, is_streamed),
                    4 => transposed.copy_by::<4, 2>(false, is_streamed),
                    _ => transposed.copy_by::<8, 1>(false, is_streamed),
                }
            }
            streaming::settle();
            assert!(found == expected, "{what}, element by element");
        }
    }

    #[test]
    fn every_element_arrives_and_no_byte_beside_is_written() {
        for size in [1usize, 2, 4, 8] {
            for counts in [[1, 1], [2, 3], [8, 8], [16, 16], [17, 33], [64, 5], [5, 64], [150, 40], [129, 65]]
            {
                for (places, gaps) in
                    [([0, 0], [0, 0]), ([3, 5], [7, 9]), ([64, 64], [64, 64]), ([0, 0], [0, 1024])]
                {
                    check(size, counts, places, gaps);
                }
            }
        }
    }

    proptest! {
        #[test]
        fn matrices_of_any_shape_at_any_place_are_transposed(
            size in prop::sample::select(vec![1usize, 2, 4, 8]), counts in [1usize..200, 1usize..200],
            places in [0usize..70, 0usize..70], gaps in [0usize..130, 0usize..130],
        ) {
            check(size, counts, places, gaps);
        }
    }
}
