// SPDX-License-Identifier: Apache-2.0
//! From a plan to NIXL requests, on the agent's thread.

use std::sync::Arc;

use once_cell::sync::OnceCell;

use crate::base::sorting::sort_by_id;
use crate::base::{Result, ensure, lists};
use crate::layout::{Layout, Unit};
use crate::nixl::{AgentState, CallOptions, MemoryType, Operation, RequestId, Span};
use crate::plan::{BlockRun, Move, Plan, Slots};

/// Maximum number of units in the prepared list of a layout, which needs about 100 bytes per unit.
const MAX_UNITS: u64 = 1 << 20;
/// A move that is listed by itself takes NIXL as long as this many units of a prepared list that merge. Measured with
/// 10,000 blocks: 25 ns per pair of descriptors, 12.5 ns per move, and 0.5 ns per unit.
const UNITS_A_MOVE: u64 = 25;

/// Limits of a request: the agent's thread lists and posts it in one step.
#[derive(Clone, Copy)]
struct RequestLimits {
    bytes: u64,
    descriptors: u64,
}

const LIMITS: RequestLimits = RequestLimits { bytes: 16 << 20, descriptors: 8192 };
/// A backend of block storage runs each descriptor by itself, at the same time, and fails if they are more than its parameters
/// allow.
const BLOCK_LIMITS: RequestLimits = RequestLimits { bytes: 16 << 20, descriptors: 32 };
/// A request for an object is not cut, and for no other object.
const OBJECT_LIMITS: RequestLimits = RequestLimits { bytes: u64::MAX, descriptors: 1 };

/// The input for the requests of a transfer.
pub struct RequestPlan {
    pub local: Arc<Layout>,
    pub remote: Arc<Layout>,
    pub reads: bool,
    pub plan: Plan,
    /// The runs of a read in the order of the source, once they are needed.
    ordered: OnceCell<Vec<BlockRun>>,
    limits: RequestLimits,
}

/// Where a request of a plan begins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Place {
    /// Bytes of the requests before it.
    pub bytes: u64,
    /// Of units: their layer and outer slot, the run, and the block in it.
    slot: u64,
    run: usize,
    block: u32,
}

/// The descriptors of one request, local and remote.
#[derive(Default)]
pub struct RequestList {
    units: [Vec<i32>; 2],
    spans: Vec<(Span, Span)>,
}

impl RequestList {
    /// Number of descriptors on each side.
    pub fn len(&self) -> u64 {
        (self.units[0].len() + self.spans.len()) as u64
    }

    fn clear(&mut self) {
        self.units.iter_mut().for_each(Vec::clear);
        self.spans.clear();
    }
}

impl RequestPlan {
    pub fn new([local, remote]: [&Arc<Layout>; 2], reads: bool, plan: Plan) -> Self {
        let [local, remote] = [local, remote].map(Arc::clone);
        let limits = match remote.memory_type() {
            MemoryType::Object => OBJECT_LIMITS,
            MemoryType::Block => BLOCK_LIMITS,
            _ => LIMITS,
        };
        Self { local, remote, reads, plan, ordered: OnceCell::new(), limits }
    }

    /// Whether the remote side is block storage.
    pub fn is_to_blocks(&self) -> bool {
        self.remote.memory_type() == MemoryType::Block
    }

    /// Whether NIXL executes another request now. Requests to block storage share a limit of its backend.
    pub fn has_space(&self, state: &AgentState) -> bool {
        let parts = self.limits.descriptors.min(self.plan.max_moves());
        !self.is_to_blocks() || state.has_space_for(parts as usize)
    }

    /// Creates the request that begins at `place`, and moves `place` behind it. `list` has its descriptors then.
    pub fn create(
        &self,
        state: &mut AgentState,
        place: &mut Place,
        list: &mut RequestList,
    ) -> Result<RequestId> {
        let unit = self.chosen_unit();
        let after = self.list(unit, *place, list)?;
        let request = match unit {
            Some(unit) => {
                let local = self.local.prepared_list(state, unit)?;
                let remote = self.remote.prepared_list(state, unit)?;
                let [here, there] = &list.units;
                state.make_request(
                    self.operation(),
                    (local, here),
                    (remote, there),
                    [],
                    &CallOptions::default(),
                )?
            }
            None => self.over_spans(state, &list.spans)?,
        };
        *place = after;
        Ok(request)
    }

