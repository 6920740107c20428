// SPDX-License-Identifier: Apache-2.0
//! Between a file and a GPU through a ring of page-locked host memory: one chunk is read or written while the
//! GPU copies another.

mod chunks;
mod run;
mod inbox;
mod ring;
mod session;

use std::sync::Arc;

use self::chunks::Chunks;
use self::ring::{SLOTS, StagingRing};
use self::run::StagedRun;
use super::host::pieces;
use super::io::Io;
use super::sides::FileSides;
use crate::cuda::ContextIdentity;
use crate::error::{Error, Result, Status, ensure};
use crate::transfer::plan::Plan;
use crate::transfer::run::{Run, Start};

/// Default size of the staging memory.
const STAGING: u64 = 64 << 20;

/// A prepared transfer.
pub struct StagedIo {
    prepared: Arc<PreparedChunks>,
    ring: Arc<StagingRing>,
    moves: u64,
    requests: u64,
}

/// The part of a prepared transfer that all its runs share.
pub struct PreparedChunks {
    chunks: Chunks,
    /// Blocks go to the file.
    writes: bool,
    io: Io,
}

impl StagedIo {
    pub fn prepare(sides: &FileSides<'_>, plan: &Plan, io: Io, staging_size: u64) -> Result<Self> {
        let slot = slot_size(sides, staging_size)?;
        let moved: Vec<_> = pieces(sides, plan).collect();
        let moves = moved.len() as u64;
        let chunks = Chunks::cut(moved, slot, |region, address| sides.memory.bytes_in_piece(region, address));
        let requests = chunks.list.iter().map(|chunk| chunks.in_file(chunk, 0).len() as u64).sum();
        let place = sides.memory.memory().regions().first().and_then(|region| region.place());
        let place = place.ok_or_else(|| Error::new(Status::Unsupported, "the memory is not GPU memory"))?;
        let ring = StagingRing::of(place.user, slot)?;
        // Page-locking takes long, so the layout keeps the ring for the next transfer.
        sides.memory.keep(ring.clone());
        Ok(Self {
            prepared: Arc::new(PreparedChunks { chunks, writes: sides.writes, io }),
            ring,
            moves,
            requests,
        })
    }

    pub fn prepare_start(&self, run: Run) -> Start {
        let inbox = self.ring.inbox.clone();
        let run = StagedRun::new(self.prepared.clone(), self.ring.clone(), run);
        Box::new(move || {
            inbox.start(run);
            Ok(())
        })
    }

    /// The context that the ring belongs to.
    pub fn identity(&self) -> ContextIdentity {
        self.ring.identity()
    }

    pub fn moves(&self) -> u64 {
        self.moves
    }

    pub fn requests(&self) -> u64 {
        self.requests
    }
}

/// Size of a slot: a share of the staging memory that holds a piece, in multiples of the file's I/O
/// alignment.
fn slot_size(sides: &FileSides<'_>, staging_size: u64) -> Result<u64> {
    let pieces = sides.file.parts().map(|part| part.placement.geometry().piece_size());
    let piece = pieces.max().unwrap_or(1);
    let regions = sides.file.memory().regions();
    let unit = regions.iter().map(|region| region.io_alignment()).max().unwrap_or(1);
    let wanted = match staging_size {
        0 => STAGING.max(SLOTS as u64 * piece.next_multiple_of(unit)),
        given => given,
    };
    let slot = wanted / SLOTS as u64 / unit * unit;
    ensure!(
        slot >= piece,
        InvalidArgument,
        "staging_size is {staging_size} bytes, {SLOTS} slots of {slot}; a piece of {piece} bytes does not fit, it needs \
         {} bytes of staging",
        SLOTS as u64 * piece.next_multiple_of(unit)
    );
    Ok(slot)
}
