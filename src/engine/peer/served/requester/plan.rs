// SPDX-License-Identifier: Apache-2.0
//! A prepared transfer that the owner serves, on the requester's side.

use std::sync::Arc;

use super::served_owner::ServedOwner;
use super::session_plan::SessionPlan;
use crate::base::{Result, ensure, fail};
use crate::engine::cost::requests::RequestRates;
use crate::engine::peer::served::protocol::message::MAX_TERMS;
use crate::engine::peer::staged::{Arena, ArenaUse, Check, Slot, SlotUser, StagingMemory};
use crate::layout::cache::LayoutCache;
use crate::layout::{Layout, Memory, RemoteMemory, Served};
use crate::nixl::{
    Agent, AgentState, Descriptor, MemoryType, Operation, Remote, RequestId, RequestSide, Span,
};
use crate::plan::Plan;

/// Larger slots of an owner would need a larger arena here, too.
const MAX_SLOT: u64 = 32 << 20;
/// Chunks that are looked at to choose between an arena and the local layout.
const SAMPLED: u64 = 4;

/// The last arenas of each local layout.
static ARENAS: LayoutCache<[Option<Arc<Arena>>; 2]> = LayoutCache::new();

/// What a served transfer needs, without memory.
pub struct ServedDivision {
    /// One after the other; at least one. A message has space for so many spans only.
    pub(super) sessions: Vec<SessionPlan>,
    pub(super) served: Served,
    pub(super) peer: Arc<Remote>,
    pub(super) reads: bool,
    /// Chunks are compared where they come from and where they are.
    pub verifies: bool,
    is_checked: bool,
    /// NIXL accesses the local layout, in few ranges.
    is_direct: bool,
    /// Descriptors of a request, on average of the first.
    descriptors: u64,
    /// What the arena here is, or would be.
    memory: StagingMemory,
    /// The device of the local layout.
    device_id: u64,
}

impl ServedDivision {
    /// What the owner serves, whose memory it is, and staging memory of this process for it. Fails with the reason if the owner does not
    /// serve transfers between these layouts.
    fn parties(
        [local, remote]: [&Arc<Layout>; 2],
        reads: bool,
    ) -> Result<(&Served, &RemoteMemory, StagingMemory)> {
        let (Some(served), Memory::Remote(memory)) = (remote.served(), remote.memory()) else {
            fail!(Unsupported, "the owner does not serve the layout (kvmem_layout_serve)");
        };
        ensure!(reads || served.writes, Unsupported, "the owner serves reads of the layout, and no writes");
        let staging = StagingMemory::between(local, served.memory().memory_type);
        ensure!(
            staging.memory_type() == served.memory().memory_type,
            Unsupported,
            "the owner's staging memory is in GPU memory, and the local layout is not; the owner can serve from host \
             memory (KVMEM_SERVE_FROM_HOST)"
        );
        Ok((served, memory, staging))
    }

    /// Fails with the reason if the owner serves no transfer between these layouts.
    pub fn ensure_served(sides: [&Arc<Layout>; 2], reads: bool) -> Result<()> {
        Self::parties(sides, reads).map(drop)
    }

    /// Fails with the reason if the owner does not serve the transfer.
    pub fn new(
        plan: &Plan,
        [local, remote]: [&Arc<Layout>; 2],
        reads: bool,
        rates: &RequestRates,
        verifies: bool,
    ) -> Result<Self> {
        let (served, memory, staging) = Self::parties([local, remote], reads)?;
        // NIXL accesses memory of the layout only where that is as fast as the arena.
        let is_plain = local.memory_type() == staging.memory_type() && !local.is_elastic();
        let side = usize::from(reads);
        let led = plan.led_by(side)?;
        let slices = led.slices(1 - side, MAX_TERMS)?;
        let session = |slice| SessionPlan::new(&slice, side, reads, served, verifies);
        let mut this = Self {
            sessions: slices.into_iter().map(session).collect::<Result<_>>()?,
            served: served.clone(),
            peer: memory.peer.clone(),
            reads,
            verifies,
            is_checked: verifies || served.device.is_none(),
            is_direct: true,
            descriptors: 1,
            memory: staging,
            device_id: local.descriptors().first().map_or(0, |first| first.device_id),
        };
        this.ensure_bytes(plan.bytes())?;
        let first = &this.sessions[0];
        let chunks = first.chunks().min(SAMPLED);
        let sampled = first.range(chunks - 1).end;
        let ranges = (0..chunks).map(|chunk| first.ranges(chunk).count() as u64).sum::<u64>();
        // A checksum of GPU memory is that of a slot.
        let is_plain = is_plain && !(verifies && served.device.is_some());
        let is_direct = is_plain && sampled >= ranges * rates.bytes_per_descriptor();
        let descriptors = if is_direct { ranges.div_ceil(chunks) } else { 1 };
        (this.is_direct, this.descriptors) = (is_direct, descriptors);
        ensure!(
            this.is_direct || served.slot_size <= MAX_SLOT,
            Unsupported,
            "the owner's slots have {} bytes, and {MAX_SLOT} are the most that rows are copied from",
            served.slot_size
        );
        Ok(this)
    }

