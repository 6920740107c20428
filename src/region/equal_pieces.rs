// SPDX-License-Identifier: Apache-2.0
//! Memory in parts of equal size that no single copy or descriptor may cross: extents, page locks. Pure.

use std::ops::Range;

#[derive(Clone, Copy, Debug)]
pub struct EqualPieces {
    /// The address of the first part.
    pub start: u64,
    pub size: u64,
}

impl EqualPieces {
    /// Bytes from an address to the end of its part.
    pub fn left(self, address: u64) -> u64 {
        self.size - (address - self.start) % self.size
    }

    pub fn touched(self, address: u64, size: u64) -> Range<u64> {
        let offset = address - self.start;
        offset / self.size..(offset + size).div_ceil(self.size)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_span_ends_in_the_last_piece_that_it_touches(
            start in 0u64..1000, size in 1u64..100, offset in 0u64..1000, length in 1u64..500,
        ) {
            let pieces = EqualPieces { start, size };
            let mut touched = Vec::new();
            let (mut address, mut left) = (start + offset, length);
            while left > 0 {
                let part = left.min(pieces.left(address));
                prop_assert!((1..=size).contains(&part));
                touched.push((address - start) / size);
                prop_assert_eq!((address - start) / size, (address + part - 1 - start) / size);
                address += part;
                left -= part;
                prop_assert!(left == 0 || (address - start).is_multiple_of(size));
            }
            prop_assert_eq!(touched, pieces.touched(start + offset, length).collect::<Vec<_>>());
        }
    }
}