    /// Lists the descriptors of the request that begins at `place`. Returns where the next one begins.
    fn list(&self, unit: Option<Unit>, place: Place, list: &mut RequestList) -> Result<Place> {
        list.clear();
        let after = match unit {
            Some(unit) => self.list_units(unit, place, list)?,
            None => self.list_spans(place, list)?,
        };
        ensure!(after.bytes > place.bytes, Panic, "a request of no bytes was listed");
        Ok(after)
    }

    /// The unit of prepared lists, or `None` to list each span. Prepared lists avoid listing spans, but each unit of each
    /// run must be listed: for a few large moves, spans are cheaper.
    fn chosen_unit(&self) -> Option<Unit> {
        // A list of all units would contain memory that an elastic layout does not have.
        if self.local.is_elastic() || self.remote.is_elastic() || self.is_of_objects() {
            return None;
        }
        let unit = self.plan.unit()?;
        let units = self.plan.bytes() / unit.size(self.local.geometry());
        let fits =
            [&self.local, &self.remote].iter().all(|layout| unit.count(layout.geometry()) <= MAX_UNITS);
        let scattered = self.plan.max_moves() * UNITS_A_MOVE > units;
        let worth_a_list =
            unit.count(self.local.geometry()) + unit.count(self.remote.geometry()) <= 64 * units;
        let small_enough = unit.size(self.local.geometry()) <= self.limits.bytes;
        (fits && scattered && worth_a_list && small_enough).then_some(unit)
    }

    fn units_a_request(&self, unit: Unit) -> u64 {
        (self.limits.bytes / unit.size(self.local.geometry())).clamp(1, self.limits.descriptors)
    }

    /// Number of requests. Fails if one cannot be listed.
    pub fn count(&self) -> Result<u64> {
        if let Some(unit) = self.chosen_unit() {
            let units = self.plan.bytes() / unit.size(self.local.geometry());
            return Ok(units.div_ceil(self.units_a_request(unit)));
        }
        let (mut place, mut list) = (Place::default(), RequestList::default());
        let mut count = 0;
        while place.bytes < self.plan.bytes() {
            (place, count) = (self.list(None, place, &mut list)?, count + 1);
        }
        Ok(count)
    }

    pub fn is_of_objects(&self) -> bool {
        self.remote.memory_type() == MemoryType::Object
    }

    fn operation(&self) -> Operation {
        if self.reads { Operation::Read } else { Operation::Write }
    }

    /// Lists units of both sides, in order of block runs so that NIXL merges them.
    fn list_units(&self, unit: Unit, mut place: Place, list: &mut RequestList) -> Result<Place> {
        let selection = self.plan.selection();
        let (mut mine, mut theirs) = (selection.source(), selection.destination());
        if self.reads {
            std::mem::swap(&mut mine, &mut theirs);
        }
        let outers = if unit == Unit::Piece { selection.outers.count } else { 1 };
        let layers = if unit == Unit::Block { 1 } else { selection.layers.count };
        let runs = self.runs()?;
        let mut left = self.units_a_request(unit);
        let [here, there] = &mut list.units;
        while left > 0 && place.slot < layers * outers {
            let Some(run) = runs.get(place.run) else {
                place = Place { slot: place.slot + 1, run: 0, block: 0, ..place };
                continue;
            };
            let (layer, outer) = (place.slot / outers, place.slot % outers);
            let count = left.min(u64::from(run.length - place.block));
            let indices = |layout: &Layout, slots: &Slots, block: u32| {
                let (layer, outer) = (slots.layers.start + layer, slots.outers.start + outer);
                let first =
                    unit.index(layout.geometry(), u64::from(block + place.block), layer, outer) as i32;
                first..first + count as i32
            };
            let (local, remote) =
                if self.reads { (run.destination, run.source) } else { (run.source, run.destination) };
            lists::extend(here, indices(&self.local, &mine, local))?;
            lists::extend(there, indices(&self.remote, &theirs, remote))?;
            left -= count;
            place.bytes += count * unit.size(self.local.geometry());
            place.block += count as u32;
            if place.block == run.length {
                (place.run, place.block) = (place.run + 1, 0);
            }
        }
        Ok(place)
    }

