// SPDX-License-Identifier: Apache-2.0
//! The chunks of one run: several are in flight, each in a slot of the arena. A request is created when a slot is free for
//! it, while the chunks before it are in flight.

use std::sync::Arc;
use std::time::Instant;

use super::StagedPlan;
use super::arena::Slot;
use super::chunk::Chunk;
use super::in_slots::InSlots;
use super::slot_copy::SlotCopy;
use crate::base::Result;
use crate::engine::cost::requests::Sample;
use crate::engine::peer::run_flow::{Awaited, RunFlow};
use crate::nixl::{AgentState, RequestId};
use crate::run::counters;

/// The agent's thread copies a last chunk up to this size itself.
const INLINE: u64 = 128 << 10;

/// The chunks of one run.
pub struct StagedFlow {
    staged: Arc<StagedPlan>,
    /// Bytes of the plan that are in chunks which have begun.
    begun: u64,
    /// Bytes of the plan that were written to the peer.
    written: u64,
    in_slots: InSlots<Chunk>,
    is_stopped: bool,
    /// All slots were in use when it needed one last.
    is_waiting: bool,
    /// What was transferred and copied.
    pub sample: Sample,
}

impl StagedFlow {
    pub fn new(staged: Arc<StagedPlan>) -> Self {
        let (in_slots, sample) = (InSlots::default(), Sample::default());
        Self { staged, begun: 0, written: 0, in_slots, is_stopped: false, is_waiting: false, sample }
    }

    /// Cuts the next chunk, if a slot is free.
    fn take_chunk(&mut self) -> Result<Option<(Chunk, Slot)>> {
        if !self.has_more() || self.in_slots.is_full() {
            return Ok(None);
        }
        let slot = self.staged.take_slot();
        if !std::mem::replace(&mut self.is_waiting, slot.is_none()) && slot.is_none() {
            counters::STAGING_WAITS.add(1);
        }
        let Some(slot) = slot else { return Ok(None) };
        let chunk = self.staged.chunk(self.begun, slot.address())?;
        self.begun += chunk.moved;
        Ok(Some((chunk, slot)))
    }

    /// Begins the copy between a slot and local memory.
    fn copy(&mut self, chunk: Chunk, slot: Slot) -> Result<()> {
        let is_inline = chunk.moved <= INLINE && !self.has_more();
        let is_streamed = self.staged.is_streamed();
        self.in_slots.copy(chunk, Some(slot), |chunk, copier| {
            SlotCopy::start(std::mem::take(&mut chunk.rows), copier, is_streamed, is_inline)
        })
    }

    fn end_copies(&mut self) -> Result<bool> {
        let fills = !self.staged.reads() && !self.is_stopped;
        let mut any = false;
        while self.in_slots.end_copy(fills, |chunk, ended| {
            self.sample.copied += chunk.moved;
            self.sample.copying += ended.seconds;
            Ok(())
        })? {
            any = true;
        }
        Ok(any)
    }
}

impl RunFlow for StagedFlow {
    fn is_over(&self) -> bool {
        self.in_slots.is_empty() && !self.has_more()
    }

    fn has_more(&self) -> bool {
        !self.is_stopped && self.begun < self.staged.bytes()
    }

    fn stop(&mut self) {
        self.is_stopped = true;
        self.in_slots.stop();
    }

    fn next(&mut self, state: &mut AgentState) -> Result<Option<RequestId>> {
        if !self.staged.reads() {
            let Some(filled) = self.in_slots.filled() else { return Ok(None) };
            let request = self.staged.request(state, &filled.content, filled.address().unwrap_or(0))?;
            filled.post(request);
            return Ok(Some(request));
        }
        let Some((chunk, slot)) = self.take_chunk()? else { return Ok(None) };
        self.staged.poison(&chunk, &slot)?;
        let request = self.staged.request(state, &chunk, slot.address())?;
        self.in_slots.add_in_flight(request, chunk, Some(slot));
        Ok(Some(request))
    }

    fn advance(&mut self, _: &mut AgentState) -> Result<bool> {
        let copied = self.end_copies()?;
        if self.staged.reads() {
            return Ok(copied);
        }
        let Some((chunk, slot)) = self.take_chunk()? else { return Ok(copied) };
        self.copy(chunk, slot)?;
        Ok(true)
    }

    fn ended(&mut self, state: &mut AgentState, request: RequestId, has_failed: bool) -> Result<bool> {
        let Some(ended) = self.in_slots.end_request(state, request)? else { return Ok(true) };
        if has_failed {
            return Ok(true);
        }
        let (chunk, slot) = (ended.content, ended.slot);
        self.sample.descriptors += chunk.ranges.len() as u64;
        self.written += chunk.moved;
        self.sample.transferred += chunk.transferred();
        counters::EXCESS.add(chunk.transferred().saturating_sub(chunk.moved));
        if let Some(slot) = slot.filter(|_| self.staged.reads() && !self.is_stopped) {
            self.copy(chunk, slot)?;
        }
        Ok(true)
    }

    fn awaited(&self) -> Option<Awaited<'_>> {
        (self.in_slots.is_empty() && self.has_more()).then(|| Awaited::Memory(&self.staged.arena))
    }

    fn note_moved(&self, at: Instant) {
        self.staged.arena.note_moved(at);
    }

    fn abandon(&mut self) {
        self.in_slots.abandon();
    }

    fn moved(&self) -> u64 {
        if self.staged.reads() { self.sample.copied } else { self.written }
    }
}
