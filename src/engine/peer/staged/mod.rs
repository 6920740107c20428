// SPDX-License-Identifier: Apache-2.0
//! Through a bounce arena: large ranges between the peer and plain registered memory of this process, and rows between that and
//! the local layout. NIXL takes microseconds for each descriptor, and a reshaped transfer has one per row.

mod arena;
mod chunk;
mod in_slots;
mod linear_copy;
mod slot_copy;
mod flow;
mod slot_sizes;
mod slots;
pub mod staging_memory;

use std::sync::Arc;

pub use self::arena::{Arena, ArenaUse, Slot};
use self::chunk::{Chunk, ChunkLimits, MAX_RANGES, Piece};
pub use self::flow::StagedFlow;
pub use self::in_slots::InSlots;
pub use self::linear_copy::{Check, Checksums, LinearCopy};
pub use self::slot_copy::SlotCopy;
pub use self::slot_sizes::{object_slot_size, slot_size};
pub use self::slots::{SLOTS, SLOTS_OF_PEER, SlotUser};
pub use self::staging_memory::StagingMemory;
use crate::base::Result;
use crate::copy::host;
use crate::engine::cost::requests::{Estimate, RequestRates, places_of};
use crate::layout::cache::LayoutCache;
use crate::layout::{Layout, Memory};
use crate::nixl::{Agent, AgentState, MemoryType, Operation, RequestId, Span};
use crate::plan::{LoopOrder, Plan};

/// Bytes between rows of an object that are read rather than skipped: another request takes milliseconds.
const OBJECT_GAP: u64 = 1 << 20;
/// Chunks that are cut to estimate a transfer.
const SAMPLED: u64 = 4;

/// The last arena of each local layout.
static ARENAS: LayoutCache<Arena> = LayoutCache::new();

/// A prepared transfer without memory: what passes through the slots.
pub struct Division {
    /// In the order of the peer.
    plan: Plan,
    limits: ChunkLimits,
    remote: Arc<Layout>,
}

impl Division {
    /// Divides a plan into chunks of at most `slot` bytes.
    pub fn new(
        plan: &Plan,
        remote: &Arc<Layout>,
        reads: bool,
        slot: u64,
        rates: &RequestRates,
    ) -> Result<Self> {
        let order = if reads { LoopOrder::Source } else { LoopOrder::StrictDestination };
        let max_gap = if reads { rates.bytes_per_descriptor().min(slot / 4) } else { 0 };
        let limits = ChunkLimits { reads, slot, max_gap, max_ranges: MAX_RANGES };
        Ok(Self { plan: plan.in_order(order)?, limits, remote: remote.clone() })
    }

    /// Divides a plan, which is in the order of the objects, into one chunk for each object, which fits a slot.
    pub fn from_objects(plan: &Plan, objects: &Arc<Layout>, reads: bool, slot: u64) -> Self {
        let max_gap = if reads { OBJECT_GAP } else { 0 };
        let limits = ChunkLimits { reads, slot, max_gap, max_ranges: 1 };
        Self { plan: plan.clone(), limits, remote: objects.clone() }
    }

    /// What the transfer takes, estimated from its first chunks, or from all.
    pub fn estimate(&self, has_all: bool) -> Result<Estimate> {
        let mut found = Estimate::default();
        let with_places = |found| Estimate { places: places_of(&self.plan), ..found };
        let mut first = 0;
        for _ in 0..if has_all { u64::MAX } else { SAMPLED } {
            if first >= self.plan.bytes() {
                return Ok(with_places(found));
            }
            let chunk = self.chunk(first, 0)?;
            found.descriptors += chunk.ranges.len() as u64;
            found.transferred += chunk.transferred();
            found.chunks += 1;
            first += chunk.moved;
        }
        Ok(with_places(found.scaled(self.plan.bytes() as f64 / first.max(1) as f64)))
    }

    /// The chunk that starts after `first` bytes, for a slot at `base`.
    fn chunk(&self, first: u64, base: u64) -> Result<Chunk> {
        let piece = |region, address| self.remote.bytes_in_piece(region, address);
        let has_pieces = self.remote.is_elastic() || self.remote.memory_type() == MemoryType::Object;
        let piece = has_pieces.then_some(&piece as &Piece<'_>);
        self.limits.chunk(&self.plan, first, base, piece)
    }
}

/// A prepared transfer through an arena.
pub struct StagedPlan {
    division: Division,
    arena: Arc<Arena>,
    user: SlotUser,
    /// Slots get poison before they are read to.
    poisons: bool,
}

impl StagedPlan {
    /// Allocates the arena if the agent has none of that size.
    pub fn new(division: Division, local: &Layout, agent: &Arc<Agent>, poisons: bool) -> Result<Self> {
        let memory = StagingMemory::between(local, division.remote.memory_type());
        let (purpose, user) = match division.remote.memory() {
            Memory::Remote(remote) => (ArenaUse::Chunks, SlotUser::peer(&remote.peer)),
            Memory::Local(_) => (ArenaUse::Objects, SlotUser::STORES),
        };
        let arena = Arena::for_agent(agent, purpose, memory, division.limits.slot)?;
        // Allocation and registration take long, so the arena is kept for the next transfer.
        ARENAS.put(local, arena.clone());
        Ok(Self { division, arena, user, poisons })
    }

    pub fn requests(&self) -> Result<u64> {
        Ok(self.division.estimate(true)?.chunks)
    }

    /// Bytes that are read and discarded.
    pub fn excess(&self) -> Result<u64> {
        Ok(self.division.estimate(true)?.transferred.saturating_sub(self.bytes()))
    }

    fn bytes(&self) -> u64 {
        self.division.plan.bytes()
    }

    fn reads(&self) -> bool {
        self.division.limits.reads
    }

    /// Whether copies bypass the caches. Bytes in the arena are used again at once.
    fn is_streamed(&self) -> bool {
        self.reads() && host::suits_streaming(self.bytes())
    }

    /// A free slot, if there is one for the peer.
    fn take_slot(&self) -> Option<Slot> {
        self.arena.take(self.user)
    }

    fn chunk(&self, first: u64, base: u64) -> Result<Chunk> {
        self.division.chunk(first, base)
    }

    /// Prepares a slot that is to be read to.
    fn poison(&self, chunk: &Chunk, slot: &Slot) -> Result<()> {
        match self.poisons {
            true => slot.poison(chunk.ranges.iter().map(|range| range.at..range.at + range.size)),
            false => Ok(()),
        }
    }

    /// The request between the peer and the slot at `base`.
    fn request(&self, state: &mut AgentState, chunk: &Chunk, base: u64) -> Result<RequestId> {
        let remote = &self.division.remote;
        let side = remote.request_side();
        let kind = self.arena.kind;
        let here = chunk.ranges.iter().map(|range| Span {
            address: base + range.at,
            size: range.size,
            device_id: kind.device_id(),
        });
        let there = chunk.ranges.iter().map(|range| remote.span(range.region, range.address, range.size));
        let operation = if self.reads() { Operation::Read } else { Operation::Write };
        state.create_request(operation, (kind.memory_type(), here), (&side, remote.memory_type(), there))
    }
}
