// SPDX-License-Identifier: Apache-2.0
//! The chunks of a run that are in slots, from the moment in which a slot is taken until it is free again or retired.
//!
//! A chunk that is read is in flight, and then copied from its slot. A chunk that is written is copied to its slot, waits there, and is
//! then in flight. The slot is free again once neither NIXL nor a copy uses it. It is retired if NIXL does not release the request.
//! Chunks that NIXL moves between the peer and the layout go the same way, without a slot.

use std::sync::Arc;

use super::arena::Slot;
use super::slot_copy::{EndedCopy, SlotCopy};
use crate::base::{Result, leak, log};
use crate::copy::gpu::RowCopier;
use crate::nixl::{AgentState, RequestId};

/// Chunks of one run at a time: half of the slots of an arena, so that several runs can share it.
const MAX_CHUNKS: usize = 4;

pub struct InSlots<C> {
    chunks: Vec<InSlot<C>>,
    /// A request without a slot was not released: NIXL may use the layout for ever.
    pub has_unreleased: bool,
}

/// A chunk, and its slot.
pub struct InSlot<C> {
    state: State,
    pub content: C,
    pub slot: Option<Slot>,
}

enum State {
    /// Between the slot and local memory.
    Copying(Arc<SlotCopy>),
    /// Filled, to be written to the peer.
    Filled,
    /// Between the peer and the slot.
    InFlight(RequestId),
}

impl<C> Default for InSlots<C> {
    fn default() -> Self {
        Self { chunks: Vec::new(), has_unreleased: false }
    }
}

impl<C> InSlots<C> {
    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.chunks.is_empty()
    }

    /// Whether there are as many as a run may have.
    pub fn is_full(&self) -> bool {
        self.chunks.len() >= MAX_CHUNKS
    }

    /// Begins the copy between a slot and local memory. After a failure the slot is free.
    pub fn copy(
        &mut self,
        mut content: C,
        slot: Option<Slot>,
        start: impl FnOnce(&mut C, Option<&Arc<RowCopier>>) -> Result<Arc<SlotCopy>>,
    ) -> Result<()> {
        let copy = start(&mut content, slot.as_ref().and_then(|slot| slot.arena.copier.as_ref()))?;
        self.chunks.push(InSlot { state: State::Copying(copy), content, slot });
        Ok(())
    }

    /// Adds a chunk that needs no copy before it is written.
    pub fn add_filled(&mut self, content: C, slot: Option<Slot>) {
        self.chunks.push(InSlot { state: State::Filled, content, slot });
    }

    pub fn add_in_flight(&mut self, request: RequestId, content: C, slot: Option<Slot>) {
        self.chunks.push(InSlot { state: State::InFlight(request), content, slot });
    }

    pub fn filled(&mut self) -> Option<&mut InSlot<C>> {
        self.chunks.iter_mut().find(|each| matches!(each.state, State::Filled))
    }

    /// Handles the end of a request: releases it, and returns its chunk. `None` if it is of no chunk. If NIXL does not release it, retires
    /// the slot.
    pub fn end_request(&mut self, state: &mut AgentState, request: RequestId) -> Result<Option<InSlot<C>>> {
        let is_it = |each: &InSlot<C>| matches!(each.state, State::InFlight(id) if id == request);
        let Some(index) = self.chunks.iter().position(is_it) else { return Ok(None) };
        let chunk = self.chunks.swap_remove(index);
        if let Err(error) = state.release_request(request) {
            log!(Error, "{error}; kvmem intentionally leaks the memory that it uses; {}", leak::COUNTED);
            match chunk.slot {
                Some(slot) => slot.retire(),
                None => self.has_unreleased = true,
            }
            return Err(error);
        }
        Ok(Some(chunk))
    }

    /// Handles the end of a copy, if one has ended: passes its chunk to `note`. The chunk remains, to be written, if `fills`; otherwise, and
    /// if the copy has failed, its slot is free. Returns whether one has ended.
    pub fn end_copy(
        &mut self,
        fills: bool,
        note: impl FnOnce(&mut C, EndedCopy) -> Result<()>,
    ) -> Result<bool> {
        let outcome_of = |(index, each): (usize, &InSlot<C>)| match &each.state {
            // After a failure nothing uses the slot any more.
            State::Copying(copy) => copy.is_done().transpose().map(|outcome| (index, outcome)),
            _ => None,
        };
        let Some((index, outcome)) = self.chunks.iter().enumerate().find_map(outcome_of) else {
            return Ok(false);
        };
        let mut chunk = self.chunks.swap_remove(index);
        note(&mut chunk.content, outcome?)?;
        if fills {
            self.add_filled(chunk.content, chunk.slot);
        }
        Ok(true)
    }

    /// Frees the slots of chunks that are to be written. The others end.
    pub fn stop(&mut self) {
        self.chunks.retain(|each| !matches!(each.state, State::Filled));
    }
}

impl<C: Send + 'static> InSlots<C> {
    /// After a panic: never frees what NIXL or a copy may still use.
    pub fn abandon(&mut self) {
        for InSlot { state, content, slot } in self.chunks.drain(..) {
            leak::intentionally((state, content));
            slot.into_iter().for_each(Slot::retire);
        }
    }
}

impl<C> InSlot<C> {
    pub fn address(&self) -> Option<u64> {
        self.slot.as_ref().map(Slot::address)
    }

    /// The chunk, which is filled, is in flight from now on.
    pub fn post(&mut self, request: RequestId) {
        self.state = State::InFlight(request);
    }
}
