// SPDX-License-Identifier: Apache-2.0
//! What one session of a served transfer moves, on the requester's side.

use std::ops::Range;
use std::sync::Arc;

use crate::base::{ProcessIdentity, Result};
use crate::engine::peer::served::protocol::message::Open;
use crate::plan::{LinearPlan, Matrix, PlanSlice};

/// Chunks of a session, if slots are large enough: while one is moved, the next one is gathered.
const CHUNKS: u64 = 12;
/// Smaller chunks cost more than they save.
const MIN_CHUNK: u64 = 256 << 10;

/// A slice of the plan, in the terms of both sides.
pub struct SessionPlan {
    /// From the local layout to the bytes in a row.
    pub linear: Arc<LinearPlan>,
    /// Begins the session. Messages share it, because it may be large.
    pub open: Arc<Open>,
}

impl SessionPlan {
    /// The session of a slice that is led by `side`, with chunks that fit slots of `slot_size`.
    pub fn new(
        slice: &PlanSlice<'_>,
        side: usize,
        reads: bool,
        slot_size: u64,
        verifies: bool,
    ) -> Result<Self> {
        let linear = Arc::new(slice.linear(side)?);
        let bytes = linear.bytes();
        let least = MIN_CHUNK.min(slot_size);
        let open = Open {
            process: ProcessIdentity::current()?,
            writes: !reads,
            bytes,
            chunk_size: (bytes / CHUNKS).next_multiple_of(4096).clamp(least, slot_size),
            verifies,
            terms: slice.terms(1 - side)?,
        };
        Ok(Self { linear, open: Arc::new(open) })
    }

    pub fn bytes(&self) -> u64 {
        self.open.bytes
    }

    pub fn chunks(&self) -> u64 {
        self.bytes().div_ceil(self.open.chunk_size)
    }

    pub fn range(&self, chunk: u64) -> Range<u64> {
        let first = chunk * self.open.chunk_size;
        first..self.bytes().min(first + self.open.chunk_size)
    }

    /// The contiguous ranges of a chunk in the local layout: address, size and offset in the chunk.
    pub fn ranges(&self, chunk: u64) -> impl Iterator<Item = (u64, u64, u64)> {
        let range = self.range(chunk);
        let first = range.start;
        let moves = self.linear.rows_in(range).flat_map(Matrix::moves);
        moves.map(move |each| (each.source, each.size, each.destination - first))
    }
}
