// SPDX-License-Identifier: Apache-2.0
//! The chunks of one run: several are in flight, each in a slot of the arena. A request is created when a slot is free for
//! it, while the chunks before it are in flight.
#![forbid(unsafe_code)]

use std::sync::Arc;

use super::StagedPlan;
use super::arena::Slot;
use super::chunk::Chunk;
use super::slot_copy::SlotCopy;
use crate::base::error::Result;
use crate::base::leak;
use crate::base::log::log;
use crate::engine::cost::requests::Sample;
use crate::nixl::{AgentState, RequestId};

/// Chunks of one run that are in slots at a time: half of the slots, so that several runs can share an arena.
const MAX_IN_SLOTS: usize = 4;
/// The agent's thread copies a last chunk up to this size itself.
const INLINE: u64 = 128 << 10;

/// The chunks of one run.
pub struct StagedFlow {
    staged: Arc<StagedPlan>,
    /// Bytes of the plan that are in chunks which have begun.
    begun: u64,
    /// Bytes of the plan that were written to the peer.
    written: u64,
    in_slots: Vec<InSlot>,
    /// Memory for further chunks.
    spare: Vec<ChunkMemory>,
    is_stopped: bool,
    /// What was transferred and copied.
    pub sample: Sample,
}

struct InSlot {
    state: State,
    memory: ChunkMemory,
    slot: Slot,
}

/// The lists of a chunk, and its copy. Used for one chunk after the other.
#[derive(Default)]
struct ChunkMemory {
    chunk: Chunk,
    copy: Arc<SlotCopy>,
}

enum State {
    /// Between the slot and local memory.
    Copying,
    /// Gathered in the slot, to be written to the peer.
    Gathered,
    /// Between the peer and the slot.
    InFlight(RequestId),
}

impl StagedFlow {
    pub fn new(staged: Arc<StagedPlan>) -> Self {
        let (in_slots, spare) = (Vec::new(), Vec::new());
        Self { staged, begun: 0, written: 0, in_slots, spare, is_stopped: false, sample: Sample::default() }
    }

    /// The chunks of another run, with the memory of those of this one, which is over.
    pub fn restart(&mut self) {
        (self.begun, self.written, self.is_stopped, self.sample) = (0, 0, false, Sample::default());
    }

    /// Whether no chunk is left, and none is in a slot.
    pub fn is_over(&self) -> bool {
        self.in_slots.is_empty() && !self.has_more()
    }

    /// Bytes of the plan that have moved.
    pub fn moved(&self) -> u64 {
        if self.staged.reads() { self.sample.copied } else { self.written }
    }

    /// Whether chunks have not begun.
    pub fn has_more(&self) -> bool {
        !self.is_stopped && self.begun < self.staged.bytes()
    }

    /// Begins no further chunk. Those in flight end.
    pub fn stop(&mut self) {
        self.is_stopped = true;
        self.in_slots.retain(|each| !matches!(each.state, State::Gathered));
    }

    /// Whether it waits for a slot.
    pub fn lacks_memory(&self) -> bool {
        self.in_slots.is_empty() && self.has_more()
    }

    /// After a panic: never frees what NIXL or a copy may still use.
    pub fn abandon(&mut self) {
        for InSlot { memory, slot, .. } in self.in_slots.drain(..) {
            leak::intentionally(memory);
            slot.retire();
        }
    }

    /// Handles copies that have ended, and begins to gather. Returns whether there was anything to do.
    pub fn advance(&mut self) -> Result<bool> {
        let copied = self.end_copies()?;
        if self.staged.reads() {
            return Ok(copied);
        }
        let Some((memory, slot)) = self.take_chunk()? else { return Ok(copied) };
        self.copy(memory, slot)?;
        Ok(true)
    }

    /// The next request to post, if a slot is free for it, or if a slot was gathered.
    pub fn next(&mut self, state: &mut AgentState) -> Result<Option<RequestId>> {
        if !self.staged.reads() {
            let Some(gathered) = self.in_slots.iter_mut().find(|each| matches!(each.state, State::Gathered))
            else {
                return Ok(None);
            };
            let request = self.staged.request(state, &gathered.memory.chunk, gathered.slot.address())?;
            gathered.state = State::InFlight(request);
            return Ok(Some(request));
        }
        let Some((memory, slot)) = self.take_chunk()? else { return Ok(None) };
        self.staged.poison(&memory.chunk, &slot)?;
        let request = self.staged.request(state, &memory.chunk, slot.address())?;
        self.in_slots.push(InSlot { state: State::InFlight(request), memory, slot });
        Ok(Some(request))
    }

    /// Handles the end of a request.
    pub fn ended(&mut self, state: &mut AgentState, request: RequestId, has_failed: bool) -> Result<()> {
        let is_it = |each: &InSlot| matches!(each.state, State::InFlight(id) if id == request);
        let Some(index) = self.in_slots.iter().position(is_it) else { return Ok(()) };
        let InSlot { memory, slot, .. } = self.in_slots.swap_remove(index);
        if let Err(error) = state.release_request(request) {
            log!(Error, "{error}; kvmem intentionally leaks a part of the staging memory of the agent");
            slot.retire();
            return Err(error);
        }
        if has_failed {
            return Ok(());
        }
        self.sample.descriptors += memory.chunk.ranges.len() as u64;
        self.written += memory.chunk.moved;
        self.sample.transferred += memory.chunk.transferred();
        match self.staged.reads() && !self.is_stopped {
            true => self.copy(memory, slot)?,
            false => self.spare.push(memory),
        }
        Ok(())
    }

    /// Cuts the next chunk, if a slot is free.
    fn take_chunk(&mut self) -> Result<Option<(ChunkMemory, Slot)>> {
        if !self.has_more() || self.in_slots.len() >= MAX_IN_SLOTS {
            return Ok(None);
        }
        let Some(slot) = self.staged.take_slot() else { return Ok(None) };
        let mut memory = self.spare.pop().unwrap_or_default();
        self.staged.fill(&mut memory.chunk, self.begun, slot.address())?;
        self.begun += memory.chunk.moved;
        Ok(Some((memory, slot)))
    }

    /// Begins the copy between a slot and local memory.
    fn copy(&mut self, mut memory: ChunkMemory, slot: Slot) -> Result<()> {
        let is_inline = memory.chunk.moved <= INLINE && !self.has_more();
        let (rows, copier) = (&mut memory.chunk.rows, slot.arena().copier());
        memory.copy.start(rows, copier, self.staged.is_streamed(), is_inline)?;
        self.in_slots.push(InSlot { state: State::Copying, memory, slot });
        Ok(())
    }

    fn end_copies(&mut self) -> Result<bool> {
        let (reads, is_stopped) = (self.staged.reads(), self.is_stopped);
        let mut any = false;
        let mut index = 0;
        while let Some(each) = self.in_slots.get_mut(index) {
            let State::Copying = each.state else {
                index += 1;
                continue;
            };
            // After a failure nothing uses the slot any more.
            let ended = each.memory.copy.is_done();
            if let Ok(None) = ended {
                index += 1;
                continue;
            }
            any = true;
            self.sample.copied += each.memory.chunk.moved;
            self.sample.copying +=
                ended.as_ref().ok().and_then(|ended| *ended).map_or(0.0, |ended| ended.seconds);
            match reads || is_stopped || ended.is_err() {
                true => self.spare.push(self.in_slots.swap_remove(index).memory),
                false => {
                    each.state = State::Gathered;
                    index += 1;
                }
            }
            ended?;
        }
        Ok(any)
    }
}
