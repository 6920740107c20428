// SPDX-License-Identifier: Apache-2.0
//! Between a file and a GPU through a ring of page-locked host memory: one chunk is read or written while the
//! GPU copies another.

mod chunks;
mod staged_run;
mod inbox;
mod staging_ring;
mod staging_thread;

use std::sync::Arc;

use once_cell::sync::OnceCell;

use self::chunks::{Cutter, FileChunk};
use self::staged_run::StagedRun;
use self::staging_ring::{SLOTS, StagingRing};
use super::file_requests::FileRequests;
use super::file_sides::FileSides;
use super::io::Io;
use super::planned::{Counts, Pieces, PlannedPieces};
use crate::base::{Result, ensure, error};
use crate::cuda::ContextIdentity;
use crate::layout::Layout;
use crate::layout::cache::LayoutCache;
use crate::plan::Plan;
use crate::run::{Run, Start};

/// The last ring of each layout.
static RINGS: LayoutCache<StagingRing> = LayoutCache::new();

/// Default size of the staging memory.
const STAGING: u64 = 64 << 20;

pub struct StagedIo {
    prepared: Arc<PreparedPieces>,
    ring: Arc<StagingRing>,
}

/// The part of a prepared transfer that all its runs share.
pub struct PreparedPieces {
    pieces: Arc<PlannedPieces>,
    memory: Arc<Layout>,
    slot: u64,
    io: Io,
    counts: OnceCell<Counts>,
}

impl PreparedPieces {
    /// All chunks, which are cut when they are needed.
    fn cutter(&self) -> Cutter<Pieces> {
        Cutter::new(Pieces::new(self.pieces.clone()), self.slot)
    }

    /// Replaces `chunk` by the next of them.
    fn cut(&self, cutter: &mut Cutter<Pieces>, chunk: &mut FileChunk) -> Result<()> {
        cutter.cut(chunk, |region, address| self.memory.bytes_in_piece(region, address))
    }

    /// Blocks go to the file.
    fn writes(&self) -> bool {
        self.pieces.writes()
    }

    /// How much there is. Cuts all chunks unless a run has done so.
    fn counts(&self) -> Result<Counts> {
        if let Some(counts) = self.counts.get() {
            return Ok(*counts);
        }
        let (mut cutter, mut chunk) = (self.cutter(), FileChunk::default());
        let mut requests = 0;
        loop {
            self.cut(&mut cutter, &mut chunk)?;
            if chunk.size == 0 {
                break;
            }
            requests += self.requests(&chunk, 0)?.len() as u64;
        }
        let counts = Counts { moves: cutter.taken, requests };
        self.note(counts);
        Ok(counts)
    }

    /// Keeps what a run has counted.
    fn note(&self, counts: Counts) {
        // Every run counts the same.
        let _ = self.counts.set(counts);
    }

    /// The reads or writes of a chunk for a slot at `base`.
    fn requests(&self, chunk: &FileChunk, base: u64) -> Result<FileRequests> {
        FileRequests::gather(chunk.in_file(base), self.writes())
    }
}

impl StagedIo {
    /// `ordered` is the plan in the order of the file.
    pub fn prepare(sides: &FileSides<'_>, ordered: Plan, io: Io, staging_size: u64) -> Result<Self> {
        let slot = slot_size(sides, staging_size)?;
        let pieces = Arc::new(PlannedPieces::new(sides, ordered));
        let place = sides.memory.memory().regions().first().and_then(|region| region.devices());
        let place = place.ok_or_else(|| error!(Unsupported, "the memory is not GPU memory"))?;
        let ring = StagingRing::for_device(place.user, sides.file.file_systems(), slot)?;
        // Page-locking takes long, so the ring is kept for the next transfer.
        RINGS.put(sides.memory, ring.clone());
        let (memory, counts) = (sides.memory.clone(), OnceCell::new());
        Ok(Self { prepared: Arc::new(PreparedPieces { pieces, memory, slot, io, counts }), ring })
    }

    pub fn prepare_start(&self, run: Run) -> Start {
        let run = StagedRun::new(self.prepared.clone(), self.ring.clone(), run);
        let inbox = self.ring.inbox.clone();
        Box::new(move || inbox.start(run))
    }

    /// The context that the ring belongs to.
    pub fn identity(&self) -> ContextIdentity {
        self.ring.identity()
    }

    pub fn counts(&self) -> Result<Counts> {
        self.prepared.counts()
    }
}

/// Size of a slot: a share of the staging memory that holds a piece, in multiples of the file's I/O
/// alignment.
fn slot_size(sides: &FileSides<'_>, staging_size: u64) -> Result<u64> {
    let pieces = sides.file.parts().map(|part| part.placement.geometry().piece_size());
    let piece = pieces.max().unwrap_or(1);
    let unit = sides.file.io_alignment();
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
