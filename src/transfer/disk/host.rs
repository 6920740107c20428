// SPDX-License-Identifier: Apache-2.0
//! Between a file and host memory.

use std::sync::Arc;

use super::Sides;
use super::io::{Io, Work};
use super::requests::{Piece, Requests};
use crate::layout::Layout;
use crate::transfer::completion::Run;
use crate::transfer::plan::Plan;

/// Prepared reads or writes.
pub struct HostIo {
    requests: Arc<Requests>,
    moves: u64,
    io: Io,
    layouts: [Arc<Layout>; 2],
}

impl HostIo {
    pub fn prepare(sides: &Sides<'_>, plan: &Plan, io: Io) -> Self {
        let mut list = Vec::with_capacity(plan.room());
        list.extend(pieces(sides, plan).map(|(piece, _)| piece));
        Self {
            moves: list.len() as u64,
            requests: Arc::new(Requests::gather(list, sides.writes)),
            io,
            layouts: [sides.file.clone(), sides.memory.clone()],
        }
    }

    pub fn submit(&self, run: Run) {
        let (layouts, stop) = (self.layouts.clone(), run.stop());
        // The layouts are let go before anyone hears that the run is over: who hears it may free their memory.
        let ending = Box::new(move |outcome| {
            drop(layouts);
            run.end(outcome);
        });
        let requests = self.requests.clone();
        self.io.start(Work { range: 0..requests.len(), requests, stop, ending });
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
