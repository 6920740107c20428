// SPDX-License-Identifier: Apache-2.0
//! A session of a service: the chunks of one run of a requester, in the order of their bytes. The requester reads what the
//! owner has gathered in a slot, or writes what the owner then scatters from there; then the slot is for a later chunk.
//! The arena is that of the service, which all sessions share.

use std::collections::VecDeque;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use crate::base::{Error, Milliseconds, Pool, Result, Status, ensure};
use crate::copy::gpu::RowCopier;
use crate::engine::peer::served::protocol::message::{Open, SessionKey};
use crate::engine::peer::served::protocol::session_control::{
    ChunkChecksums, GrantedSlots, SessionState, ensure_intact, seed,
};
use crate::engine::peer::served::protocol::{session_control, words};
use crate::engine::peer::staged::{Check, LinearCopy, SlotCopy};
use crate::layout::{Layout, Served};
use crate::plan::{LinearPlan, Matrix, Move};
use crate::region::{Contexts, RegistrationHold};
use crate::run::{PeerAccess, UsedBytes};

/// The maximum sizes of chunks that the agent's thread copies, on two processors and on more.
const MAX_COPIED_ALONE: u64 = 4 << 20;
const MAX_COPIED: u64 = 64 << 10;
pub(super) const MIN_CHUNK: u64 = 4096;

pub(super) struct Session {
    pub key: SessionKey,
    pub requester: Arc<PeerAccess>,
    pub writes: bool,
    pub slots: GrantedSlots,
    /// The entry of the control block.
    pub entry: usize,
    plan: Arc<LinearPlan>,
    chunk_size: u64,
    /// Slots have checksums; those of GPU memory only if the requester verifies.
    is_checked: bool,
    verifies: bool,
    /// Of the chunks that were gathered, or that the requester has written.
    checksums: ChunkChecksums,
    /// Chunks whose copy has begun, and ended.
    begun: u64,
    ended: u64,
    copies: VecDeque<Arc<SlotCopy>>,
    /// Chunks that the requester has read or written.
    reported: u64,
    last_progress: Instant,
    /// When the last message of the requester arrived.
    pub heard: Instant,
    /// The requester has closed it, or it has failed: nothing begins any more.
    pub is_over: bool,
    pub is_closed: bool,
}

impl Session {
    /// Begins a session. Fails for a request that the layout does not allow.
    pub fn new(
        (key, sender): (SessionKey, String),
        open: &Open,
        service: &Service,
        slots: GrantedSlots,
        entry: usize,
    ) -> Result<Self> {
        let layout = service.layout()?;
        // All that can be compared, before any span is listed.
        let terms = open.terms.checked_in(layout.parts())?;
        let bytes = terms.bytes();
        ensure!(
            bytes == open.bytes,
            InvalidArgument,
            "the request is for {} bytes, and its blocks have {bytes} in the owner's layout",
            open.bytes
        );
        let most = service.served.slot_size;
        ensure!(
            (MIN_CHUNK..=most).contains(&open.chunk_size),
            InvalidArgument,
            "the request has chunks of {} bytes; {MIN_CHUNK} to {most} are possible",
            open.chunk_size
        );
        let (plan, places) = (Arc::new(terms.placed()?), layout.places().clone());
        let used = UsedBytes::Rows { plan: plan.clone(), places, are_written: open.writes };
        Ok(Self {
            key,
            requester: PeerAccess::list(sender, open.process.clone(), used),
            writes: open.writes,
            slots,
            entry,
            plan,
            chunk_size: open.chunk_size,
            is_checked: open.verifies || service.served.device.is_none(),
            verifies: open.verifies,
            checksums: ChunkChecksums::default(),
            begun: 0,
            ended: 0,
            copies: VecDeque::new(),
            reported: 0,
            last_progress: Instant::now(),
            heard: Instant::now(),
            is_over: false,
            is_closed: false,
        })
    }

    /// The entry for the requester.
    pub fn state(&self) -> SessionState {
        SessionState::Open { slots: self.slots, chunks: self.ended, checksums: self.checksums.0 }
    }