    /// Runs of blocks in the order in which UCX copies them. Reads are sorted by source: sequential reads are prefetched,
    /// and writes to scattered addresses do not wait for memory. Bench row 8 measures this with scattered blocks.
    fn runs(&self) -> Result<&[BlockRun]> {
        let runs = self.plan.block_runs().unwrap_or_default();
        if !self.reads {
            return Ok(runs);
        }
        let sorted = || {
            let mut sorted = lists::collect(runs.iter().copied())?;
            sort_by_id(&mut sorted, |run| run.source)?;
            Ok(sorted)
        };
        self.ordered.get_or_try_init(sorted).map(Vec::as_slice)
    }

    fn over_spans(&self, state: &mut AgentState, spans: &[(Span, Span)]) -> Result<RequestId> {
        let side = self.remote.request_side();
        let here = spans.iter().map(|(local, _)| *local);
        let there = spans.iter().map(|(_, remote)| *remote);
        let (local_type, remote_type) = (self.local.memory_type(), self.remote.memory_type());
        state.create_request(self.operation(), (local_type, here), (&side, remote_type, there))
    }

    /// Number of changes of the memory of either side.
    pub fn generation(&self) -> u64 {
        self.local.generation() + self.remote.generation()
    }

    pub fn sides(&self) -> (&Layout, &Layout) {
        if self.reads { (&self.remote, &self.local) } else { (&self.local, &self.remote) }
    }

    fn list_spans(&self, mut place: Place, list: &mut RequestList) -> Result<Place> {
        for part in self.parts_from(place) {
            lists::push(&mut list.spans, self.spans(&part))?;
            place.bytes += part.size;
        }
        Ok(place)
    }

    /// The moves of the request that begins at `place`.
    fn parts_from(&self, place: Place) -> impl Iterator<Item = Move> {
        let (source, destination) = self.sides();
        let end = self.plan.bytes().min(place.bytes.saturating_add(self.limits.bytes));
        // NIXL registers elastic memory per extent, and objects one by one. An object is written by one request, also from
        // host memory that is page-locked in pieces, which NIXL registers as one.
        let is_whole = |layout: &Layout| self.is_of_objects() && layout.memory_type() == MemoryType::Dram;
        let [from, to] = [source, destination].map(|layout| (layout, is_whole(layout)));
        let left = |(layout, is_whole): (&Layout, bool), region, address| match is_whole {
            true => u64::MAX,
            false => layout.bytes_in_piece(region, address),
        };
        let parts = self.plan.moves_in(place.bytes..end).flat_map(move |each| {
            each.cut(
                move |region, address| left(from, region, address),
                move |region, address| left(to, region, address),
            )
        });
        parts.take(self.limits.descriptors as usize)
    }

