// SPDX-License-Identifier: Apache-2.0
//! From a plan to NIXL requests, on the agent's thread.
#![forbid(unsafe_code)]

use std::borrow::Cow;
use std::sync::Arc;

use crate::error::Result;
use crate::layout::{Layout, Memory, Unit};
use crate::nixl::AgentState;
use crate::nixl::request::RequestSide;
use crate::nixl::{Operation, RequestId, Span};
use crate::transfer::plan::{BlockRun, Move, Plan, Slots};

/// Maximum size of a request in bytes.
const REQUEST_BYTES: u64 = 16 << 20;
/// Maximum number of units in the prepared list of a layout, which needs about 100 bytes per unit.
const MOST_UNITS: u64 = 1 << 20;
/// A move that is listed by itself takes NIXL as long as this many units of a prepared list that merge. Measured with
/// 10,000 blocks: 25 ns per pair of descriptors, 12.5 ns per move, and 0.5 ns per unit.
const UNITS_A_MOVE: u64 = 25;

/// The input for the requests of a transfer.
pub(super) struct RequestPlan {
    pub local: Arc<Layout>,
    pub remote: Arc<Layout>,
    pub reads: bool,
    pub plan: Plan,
}

impl RequestPlan {
    /// Creates all requests, or none.
    pub fn make(&self, state: &mut AgentState) -> Result<Vec<RequestId>> {
        let mut made = Vec::new();
        let result = match self.chosen_unit() {
            Some(unit) => self.over_lists(state, unit, &mut made),
            None => self.over_spans(state, &mut made),
        };
        if result.is_err() {
            state.release_idle_requests(made.drain(..));
        }
        result.map(|()| made)
    }

    /// The unit of prepared lists, or `None` to list each span. Prepared lists avoid listing spans, but each unit of each
    /// run must be listed: for a few large moves, spans are cheaper.
    fn chosen_unit(&self) -> Option<Unit> {
        // A list of all units would contain memory that an elastic layout does not have.
        if self.local.is_elastic() || self.remote.is_elastic() {
            return None;
        }
        let unit = self.plan.unit()?;
        let units = self.plan.bytes() / unit.size(self.local.geometry());
        let fits =
            [&self.local, &self.remote].iter().all(|layout| unit.count(layout.geometry()) <= MOST_UNITS);
        let scattered = self.plan.most_moves() * UNITS_A_MOVE > units;
        let worth_a_list =
            unit.count(self.local.geometry()) + unit.count(self.remote.geometry()) <= 64 * units;
        let small_enough = unit.size(self.local.geometry()) <= REQUEST_BYTES;
        (fits && scattered && worth_a_list && small_enough).then_some(unit)
    }

    /// Number of units per request.
    fn units_a_request(&self, unit: Unit) -> u64 {
        (REQUEST_BYTES / unit.size(self.local.geometry())).max(1)
    }

    /// Number of requests.
    pub fn count(&self) -> u64 {
        match self.chosen_unit() {
            Some(unit) => {
                (self.plan.bytes() / unit.size(self.local.geometry())).div_ceil(self.units_a_request(unit))
            }
            None => self.plan.bytes().div_ceil(REQUEST_BYTES),
        }
    }

    fn operation(&self) -> Operation {
        if self.reads { Operation::Read } else { Operation::Write }
    }

    fn over_lists(&self, state: &mut AgentState, unit: Unit, made: &mut Vec<RequestId>) -> Result<()> {
        let local = self.local.prepared_list(state, unit)?;
        let remote = self.remote.prepared_list(state, unit)?;
        let (local_indices, remote_indices) = self.indices(unit);
        let each = self.units_a_request(unit) as usize;
        for (here, there) in local_indices.chunks(each).zip(remote_indices.chunks(each)) {
            made.push(state.make_request(self.operation(), (local, here), (remote, there))?);
        }
        Ok(())
    }

    /// The units of both sides, in order of block runs so that NIXL merges them.
    fn indices(&self, unit: Unit) -> (Vec<i32>, Vec<i32>) {
        let selection = self.plan.selection();
        let (mut mine, mut theirs) = (selection.source(), selection.destination());
        if self.reads {
            std::mem::swap(&mut mine, &mut theirs);
        }
        let outers = if unit == Unit::Piece { selection.outers.count } else { 1 };
        let count = if unit == Unit::Block { 1 } else { selection.layers.count };
        let total = (self.plan.blocks() * count * outers) as usize;
        let (mut here, mut there) = (Vec::with_capacity(total), Vec::with_capacity(total));
        let runs = self.runs();
        for layer in 0..count {
            for outer in 0..outers {
                let first = |layout: &Layout, slots: &Slots| {
                    unit.index(layout.geometry(), 0, slots.layers.start + layer, slots.outers.start + outer)
                        as i32
                };
                let (local, remote) = (first(&self.local, &mine), first(&self.remote, &theirs));
                for run in runs.iter() {
                    let (mine, theirs) = if self.reads {
                        (run.destination, run.source)
                    } else {
                        (run.source, run.destination)
                    };
                    let blocks = 0..run.length as i32;
                    here.extend(blocks.clone().map(|block| local + mine as i32 + block));
                    there.extend(blocks.map(|block| remote + theirs as i32 + block));
                }
            }
        }
        (here, there)
    }