    /// Notes how many chunks the requester has read or written, and the checksums of the last that it has written to each slot. Fails for
    /// a number that is not possible.
    pub fn report(&mut self, chunks: u64, checksums: ChunkChecksums) -> Result<()> {
        self.heard = Instant::now();
        let most = match self.writes {
            true => (self.ended + self.slots.len() as u64).min(self.chunks()),
            false => self.ended,
        };
        ensure!(chunks <= most, InvalidArgument, "chunk {chunks} was reported, and {most} are possible");
        if chunks > self.reported {
            if self.writes {
                self.checksums = checksums;
            }
            self.reported = chunks;
            self.last_progress = Instant::now();
        }
        Ok(())
    }

    /// Ends copies and begins others. Returns whether there was anything to do.
    pub fn advance(&mut self, service: &Arc<Service>) -> Result<bool> {
        let before = (self.begun, self.ended);
        self.end_copies()?;
        let window = if self.writes { 0 } else { self.slots.len() as u64 };
        let most = (self.reported + window).min(self.chunks());
        while self.begun < most && !self.is_over {
            let has_ended = self.begin(service)?;
            if has_ended && self.chunk_size > MAX_COPIED {
                // Another chunk is for the next step: the agent has other work, too.
                break;
            }
        }
        self.end_copies()?;
        Ok(before != (self.begun, self.ended))
    }

    /// Notes which copies have ended. Fails if one has.
    pub fn end_copies(&mut self) -> Result<()> {
        while let Some(copy) = self.copies.front() {
            // After a failure nothing uses the slot any more.
            let Some(ended) = copy.is_done().transpose() else { break };
            self.copies.pop_front();
            let chunk = self.ended;
            self.ended += 1;
            self.last_progress = Instant::now();
            let found = ended?.checksums;
            match self.writes {
                _ if !self.is_checked => {}
                true => ensure_intact(chunk, self.checksums.get(&self.slots, chunk), found)?,
                false => self.checksums.set(&self.slots, chunk, found.layout),
            }
        }
        Ok(())
    }

    /// Whether the requester may still write to its slots: it has neither closed the session nor written all chunks.
    pub fn may_be_written(&self) -> bool {
        self.writes && !self.is_closed && self.ended < self.chunks()
    }

    /// Whether no thread uses its slots.
    pub fn is_quiet(&self) -> bool {
        self.copies.is_empty()
    }

    /// Whether the requester has left it waiting for so long.
    pub fn is_stalled(&self, stall_timeout: Duration) -> bool {
        self.is_quiet() && self.last_progress.elapsed() >= stall_timeout
    }

    /// Whether the GPU or a thread of the owner has left it waiting for so long. Its slots are in use until they have ended.
    pub fn is_held(&self, stall_timeout: Duration) -> bool {
        !self.is_quiet() && self.last_progress.elapsed() >= stall_timeout
    }

    fn chunks(&self) -> u64 {
        self.plan.bytes().div_ceil(self.chunk_size)
    }

    /// Begins the copy between the layout and the slot of the next chunk. Returns whether it has ended.
    fn begin(&mut self, service: &Arc<Service>) -> Result<bool> {
        // The copy keeps the memory of both.
        let layout = service.layout()?;
        let size = self.chunk_size;
        let first = self.begun * size;
        let range = first..self.plan.bytes().min(first + size);
        let is_inline = service.copier.is_none() && is_copied_here(range.end - range.start);
        service.contexts.ensure_alive()?;
        // Elastic memory may be decommitted between two chunks.
        let spans = self.plan.rows_in(range.clone()).flat_map(|rows| spans_of(&layout, rows));
        let extents =
            layout.touched_extents(spans).hold().map_err(|error| error.with_status(Status::Stale))?;
        let slot = service.served.slot(self.slots.of_chunk(self.begun));
        let linear = LinearCopy {
            plan: self.plan.clone(),
            bytes: range,
            slot: Some(slot),
            into_layout: self.writes,
            check: self.is_checked.then(|| Check {
                seed: seed(self.key, self.begun),
                reads_layout: self.verifies,
                is_on_device: service.served.device.is_some(),
            }),
            _held: [Some(service.clone()), Some(layout)],
            _extents: extents,
        };
        self.copies.push_back(SlotCopy::start_linear(linear, service.copier.as_ref(), is_inline)?);
        self.begun += 1;
        Ok(is_inline)
    }
}

