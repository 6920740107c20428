// SPDX-License-Identifier: Apache-2.0
//! Between a file and host memory.

use std::sync::Arc;

use super::Sides;
use super::io::{Io, Work};
use super::requests::{Piece, Requests};
use crate::transfer::plan::Plan;
use crate::transfer::run::{Run, Start};

/// Prepared reads or writes.
pub struct HostIo {
    requests: Arc<Requests>,
    moves: u64,
    io: Io,
}

impl HostIo {
    pub fn prepare(sides: &Sides<'_>, plan: &Plan, io: Io) -> Self {
        let mut list = Vec::with_capacity(plan.room());
        list.extend(pieces(sides, plan).map(|(piece, _)| piece));
        Self { moves: list.len() as u64, requests: Arc::new(Requests::gather(list, sides.writes)), io }
    }

    pub fn prepare_start(&self, run: Run) -> Start {
        let (io, requests, stop) = (self.io.clone(), self.requests.clone(), run.stop());
        let ending = Box::new(move |outcome| run.end(outcome));
        let work = Work { range: 0..requests.len(), requests, stop, ending };
        Box::new(move || {
            io.start(work);
            Ok(())
        })
    }

    pub fn moves(&self) -> u64 {
        self.moves
    }

    pub fn requests(&self) -> u64 {
        self.requests.len() as u64
    }
}

/// The moves, told by file and memory rather than source and destination, with the region of the memory.
pub(super) fn pieces<'a>(sides: &'a Sides<'_>, plan: &'a Plan) -> impl Iterator<Item = (Piece, u32)> + 'a {
    let files: Vec<_> =
        sides.file.memory().regions().iter().map(|region| region.fd().unwrap_or(-1)).collect();
    let (source, destination) = match sides.writes {
        true => (sides.memory, sides.file),
        false => (sides.file, sides.memory),
    };
    let writes = sides.writes;
    plan.moves(source.placement(), destination.placement()).map(move |each| {
        let from = (each.source_region, each.source);
        let to = (each.destination_region, each.destination);
        let ((file, offset), (region, address)) = if writes { (to, from) } else { (from, to) };
        (Piece { file: files[file as usize], offset, address, size: each.size }, region)
    })
}
