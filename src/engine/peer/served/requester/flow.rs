// SPDX-License-Identifier: Apache-2.0
//! One run of a served transfer, on the requester's side: its sessions, one after the other. It opens a session, moves chunk after chunk
//! between the owner's slots and local memory, several at a time, and closes it.
//!
//! A chunk is moved when the owner has done its part, which this side reads in the control block. After the last chunk of a
//! read, the control block is read a second time: if the owner has ended the session meanwhile, slots may have had other
//! bytes.

use std::sync::Arc;
use std::time::Instant;

use super::open_session::OpenSession;
use super::plan::ServedPlan;
use super::session_plan::SessionPlan;
use crate::base::{Error, Result, ensure, error, log};
use crate::engine::peer::run_flow::{Awaited, RunFlow};
use crate::engine::peer::served::protocol::message::{Body, SessionKey};
use crate::engine::peer::served::protocol::session_control::{
    ChunkChecksums, Entry, GrantedSlots, SessionState, ensure_intact,
};
use crate::engine::peer::staged::{InSlots, LinearCopy, Slot, SlotCopy};
use crate::nixl::{AgentState, RequestId};
use crate::region::random;

/// The agent's thread copies a last chunk up to this size itself.
const INLINE: u64 = 128 << 10;

/// The sessions of one run, and the chunks of the current one.
pub struct ServedFlow {
    plan: Arc<ServedPlan>,
    started: Instant,
    /// Of the session in the plan.
    index: usize,
    /// Bytes of the sessions before it.
    before: u64,
    session: Option<OpenSession>,
    /// The owner's slots; empty until it has granted some.
    slots: GrantedSlots,
    /// Chunks that the owner has gathered or scattered, from the first on.
    theirs: u64,
    /// Of the chunks that the owner has gathered, or of those to be written.
    checksums: ChunkChecksums,
    /// Chunks that have begun here.
    begun: u64,
    /// Chunks that are copied here or in flight, in slots unless NIXL accesses the layout.
    active: InSlots<Active>,
    /// The number of first chunks whose copy between slot and local memory has ended.
    mine: u64,
    /// Later chunks of which the same is true: bit `n` is chunk `mine + n`.
    moved: u64,
    /// The number of them that was reported to the owner.
    reported: u64,
    /// Chunks that are complete on this side.
    done: u64,
    /// The session was open after the last chunk was read.
    is_confirmed: bool,
    is_stopped: bool,
    /// Bytes of a failed write may still arrive in the owner's slots.
    has_failed_write: bool,
}

#[derive(Clone, Copy)]
struct Active {
    chunk: u64,
    /// Of a chunk that is read, at the owner.
    checksum: u32,
}

impl ServedFlow {
    /// The sessions of a run that begins.
    pub fn new(plan: Arc<ServedPlan>) -> Self {
        Self {
            plan,
            started: Instant::now(),
            index: 0,
            before: 0,
            session: None,
            slots: GrantedSlots::default(),
            theirs: 0,
            checksums: ChunkChecksums::default(),
            begun: 0,
            active: InSlots::default(),
            mine: 0,
            moved: 0,
            reported: 0,
            done: 0,
            is_confirmed: false,
            is_stopped: false,
            has_failed_write: false,
        }
    }

    /// Seconds since the run began.
    pub fn seconds(&self) -> f64 {
        self.started.elapsed().as_secs_f64()
    }

    pub fn sessions(&self) -> u64 {
        self.plan.division.sessions.len() as u64
    }

    fn begin_next_session(&mut self, state: &mut AgentState) {
        let (index, before) = (self.index + 1, self.moved());
        self.close_session(state);
        *self = Self { started: self.started, index, before, ..Self::new(self.plan.clone()) };
    }

    fn moves(&self) -> &SessionPlan {
        &self.plan.division.sessions[self.index]
    }

    fn chunks(&self) -> u64 {
        self.moves().chunks()
    }

    /// Whether all chunks of the session are complete, and nothing is in flight.
    fn is_session_over(&self) -> bool {
        let reads_control = self.session.as_ref().is_some_and(|session| session.is_in_flight);
        self.active.is_empty() && !reads_control && !self.session_has_more()
    }

