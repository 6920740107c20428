// SPDX-License-Identifier: Apache-2.0
//! Transposes 16 rows of elements, such as the tokens of a block, into columns that are contiguous in the destination. A
//! square of them is a few whole cache lines there, which are written from registers: through a buffer they would be
//! written and read once more, which takes as long as the transposition.

use super::rows::{LINE, prefetch};
use super::transpose::{Transposed, VECTOR};

/// Number of rows of the source.
const ROWS: usize = 16;
/// Bytes of each row that are read before the bytes that were prefetched.
const AHEAD: usize = 1 << 10;

/// Whether it can transpose these elements of `size` bytes.
pub fn suits(matrix: &Transposed, size: usize) -> bool {
    let [rows, columns] = matrix.counts;
    size <= 4
        && rows == ROWS
        && matrix.strides[1] == ROWS * size
        && (columns * size).is_multiple_of(VECTOR)
        && (matrix.to as usize).is_multiple_of(LINE)
        && machine::has_vectors()
}

/// Transposes them.
///
/// # Safety
/// As for [`Transposed::copy`]; [`suits`] has returned true.
pub unsafe fn copy(matrix: &Transposed, size: usize, is_streamed: bool) {
    // SAFETY: the caller's promise.
    unsafe {
        match (size, is_streamed) {
            (1, false) => machine::copy::<1, false>(matrix),
            (1, true) => machine::copy::<1, true>(matrix),
            (2, false) => machine::copy::<2, false>(matrix),
            (2, true) => machine::copy::<2, true>(matrix),
            (_, false) => machine::copy::<4, false>(matrix),
            (_, true) => machine::copy::<4, true>(matrix),
        }
    }
}

/// Prefetches a line of each row: the one that is [`AHEAD`] of this byte of the row, or of the next matrix.
#[inline(always)]
fn prefetch_rows(matrix: &Transposed, at: usize, length: usize) {
    let ahead = match at + AHEAD < length {
        true => at as isize + AHEAD as isize,
        false => matrix.ahead + (at + AHEAD.min(length)) as isize - length as isize,
    };
    for row in 0..ROWS {
        prefetch(matrix.from.wrapping_add(row * matrix.strides[0]).wrapping_offset(ahead));
    }
}

#[cfg(target_arch = "x86_64")]
mod machine {
    use std::arch::x86_64::{
        __m256i, _mm256_loadu2_m128i, _mm256_permute4x64_epi64, _mm256_setzero_si256, _mm256_store_si256,
        _mm256_stream_si256, _mm256_unpackhi_epi8, _mm256_unpackhi_epi16, _mm256_unpackhi_epi32,
        _mm256_unpacklo_epi8, _mm256_unpacklo_epi16, _mm256_unpacklo_epi32,
    };

    use super::{LINE, ROWS, Transposed, VECTOR, prefetch_rows};

    pub fn has_vectors() -> bool {
        is_x86_feature_detected!("avx2")
    }

    /// # Safety
    /// As for [`super::copy`], with elements of `SIZE` bytes.
    #[target_feature(enable = "avx2")]
    pub unsafe fn copy<const SIZE: usize, const STREAMED: bool>(matrix: &Transposed) {
        let length = matrix.counts[1] * SIZE;
        for at in (0..length).step_by(VECTOR) {
            if at % LINE == 0 {
                prefetch_rows(matrix, at, length);
            }
            // SAFETY: the caller's promise. A square has as many bytes as 16 rows of a vector.
            unsafe {
                square::<SIZE, STREAMED>(matrix.from.add(at), matrix.strides[0], matrix.to.add(at * ROWS))
            };
        }
    }

    /// The upper half of some vectors is interleaved with the lower half, element by element, log2(N) times.
    macro_rules! interleaved {
        ($rows:expr, $n:literal, $low:ident, $high:ident) => {{
            let mut rows: [__m256i; $n] = $rows;
            for _ in 0..usize::ilog2($n) {
                let mut next = rows;
                for index in 0..$n / 2 {
                    next[2 * index] = $low(rows[index], rows[index + $n / 2]);
                    next[2 * index + 1] = $high(rows[index], rows[index + $n / 2]);
                }
                rows = next;
            }
            rows
        }};
    }