/// Region, address and size of the spans that some rows touch, and what is between them within an extent.
fn spans_of(layout: &Layout, rows: Matrix) -> impl Iterator<Item = (u32, u64, u64)> + use<> {
    let Move { source, source_region, size, .. } = rows.first;
    let whole = (rows.rows - 1) * rows.strides[0] + size;
    let is_together = layout.bytes_in_piece(source_region, source) >= whole;
    let (count, size) = if is_together { (1, whole) } else { (rows.rows, size) };
    (0..count).map(move |row| (source_region, source + row * rows.strides[0], size))
}

/// Whether the agent's thread copies a chunk itself. Passing few bytes to another thread takes longer than copying them. If
/// the requester has the only other processor, this thread and another one would take turns on one.
fn is_copied_here(bytes: u64) -> bool {
    bytes <= if Pool::parallelism() <= 2 { MAX_COPIED_ALONE } else { MAX_COPIED }
}

/// Why a session ends of which nothing was heard while others wait.
pub(super) fn silent(silence: Duration) -> SessionState {
    let reason = format!(
        "it has ended the session, because this process has sent no message for {} and others wait for slots; check \
         whether its threads run",
        Milliseconds(silence)
    );
    SessionState::Ended { status: Status::TimedOut as i32, reason }
}

/// Why a session ends without the requester.
pub(super) fn stalled(stall_timeout: Duration) -> SessionState {
    let reason = format!(
        "it has ended the session, because this process has neither read nor written a chunk for {}; check whether its \
         threads run, or have the owner increase stall_timeout_ns",
        Milliseconds(stall_timeout)
    );
    SessionState::Ended { status: Status::TimedOut as i32, reason }
}

/// Why a session ends whose copies do not.
pub(super) fn held(stall_timeout: Duration, is_on_gpu: bool) -> SessionState {
    let of = if is_on_gpu { "GPU" } else { "processor" };
    let reason = format!(
        "its {of} has finished no copy for {}; check what else runs there, or have the owner increase stall_timeout_ns",
        Milliseconds(stall_timeout)
    );
    SessionState::Ended { status: Status::TimedOut as i32, reason }
}

/// Why a session has no slots any more, if its requester asks after the reason was replaced.
pub(super) fn over() -> SessionState {
    let reason = "it has ended the session before, because this process was silent or has made no progress for too long".to_string();
    SessionState::Ended { status: Status::TimedOut as i32, reason }
}

/// The arena of a layout's owner. The layout holds it, and every copy.
pub struct Service {
    pub served: Served,
    pub layout: Weak<Layout>,
    /// How long a peer may leave a session waiting.
    pub stall_timeout: Duration,
    pub arena: Arc<ServiceMemory>,
    /// What copies between slots and the layout; `None` for the threads that copy host memory.
    pub copier: Option<Arc<RowCopier>>,
    /// The contexts of the layout's memory.
    pub contexts: Contexts,
}

/// The control block, and the slots.
pub struct ServiceMemory {
    /// Also the slots, unless they are in GPU memory.
    pub host: RegistrationHold,
    pub _device: Option<RegistrationHold>,
}

impl Service {
    /// The layout. If it was destroyed during a step, requesters find that in the head of the control block, as they do after the step.
    pub fn layout(&self) -> Result<Arc<Layout>> {
        self.layout.upgrade().ok_or_else(|| {
            self.end();
            Error::new(Status::Stale, "the owner has destroyed the layout")
        })
    }

    /// Replaces an entry of the control block; the first is the head.
    pub fn write(&self, index: usize, bytes: &[u8; session_control::ENTRY]) {
        let region = self.arena.host.region();
        words::write(region.address() + (index * session_control::ENTRY) as u64, region, bytes);
    }

    /// Reports to requesters that the service has ended.
    pub fn end(&self) {
        self.write(0, &[0; session_control::ENTRY]);
    }
}

impl Drop for Service {
    /// No copy is in progress. A peer that still reads the control block finds that it is no more.
    fn drop(&mut self) {
        self.end();
    }
}
