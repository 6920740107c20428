// SPDX-License-Identifier: Apache-2.0
//! Copies rows of equal size with constant strides: what transposed blocks consist of.
//!
//! A call of memcpy per row costs as much as copying 256 bytes, so rows up to [`MOST`] bytes are copied in place.

/// The maximum size of a row that is copied here.
const MOST: usize = 1024;

/// Rows in host memory.
#[derive(Clone, Copy, Debug)]
pub struct HostRows {
    pub from: *const u8,
    pub to: *mut u8,
    /// Bytes of a row.
    pub size: usize,
    /// Bytes from a row to the next, in source and destination.
    pub strides: [usize; 2],
    /// Number of rows.
    pub rows: usize,
}

impl HostRows {
    /// Whether they are short enough to be copied here.
    pub fn are_short(&self) -> bool {
        self.rows > 1 && self.size <= MOST
    }

    /// Copies them. `is_streamed` bypasses the caches where that is possible; then the caller calls `settle` of
    /// [`super::streaming`].
    ///
    /// # Safety
    /// All rows of the source are readable and all of the destination writable, no byte is in both, and streaming is
    /// supported if it is requested.
    pub unsafe fn copy(&self, is_streamed: bool) {
        // SAFETY: the caller's promise, for all below.
        unsafe {
            match self.size {
                1 => self.copy_words::<u8>(),
                2 => self.copy_words::<u16>(),
                4 => self.copy_words::<u32>(),
                8 => self.copy_words::<u64>(),
                _ if self.size.is_multiple_of(machine::VECTOR) && machine::has_vectors() => {
                    let is_aligned = (self.to as usize | self.strides[1]).is_multiple_of(LINE)
                        && self.size.is_multiple_of(LINE);
                    machine::copy(self, is_streamed && is_aligned)
                }
                16 => self.copy_words::<u128>(),
                _ => self.each(|from, to| std::ptr::copy_nonoverlapping(from, to, self.size)),
            }
        }
    }

    /// Rows of one word.
    unsafe fn copy_words<T: Copy>(&self) {
        // SAFETY: the caller's promise; words may be unaligned.
        self.each(|from, to| unsafe { to.cast::<T>().write_unaligned(from.cast::<T>().read_unaligned()) });
    }

    /// Passes the addresses of each row.
    #[inline(always)]
    fn each(&self, copy: impl Fn(*const u8, *mut u8)) {
        let (mut from, mut to) = (self.from, self.to);
        for _ in 0..self.rows {
            copy(from, to);
            from = from.wrapping_add(self.strides[0]);
            to = to.wrapping_add(self.strides[1]);
        }
    }
}

/// Bytes of a cache line.
const LINE: usize = 64;

#[cfg(target_arch = "x86_64")]
mod machine {
    use std::arch::x86_64::{__m256i, _mm256_loadu_si256, _mm256_storeu_si256, _mm256_stream_si256};

    use super::HostRows;

    /// Bytes of a vector.
    pub const VECTOR: usize = size_of::<__m256i>();

    pub fn has_vectors() -> bool {
        is_x86_feature_detected!("avx")
    }

    /// # Safety
    /// As for [`HostRows::copy`]; the size is a multiple of [`VECTOR`]. If rows are streamed, all of the destination is
    /// aligned to vectors.
    #[target_feature(enable = "avx")]
    pub unsafe fn copy(rows: &HostRows, is_streamed: bool) {
        // SAFETY: the caller's promise.
        unsafe {
            match (rows.size, is_streamed) {
                (32, _) => fixed::<1>(rows),
                (64, false) => fixed::<2>(rows),
                (128, false) => fixed::<4>(rows),
                (256, false) => fixed::<8>(rows),
                (512, false) => fixed::<16>(rows),
                (_, false) => any::<false>(rows),
                (_, true) => any::<true>(rows),
            }
        }
    }

