// SPDX-License-Identifier: Apache-2.0
//! Moves cut where the driver or NIXL sees two pieces of memory, on either side. Pure.
#![forbid(unsafe_code)]

use super::Move;

impl Move {
    /// Its parts, of which none reaches over the end of a piece. `source` and `destination` tell how many bytes are left
    /// of the piece that an address of a region lies in.
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
