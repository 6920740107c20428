// SPDX-License-Identifier: Apache-2.0
//! Transposes small elements: one side has them in rows, the other in columns.
//!
//! A line of each source row is read at once, because rows whose distance is a power of two share few places of a cache. Squares
//! of elements are transposed in registers, and collected in a buffer until a destination row has several lines.

use std::mem::MaybeUninit;

use super::rows::{HostRows, LINE, RowLoop, prefetch};
use super::streaming;

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

/// Bytes of the buffer, a small part of the first-level cache.
const BUFFER: usize = 8 << 10;
/// Bytes of a square's row.
pub const VECTOR: usize = 16;

#[repr(align(64))]
struct Buffer(MaybeUninit<[u8; BUFFER]>);

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
                1 if square::has_wide_vectors() => self.by::<square::WideByte>(is_streamed),
                1 => self.by::<u8>(is_streamed),
                2 => self.by::<u16>(is_streamed),
                4 => self.by::<u32>(is_streamed),
                8 => self.by::<u64>(is_streamed),
                _ => unreachable!("elements of 1, 2, 4 or 8 bytes"),
            }
        }
    }

    /// By squares of an element type.
    unsafe fn by<T: Element>(&self, is_streamed: bool) {
        let mut buffer = Buffer(MaybeUninit::uninit());
        let buffer = buffer.0.as_mut_ptr().cast::<u8>();
        let (columns, rows) = (LINE / size_of::<T>(), BUFFER / LINE);
        let length = self.counts[1] * size_of::<T>();
        // So many bytes of each row are read that prefetched lines arrive meanwhile.
        let distance = (BUFFER / self.counts[0]).next_multiple_of(LINE).max(2 * LINE).min(length);
        for column in (0..self.counts[1]).step_by(columns) {
            let ahead = match column * size_of::<T>() + distance < length {
                true => distance as isize,
                false => self.ahead + distance as isize - length as isize,
            };
            for row in (0..self.counts[0]).step_by(rows) {
                let part = Self {
                    ahead,
                    from: self.from.wrapping_add(row * self.strides[0] + column * size_of::<T>()),
                    to: self.to.wrapping_add(column * self.strides[1] + row * size_of::<T>()),
                    counts: [rows.min(self.counts[0] - row), columns.min(self.counts[1] - column)],
                    ..*self
                };
                // SAFETY: the caller's promise for a part of the elements, which fits into the buffer.
                unsafe {
                    T::collect(&part, buffer);
                    part.write_rows(buffer, part.counts[0] * size_of::<T>(), is_streamed);
                }
            }
        }
    }

    /// Writes the destination's rows to a buffer, one behind the other.
    #[inline(always)]
    unsafe fn collect<T: Element>(&self, buffer: *mut u8) {
        let (size, [rows, columns]) = (size_of::<T>(), self.counts);
        let (k, pitch) = (VECTOR / size, rows * size);
        let (whole_rows, whole_columns) = (rows / k * k, columns / k * k);
        // SAFETY: inside of the source and the buffer.
        let copy_one = |row: usize, column: usize| unsafe {
            let from = self.from.add(row * self.strides[0] + column * size).cast::<T>();
            buffer.add(column * pitch + row * size).cast::<T>().write_unaligned(from.read_unaligned());
        };
        for row in (0..whole_rows).step_by(k) {
            let from = self.from.wrapping_add(row * self.strides[0]);
            for ahead in 0..k {
                prefetch(from.wrapping_add(ahead * self.strides[0]).wrapping_offset(self.ahead));
            }
            for column in (0..whole_columns).step_by(k) {
                // SAFETY: as above; a square has rows of one vector on both sides.
                unsafe {
                    let to = buffer.add(column * pitch + row * size);
                    T::transpose_square(from.add(column * size), self.strides[0], to, pitch);
                }
            }
            for column in whole_columns..columns {
                (row..row + k).for_each(|row| copy_one(row, column));
            }
        }
        for row in whole_rows..rows {
            (0..columns).for_each(|column| copy_one(row, column));
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

/// A word that is an element.
trait Element: Copy + Sized {
    /// Transposes a square whose rows are [`VECTOR`] bytes, and so many bytes apart on each side.
    ///
    /// # Safety
    /// All rows are readable and writable.
    unsafe fn transpose_square(from: *const u8, stride: usize, to: *mut u8, pitch: usize);

    /// Writes the destination's rows to a buffer, with the instructions that the squares need.
    ///
    /// # Safety
    /// As for [`Transposed::collect`].
    #[inline(always)]
    unsafe fn collect(part: &Transposed, buffer: *mut u8) {
        // SAFETY: the caller's promise.
        unsafe { part.collect::<Self>(buffer) };
    }
}

/// A square's upper rows are interleaved with its lower ones, element by element, log2(K) times. Each time moves one bit of an
/// element's row into its column.
#[cfg(target_arch = "x86_64")]
mod square {
    use std::arch::x86_64::{
        __m128i, _mm_loadu_si128, _mm_setzero_si128, _mm_storeu_si128, _mm_unpackhi_epi8, _mm_unpackhi_epi16,
        _mm_unpackhi_epi32, _mm_unpackhi_epi64, _mm_unpacklo_epi8, _mm_unpacklo_epi16, _mm_unpacklo_epi32,
        _mm_unpacklo_epi64, _mm256_loadu2_m128i, _mm256_permute4x64_epi64, _mm256_setzero_si256,
        _mm256_storeu2_m128i, _mm256_unpackhi_epi8, _mm256_unpacklo_epi8,
    };

    /// Whether this machine has the vectors of [`WideByte`].
    pub fn has_wide_vectors() -> bool {
        is_x86_feature_detected!("avx2")
    }

    /// A byte, for vectors of 32 bytes. One has a row of the upper half of a square in its low half, and the same row of the
    /// lower half in its high half; both are interleaved at a time, and joined at the end. A square has 16 rows, as many as
    /// there are registers, so vectors of one row each do not stay in them.
    #[derive(Clone, Copy)]
    pub struct WideByte(#[expect(dead_code, reason = "only moved")] u8);

    impl super::Element for WideByte {
        #[inline]
        #[target_feature(enable = "avx2")]
        unsafe fn transpose_square(from: *const u8, stride: usize, to: *mut u8, pitch: usize) {
            // In each half of a vector are halves of two columns, 0 and 1: those of column 0 first.
            const JOINED: i32 = 0b11_01_10_00;
            const N: usize = super::VECTOR / 2;
            // SAFETY: the caller's promise.
            unsafe {
                let mut rows = [_mm256_setzero_si256(); N];
                for (index, row) in rows.iter_mut().enumerate() {
                    let upper = from.add(index * stride);
                    *row = _mm256_loadu2_m128i(upper.add(N * stride).cast(), upper.cast());
                }
                for _ in 0..N.ilog2() {
                    let mut next = rows;
                    for index in 0..N / 2 {
                        let (upper, lower) = (rows[index], rows[index + N / 2]);
                        next[2 * index] = _mm256_unpacklo_epi8(upper, lower);
                        next[2 * index + 1] = _mm256_unpackhi_epi8(upper, lower);
                    }
                    rows = next;
                }
                for (index, row) in rows.into_iter().enumerate() {
                    let column = to.add(2 * index * pitch);
                    let joined = _mm256_permute4x64_epi64::<JOINED>(row);
                    _mm256_storeu2_m128i(column.add(pitch).cast(), column.cast(), joined);
                }
            }
        }

        #[target_feature(enable = "avx2")]
        unsafe fn collect(part: &super::Transposed, buffer: *mut u8) {
            // SAFETY: the caller's promise.
            unsafe { part.collect::<Self>(buffer) };
        }
    }

    macro_rules! element {
        ($type:ty, $low:ident, $high:ident) => {
            impl super::Element for $type {
                #[inline(always)]
                unsafe fn transpose_square(from: *const u8, stride: usize, to: *mut u8, pitch: usize) {
                    const K: usize = super::VECTOR / size_of::<$type>();
                    // SAFETY: the caller's promise; all machines of this kind have these instructions.
                    unsafe {
                        let mut rows = [_mm_setzero_si128(); K];
                        for (index, row) in rows.iter_mut().enumerate() {
                            *row = _mm_loadu_si128(from.add(index * stride).cast());
                        }
                        for _ in 0..K.ilog2() {
                            let mut next = rows;
                            for index in 0..K / 2 {
                                let (upper, lower): (__m128i, __m128i) = (rows[index], rows[index + K / 2]);
                                next[2 * index] = $low(upper, lower);
                                next[2 * index + 1] = $high(upper, lower);
                            }
                            rows = next;
                        }
                        for (index, row) in rows.into_iter().enumerate() {
                            _mm_storeu_si128(to.add(index * pitch).cast(), row);
                        }
                    }
                }
            }
        };
    }

    element!(u8, _mm_unpacklo_epi8, _mm_unpackhi_epi8);
    element!(u16, _mm_unpacklo_epi16, _mm_unpackhi_epi16);
    element!(u32, _mm_unpacklo_epi32, _mm_unpackhi_epi32);
    element!(u64, _mm_unpacklo_epi64, _mm_unpackhi_epi64);
}

#[cfg(not(target_arch = "x86_64"))]
mod square {
    macro_rules! element {
        ($($type:ty)*) => {$(
            impl super::Element for $type {
                #[inline(always)]
                unsafe fn transpose_square(from: *const u8, stride: usize, to: *mut u8, pitch: usize) {
                    const SIZE: usize = size_of::<$type>();
                    const K: usize = super::VECTOR / SIZE;
                    for (row, column) in (0..K).flat_map(|row| (0..K).map(move |column| (row, column))) {
                        // SAFETY: the caller's promise.
                        unsafe {
                            let value = from.add(row * stride + column * SIZE).cast::<$type>().read_unaligned();
                            to.add(column * pitch + row * SIZE).cast::<$type>().write_unaligned(value);
                        }
                    }
                }
            }
        )*};
    }

    element!(u8 u16 u32 u64);

    /// There are no such vectors.
    pub type WideByte = u8;

    pub fn has_wide_vectors() -> bool {
        false
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Compares with a copy of one element after the other, by all ways that this machine has.
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
            if size == 1 {
                found.fill(0xEE);
                // SAFETY: as above.
                unsafe { transposed.by::<u8>(is_streamed) };
                streaming::settle();
                assert!(found == expected, "{what}, in narrow vectors");
            }
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
