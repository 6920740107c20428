// SPDX-License-Identifier: Apache-2.0
//! x86-64 processors with AVX2.
#![allow(unsafe_code)]
// The contract of each function is that of portable.rs.
#![allow(clippy::missing_safety_doc)]

use std::arch::x86_64::{
    __m256i, _MM_HINT_T0, _MM_HINT_T1, _mm_prefetch, _mm_sfence, _mm256_loadu_si256, _mm256_loadu2_m128i,
    _mm256_permute4x64_epi64, _mm256_storeu_si256, _mm256_storeu2_m128i, _mm256_stream_si256,
    _mm256_unpackhi_epi8, _mm256_unpackhi_epi16, _mm256_unpackhi_epi32, _mm256_unpackhi_epi64,
    _mm256_unpacklo_epi8, _mm256_unpacklo_epi16, _mm256_unpacklo_epi32, _mm256_unpacklo_epi64,
};

/// 32 bytes.
#[derive(Clone, Copy)]
pub struct Vector(__m256i);

pub fn is_available() -> bool {
    is_x86_feature_detected!("avx2")
}

/// Whether [`Vector::stream`] bypasses the caches.
pub fn can_stream() -> bool {
    is_available()
}

/// Orders vectors that were streamed before later writes of this thread, which other stores are without this.
pub fn settle() {
    // SAFETY: all machines of this kind have it.
    unsafe { _mm_sfence() };
}

/// Reads a line into the second-level cache, if there is one: into the first level, lines that are read at once would wait for those
/// that are read ahead.
#[inline(always)]
pub fn prefetch(address: *const u8) {
    // SAFETY: all machines of this kind have it, and it cannot fail, whatever is there.
    unsafe { _mm_prefetch::<_MM_HINT_T1>(address.cast()) };
}

/// Reads a line into the first-level cache, if there is one.
#[inline(always)]
pub fn prefetch_into_first_level(address: *const u8) {
    // SAFETY: as for `prefetch`.
    unsafe { _mm_prefetch::<_MM_HINT_T0>(address.cast()) };
}

impl Vector {
    #[inline]
    #[target_feature(enable = "avx2")]
    pub unsafe fn load(from: *const u8) -> Self {
        // SAFETY: the caller's promise.
        Self(unsafe { _mm256_loadu_si256(from.cast()) })
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    pub unsafe fn load_lanes([low, high]: [*const u8; 2]) -> Self {
        // SAFETY: the caller's promise.
        Self(unsafe { _mm256_loadu2_m128i(high.cast(), low.cast()) })
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    pub unsafe fn store(self, to: *mut u8) {
        // SAFETY: the caller's promise.
        unsafe { _mm256_storeu_si256(to.cast(), self.0) };
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    pub unsafe fn store_lanes(self, [low, high]: [*mut u8; 2]) {
        // SAFETY: the caller's promise.
        unsafe { _mm256_storeu2_m128i(high.cast(), low.cast(), self.0) };
    }

    /// Stores past the caches.
    #[inline]
    #[target_feature(enable = "avx2")]
    pub unsafe fn stream(self, to: *mut u8) {
        // SAFETY: the caller's promise.
        unsafe { _mm256_stream_si256(to.cast(), self.0) };
    }

    /// In each lane: interleaves the elements in the low halves of two vectors, and those in the high halves.
    #[inline]
    #[target_feature(enable = "avx2")]
    pub fn interleaved<const SIZE: usize>(self, other: Self) -> [Self; 2] {
        const { assert!(matches!(SIZE, 1 | 2 | 4 | 8)) };
        let (first, second) = (self.0, other.0);
        match SIZE {
            1 => [_mm256_unpacklo_epi8(first, second), _mm256_unpackhi_epi8(first, second)],
            2 => [_mm256_unpacklo_epi16(first, second), _mm256_unpackhi_epi16(first, second)],
            4 => [_mm256_unpacklo_epi32(first, second), _mm256_unpackhi_epi32(first, second)],
            _ => [_mm256_unpacklo_epi64(first, second), _mm256_unpackhi_epi64(first, second)],
        }
        .map(Self)
    }

    /// The low halves of both lanes, then the high ones.
    #[inline]
    #[target_feature(enable = "avx2")]
    pub fn joined(self) -> Self {
        Self(_mm256_permute4x64_epi64::<0b11_01_10_00>(self.0))
    }
}