    fn spans(&self, each: &Move) -> (Span, Span) {
        let (source, destination) = self.sides();
        let from = source.span(each.source_region, each.source, each.size);
        let to = destination.span(each.destination_region, each.destination, each.size);
        if self.reads { (to, from) } else { (from, to) }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::layout::{Arrangement, Dimensions};
    use crate::plan::{BlockPair, Wanted};

    const BLOCKS: u32 = 12;

    fn layout(kind: Arrangement) -> Arc<Layout> {
        Layout::in_host(Dimensions::of_bytes(BLOCKS.into()), kind)
    }

    /// From the layout of one kind to that of another, with requests of few bytes and descriptors.
    fn planned(
        kinds: [Arrangement; 2],
        blocks: &[u32],
        reads: bool,
        [bytes, descriptors]: [u64; 2],
    ) -> RequestPlan {
        let pair = |(index, block): (usize, &u32)| BlockPair { source: *block, destination: index as u32 };
        let pairs: Vec<_> = blocks.iter().enumerate().map(pair).collect();
        let [source, destination] = kinds.map(layout);
        let plan = Plan::once(&source, &destination, &pairs, Wanted::default()).unwrap();
        let sides = if reads { [&destination, &source] } else { [&source, &destination] };
        let limits = RequestLimits { bytes, descriptors };
        RequestPlan { limits, ..RequestPlan::new(sides, reads, plan) }
    }

    fn kinds() -> impl Strategy<Value = Arrangement> {
        prop::sample::select(&Arrangement::KVBM[..])
    }

    #[test]
    fn a_request_that_cannot_be_listed_is_an_error_also_of_their_number() {
        let counted = |limits| planned([Arrangement::FULLY_CONTIGUOUS; 2], &[3, 5], true, limits).count();
        assert_eq!(counted([2000, 1]).unwrap(), 2);
        counted([0, 8]).unwrap_err().assert_is(crate::base::error::Status::Panic, "no bytes");
    }

    proptest! {
        #[test]
        fn requests_one_after_the_other_have_every_byte_once(
            from in kinds(), to in kinds(), reads: bool, count in 1..=BLOCKS as usize,
            blocks in Just((0..BLOCKS).collect::<Vec<_>>()).prop_shuffle(),
            limits in [100u64..2000, 1u64..9],
        ) {
            let plan = planned([from, to], &blocks[..count], reads, limits);
            let mut place = Place::default();
            let mut joined: Vec<Move> = Vec::new();
            while place.bytes < plan.plan.bytes() {
                let parts: Vec<_> = plan.parts_from(place).collect();
                let bytes = parts.iter().map(|part| part.size).sum::<u64>();
                prop_assert!((1..=limits[0]).contains(&bytes) && parts.len() as u64 <= limits[1]);
                place.bytes += bytes;
                for part in parts {
                    match joined.last_mut() {
                        Some(last) if last.goes_on_in(&part) => last.size += part.size,
                        _ => joined.push(part),
                    }
                }
            }
            prop_assert_eq!(joined, plan.plan.moves().collect::<Vec<_>>());
        }

        #[test]
        fn requests_of_units_have_every_unit_once(
            kind in kinds(), reads: bool, count in 1..=BLOCKS as usize,
            blocks in Just((0..BLOCKS).collect::<Vec<_>>()).prop_shuffle(),
            limits in [400u64..2000, 1u64..9],
        ) {
            let plan = planned([kind; 2], &blocks[..count], reads, limits);
            let geometry = plan.local.geometry();
            for unit in [Unit::Piece, Unit::Layer, Unit::Block] {
                let (mut place, mut list) = (Place::default(), RequestList::default());
                let mut found = Vec::new();
                while place.bytes < plan.plan.bytes() {
                    place = plan.list(Some(unit), place, &mut list).unwrap();
                    let [here, there] = &list.units;
                    let is_full = list.len() == plan.units_a_request(unit);
                    prop_assert!(here.len() == there.len() && (is_full || place.bytes == plan.plan.bytes()));
                    found.extend(here.iter().copied().zip(there.iter().copied()));
                }
                let slots = unit.count(geometry) / u64::from(BLOCKS);
                let of_slot = |slot: u64| {
                    let first = (slot * u64::from(BLOCKS)) as i32;
                    blocks[..count].iter().zip(0..).map(move |(source, destination)| {
                        let (source, destination) = (first + *source as i32, first + destination);
                        if reads { (destination, source) } else { (source, destination) }
                    })
                };
                let mut expected: Vec<_> = (0..slots).flat_map(of_slot).collect();
                expected.sort_unstable();
                found.sort_unstable();
                prop_assert_eq!(found, expected);
            }
        }
    }
}