    /// Rows of `N` vectors, all of which are loaded before the first is stored.
    #[target_feature(enable = "avx")]
    unsafe fn fixed<const N: usize>(rows: &HostRows) {
        let (mut from, mut to) = (rows.from, rows.to);
        for _ in 0..rows.rows {
            let (source, destination) = (from.cast::<__m256i>(), to.cast::<__m256i>());
            // SAFETY: the caller's promise.
            unsafe {
                let mut vectors = [_mm256_loadu_si256(source); N];
                for (index, vector) in vectors.iter_mut().enumerate() {
                    *vector = _mm256_loadu_si256(source.add(index));
                }
                for (index, vector) in vectors.into_iter().enumerate() {
                    _mm256_storeu_si256(destination.add(index), vector);
                }
            }
            from = from.wrapping_add(rows.strides[0]);
            to = to.wrapping_add(rows.strides[1]);
        }
    }

    /// Rows of any number of vectors.
    #[target_feature(enable = "avx")]
    unsafe fn any<const STREAMED: bool>(rows: &HostRows) {
        let vectors = rows.size / VECTOR;
        let (mut from, mut to) = (rows.from, rows.to);
        for _ in 0..rows.rows {
            let (source, destination) = (from.cast::<__m256i>(), to.cast::<__m256i>());
            // SAFETY: the caller's promise. A last vector without a second is stored alone.
            unsafe {
                for index in (1..vectors).step_by(2) {
                    let first = _mm256_loadu_si256(source.add(index - 1));
                    let second = _mm256_loadu_si256(source.add(index));
                    store::<STREAMED>(destination.add(index - 1), first);
                    store::<STREAMED>(destination.add(index), second);
                }
                if vectors % 2 == 1 {
                    let last = _mm256_loadu_si256(source.add(vectors - 1));
                    store::<STREAMED>(destination.add(vectors - 1), last);
                }
            }
            from = from.wrapping_add(rows.strides[0]);
            to = to.wrapping_add(rows.strides[1]);
        }
    }

    #[inline]
    #[target_feature(enable = "avx")]
    unsafe fn store<const STREAMED: bool>(to: *mut __m256i, vector: __m256i) {
        // SAFETY: the caller's promise.
        unsafe {
            match STREAMED {
                true => _mm256_stream_si256(to, vector),
                false => _mm256_storeu_si256(to, vector),
            }
        }
    }
}

#[cfg(not(target_arch = "x86_64"))]
mod machine {
    /// Bytes of a vector.
    pub const VECTOR: usize = 32;

    pub fn has_vectors() -> bool {
        false
    }

    /// # Safety
    /// As for the rows.
    pub unsafe fn copy(rows: &super::HostRows, _is_streamed: bool) {
        // SAFETY: the caller's promise.
        rows.each(|from, to| unsafe { std::ptr::copy_nonoverlapping(from, to, rows.size) });
    }
}

#[cfg(test)]
mod tests {
    use super::super::streaming;
    use super::*;

    #[test]
    fn every_byte_of_every_row_is_copied_and_none_beside() {
        const ROWS: usize = 5;
        const ALIGNED: usize = 64;
        let source: Vec<u8> = (0..16 * 1024u32).map(|i| (i * 7 + 1 + i / 251) as u8).collect();
        for size in [1, 2, 3, 4, 8, 12, 16, 31, 32, 64, 96, 100, 128, 192, 256, 480, 512, 576, 1024] {
            for (from, to) in [(0, 0), (1, 0), (0, 1), (3, 32), (64, 64)] {
                for (from_gap, to_gap) in [(0, 0), (64, 0), (0, 64), (7, 9)] {
                    for is_streamed in [false, true] {
                        if is_streamed && !machine::has_vectors() {
                            continue;
                        }
                        let mut found = vec![0xEEu8; 16 * 1024];
                        let start = found.as_ptr().align_offset(ALIGNED) + to;
                        let strides = [size + from_gap, size + to_gap];
                        let rows = HostRows {
                            from: source.as_ptr().wrapping_add(from),
                            to: found.as_mut_ptr().wrapping_add(start),
                            size,
                            strides,
                            rows: ROWS,
                        };
                        assert!(rows.are_short());
                        let mut expected = vec![0xEEu8; 16 * 1024];
                        for row in 0..ROWS {
                            let (at, here) = (start + row * strides[1], from + row * strides[0]);
                            expected[at..at + size].copy_from_slice(&source[here..here + size]);
                        }
                        // SAFETY: all rows are inside of the vectors, which are distinct.
                        unsafe { rows.copy(is_streamed) };
                        streaming::settle();
                        assert!(found == expected, "{size} bytes from {from} to {to}, strides {strides:?}");
                    }
                }
            }
        }
    }
}
