// SPDX-License-Identifier: Apache-2.0
//! One run of a staged transfer.

use std::sync::Arc;

use super::PreparedPieces;
use super::chunks::{Cutter, FileChunk};
use super::staging_ring::StagingRing;
use crate::base::file_systems::Blockers;
use crate::base::{Error, Result, disposal, leak};
use crate::cuda::ending::is_fatal;
use crate::engine::file::planned::{Counts, Pieces};
use crate::run::{Milestone, Run, Stop, cancelled};

pub struct StagedRun {
    pub prepared: Arc<PreparedPieces>,
    pub ring: Arc<StagingRing>,
    chunks: Cutter<Pieces>,
    /// Bytes that are not in chunks yet.
    left: u64,
    pub in_slots: usize,
    /// Number of reads or writes that have begun.
    pub requests: u64,
    failure: Option<Error>,
    run: Run,
}

impl StagedRun {
    /// A run that has not begun.
    pub fn new(prepared: Arc<PreparedPieces>, ring: Arc<StagingRing>, run: Run) -> Self {
        let (chunks, left) = (prepared.cutter(), prepared.pieces.bytes());
        Self { prepared, ring, chunks, left, in_slots: 0, requests: 0, failure: None, run }
    }

    /// Replaces `chunk` by the next one, for a slot that is free.
    pub fn next_chunk(&mut self, chunk: &mut FileChunk) -> Result<()> {
        self.prepared.cut(&mut self.chunks, chunk)?;
        self.left -= chunk.size;
        self.in_slots += 1;
        self.run.reach(Milestone::Begun);
        Ok(())
    }

    /// Whether no further chunk will begin.
    pub fn has_begun_all(&self) -> bool {
        self.failure.is_some() || self.left == 0
    }

    /// Prevents further chunks from beginning if the caller cancelled the run.
    pub fn fail_if_cancelled(&mut self) {
        if !self.has_begun_all() && self.run.is_cancelled() {
            self.fail(&cancelled());
        }
    }

    /// Whether the caller cancelled the run.
    pub fn stop(&self) -> Stop {
        self.run.stop_without_count()
    }

    /// Counts the bytes of a chunk that has moved.
    pub fn count(&self, bytes: u64) {
        self.run.count(bytes);
    }

    /// Prevents further chunks from beginning.
    pub fn fail(&mut self, error: &Error) {
        if self.failure.is_none() {
            if is_fatal(error) {
                self.ring.device.retire();
            }
            self.failure = Some(error.clone());
        }
    }

    /// Drops everything before the end is reported. Freeing the ring may wait for the device, so another
    /// thread does it.
    pub fn end(self) {
        if self.failure.is_none() && self.left == 0 {
            self.prepared.note(Counts { moves: self.chunks.taken, requests: self.requests });
        }
        let Self { prepared, ring, chunks, run, failure, .. } = self;
        let outcome = failure.map_or(Ok(()), Err);
        let device = ring.device.context().device().ordinal();
        drop((prepared, chunks));
        match Arc::into_inner(ring) {
            None => run.end(outcome),
            ring => disposal::dispose_of_then(&Blockers::device(device), ring, move || run.end(outcome)),
        }
    }

    /// Ends a run that has not begun.
    pub fn reject(mut self, error: Error) {
        self.fail(&error);
        self.end();
    }

    /// Ends a run that the kernel and the driver may still execute, with no way to detect its end. Its
    /// resources are intentionally leaked.
    pub fn abandon(self, error: Error) {
        let Self { prepared, ring, run, .. } = self;
        ring.device.retire();
        let memory = (ring.device.context().device().ordinal(), ring.size());
        leak::with_memory((prepared, ring), [memory]);
        run.abandon(error);
    }
}