    /// A vector of each row.
    #[inline]
    #[target_feature(enable = "avx2")]
    unsafe fn square<const SIZE: usize, const STREAMED: bool>(from: *const u8, stride: usize, to: *mut u8) {
        // In each half of a vector are halves of two columns, 0 and 1: those of column 0 first.
        const JOINED: i32 = 0b11_01_10_00;
        let to = to.cast::<__m256i>();
        // SAFETY: the caller's promise.
        unsafe {
            match SIZE {
                1 => {
                    let rows = pairs::<8>(from, stride);
                    let rows = interleaved!(rows, 8, _mm256_unpacklo_epi8, _mm256_unpackhi_epi8);
                    for (index, row) in rows.into_iter().enumerate() {
                        store::<STREAMED>(to.add(index), _mm256_permute4x64_epi64::<JOINED>(row));
                    }
                }
                2 => {
                    let rows = pairs::<8>(from, stride);
                    let rows = interleaved!(rows, 8, _mm256_unpacklo_epi16, _mm256_unpackhi_epi16);
                    for (index, row) in rows.into_iter().enumerate() {
                        store::<STREAMED>(to.add(index), row);
                    }
                }
                _ => {
                    let (first, second) =
                        (pairs::<4>(from, stride), pairs::<4>(from.add(ROWS / 2 * stride), stride));
                    let first = interleaved!(first, 4, _mm256_unpacklo_epi32, _mm256_unpackhi_epi32);
                    let second = interleaved!(second, 4, _mm256_unpacklo_epi32, _mm256_unpackhi_epi32);
                    for index in 0..4 {
                        store::<STREAMED>(to.add(2 * index), first[index]);
                        store::<STREAMED>(to.add(2 * index + 1), second[index]);
                    }
                }
            }
        }
    }

    /// The first vector of `2 * N` rows: row `i` in the low half of one, and row `i + N` in its high half.
    #[inline]
    #[target_feature(enable = "avx2")]
    unsafe fn pairs<const N: usize>(from: *const u8, stride: usize) -> [__m256i; N] {
        let mut rows = [_mm256_setzero_si256(); N];
        for (index, row) in rows.iter_mut().enumerate() {
            // SAFETY: the caller's promise.
            unsafe {
                let upper = from.add(index * stride);
                *row = _mm256_loadu2_m128i(upper.add(N * stride).cast(), upper.cast());
            }
        }
        rows
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    unsafe fn store<const STREAMED: bool>(to: *mut __m256i, vector: __m256i) {
        // SAFETY: the caller's promise; it is aligned to a line.
        unsafe {
            match STREAMED {
                true => _mm256_stream_si256(to, vector),
                false => _mm256_store_si256(to, vector),
            }
        }
    }
}

#[cfg(not(target_arch = "x86_64"))]
mod machine {
    pub fn has_vectors() -> bool {
        false
    }

    pub unsafe fn copy<const SIZE: usize, const STREAMED: bool>(_: &super::Transposed) {
        unreachable!("has_vectors has returned false");
    }
}

#[cfg(test)]
mod tests {
    use super::super::streaming;
    use super::*;

    #[test]
    fn every_element_arrives_and_no_byte_beside_is_written() {
        for (size, columns, gap, from) in
            [(1, 16, 0, 0), (1, 128, 3, 5), (2, 8, 64, 1), (2, 1200, 0, 0), (4, 4, 0, 0), (4, 68, 12, 64)]
        {
            let stride = columns * size + gap;
            let source: Vec<u8> = (0..from + ROWS * stride).map(|i| (i * 7 + 1 + i / 251) as u8).collect();
            let mut empty = vec![0xEEu8; columns * ROWS * size + 3 * LINE];
            let start = empty.as_ptr().align_offset(LINE) + LINE;
            for is_streamed in [false, streaming::suits(u64::MAX)] {
                empty.fill(0xEE);
                let mut expected = empty.clone();
                for (row, column) in (0..ROWS).flat_map(|row| (0..columns).map(move |at| (row, at))) {
                    let (here, there) = (from + row * stride + column * size, (column * ROWS + row) * size);
                    expected[start + there..][..size].copy_from_slice(&source[here..][..size]);
                }
                let matrix = Transposed {
                    from: source.as_ptr().wrapping_add(from),
                    to: empty.as_mut_ptr().wrapping_add(start),
                    counts: [ROWS, columns],
                    strides: [stride, ROWS * size],
                    ahead: 64,
                };
                if !suits(&matrix, size) {
                    return crate::skip::skip("AVX2: this processor has none");
                }
                // SAFETY: all elements are inside of the vectors, which are distinct.
                unsafe { copy(&matrix, size, is_streamed) };
                streaming::settle();
                assert!(empty == expected, "{size} bytes, {columns} columns, from {from}, gap {gap}");
            }
        }
    }

    #[test]
    fn other_elements_do_not_suit() {
        let whole = Transposed {
            from: std::ptr::null(),
            to: std::ptr::null_mut(),
            counts: [ROWS, 64],
            strides: [64, ROWS],
            ahead: 0,
        };
        assert_eq!(suits(&whole, 1), machine::has_vectors());
        assert!(!suits(&Transposed { counts: [15, 64], ..whole }, 1));
        assert!(!suits(&Transposed { counts: [ROWS, 65], ..whole }, 1));
        assert!(!suits(&Transposed { strides: [64, 32], ..whole }, 1));
        assert!(!suits(&Transposed { to: 32 as *mut u8, ..whole }, 1));
        assert!(!suits(&Transposed { strides: [64, 8 * ROWS], ..whole }, 8));
    }
}
