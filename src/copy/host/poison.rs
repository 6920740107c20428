// SPDX-License-Identifier: Apache-2.0
//! Poison: random bytes that host memory gets before a read fills it that is to be verified. What the read has not written keeps
//! them, and so differs from what was expected, whatever the memory had before.
#![allow(unsafe_code)]

use crate::base::{Result, random};

/// Bytes that are repeated. A range of 8 bytes or more that keeps them is equal to expected bytes with a probability of 2^-64.
#[derive(Clone, Copy)]
pub struct Poison([u8; 8]);

impl Poison {
    /// Bytes that were not used before.
    pub fn new() -> Result<Self> {
        random().map(Self)
    }

    /// Fills memory.
    ///
    /// # Safety
    /// `size` bytes at `address` must be writable, and nothing else may access them meanwhile.
    pub unsafe fn fill(self, address: u64, size: u64) {
        // SAFETY: the caller's promise.
        let bytes = unsafe { std::slice::from_raw_parts_mut(address as *mut u8, size as usize) };
        let mut whole = bytes.chunks_exact_mut(self.0.len());
        whole.by_ref().for_each(|word| word.copy_from_slice(&self.0));
        whole.into_remainder().iter_mut().zip(self.0).for_each(|(byte, poison)| *byte = poison);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_bytes_of_a_range_and_no_others_are_filled() {
        for size in [0, 1, 7, 8, 9, 64, 67] {
            let mut memory = vec![0; size + 2];
            let poison = Poison::new().unwrap();
            // SAFETY: within the list.
            unsafe { poison.fill(memory.as_mut_ptr() as u64 + 1, size as u64) };
            let expected: Vec<_> = poison.0.iter().copied().cycle().take(size).collect();
            assert_eq!(memory[1..=size], expected);
            assert_eq!((memory[0], memory[size + 1]), (0, 0));
        }
    }

    #[test]
    fn each_time_the_bytes_are_others() {
        assert_ne!(Poison::new().unwrap().0, Poison::new().unwrap().0);
    }
}
