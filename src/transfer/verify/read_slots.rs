// SPDX-License-Identifier: Apache-2.0
//! Which of some slots of a file have been read, from the first on. Pure.

use crate::base::{Result, lists};

/// Slots in the order of the file, while they are read in any order and in parts.
pub struct ReadSlots {
    slots: Vec<u32>,
    /// Bytes of each that have not been read.
    left: Vec<u64>,
    /// Bytes of a slot, and from one slot to the next.
    size: u64,
    stride: u64,
    /// The number of first slots that have been read.
    read: usize,
}

impl ReadSlots {
    /// `slots` are in ascending order.
    pub fn new(slots: Vec<u32>, size: u64, stride: u64) -> Result<Self> {
        let left = lists::collect(slots.iter().map(|_| size))?;
        Ok(Self { slots, left, size, stride, read: 0 })
    }

    /// Notes that bytes of the file have been read, none of them twice. Returns how many of the first slots are complete.
    pub fn note(&mut self, offset: u64, size: u64) -> usize {
        let end = offset.saturating_add(size);
        let from = self.slots.partition_point(|slot| u64::from(*slot) * self.stride + self.size <= offset);
        for (slot, left) in self.slots.iter().zip(&mut self.left).skip(from) {
            let start = u64::from(*slot) * self.stride;
            if start >= end {
                break;
            }
            *left = left.saturating_sub(end.min(start + self.size) - offset.max(start));
        }
        self.read += self.left[self.read..].iter().take_while(|left| **left == 0).count();
        self.read
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Slots of 10 bytes, 16 apart.
    fn slots() -> ReadSlots {
        ReadSlots::new(vec![1, 2, 5], 10, 16).unwrap()
    }

    #[test]
    fn slots_are_complete_from_the_first_on() {
        let mut slots = slots();
        assert_eq!(slots.note(32, 10), 0);
        assert_eq!(slots.note(16, 4), 0);
        assert_eq!(slots.note(20, 6), 2);
        assert_eq!(slots.note(80, 10), 3);
    }

    #[test]
    fn one_read_may_have_bytes_of_several_slots_and_of_none() {
        assert_eq!(slots().note(16, 26), 2);
        assert_eq!(slots().note(0, 200), 3);
        assert_eq!(slots().note(26, 6), 0);
        assert_eq!(slots().note(u64::MAX, 10), 0);
    }
}
