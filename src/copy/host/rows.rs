// SPDX-License-Identifier: Apache-2.0
//! Copies rows of equal size with constant strides: what transposed blocks consist of.
//!
//! A call of memcpy per row costs as much as copying 256 bytes, so rows are copied in place, in two nested loops.
#![allow(unsafe_code)]

use super::vector::{VECTOR, Vector, is_available, prefetch};

/// The maximum size of rows that are copied here outside of tiles.
const MAX: usize = 1024;

#[derive(Clone, Copy, Debug)]
pub struct RowLoop {
    pub count: usize,
    /// Bytes from an iteration to the next, in source and destination.
    pub strides: [usize; 2],
}

impl RowLoop {
    /// A loop of one iteration.
    pub const ONCE: Self = Self { count: 1, strides: [0; 2] };
}

#[derive(Clone, Copy, Debug)]
pub struct HostRows {
    pub from: *const u8,
    pub to: *mut u8,
    pub size: usize,
    pub outer: RowLoop,
    pub inner: RowLoop,
    /// Bytes from each row of the source to what will be read later and is prefetched; any bytes may be there, or none.
    pub ahead: isize,
}

impl HostRows {
    /// Whether there are several that are short enough to be copied here.
    pub fn are_short(&self) -> bool {
        self.outer.count * self.inner.count > 1 && self.size <= MAX
    }

    /// Whether the destination of each row consists of whole cache lines.
    pub fn are_lines(&self) -> bool {
        let strides = self.outer.strides[1] | self.inner.strides[1];
        (self.to as usize | strides | self.size).is_multiple_of(LINE)
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
                _ if self.size.is_multiple_of(VECTOR) && is_available() => {
                    self.copy_vectors(is_streamed && self.are_lines())
                }
                16 => self.copy_words::<u128>(),
                17.. => self.each(|from, to| copy_short(from, to, self.size)),
                _ => self.each(|from, to| std::ptr::copy_nonoverlapping(from, to, self.size)),
            }
        }
    }

    /// Rows of vectors. If rows are streamed, each consists of cache lines.
    #[cfg_attr(target_arch = "x86_64", target_feature(enable = "avx2"))]
    unsafe fn copy_vectors(&self, is_streamed: bool) {
        // SAFETY: the caller's promise.
        unsafe {
            match (self.size, is_streamed) {
                (32, _) => self.copy_fixed::<1, false>(),
                (64, false) => self.copy_fixed::<2, false>(),
                (64, true) => self.copy_fixed::<2, true>(),
                (128, false) => self.copy_fixed::<4, false>(),
                (128, true) => self.copy_fixed::<4, true>(),
                (256, false) => self.copy_fixed::<8, false>(),
                (256, true) => self.copy_fixed::<8, true>(),
                (_, false) => self.copy_any::<false>(),
                (_, true) => self.copy_any::<true>(),
            }
        }
    }

    /// Rows of `N` vectors.
    #[cfg_attr(target_arch = "x86_64", target_feature(enable = "avx2"))]
    unsafe fn copy_fixed<const N: usize, const STREAMED: bool>(&self) {
        // SAFETY: the caller's promise.
        self.each(|from, to| unsafe { copy_row::<STREAMED>(from, to, N, self.ahead) });
    }

    #[cfg_attr(target_arch = "x86_64", target_feature(enable = "avx2"))]
    unsafe fn copy_any<const STREAMED: bool>(&self) {
        let vectors = self.size / VECTOR;
        // SAFETY: the caller's promise.
        self.each(|from, to| unsafe { copy_row::<STREAMED>(from, to, vectors, self.ahead) });
    }

    /// Copies rows whose destination does not consist of whole cache lines: whole lines past the caches, and the ends of
    /// rows through them. Ends of the row that is `ahead` bytes later in the destination, which is copied later, are
    /// prefetched.
    ///
    /// # Safety
    /// As for [`Self::copy`] if it bypasses the caches.
    #[cfg_attr(target_arch = "x86_64", target_feature(enable = "avx2"))]
    pub unsafe fn copy_lines_and_ends(&self, ahead: usize) {
        self.each(|from, to| {
            let head = (to as usize).wrapping_neg() % LINE;
            let head = head.min(self.size);
            let tail = head + (self.size - head) / LINE * LINE;
            prefetch(to.wrapping_add(ahead));
            prefetch(to.wrapping_add(ahead + self.size - 1));
            // SAFETY: the caller's promise, for consecutive parts of a row; what is streamed is aligned.
            unsafe {
                copy_end(from, to, head);
                for at in (head..tail).step_by(LINE) {
                    let (first, second) = (Vector::load(from.add(at)), Vector::load(from.add(at + VECTOR)));
                    first.stream(to.add(at));
                    second.stream(to.add(at + VECTOR));
                }
                copy_end(from.add(tail), to.add(tail), self.size - tail);
            }
        });
    }

    unsafe fn copy_words<T: Copy>(&self) {
        // SAFETY: the caller's promise; words may be unaligned.
        self.each(|from, to| unsafe { to.cast::<T>().write_unaligned(from.cast::<T>().read_unaligned()) });
    }

    /// Passes the addresses of each row.
    #[inline(always)]
    pub fn each(&self, mut copy: impl FnMut(*const u8, *mut u8)) {
        let (mut from, mut to) = (self.from, self.to);
        for _ in 0..self.outer.count {
            let (mut source, mut destination) = (from, to);
            for _ in 0..self.inner.count {
                copy(source, destination);
                source = source.wrapping_add(self.inner.strides[0]);
                destination = destination.wrapping_add(self.inner.strides[1]);
            }
            from = from.wrapping_add(self.outer.strides[0]);
            to = to.wrapping_add(self.outer.strides[1]);
        }
    }
}