    fn ensure_bytes(&self, planned: u64) -> Result<()> {
        let bytes: u64 = self.sessions.iter().map(SessionPlan::bytes).sum();
        ensure!(bytes == planned, Panic, "a plan of {planned} bytes has {bytes} in a row");
        Ok(())
    }

    pub fn chunks(&self) -> u64 {
        self.sessions.iter().map(SessionPlan::chunks).sum()
    }

    pub fn sessions(&self) -> u64 {
        self.sessions.len() as u64
    }

    pub fn descriptors(&self) -> u64 {
        self.chunks() * self.descriptors
    }

    /// Whether bytes are also copied here.
    pub fn copies(&self) -> bool {
        !self.is_direct
    }
}

/// A prepared transfer with its memory.
pub struct ServedPlan {
    pub division: ServedDivision,
    /// For the rows of the local layout, unless NIXL accesses it.
    pub(super) arena: Option<Arc<Arena>>,
    pub(super) owner: ServedOwner,
}

impl ServedPlan {
    /// Allocates what the agent does not have yet.
    pub fn new(division: ServedDivision, local: &Layout, agent: &Arc<Agent>) -> Result<Self> {
        let chunks = || Arena::for_agent(agent, ArenaUse::Chunks, division.memory, division.served.slot_size);
        let arena = division.copies().then(chunks).transpose()?;
        let owner = ServedOwner::new(&division.served, &division.peer, agent)?;
        // Allocation and registration take long, so they are kept for the next transfer.
        ARENAS.put(local, Arc::new([arena.clone(), Some(owner.mailboxes.clone())]));
        Ok(Self { division, arena, owner })
    }

    pub fn chunks(&self) -> u64 {
        self.division.chunks()
    }

    /// Both.
    pub(super) fn arenas(&self) -> impl Iterator<Item = &Arc<Arena>> {
        self.arena.iter().chain([&self.owner.mailboxes])
    }

    /// A free slot for a chunk, if there is one for the owner.
    pub(super) fn take_slot(&self) -> Option<Slot> {
        self.arena.as_ref()?.take(SlotUser::peer(&self.division.peer))
    }

    /// How checksums of chunks are computed, after their seeds; `None` if they have none.
    pub(super) fn check(&self, seed: u32) -> Option<Check> {
        let is_on_device = self.division.memory.memory_type() == MemoryType::Vram;
        self.division.is_checked.then_some(Check { seed, reads_layout: self.division.verifies, is_on_device })
    }

    /// The request between a chunk of a session in the owner's slot and memory of this process: the slot at `local`, or the layout.
    pub(super) fn request(
        &self,
        state: &mut AgentState,
        session: &SessionPlan,
        chunk: u64,
        slot: u32,
        local: Option<u64>,
    ) -> Result<RequestId> {
        let there = self.division.served.slot(slot);
        let range = session.range(chunk);
        match local {
            Some(address) => {
                let here = || [(address, range.end - range.start, 0)].into_iter();
                self.create(state, (self.division.memory.device_id(), here), there)
            }
            None => self.create(state, (self.division.device_id, || session.ranges(chunk)), there),
        }
    }

    /// Creates a request for ranges: their device and address here, their size, and their offset from `there`. Memory of the
    /// same type is accessed on both sides.
    fn create<I: Iterator<Item = (u64, u64, u64)>>(
        &self,
        state: &mut AgentState,
        (own_device, ranges): (u64, impl Fn() -> I),
        there: u64,
    ) -> Result<RequestId> {
        let &Descriptor { device_id, memory_type, .. } = self.division.served.memory();
        let operation = if self.division.reads { Operation::Read } else { Operation::Write };
        let here = ranges().map(|(address, size, _)| Span { address, size, device_id: own_device });
        let remote = ranges().map(|(_, size, at)| Span { address: there + at, size, device_id });
        let side = RequestSide::Peer(self.division.peer.clone());
        state.create_request(operation, (memory_type, here), (&side, memory_type, remote))
    }
}