    /// Whether chunks of the session have not been moved.
    fn session_has_more(&self) -> bool {
        !self.is_stopped && !self.is_complete()
    }

    fn is_complete(&self) -> bool {
        match self.plan.division.reads {
            true => self.done == self.chunks() && self.is_confirmed,
            false => self.theirs == self.chunks(),
        }
    }

    fn open(&mut self, state: &mut AgentState) -> Result<bool> {
        self.session = OpenSession::new(state, &self.plan.owner, SessionKey(random()?))?;
        self.request_session(state)?;
        Ok(self.session.is_some())
    }

    fn request_session(&mut self, state: &mut AgentState) -> Result<()> {
        self.say(state, Body::Open(self.moves().open.clone()))
    }

    fn report(&mut self, state: &mut AgentState) -> Result<()> {
        self.reported = self.mine;
        let checksums = self.checksums.0;
        self.say(state, Body::Progress { chunks: self.mine, checksums })
    }

    fn say(&mut self, state: &mut AgentState, body: Body) -> Result<()> {
        let Some(session) = &mut self.session else { return Ok(()) };
        session.say(state, &self.plan.owner, body)
    }

    fn next_read(&mut self, state: &mut AgentState) -> Result<Option<RequestId>> {
        if self.begun >= self.theirs || self.active.is_full() {
            return Ok(None);
        }
        let slot = self.plan.take_slot();
        if slot.is_none() && self.plan.arena.is_some() {
            return Ok(None);
        }
        let chunk = self.begun;
        let local = slot.as_ref().map(Slot::address);
        let request = self.plan.request(state, self.moves(), chunk, self.slots.of_chunk(chunk), local)?;
        self.begun += 1;
        let checksum = self.checksums.get(&self.slots, chunk);
        self.active.add_in_flight(request, Active { chunk, checksum }, slot);
        Ok(Some(request))
    }

    fn next_write(&mut self, state: &mut AgentState) -> Result<Option<RequestId>> {
        if !self.has_lease() {
            return Ok(None);
        }
        let Some(ready) = self.active.filled() else { return Ok(None) };
        let (moves, chunk) = (&self.plan.division.sessions[self.index], ready.content.chunk);
        let request = self.plan.request(state, moves, chunk, self.slots.of_chunk(chunk), ready.address())?;
        // Creating it took time, in which the process may have been stopped.
        if !self.session.as_ref().is_some_and(OpenSession::has_lease) {
            return state.release_request(request).map(|()| None);
        }
        ready.post(request);
        Ok(Some(request))
    }

    fn has_lease(&self) -> bool {
        self.session.as_ref().is_some_and(OpenSession::has_lease)
    }

    /// The read of the control block, if the run waits for the owner.
    fn next_control_read(&mut self) -> Option<RequestId> {
        let chunks = self.chunks();
        let reads_are_done = self.plan.division.reads && self.mine == chunks;
        let waits = match self.plan.division.reads {
            _ if self.slots.is_empty() => true,
            false if !self.has_lease() => true,
            true => (self.begun == self.theirs && self.begun < chunks) || reads_are_done,
            false => self.begun == chunks.min(self.theirs + self.slots.len() as u64),
        };
        if !waits || self.is_complete() || self.is_confirmed {
            return None;
        }
        self.session.as_mut()?.begin_read(reads_are_done)
    }

