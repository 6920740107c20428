// SPDX-License-Identifier: Apache-2.0
//! Contiguous spans, rows of spans, and runs of blocks: what plans consist of.

/// A span of bytes that is contiguous on both sides.

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Move {
    pub source: u64,
    pub destination: u64,
    pub size: u64,
    pub source_region: u32,
    pub destination_region: u32,
}

impl Move {
    /// Whether another one starts on both sides where this one ends.
    pub fn goes_on_in(&self, next: &Self) -> bool {
        self.source + self.size == next.source
            && self.destination + self.size == next.destination
            && self.source_region == next.source_region
            && self.destination_region == next.destination_region
    }

    /// The same at addresses that are higher by so many bytes.
    pub fn further(self, bytes: [u64; 2]) -> Self {
        Self { source: self.source + bytes[0], destination: self.destination + bytes[1], ..self }
    }
}

/// Spans of equal size with constant strides: the rows of a matrix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Matrix {
    /// The first row.
    pub first: Move,
    /// Bytes from a row to the next, in source and destination; without meaning for a single row.
    pub strides: [u64; 2],
    pub rows: u64,
}

impl Matrix {
    /// A single span.
    pub(super) fn single(first: Move) -> Self {
        Self { first, strides: [0; 2], rows: 1 }
    }

    /// The same in the other direction.
    pub fn reversed(self) -> Self {
        let Move { source, destination, size, source_region, destination_region } = self.first;
        let first = Move {
            source: destination,
            destination: source,
            size,
            source_region: destination_region,
            destination_region: source_region,
        };
        Self { first, strides: [self.strides[1], self.strides[0]], ..self }
    }

    pub fn moves(self) -> impl Iterator<Item = Move> {
        let [here, there] = self.strides;
        (0..self.rows).map(move |row| self.first.further([row * here, row * there]))
    }
}

/// Blocks with consecutive ids on both sides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockRun {
    /// First block id in the source layout.
    pub source: u32,
    /// First block id in the destination layout.
    pub destination: u32,
    pub length: u32,
}

impl BlockRun {
    /// Some of its blocks, from this index on.
    pub fn part(self, first: u32, length: u32) -> Self {
        Self { source: self.source + first, destination: self.destination + first, length }
    }
}

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
