// SPDX-License-Identifier: Apache-2.0
//! Transposes 16 rows of elements, such as the tokens of a block, into columns that are contiguous in the destination. A
//! square of them is a few whole cache lines there, which are written from registers: through a buffer they would be
//! written and read once more, which takes as long as the transposition.
#![allow(unsafe_code)]

use super::rows::{LINE, store};
use super::transpose::Transposed;
use super::vector::{LANE, VECTOR, is_available, load_rows, prefetch, transposed};

const ROWS: usize = 16;
/// Bytes of each row that are read before the bytes that were prefetched.
const AHEAD: usize = 1 << 10;

/// Whether it can transpose these elements of `size` bytes.
pub fn suits(matrix: &Transposed, size: usize) -> bool {
    let [rows, columns] = matrix.counts;
    size <= 4
        && rows == ROWS
        && matrix.strides[1] == ROWS * size
        && (columns * size).is_multiple_of(LANE)
        && (matrix.to as usize).is_multiple_of(LINE)
        && is_available()
}

/// Transposes them.
///
/// # Safety
/// As for [`Transposed::copy`]; [`suits`] has returned true.
pub unsafe fn copy(matrix: &Transposed, size: usize, is_streamed: bool) {
    // SAFETY: the caller's promise.
    unsafe {
        match (size, is_streamed) {
            (1, false) => copy_by::<1, false>(matrix),
            (1, true) => copy_by::<1, true>(matrix),
            (2, false) => copy_by::<2, false>(matrix),
            (2, true) => copy_by::<2, true>(matrix),
            (_, false) => copy_by::<4, false>(matrix),
            (_, true) => copy_by::<4, true>(matrix),
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

/// # Safety
/// As for [`copy`], with elements of `SIZE` bytes.
#[cfg_attr(target_arch = "x86_64", target_feature(enable = "avx2"))]
unsafe fn copy_by<const SIZE: usize, const STREAMED: bool>(matrix: &Transposed) {
    let length = matrix.counts[1] * SIZE;
    for at in (0..length).step_by(LANE) {
        if at % LINE == 0 {
            prefetch_rows(matrix, at, length);
        }
        // SAFETY: the caller's promise. A square has as many bytes as 16 rows of a lane.
        unsafe {
            copy_square::<SIZE, STREAMED>(matrix.from.add(at), matrix.strides[0], matrix.to.add(at * ROWS))
        };
    }
}

/// A lane of each row. The destination is aligned to a line.
#[inline]
#[cfg_attr(target_arch = "x86_64", target_feature(enable = "avx2"))]
unsafe fn copy_square<const SIZE: usize, const STREAMED: bool>(from: *const u8, stride: usize, to: *mut u8) {
    // SAFETY: the caller's promise.
    unsafe {
        match SIZE {
            1 => {
                let columns = transposed::<1, 8>(load_rows(from, stride));
                for (index, columns) in columns.iter().enumerate() {
                    store::<STREAMED>(columns.joined(), to.add(index * VECTOR));
                }
            }
            2 => {
                let columns = transposed::<2, 8>(load_rows(from, stride));
                for (index, column) in columns.iter().enumerate() {
                    store::<STREAMED>(*column, to.add(index * VECTOR));
                }
            }
            _ => {
                let upper = transposed::<4, 4>(load_rows(from, stride));
                let lower = transposed::<4, 4>(load_rows(from.add(ROWS / 2 * stride), stride));
                for (index, (upper, lower)) in upper.iter().zip(&lower).enumerate() {
                    store::<STREAMED>(*upper, to.add(2 * index * VECTOR));
                    store::<STREAMED>(*lower, to.add((2 * index + 1) * VECTOR));
                }
            }
        }
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
        assert_eq!(suits(&whole, 1), is_available());
        assert!(!suits(&Transposed { counts: [15, 64], ..whole }, 1));
        assert!(!suits(&Transposed { counts: [ROWS, 65], ..whole }, 1));
        assert!(!suits(&Transposed { strides: [64, 32], ..whole }, 1));
        assert!(!suits(&Transposed { to: 32 as *mut u8, ..whole }, 1));
        assert!(!suits(&Transposed { strides: [64, 8 * ROWS], ..whole }, 8));
    }
}
