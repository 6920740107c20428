// SPDX-License-Identifier: Apache-2.0
//! Copies past the caches: destination lines are not read first, and nothing is evicted for them.
#![allow(unsafe_code)]

use std::sync::atomic::{Ordering, fence};

use super::rows::LINE;
use super::vector::{self, VECTOR, Vector};

/// Bytes of a round, whose loads are all issued before its first store.
const STEP: usize = 4 * VECTOR;
/// The minimum size of a transfer that bypasses the caches: smaller ones are often read again soon. At 4 MiB,
/// pieces of 32 KiB and more are as fast through the caches (0.93), and shorter ones slower. From 16 MiB on,
/// all pieces of 1 KiB and more gain a tenth to four tenths (2 cores of an AMD EPYC).
const MIN_IN_ALL: u64 = 4 << 20;
/// The minimum size of a contiguous span, whose ends go through the caches. Bypassing them, pieces of 512
/// bytes were a third slower, of 1 KiB a tenth faster.
const MIN_TOGETHER: usize = 16 * LINE;

/// Whether a transfer of so many bytes should bypass the caches, and this machine can.
pub fn suits(bytes: u64) -> bool {
    bytes >= MIN_IN_ALL && vector::can_stream()
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
    let streamed = (size - head) / STEP * STEP;
    let tail = head + streamed;
    // SAFETY: the caller's promise, for three consecutive parts.
    unsafe {
        std::ptr::copy_nonoverlapping(from, to, head);
        stream(from.add(head), to.add(head), streamed);
        std::ptr::copy_nonoverlapping(from.add(tail), to.add(tail), size - tail);
    }
}

/// Makes this thread's copies visible to threads that synchronise with it.
pub fn settle() {
    vector::settle();
    fence(Ordering::Release);
}

/// # Safety
/// As for [`copy`]; `size` is a multiple of [`STEP`], and `to` of a vector's size.
#[cfg_attr(target_arch = "x86_64", target_feature(enable = "avx2"))]
unsafe fn stream(from: *const u8, to: *mut u8, size: usize) {
    for at in (0..size).step_by(STEP) {
        // SAFETY: inside of both, by contract; what is written is aligned.
        unsafe {
            let (source, destination) = (from.add(at), to.add(at));
            let vectors = [0, 1, 2, 3].map(|index| Vector::load(source.add(index * VECTOR)));
            for (index, vector) in vectors.into_iter().enumerate() {
                vector.stream(destination.add(index * VECTOR));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_arrives_and_none_beside_wherever_both_begin() {
        assert!(!suits(MIN_IN_ALL - 1));
        if !suits(MIN_IN_ALL) {
            crate::skip::skip("AVX2: this processor has none");
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
