// SPDX-License-Identifier: Apache-2.0
//! A prepared transfer that the owner serves, on the requester's side.
#![forbid(unsafe_code)]

use std::ops::Range;
use std::sync::Arc;

use super::control;
use super::message::{Body, Message, Open, SessionKey};
use crate::error::{Result, ensure, fail};
use crate::layout::{Layout, Memory, Served};
use crate::nixl::request::RequestSide;
use crate::nixl::{Agent, AgentState, Descriptor, Operation, Remote, RequestId, Span};
use crate::process::ProcessIdentity;
use crate::transfer::engine::nixl::cost::RequestRates;
use crate::transfer::engine::nixl::staged::{Arena, ArenaUse, StagingMemory};
use crate::transfer::plan::{LinearPlan, Matrix, Plan, Terms};

/// Larger slots of an owner would need a larger arena here, too.
const MOST_SLOT: u64 = 32 << 20;
/// Chunks of a transfer, if slots are large enough: while one is moved, the next one is gathered.
const CHUNKS: u64 = 12;
/// Smaller chunks cost more than they save.
const LEAST_CHUNK: u64 = 256 << 10;
/// Chunks that are looked at to choose between an arena and the local layout.
const SAMPLED: u64 = 4;

/// What a served transfer needs, without memory.
pub struct ServedDivision {
    /// From the local layout to the bytes in a row.
    linear: Arc<LinearPlan>,
    terms: Terms,
    served: Served,
    /// Bytes of a chunk.
    chunk_size: u64,
    peer: Arc<Remote>,
    reads: bool,
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
    /// Fails with the reason if the owner does not serve the transfer.
    pub fn of(
        plan: &Plan,
        [local, remote]: [&Arc<Layout>; 2],
        reads: bool,
        rates: &RequestRates,
    ) -> Result<Self> {
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
        // NIXL accesses memory of the layout only where that is as fast as the arena.
        let is_plain = local.memory_type() == staging.memory_type() && !local.is_elastic();
        let side = usize::from(reads);
        let led = plan.led_by(side);
        let terms = Terms::of(&led, 1 - side)?;
        let linear = Arc::new(led.linear(side)?);
        ensure!(
            linear.bytes() == plan.bytes(),
            Panic,
            "a plan of {} bytes has {} in a row",
            plan.bytes(),
            linear.bytes()
        );
        let peer = memory.peer.clone();
        let least = LEAST_CHUNK.min(served.slot_size);
        let chunk_size = (linear.bytes() / CHUNKS).next_multiple_of(4096).clamp(least, served.slot_size);
        let mut this = Self {
            linear,
            terms,
            served: served.clone(),
            chunk_size,
            peer,
            reads,
            is_direct: true,
            descriptors: 1,
            memory: staging,
            device_id: local.descriptors().first().map_or(0, |first| first.device_id),
        };
        // What is sent is bounded; a message that is too long is found here.
        this.open(SessionKey([0; 16]))?.write(&this.served.id)?;
        let sampled = this.linear.bytes().min(SAMPLED * chunk_size);
        let chunks = sampled.div_ceil(chunk_size).max(1);
        let ranges = (0..chunks).map(|chunk| this.ranges(chunk).count() as u64).sum::<u64>();
        this.is_direct = is_plain && sampled >= ranges * rates.bytes_per_descriptor();
        this.descriptors = if this.is_direct { ranges.div_ceil(chunks) } else { 1 };
        ensure!(
            this.is_direct || served.slot_size <= MOST_SLOT,
            Unsupported,
            "the owner's slots have {} bytes, and {MOST_SLOT} are the most that rows are copied from",
            served.slot_size
        );
        Ok(this)
    }

    /// Number of chunks.
    pub fn chunks(&self) -> u64 {
        self.linear.bytes().div_ceil(self.chunk_size)
    }

    /// Descriptors of all requests.
    pub fn descriptors(&self) -> u64 {
        self.chunks() * self.descriptors
    }

    /// Whether bytes are also copied here.
    pub fn copies(&self) -> bool {
        !self.is_direct
    }

    fn range(&self, chunk: u64) -> Range<u64> {
        let first = chunk * self.chunk_size;
        first..self.linear.bytes().min(first + self.chunk_size)
    }

    /// The contiguous ranges of a chunk in the local layout: address, size and offset in the chunk.
    fn ranges(&self, chunk: u64) -> impl Iterator<Item = (u64, u64, u64)> {
        let range = self.range(chunk);
        let first = range.start;
        let moves = self.linear.rows_in(range).flat_map(Matrix::moves);
        moves.map(move |each| (each.source, each.size, each.destination - first))
    }

