// SPDX-License-Identifier: Apache-2.0
//! Vectors of 32 bytes, with the instructions of each architecture: the loops that copy and transpose are written once, in terms
//! of [`Vector`].
//!
//! A vector has two lanes of 16 bytes. On x86-64 it is a register of AVX2. Functions that use vectors have the attribute
//! `target_feature` there, which makes the instructions inline, and are called only if [`is_available`]. On Arm it is a pair of
//! registers of NEON, which every 64-bit processor has. Other architectures have an array of bytes.
#![allow(unsafe_code)]

#[cfg(target_arch = "x86_64")]
#[path = "avx2.rs"]
mod machine;
#[cfg(all(target_arch = "aarch64", target_endian = "little"))]
#[path = "neon.rs"]
mod machine;
#[cfg(not(any(target_arch = "x86_64", all(target_arch = "aarch64", target_endian = "little"))))]
#[path = "portable.rs"]
mod machine;

pub use machine::{Vector, can_stream, is_available, prefetch, prefetch_into_first_level, settle};

/// Bytes of a lane: of a row of a square that is transposed.
pub const LANE: usize = 16;
pub const VECTOR: usize = 2 * LANE;

/// Loads a lane of `2 * N` rows: that of row `i` is the low lane of a vector, that of row `i + N` its high lane.
///
/// # Safety
/// [`is_available`], and [`LANE`] bytes of each row are readable.
#[inline]
#[cfg_attr(target_arch = "x86_64", target_feature(enable = "avx2"))]
pub unsafe fn load_rows<const N: usize>(from: *const u8, stride: usize) -> [Vector; N] {
    // SAFETY: the caller's promise.
    std::array::from_fn(|row| unsafe {
        let low = from.add(row * stride);
        Vector::load_lanes([low, low.add(N * stride)])
    })
}

/// Interleaves the upper half of some vectors with the lower half, element by element, log2(N) times. Each time moves one bit of
/// an element's row into its column, so that in the end each lane has one column of its N rows after the other.
#[inline]
#[cfg_attr(target_arch = "x86_64", target_feature(enable = "avx2"))]
pub fn transposed<const SIZE: usize, const N: usize>(mut rows: [Vector; N]) -> [Vector; N] {
    for _ in 0..N.ilog2() {
        let mut next = rows;
        for index in 0..N / 2 {
            [next[2 * index], next[2 * index + 1]] = rows[index].interleaved::<SIZE>(rows[index + N / 2]);
        }
        rows = next;
    }
    rows
}

#[cfg(test)]
mod tests;
