// SPDX-License-Identifier: Apache-2.0
//! Cuts moves at the ends of what the driver or NIXL takes as one range, on either side. Pure.

use super::moves::Move;

impl Move {
    /// Its parts, none of which crosses the end of a range. `source` and `destination` return the number of bytes from an
    /// address of a region to the end of its range.
    pub fn cut(
        self,
        source: impl Fn(u32, u64) -> u64,
        destination: impl Fn(u32, u64) -> u64,
    ) -> impl Iterator<Item = Self> {
        let mut left = self;
        std::iter::from_fn(move || {
            let here = source(left.source_region, left.source);
            let there = destination(left.destination_region, left.destination);
            let size = left.size.min(here).min(there);
            let next = Self { size, ..left };
            left = Self {
                source: left.source + size,
                destination: left.destination + size,
                size: left.size - size,
                ..left
            };
            (size > 0).then_some(next)
        })
    }
}