    /// The message that begins a session.
    fn open(&self, session: SessionKey) -> Result<Message> {
        let open = Open {
            process: ProcessIdentity::current()?,
            writes: !self.reads,
            bytes: self.linear.bytes(),
            chunk_size: self.chunk_size,
            terms: self.terms.clone(),
        };
        Ok(Message { session, body: Body::Open(Box::new(open)) })
    }
}

/// A prepared transfer with its memory.
pub struct ServedPlan {
    division: ServedDivision,
    /// For the rows of the local layout, unless NIXL accesses it.
    arena: Option<Arc<Arena>>,
    /// For copies of the owner's control block.
    mailboxes: Arc<Arena>,
}

impl ServedPlan {
    /// Allocates what the agent does not have yet.
    pub fn new(division: ServedDivision, local: &Layout, agent: &Arc<Agent>) -> Result<Self> {
        let chunks = || Arena::of(agent, ArenaUse::Chunks, division.memory, division.served.slot_size);
        let arena = division.copies().then(chunks).transpose()?;
        let mailboxes = Arena::of(agent, ArenaUse::Mailboxes, StagingMemory::Host, control::SIZE as u64)?;
        // Allocation and registration take long, so the layout keeps them for the next transfer.
        local.keep(Arc::new(Kept { _arenas: [arena.clone(), Some(mailboxes.clone())] }));
        Ok(Self { division, arena, mailboxes })
    }

    /// Fails if NIXL may still use a part of an arena.
    pub fn ensure_usable(&self) -> Result<()> {
        let are_usable = self.arena.iter().chain([&self.mailboxes]).all(|arena| arena.is_usable());
        ensure!(
            are_usable,
            Nixl,
            "NIXL may still use the staging memory of an earlier transfer; create the transfer again"
        );
        Ok(())
    }

    /// Number of chunks.
    pub fn chunks(&self) -> u64 {
        self.division.chunks()
    }

    /// Bytes that are moved.
    pub fn bytes(&self) -> u64 {
        self.division.linear.bytes()
    }

    pub(super) fn reads(&self) -> bool {
        self.division.reads
    }

    pub(super) fn peer(&self) -> &Arc<Remote> {
        &self.division.peer
    }

    pub(super) fn served(&self) -> &Served {
        &self.division.served
    }

    pub(super) fn linear(&self) -> &Arc<LinearPlan> {
        &self.division.linear
    }

    pub(super) fn arena(&self) -> Option<&Arc<Arena>> {
        self.arena.as_ref()
    }

    pub(super) fn mailboxes(&self) -> &Arc<Arena> {
        &self.mailboxes
    }

    pub(super) fn range(&self, chunk: u64) -> Range<u64> {
        self.division.range(chunk)
    }

    /// The message that begins a session.
    pub(super) fn open(&self, session: SessionKey) -> Result<Message> {
        self.division.open(session)
    }

    /// The request between a chunk in the owner's slot and memory of this process: the slot at `local`, or the layout.
    pub(super) fn request(
        &self,
        state: &mut AgentState,
        chunk: u64,
        slot: u32,
        local: Option<u64>,
    ) -> Result<RequestId> {
        let there = self.served().slot(slot);
        let range = self.range(chunk);
        let operation = if self.reads() { Operation::Read } else { Operation::Write };
        match local {
            Some(address) => {
                let here = || [(address, range.end - range.start, 0)].into_iter();
                self.create(
                    state,
                    operation,
                    (self.division.memory.device_id(), here),
                    (self.served().memory(), there),
                )
            }
            None => {
                let here = || self.division.ranges(chunk);
                self.create(
                    state,
                    operation,
                    (self.division.device_id, here),
                    (self.served().memory(), there),
                )
            }
        }
    }

    /// The request that reads the control block to `local`.
    pub(super) fn control_request(&self, state: &mut AgentState, local: u64) -> Result<RequestId> {
        let ranges = || [(local, control::SIZE as u64, 0)].into_iter();
        let arena = &self.served().arena;
        self.create(state, Operation::Read, (0, ranges), (arena, arena.address))
    }

    /// Creates a request for ranges: their device and address here, their size, and their offset from `there`. Memory of the
    /// same type is accessed on both sides.
    fn create<I: Iterator<Item = (u64, u64, u64)>>(
        &self,
        state: &mut AgentState,
        operation: Operation,
        (own_device, ranges): (u64, impl Fn() -> I),
        (memory, there): (&Descriptor, u64),
    ) -> Result<RequestId> {
        let &Descriptor { device_id, memory_type, .. } = memory;
        let here = ranges().map(|(address, size, _)| Span { address, size, device_id: own_device });
        let remote = ranges().map(|(_, size, at)| Span { address: there + at, size, device_id });
        let side = RequestSide::Peer(self.peer().clone());
        state.create_request(operation, (memory_type, here), (&side, memory_type, remote))
    }
}

/// What the local layout keeps between transfers.
struct Kept {
    _arenas: [Option<Arc<Arena>>; 2],
}