    /// Reads the entry of the session. Returns whether it has changed.
    fn read_control(&mut self, state: &mut AgentState) -> Result<bool> {
        let all = self.chunks();
        let Some(session) = &mut self.session else { return Ok(false) };
        match session.entry(&self.plan.owner)? {
            Entry::Torn => Ok(false),
            Entry::Missing if self.slots.is_empty() => Ok(false),
            Entry::State(SessionState::Unknown) if self.slots.is_empty() => {
                if session.may_request_again() {
                    self.request_session(state)?;
                }
                Ok(false)
            }
            Entry::Missing | Entry::State(SessionState::Unknown | SessionState::Leased(_)) => {
                Err(self.plan.owner.explain(ended()))
            }
            Entry::State(SessionState::Ended { status, reason }) => {
                Err(self.plan.owner.explain(SessionState::error(status, &reason)))
            }
            Entry::State(SessionState::Open { slots, chunks, checksums }) => {
                ensure!(
                    (self.theirs..=all).contains(&chunks)
                        && (self.slots.is_empty() || self.slots == slots)
                        && chunks
                            <= self.reported + if self.plan.division.reads { slots.len() as u64 } else { 0 },
                    Corrupt,
                    "agent '{}' serves chunk {chunks} after chunk {}, which contradicts its earlier entries",
                    self.plan.division.peer.name(),
                    self.theirs
                );
                let is_new = self.slots.is_empty() || chunks > self.theirs || session.is_last;
                self.is_confirmed |= session.is_last;
                (self.slots, self.theirs) = (slots, chunks);
                if self.plan.division.reads {
                    self.checksums = ChunkChecksums(checksums);
                }
                Ok(is_new)
            }
        }
    }

    /// Begins to gather the next chunk of a write, or to compute its checksum, if the owner has a slot for it and there is one here.
    fn begin_gathering(&mut self) -> Result<bool> {
        let granted = self.theirs + self.slots.len() as u64;
        if self.is_stopped || self.active.is_full() || self.begun >= granted.min(self.chunks()) {
            return Ok(false);
        }
        let slot = self.plan.take_slot();
        if slot.is_none() && self.plan.arena.is_some() {
            return Ok(false);
        }
        let chunk = self.begun;
        self.begun += 1;
        match slot.is_some() || self.plan.check(0).is_some() {
            true => self.copy(chunk, slot, 0)?,
            false => self.active.add_filled(Active { chunk, checksum: 0 }, slot),
        }
        Ok(true)
    }

    /// Begins the copy between a slot and the local layout, or to compute the checksum of what NIXL has moved to the layout or will move
    /// from there.
    fn copy(&mut self, chunk: u64, slot: Option<Slot>, checksum: u32) -> Result<()> {
        let range = self.moves().range(chunk);
        let size = range.end - range.start;
        let is_inline = size <= INLINE / 2 || (size <= INLINE && self.begun == self.chunks());
        let linear = LinearCopy {
            plan: self.moves().linear.clone(),
            bytes: range,
            slot: slot.as_ref().map(Slot::address),
            into_layout: self.plan.division.reads,
            check: self.session.as_ref().and_then(|session| self.plan.check(session.seed(chunk))),
            _held: [None, None],
            _extents: None,
        };
        let start = |_: &mut Active, copier: Option<&_>| SlotCopy::start_linear(linear, copier, is_inline);
        self.active.copy(Active { chunk, checksum }, slot, start)
    }

    fn end_copies(&mut self) -> Result<bool> {
        let (reads, is_checked) = (self.plan.division.reads, self.plan.check(0).is_some());
        let fills = !reads && !self.is_stopped;
        let mut any = false;
        while self.active.end_copy(fills, |Active { chunk, checksum }, ended| {
            self.done += u64::from(!fills);
            match reads {
                _ if self.is_stopped || !is_checked => Ok(()),
                true => ensure_intact(*chunk, *checksum, ended.checksums),
                false => {
                    self.checksums.set(&self.slots, *chunk, ended.checksums.layout);
                    Ok(())
                }
            }
        })? {
            any = true;
        }
        Ok(any)
    }

    /// Closes the session. Nothing is in flight.
    fn close_session(&mut self, state: &mut AgentState) {
        // If it is not sent, the owner ends the session after its timeout, and reuses the slots only after the lease.
        if !self.has_failed_write
            && let Err(error) = self.say(state, Body::Close)
        {
            log!(Debug, "a session with agent '{}' was not closed: {error}", self.plan.division.peer.name());
        }
        if let Some(session) = self.session.take() {
            session.release(state);
        }
    }
}

impl RunFlow for ServedFlow {
    fn is_over(&self) -> bool {
        self.is_session_over() && !self.has_more()
    }

    fn has_more(&self) -> bool {
        self.session_has_more() || (self.index as u64 + 1 < self.sessions() && !self.is_stopped)
    }

    fn stop(&mut self) {
        self.is_stopped = true;
        self.active.stop();
    }