/// Bytes of a cache line, of x86-64 processors and of the Arm processors of servers, such as Grace. Where lines are longer, some
/// are prefetched twice.
pub const LINE: usize = 64;

/// One row. A line is loaded before it is stored, and one that is `ahead` of it prefetched into the second-level cache.
#[inline]
#[cfg_attr(target_arch = "x86_64", target_feature(enable = "avx2"))]
unsafe fn copy_row<const STREAMED: bool>(from: *const u8, to: *mut u8, vectors: usize, ahead: isize) {
    // SAFETY: the caller's promise. A last vector without a second is stored alone.
    unsafe {
        for index in (1..vectors).step_by(2) {
            prefetch(from.wrapping_add(index / 2 * LINE).wrapping_offset(ahead));
            let (before, here) = ((index - 1) * VECTOR, index * VECTOR);
            let (first, second) = (Vector::load(from.add(before)), Vector::load(from.add(here)));
            store::<STREAMED>(first, to.add(before));
            store::<STREAMED>(second, to.add(here));
        }
        if vectors % 2 == 1 {
            let last = (vectors - 1) * VECTOR;
            store::<STREAMED>(Vector::load(from.add(last)), to.add(last));
        }
    }
}

/// Stores a vector, past the caches if `STREAMED`.
///
/// # Safety
/// As for [`Vector::store`], or as for [`Vector::stream`].
#[inline]
#[cfg_attr(target_arch = "x86_64", target_feature(enable = "avx2"))]
pub unsafe fn store<const STREAMED: bool>(vector: Vector, to: *mut u8) {
    // SAFETY: the caller's promise.
    unsafe {
        match STREAMED {
            true => vector.stream(to),
            false => vector.store(to),
        }
    }
}

/// Copies at least 16 bytes in words of 16, the last two of which may overlap.
///
/// # Safety
/// As for [`std::ptr::copy_nonoverlapping`].
#[inline(always)]
pub unsafe fn copy_short(from: *const u8, to: *mut u8, size: usize) {
    const WORD: usize = size_of::<u128>();
    let copy_word = |at: usize| {
        // SAFETY: each word ends at the last byte or before.
        unsafe { to.add(at).cast::<u128>().write_unaligned(from.add(at).cast::<u128>().read_unaligned()) }
    };
    let last = size - WORD;
    (0..last).step_by(WORD).for_each(copy_word);
    copy_word(last);
}

/// Copies less than a line: in words of 16 bytes, or in two shorter words that may overlap.
///
/// # Safety
/// As for [`std::ptr::copy_nonoverlapping`].
#[inline(always)]
unsafe fn copy_end(from: *const u8, to: *mut u8, size: usize) {
    // SAFETY: the caller's promise; there is at least one word, and at most two.
    unsafe {
        match size {
            16.. => copy_short(from, to, size),
            8.. => copy_two::<u64>(from, to, size),
            4.. => copy_two::<u32>(from, to, size),
            2.. => copy_two::<u16>(from, to, size),
            1 => *to = *from,
            0 => (),
        }
    }
}

/// Copies the first and the last word of a span of at most two words.
///
/// # Safety
/// As for [`std::ptr::copy_nonoverlapping`].
#[inline(always)]
unsafe fn copy_two<T: Copy>(from: *const u8, to: *mut u8, size: usize) {
    for at in [0, size - size_of::<T>()] {
        // SAFETY: the caller's promise; words may be unaligned.
        unsafe { to.add(at).cast::<T>().write_unaligned(from.add(at).cast::<T>().read_unaligned()) };
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
        let source: Vec<u8> = (0..32 * 1024u32).map(|i| (i * 7 + 1 + i / 251) as u8).collect();
        for size in [1, 2, 3, 4, 8, 12, 16, 17, 31, 32, 64, 68, 96, 100, 128, 192, 256, 480, 512, 576, 1024] {
            for (from, to) in [(0, 0), (1, 0), (0, 1), (3, 32), (64, 64)] {
                for (from_gap, to_gap) in [(0, 0), (64, 0), (0, 64), (7, 9)] {
                    for is_streamed in [false, true] {
                        if is_streamed && !is_available() {
                            continue;
                        }
                        let mut found = vec![0xEEu8; 32 * 1024];
                        let start = found.as_ptr().align_offset(ALIGNED) + to;
                        let inner = RowLoop { count: ROWS, strides: [size + from_gap, size + to_gap] };
                        let outer =
                            RowLoop { count: 2, strides: inner.strides.map(|stride| ROWS * stride + 64) };
                        let rows = HostRows {
                            from: source.as_ptr().wrapping_add(from),
                            to: found.as_mut_ptr().wrapping_add(start),
                            size,
                            outer,
                            inner,
                            ahead: 64,
                        };
                        assert!(rows.are_short());
                        let mut expected = vec![0xEEu8; 32 * 1024];
                        for row in 0..2 * ROWS {
                            let offset = |side: usize| {
                                row / ROWS * outer.strides[side] + row % ROWS * inner.strides[side]
                            };
                            let (at, here) = (start + offset(1), from + offset(0));
                            expected[at..at + size].copy_from_slice(&source[here..here + size]);
                        }
                        // SAFETY: all rows are inside of the vectors, which are distinct.
                        unsafe { rows.copy(is_streamed) };
                        streaming::settle();
                        assert!(found == expected, "{size} bytes from {from} to {to}, {inner:?}");
                        if is_streamed {
                            found.fill(0xEE);
                            // SAFETY: as above.
                            unsafe { rows.copy_lines_and_ends(ROWS * inner.strides[1]) };
                            streaming::settle();
                            assert!(
                                found == expected,
                                "lines and ends, {size} bytes from {from} to {to}, {inner:?}"
                            );
                        }
                    }
                }
            }
        }
    }
}
