// SPDX-License-Identifier: Apache-2.0
//! Processors of other architectures, and the reference that tests compare with.
#![allow(unsafe_code)]

use super::LANE;

/// 32 bytes.
#[derive(Clone, Copy)]
pub struct Vector([[u8; LANE]; 2]);

pub fn is_available() -> bool {
    true
}

/// Whether [`Vector::stream`] bypasses the caches.
pub fn can_stream() -> bool {
    false
}

/// Vectors are stored as anything else.
pub fn settle() {}

/// Does nothing: there is no stable function for it.
#[inline(always)]
pub fn prefetch(_: *const u8) {}

/// Does nothing: there is no stable function for it.
#[inline(always)]
pub fn prefetch_into_first_level(_: *const u8) {}

impl Vector {
    /// # Safety
    /// All bytes are readable.
    #[inline]
    pub unsafe fn load(from: *const u8) -> Self {
        // SAFETY: the caller's promise.
        Self(unsafe { from.cast::<[[u8; LANE]; 2]>().read() })
    }

    /// Loads the low and the high lane.
    ///
    /// # Safety
    /// All bytes of both are readable.
    #[inline]
    pub unsafe fn load_lanes(lanes: [*const u8; 2]) -> Self {
        // SAFETY: the caller's promise.
        Self(lanes.map(|lane| unsafe { lane.cast::<[u8; LANE]>().read() }))
    }

    /// # Safety
    /// All bytes are writable.
    #[inline]
    pub unsafe fn store(self, to: *mut u8) {
        // SAFETY: the caller's promise.
        unsafe { to.cast::<[[u8; LANE]; 2]>().write(self.0) };
    }

    /// Stores the low and the high lane.
    ///
    /// # Safety
    /// All bytes of both are writable.
    #[inline]
    pub unsafe fn store_lanes(self, [low, high]: [*mut u8; 2]) {
        // SAFETY: the caller's promise.
        unsafe {
            low.cast::<[u8; LANE]>().write(self.0[0]);
            high.cast::<[u8; LANE]>().write(self.0[1]);
        }
    }

    /// The same as [`Self::store`].
    ///
    /// # Safety
    /// All bytes are writable, and the address is a multiple of the size of a vector.
    #[inline]
    pub unsafe fn stream(self, to: *mut u8) {
        // SAFETY: the caller's promise.
        unsafe { self.store(to) };
    }

    /// In each lane: interleaves the elements in the low halves of two vectors, and those in the high halves.
    #[inline]
    pub fn interleaved<const SIZE: usize>(self, other: Self) -> [Self; 2] {
        const { assert!(matches!(SIZE, 1 | 2 | 4 | 8)) };
        let half_of = |half: usize| {
            Self(std::array::from_fn(|lane| {
                std::array::from_fn(|at| {
                    let from = if (at / SIZE).is_multiple_of(2) { &self } else { &other };
                    from.0[lane][half * LANE / 2 + at / (2 * SIZE) * SIZE + at % SIZE]
                })
            }))
        };
        [half_of(0), half_of(1)]
    }

    /// The low halves of both lanes, then the high ones.
    #[inline]
    pub fn joined(self) -> Self {
        let half_of = |half: usize| {
            std::array::from_fn(|at| self.0[at / (LANE / 2)][half * LANE / 2 + at % (LANE / 2)])
        };
        Self([half_of(0), half_of(1)])
    }
}
