// SPDX-License-Identifier: Apache-2.0
//! A session of a service: the chunks of one run of a requester, in the order of their bytes. The requester reads what the
//! owner has gathered in a slot, or writes what the owner then scatters from there; then the slot is for a later chunk.
#![forbid(unsafe_code)]

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::control::SessionState;
use super::message::{Open, SessionKey};
use super::service::Service;
use super::{each_batch, ensure_bytes};
use crate::error::{Result, Status, ensure, fail};
use crate::process::ProcessIdentity;
use crate::transfer::engine::nixl::staged::SlotCopy;
use crate::transfer::plan::LinearPlan;

/// The minimum size of a chunk.
pub(super) const LEAST_CHUNK: u64 = 4096;

/// A session that has slots.
pub(super) struct Session {
    pub key: SessionKey,
    /// The name of the requester, as it says.
    pub sender: String,
    pub process: ProcessIdentity,
    pub writes: bool,
    pub slots: Vec<u32>,
    /// The entry of the control block.
    pub entry: usize,
    plan: Arc<LinearPlan>,
    chunk_size: u64,
    /// Chunks whose copy has begun, and ended.
    begun: u64,
    ended: u64,
    copies: VecDeque<Arc<SlotCopy>>,
    /// Chunks that the requester has read or written.
    reported: u64,
    last_progress: Instant,
    /// The requester has closed it, or it has failed: nothing begins any more.
    pub is_over: bool,
}

impl Session {
    /// Begins a session. Fails for a request that the layout does not allow.
    pub fn new(
        (key, sender): (SessionKey, String),
        open: Open,
        service: &Service,
        slots: Vec<u32>,
        entry: usize,
    ) -> Result<Self> {
        let Some(layout) = service.layout.upgrade() else { fail!(Stale, "the layout was destroyed") };
        let plan = open.terms.placed_in(layout.parts())?;
        ensure_bytes(plan.bytes(), open.bytes)?;
        let most = service.served.slot_size;
        ensure!(
            (LEAST_CHUNK..=most).contains(&open.chunk_size),
            InvalidArgument,
            "the request has chunks of {} bytes; {LEAST_CHUNK} to {most} are possible",
            open.chunk_size
        );
        Ok(Self {
            key,
            sender,
            process: open.process,
            writes: open.writes,
            slots,
            entry,
            plan: Arc::new(plan),
            chunk_size: open.chunk_size,
            begun: 0,
            ended: 0,
            copies: VecDeque::new(),
            reported: 0,
            last_progress: Instant::now(),
            is_over: false,
        })
    }

    /// The entry for the requester.
    pub fn state(&self) -> SessionState {
        SessionState::Open { slots: self.slots.clone(), chunks: self.ended }
    }

    /// Notes how many chunks the requester has read or written. Fails for a number that is not possible.
    pub fn report(&mut self, chunks: u64) -> Result<()> {
        let most = match self.writes {
            true => (self.ended + self.slots.len() as u64).min(self.chunks()),
            false => self.ended,
        };
        if chunks > most {
            fail!(InvalidArgument, "chunk {chunks} was reported, and {most} are possible");
        }
        if chunks > self.reported {
            self.reported = chunks;
            self.last_progress = Instant::now();
        }
        Ok(())
    }

    /// Ends copies and begins others. Returns whether there was anything to do.
    pub fn advance(&mut self, service: &Arc<Service>) -> Result<bool> {
        let before = (self.begun, self.ended);
        while let Some(copy) = self.copies.front() {
            // A thread that has panicked uses the slot no more.
            let ended = copy.is_done();
            if let Ok(None) = ended {
                break;
            }
            self.copies.pop_front();
            self.ended += 1;
            self.last_progress = Instant::now();
            ended?;
        }
        let window = if self.writes { 0 } else { self.slots.len() as u64 };
        let most = (self.reported + window).min(self.chunks());
        while self.begun < most && !self.is_over {
            self.begin(service)?;
        }
        Ok(before != (self.begun, self.ended))
    }

    /// Whether no thread uses its slots.
    pub fn is_quiet(&self) -> bool {
        self.copies.is_empty()
    }

    /// Whether the requester has left it waiting for so long.
    pub fn is_stalled(&self, patience: Duration) -> bool {
        self.is_quiet() && self.last_progress.elapsed() >= patience
    }

    fn chunks(&self) -> u64 {
        self.plan.bytes().div_ceil(self.chunk_size)
    }

    /// Begins the copy between the layout and the slot of the next chunk.
    fn begin(&mut self, service: &Arc<Service>) -> Result<()> {
        // The copy keeps the memory of both.
        let Some(layout) = service.layout.upgrade() else {
            fail!(Stale, "the owner has destroyed the layout");
        };
        let size = self.chunk_size;
        let first = self.begun * size;
        let range = first..self.plan.bytes().min(first + size);
        let slot = self.slots[(self.begun % self.slots.len() as u64) as usize];
        let (plan, address, writes) = (self.plan.clone(), service.served.slot(slot), self.writes);
        let held = (service.clone(), layout);
        let is_inline = is_small(&range);
        let copy = SlotCopy::start_each(is_inline, move |copy| {
            each_batch(&plan, range, address, writes, copy);
            drop(held);
        });
        self.copies.push_back(copy);
        self.begun += 1;
        Ok(())
    }
}

/// Passing few bytes to another thread takes longer than copying them.
fn is_small(range: &Range<u64>) -> bool {
    range.end - range.start <= 64 << 10
}

/// Why a session ends without the requester.
pub(super) fn stalled(patience: Duration) -> SessionState {
    let reason = format!(
        "it has ended the session, because this process has neither read nor written a chunk for {} ms; check whether its \
         threads run, or have the owner increase stall_timeout_ns",
        patience.as_millis()
    );
    SessionState::Ended { status: Status::TimedOut as i32, reason }
}
