// SPDX-License-Identifier: Apache-2.0
//! Copies past the caches: destination lines are not read first, and nothing is evicted for them.

use std::sync::atomic::{Ordering, fence};

/// Bytes of a cache line.
const LINE: usize = 64;
/// The minimum size of a transfer that bypasses the caches: smaller ones are often read again soon. At 4 MiB,
/// pieces of 32 KiB and more are as fast through the caches (0.93), and shorter ones slower. From 16 MiB on,
/// all pieces of 1 KiB and more gain a tenth to four tenths (2 cores of an AMD EPYC).
const MIN_IN_ALL: u64 = 4 << 20;
/// The minimum size of a contiguous span, whose ends go through the caches. Bypassing them, pieces of 512
/// bytes were a third slower, of 1 KiB a tenth faster.
const MIN_TOGETHER: usize = 16 * LINE;

/// Whether a transfer of so many bytes should bypass the caches, and this machine can.
pub fn suits(bytes: u64) -> bool {
    bytes >= MIN_IN_ALL && machine::can_stream()
}

/// Copies past the caches. Until [`settle`], other threads may read the old contents, however they
/// synchronise.
///
/// # Safety
/// As for [`std::ptr::copy_nonoverlapping`], and [`suits`] has returned true.
pub unsafe fn copy(from: *const u8, to: *mut u8, size: usize) {
    let head = to.align_offset(LINE);
    if size < MIN_TOGETHER || head > LINE {
        // SAFETY: the caller's promise.
        return unsafe { std::ptr::copy_nonoverlapping(from, to, size) };
    }
    let streamed = (size - head) / machine::STEP * machine::STEP;
    let tail = head + streamed;
    // SAFETY: the caller's promise, for three consecutive parts.
    unsafe {
        std::ptr::copy_nonoverlapping(from, to, head);
        machine::stream(from.add(head), to.add(head), streamed);
        std::ptr::copy_nonoverlapping(from.add(tail), to.add(tail), size - tail);
    }
}

/// Makes this thread's copies visible to threads that synchronise with it.
pub fn settle() {
    machine::settle();
    fence(Ordering::Release);
}

#[cfg(target_arch = "x86_64")]
mod machine {
    use std::arch::x86_64::{__m256i, _mm_sfence, _mm256_loadu_si256, _mm256_stream_si256};

    /// Bytes of a round, whose loads are all issued before its first store.
    pub const STEP: usize = 4 * size_of::<__m256i>();

    pub fn can_stream() -> bool {
        is_x86_feature_detected!("avx")
    }

    pub fn settle() {
        // SAFETY: all machines of this kind have it.
        unsafe { _mm_sfence() };
    }

    /// `size` is a multiple of [`STEP`], and `to` of a vector's size.
    #[target_feature(enable = "avx")]
    pub unsafe fn stream(from: *const u8, to: *mut u8, size: usize) {
        for at in (0..size).step_by(STEP) {
            // SAFETY: inside of both, by contract; what is written is aligned.
            unsafe {
                let source = from.add(at).cast::<__m256i>();
                let destination = to.add(at).cast::<__m256i>();
                let first = _mm256_loadu_si256(source);
                let second = _mm256_loadu_si256(source.add(1));
                let third = _mm256_loadu_si256(source.add(2));
                let fourth = _mm256_loadu_si256(source.add(3));
                _mm256_stream_si256(destination, first);
                _mm256_stream_si256(destination.add(1), second);
                _mm256_stream_si256(destination.add(2), third);
                _mm256_stream_si256(destination.add(3), fourth);
            }
        }
    }
}

#[cfg(not(target_arch = "x86_64"))]
mod machine {
    pub const STEP: usize = super::LINE;

    pub fn can_stream() -> bool {
        false
    }

    pub fn settle() {}

    pub unsafe fn stream(from: *const u8, to: *mut u8, size: usize) {
        // SAFETY: the caller's promise.
        unsafe { std::ptr::copy_nonoverlapping(from, to, size) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_arrives_and_none_beside_wherever_both_begin() {
        assert!(!suits(MIN_IN_ALL - 1));
        if !suits(MIN_IN_ALL) {
            crate::skip::skip("AVX: this processor has none");
            return;
        }
        let source: Vec<u8> = (0..4096u32).map(|i| (i * 7 + 1) as u8).collect();
        for size in [0, 1, 63, 1023, 1024, 1025, 1100, 1200, 2048, 3000] {
            for from in [0, 1, 31, 64] {
                for to in [0, 1, 16, 32, 63, 65] {
                    let mut found = vec![0u8; 4096];
                    // SAFETY: both spans are inside of their vectors.
                    unsafe { copy(source.as_ptr().add(from), found.as_mut_ptr().add(to), size) };
                    settle();
                    let mut expected = vec![0u8; 4096];
                    expected[to..to + size].copy_from_slice(&source[from..from + size]);
                    assert_eq!(found, expected, "{size} bytes from {from} to {to}");
                }
            }
        }
    }
}