    fn next(&mut self, state: &mut AgentState) -> Result<Option<RequestId>> {
        if self.is_stopped {
            return Ok(None);
        }
        let next = if self.plan.division.reads { self.next_read(state)? } else { self.next_write(state)? };
        match next {
            Some(request) => Ok(Some(request)),
            None => Ok(self.next_control_read()),
        }
    }

    fn is_poll(&self, request: RequestId) -> bool {
        self.session.as_ref().is_some_and(|session| session.is_read(request))
    }

    fn advance(&mut self, state: &mut AgentState) -> Result<bool> {
        if self.is_session_over() && self.has_more() {
            self.begin_next_session(state);
            return Ok(true);
        }
        if self.session.is_none() && !self.is_stopped {
            return self.open(state);
        }
        // A repeated report changes nothing, and renews a request that waits for slots.
        if !self.is_stopped && self.session.as_ref().is_some_and(OpenSession::is_silent) {
            self.report(state)?;
        }
        let mut any = self.end_copies()?;
        if !self.plan.division.reads && self.begin_gathering()? {
            any = true;
        }
        // After the last chunk of a read there is nothing to report.
        let has_news = self.mine > self.reported && (!self.plan.division.reads || self.mine < self.chunks());
        if has_news && !self.is_stopped {
            self.report(state)?;
            any = true;
        }
        Ok(any)
    }

    fn ended(&mut self, state: &mut AgentState, request: RequestId, has_failed: bool) -> Result<bool> {
        if self.session.as_mut().is_some_and(|session| session.has_ended_read(request)) {
            return if has_failed || self.is_stopped { Ok(has_failed) } else { self.read_control(state) };
        }
        let Some(ended) = self.active.end_request(state, request)? else { return Ok(false) };
        let (Active { chunk, checksum }, slot) = (ended.content, ended.slot);
        self.has_failed_write |= has_failed && !self.plan.division.reads;
        if has_failed || self.is_stopped {
            return Ok(true);
        }
        // A chunk has a slot of the owner, so it is fewer after the first than a session has slots.
        self.moved |= 1 << (chunk - self.mine);
        let first = self.moved.trailing_ones();
        (self.mine, self.moved) = (self.mine + u64::from(first), self.moved >> first);
        match self.plan.division.reads && (slot.is_some() || self.plan.check(0).is_some()) {
            true => self.copy(chunk, slot, checksum)?,
            false => self.done += 1,
        }
        Ok(true)
    }

    /// Memory of this process for a copy of the control block, the owner's slots, or memory of this process for a chunk.
    fn awaited(&self) -> Option<Awaited<'_>> {
        if self.is_stopped {
            return None;
        }
        if self.session.is_none() {
            return Some(Awaited::Memory(&self.plan.owner.mailboxes));
        }
        if self.slots.is_empty() {
            return Some(Awaited::Slots);
        }
        let window = if self.plan.division.reads { 0 } else { self.slots.len() as u64 };
        let is_next = self.begun < (self.theirs + window).min(self.chunks());
        let arena = self.plan.arena.as_ref().filter(|_| self.active.is_empty() && is_next);
        arena.map(Awaited::Memory)
    }

    fn note_moved(&self, at: Instant) {
        self.plan.arenas().for_each(|arena| arena.note_moved(at));
    }

    fn abandon(&mut self) {
        self.active.abandon();
        if let Some(session) = self.session.take() {
            session.abandon();
        }
    }

    /// The last chunk of a session may be smaller than the others.
    fn moved(&self) -> u64 {
        let of_session = match if self.plan.division.reads { self.done } else { self.theirs } {
            chunks if chunks == self.chunks() => self.moves().bytes(),
            chunks => self.moves().range(chunks.saturating_sub(1)).start,
        };
        self.before + of_session
    }

    fn located(&self, error: Error) -> Error {
        match self.sessions() {
            1 => error,
            count => error.context(format!("request {} of {count} to the owner", self.index + 1)),
        }
    }

    fn close(&mut self, state: &mut AgentState) -> bool {
        self.close_session(state);
        self.active.has_unreleased
    }
}

fn ended() -> Error {
    error!(
        Stale,
        "it has ended the session before all bytes were read, so the blocks of the destination may have other bytes"
    )
}
