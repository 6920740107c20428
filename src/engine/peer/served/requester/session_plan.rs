// SPDX-License-Identifier: Apache-2.0
//! What one session of a served transfer moves, on the requester's side.

use std::ops::Range;
use std::sync::Arc;

use crate::base::{ProcessIdentity, Result};
use crate::engine::peer::served::protocol::message::Open;
use crate::layout::Served;
use crate::plan::{LinearPlan, Matrix, PlanSlice};

/// Chunks of a session, if slots of host memory are large enough: while one is moved, the next one is gathered.
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
    /// The session of a slice that is led by `side`.
    pub fn new(
        slice: &PlanSlice<'_>,
        side: usize,
        reads: bool,
        served: &Served,
        verifies: bool,
    ) -> Result<Self> {
        let linear = Arc::new(slice.linear(side)?);
        let bytes = linear.bytes();
        let open = Open {
            process: ProcessIdentity::current()?,
            writes: !reads,
            bytes,
            chunk_size: chunk_size(bytes, served.slot_size, served.device.is_some()),
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

/// The size of the chunks of a session with so many bytes. A GPU gathers a slot in less time than the messages of a chunk take, so a chunk
/// of GPU memory is as large as a slot.
fn chunk_size(bytes: u64, slot_size: u64, is_on_gpu: bool) -> u64 {
    match is_on_gpu {
        true => slot_size,
        false => (bytes / CHUNKS).next_multiple_of(4096).clamp(MIN_CHUNK.min(slot_size), slot_size),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chunk_of_gpu_memory_is_a_slot_and_one_of_host_memory_a_part_of_the_bytes() {
        let (slot, bytes) = (8 << 20, 24 << 20);
        assert_eq!(chunk_size(bytes, slot, true), slot);
        assert_eq!(chunk_size(bytes, slot, false), 2 << 20);
        assert_eq!(chunk_size(1 << 40, slot, false), slot);
        assert_eq!(chunk_size(1, slot, false), MIN_CHUNK);
        assert_eq!(chunk_size(1, 4096, false), 4096);
    }
}
