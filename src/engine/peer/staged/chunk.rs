// SPDX-License-Identifier: Apache-2.0
//! What passes through a slot of an arena at a time: few ranges of a peer's memory, and the rows between the slot and local
//! memory. Pure.
//!
//! A read may contain bytes between rows that are discarded: that costs less than a descriptor for each row. A write contains
//! only bytes that are moved.

use crate::base::{Result, lists};
use crate::plan::{Matrix, Move, Plan};

/// The usual maximum number of ranges: the call that posts a request takes microseconds for each.
pub const MAX_RANGES: usize = 1024;
/// Where a range that is read starts in a slot, so that rows are copied by aligned vectors.
const ALIGNMENT: u64 = 64;

/// A range of the peer's memory, and its offset in the slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerRange {
    pub region: u32,
    pub address: u64,
    pub size: u64,
    pub at: u64,
}

impl PeerRange {
    fn end(&self) -> u64 {
        self.address + self.size
    }
}

/// The bytes that pass through a slot at a time.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Chunk {
    pub ranges: Vec<PeerRange>,
    /// Between the slot and local memory.
    pub rows: Vec<Matrix>,
    /// Bytes of the rows.
    pub moved: u64,
}

impl Chunk {
    /// Bytes of the ranges.
    pub fn transferred(&self) -> u64 {
        self.ranges.iter().map(|range| range.size).sum()
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChunkLimits {
    /// From the peer to the slot, or the other direction.
    pub reads: bool,
    pub slot: u64,
    /// Bytes between rows that are read rather than skipped; 0 for writes.
    pub max_gap: u64,
    pub max_ranges: usize,
}

impl ChunkLimits {
    /// The chunk of the bytes that start after `first` bytes of a plan, for a slot at `base`. The plan is in the order of
    /// the peer. `piece` is for elastic memory of the peer: it returns how many bytes from an address one range may contain.
    pub fn chunk(&self, plan: &Plan, first: u64, base: u64, piece: Option<&Piece<'_>>) -> Result<Chunk> {
        let rows = plan.rows_in(first..plan.bytes().min(first + self.slot));
        let builder = Builder { limits: self, piece, base, filled: 0, limit: 0, chunk: Chunk::default() };
        match piece {
            None => builder.filled_with(rows),
            Some(piece) => {
                builder.filled_with(rows.flat_map(Matrix::moves).flat_map(|each| self.cut(each, piece)))
            }
        }
    }

    fn cut<'a>(&self, each: Move, piece: &'a Piece<'_>) -> impl Iterator<Item = Matrix> + 'a {
        let reads = self.reads;
        let at =
            move |is_peer: bool, region, address| if is_peer { piece(region, address) } else { u64::MAX };
        each.cut(
            move |region, address| at(reads, region, address),
            move |region, address| at(!reads, region, address),
        )
        .map(|first| Matrix { first, strides: [0; 2], rows: 1 })
    }

    fn peer(&self) -> usize {
        usize::from(!self.reads)
    }
}

/// Bytes from an address of a region that are registered as one.
pub type Piece<'a> = dyn Fn(u32, u64) -> u64 + 'a;

struct Builder<'a> {
    limits: &'a ChunkLimits,
    piece: Option<&'a Piece<'a>>,
    base: u64,
    /// Bytes of the slot that are in use.
    filled: u64,
    /// The last range may not go beyond this address.
    limit: u64,
    chunk: Chunk,
}

impl Builder<'_> {
    fn filled_with(mut self, rows: impl Iterator<Item = Matrix>) -> Result<Chunk> {
        for matrix in rows {
            let taken = self.add(&matrix)?;
            self.chunk.moved += taken * matrix.first.size;
            if taken < matrix.rows {
                break;
            }
        }
        Ok(self.chunk)
    }

    fn place(&self, each: &Move) -> (u32, u64) {
        match self.limits.reads {
            true => (each.source_region, each.source),
            false => (each.destination_region, each.destination),
        }
    }

    /// Adds as many rows as fit, and returns their number.
    fn add(&mut self, matrix: &Matrix) -> Result<u64> {
        let (size, stride) = (matrix.first.size, matrix.strides[self.limits.peer()]);
        let is_close = stride >= size && stride - size <= self.limits.max_gap;
        if matrix.rows == 1 || is_close { self.add_together(matrix, stride) } else { self.add_apart(matrix) }
    }

    /// Adds rows as one range, with the bytes between them.
    fn add_together(&mut self, matrix: &Matrix, stride: u64) -> Result<u64> {
        let (region, address) = self.place(&matrix.first);
        let size = matrix.first.size;
        let is_next = |last: &PeerRange| {
            let farthest = last.end().saturating_add(self.limits.max_gap);
            last.region == region
                && (last.address..=farthest).contains(&address)
                && address + size <= self.limit
        };
        let joined = self.chunk.ranges.last().copied().filter(is_next);
        let at = match &joined {
            Some(last) => last.at + (address - last.address),
            None if self.limits.reads => self.filled.next_multiple_of(ALIGNMENT),
            None => self.filled,
        };
        let Some(space) = self.limits.slot.checked_sub(at).filter(|space| *space >= size) else {
            return Ok(0);
        };
        if joined.is_none() && self.chunk.ranges.len() == self.limits.max_ranges {
            return Ok(0);
        }
        let fit = match matrix.rows {
            1 => 1,
            rows => rows.min((space - size) / stride + 1),
        };
        let span = (fit - 1) * stride + size;
        match (joined, self.chunk.ranges.last_mut()) {
            (Some(_), Some(last)) => last.size = last.size.max(at + span - last.at),
            _ => self.begin(PeerRange { region, address, size: span, at })?,
        }
        self.filled = self.filled.max(at + span);
        self.add_rows(matrix, at, stride, fit)?;
        Ok(fit)
    }

    /// Adds rows that are far apart: each has a range of its own, and they are contiguous in the slot.
    fn add_apart(&mut self, matrix: &Matrix) -> Result<u64> {
        let (region, address) = self.place(&matrix.first);
        let (size, stride) = (matrix.first.size, matrix.strides[self.limits.peer()]);
        let first = self.filled;
        let free = (self.limits.max_ranges - self.chunk.ranges.len()) as u64;
        let fit = matrix.rows.min((self.limits.slot - first) / size).min(free);
        for row in 0..fit {
            self.begin(PeerRange { region, address: address + row * stride, size, at: first + row * size })?;
        }
        self.filled = first + fit * size;
        if fit > 0 {
            self.add_rows(matrix, first, size, fit)?;
        }
        Ok(fit)
    }

    fn begin(&mut self, range: PeerRange) -> Result<()> {
        let piece = self.piece.map_or(u64::MAX, |piece| piece(range.region, range.address));
        self.limit = range.address.saturating_add(piece);
        lists::push(&mut self.chunk.ranges, range)
    }

    /// Adds rows between the slot, where they start at `at`, and local memory.
    fn add_rows(&mut self, matrix: &Matrix, at: u64, stride: u64, rows: u64) -> Result<()> {
        let (mut first, mut strides) = (matrix.first, matrix.strides);
        strides[self.limits.peer()] = stride;
        match self.limits.reads {
            true => first.source = self.base + at,
            false => first.destination = self.base + at,
        }
        lists::push(&mut self.chunk.rows, Matrix { first, strides, rows })
    }
}

#[cfg(test)]
mod tests;