    /// Runs of blocks in the order in which UCX copies them. Reads are sorted by source: sequential reads are prefetched,
    /// and writes to scattered addresses do not wait for memory. Bench row 8 measures this with scattered blocks.
    fn runs(&self) -> Cow<'_, [BlockRun]> {
        let runs = self.plan.block_runs().unwrap_or_default();
        if !self.reads {
            return Cow::Borrowed(runs);
        }
        let mut ordered = runs.to_vec();
        ordered.sort_unstable_by_key(|run| run.source);
        Cow::Owned(ordered)
    }

    fn over_spans(&self, state: &mut AgentState, made: &mut Vec<RequestId>) -> Result<()> {
        let (local_type, remote_type) = (self.local.memory_type(), self.remote.memory_type());
        let side = match self.remote.memory() {
            Memory::Remote(remote) => RequestSide::Peer(remote.peer.clone()),
            Memory::Local(_) => RequestSide::Own,
        };
        for spans in self.chunks() {
            let here = spans.iter().map(|(local, _)| *local);
            let there = spans.iter().map(|(_, remote)| *remote);
            made.push(state.create_request(
                self.operation(),
                (local_type, here),
                (&side, remote_type, there),
            )?);
        }
        Ok(())
    }

    /// Number of changes of the memory of either side.
    pub fn generation(&self) -> u64 {
        self.local.generation() + self.remote.generation()
    }

    /// Source and destination.
    pub fn sides(&self) -> (&Layout, &Layout) {
        if self.reads { (&self.remote, &self.local) } else { (&self.local, &self.remote) }
    }

    /// The moves as (local, remote) spans, cut into requests.
    fn chunks(&self) -> Vec<Vec<(Span, Span)>> {
        let (source, destination) = self.sides();
        // NIXL registers elastic memory per extent.
        let parts = self.plan.moves().flat_map(|each| {
            each.cut(
                |region, address| source.bytes_in_piece(region, address),
                |region, address| destination.bytes_in_piece(region, address),
            )
        });
        let mut chunks = vec![Vec::new()];
        fill(parts, REQUEST_BYTES, |part, begins| {
            if begins {
                chunks.push(Vec::new());
            }
            if let Some(chunk) = chunks.last_mut() {
                chunk.push(self.spans(&part));
            }
        });
        chunks
    }

    fn spans(&self, each: &Move) -> (Span, Span) {
        let (source, destination) = self.sides();
        let span = |layout: &Layout, address: u64, region: u32| Span {
            address,
            size: each.size,
            device_id: layout.descriptors()[region as usize].device_id,
        };
        let from = span(source, each.source, each.source_region);
        let to = span(destination, each.destination, each.destination_region);
        if self.reads { (to, from) } else { (from, to) }
    }
}

/// Cuts moves so that each request has `most` bytes, except the last. Passes each part to `add`, and whether it begins
/// another request.
fn fill(moves: impl Iterator<Item = Move>, most: u64, mut add: impl FnMut(Move, bool)) {
    let mut filled = 0;
    for mut left in moves {
        while left.size > 0 {
            let begins = filled == most;
            if begins {
                filled = 0;
            }
            let size = left.size.min(most - filled);
            add(Move { size, ..left }, begins);
            filled += size;
            left = Move {
                source: left.source + size,
                destination: left.destination + size,
                size: left.size - size,
                ..left
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn requests_are_full_and_moves_are_cut_only_at_their_ends(
            sizes in prop::collection::vec(1u64..300, 1..30), most in 1u64..200,
        ) {
            let moves: Vec<_> = sizes
                .iter()
                .scan(0, |at, size| {
                    *at += size + 7;
                    Some(Move { source: *at, destination: 3 * *at, size: *size, source_region: 1, destination_region: 2 })
                })
                .collect();
            let mut requests = vec![Vec::new()];
            fill(moves.iter().copied(), most, |part, begins| {
                if begins {
                    requests.push(Vec::new());
                }
                requests.last_mut().unwrap().push(part);
            });
            let size = |request: &Vec<Move>| request.iter().map(|part| part.size).sum::<u64>();
            let (last, full) = requests.split_last().unwrap();
            prop_assert!(full.iter().all(|request| size(request) == most));
            prop_assert!((1..=most).contains(&size(last)));
            let mut joined: Vec<Move> = Vec::new();
            for (request, part) in requests.iter().enumerate().flat_map(|(i, all)| all.iter().map(move |part| (i, part))) {
                let goes_on = |last: &Move| {
                    last.source + last.size == part.source && last.destination + last.size == part.destination
                };
                match joined.last_mut() {
                    Some(last) if goes_on(last) => {
                        prop_assert_eq!(requests[request].first(), Some(part), "cut within a request");
                        last.size += part.size;
                    }
                    _ => joined.push(*part),
                }
            }
            prop_assert_eq!(joined, moves);
        }
    }
}
