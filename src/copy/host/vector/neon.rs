// SPDX-License-Identifier: Apache-2.0
//! 64-bit Arm processors, all of which have NEON.
#![allow(unsafe_code)]
// The contract of each function is that of portable.rs.
#![allow(clippy::missing_safety_doc)]

use std::arch::aarch64::{
    uint8x16_t, vld1q_u8, vreinterpretq_u8_u16, vreinterpretq_u8_u32, vreinterpretq_u8_u64,
    vreinterpretq_u16_u8, vreinterpretq_u32_u8, vreinterpretq_u64_u8, vst1q_u8, vzip1q_u8, vzip1q_u16,
    vzip1q_u32, vzip1q_u64, vzip2q_u8, vzip2q_u16, vzip2q_u32, vzip2q_u64,
};
use std::arch::asm;

use super::LANE;

/// 32 bytes.
#[derive(Clone, Copy)]
pub struct Vector([uint8x16_t; 2]);

pub fn is_available() -> bool {
    true
}

/// Whether [`Vector::stream`] bypasses the caches.
pub fn can_stream() -> bool {
    true
}

/// Streamed vectors are ordered as other stores are.
pub fn settle() {}

/// Reads a line into the second-level cache: into the first level, lines that are read at once would wait for those that are read
/// ahead.
#[inline(always)]
pub fn prefetch(address: *const u8) {
    // SAFETY: a hint, which cannot fail, whatever is there.
    unsafe { asm!("prfm pldl2keep, [{}]", in(reg) address, options(readonly, nostack, preserves_flags)) };
}

/// Reads a line into the first-level cache.
#[inline(always)]
pub fn prefetch_into_first_level(address: *const u8) {
    // SAFETY: as for `prefetch`.
    unsafe { asm!("prfm pldl1keep, [{}]", in(reg) address, options(readonly, nostack, preserves_flags)) };
}

impl Vector {
    #[inline]
    pub unsafe fn load(from: *const u8) -> Self {
        // SAFETY: the caller's promise.
        unsafe { Self::load_lanes([from, from.add(LANE)]) }
    }

    #[inline]
    pub unsafe fn load_lanes(lanes: [*const u8; 2]) -> Self {
        // SAFETY: the caller's promise.
        Self(lanes.map(|lane| unsafe { vld1q_u8(lane) }))
    }

    #[inline]
    pub unsafe fn store(self, to: *mut u8) {
        // SAFETY: the caller's promise.
        unsafe { self.store_lanes([to, to.add(LANE)]) };
    }

    #[inline]
    pub unsafe fn store_lanes(self, [low, high]: [*mut u8; 2]) {
        // SAFETY: the caller's promise.
        unsafe {
            vst1q_u8(low, self.0[0]);
            vst1q_u8(high, self.0[1]);
        }
    }

    /// Stores with the hint that the bytes are not read soon. Processors that detect writes of whole lines do not read the lines
    /// first either way; the hint says that the lines are not worth a place in the caches.
    #[inline]
    pub unsafe fn stream(self, to: *mut u8) {
        let [low, high] = self.0;
        // SAFETY: the caller's promise.
        unsafe {
            asm!("stnp {:q}, {:q}, [{}]", in(vreg) low, in(vreg) high, in(reg) to, options(nostack, preserves_flags));
        }
    }

    /// In each lane: interleaves the elements in the low halves of two vectors, and those in the high halves.
    #[inline]
    pub fn interleaved<const SIZE: usize>(self, other: Self) -> [Self; 2] {
        let [low, high] = [0, 1].map(|lane| zipped::<SIZE>(self.0[lane], other.0[lane]));
        [Self([low[0], high[0]]), Self([low[1], high[1]])]
    }

    /// The low halves of both lanes, then the high ones.
    #[inline]
    pub fn joined(self) -> Self {
        Self(zipped::<8>(self.0[0], self.0[1]))
    }
}

#[inline]
fn zipped<const SIZE: usize>(first: uint8x16_t, second: uint8x16_t) -> [uint8x16_t; 2] {
    const { assert!(matches!(SIZE, 1 | 2 | 4 | 8)) };
    macro_rules! zip {
        ($low:ident, $high:ident, $from:ident, $to:ident) => {{
            let (first, second) = ($from(first), $from(second));
            [$to($low(first, second)), $to($high(first, second))]
        }};
    }
    // SAFETY: all machines of this kind have these instructions.
    unsafe {
        match SIZE {
            1 => [vzip1q_u8(first, second), vzip2q_u8(first, second)],
            2 => zip!(vzip1q_u16, vzip2q_u16, vreinterpretq_u16_u8, vreinterpretq_u8_u16),
            4 => zip!(vzip1q_u32, vzip2q_u32, vreinterpretq_u32_u8, vreinterpretq_u8_u32),
            _ => zip!(vzip1q_u64, vzip2q_u64, vreinterpretq_u64_u8, vreinterpretq_u8_u64),
        }
    }
}
