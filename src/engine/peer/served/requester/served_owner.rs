// SPDX-License-Identifier: Apache-2.0
//! An owner that serves a layout, as its requesters know it: its control block, and memory of this process for copies of that.

use std::sync::Arc;

use crate::base::{Error, Result};
use crate::engine::peer::served::protocol::session_control;
use crate::engine::peer::staged::{Arena, ArenaUse, Slot, SlotUser, StagingMemory};
use crate::layout::Served;
use crate::nixl::{Agent, AgentState, Descriptor, Operation, Remote, RequestId, RequestSide, Span};

pub struct ServedOwner {
    pub served: Served,
    pub peer: Arc<Remote>,
    /// For copies of the control block.
    pub mailboxes: Arc<Arena>,
}

impl ServedOwner {
    /// Allocates what the agent does not have yet.
    pub fn new(served: &Served, peer: &Arc<Remote>, agent: &Arc<Agent>) -> Result<Self> {
        let size = session_control::SIZE as u64;
        let mailboxes = Arena::for_agent(agent, ArenaUse::Mailboxes, StagingMemory::Host, size)?;
        Ok(Self { served: served.clone(), peer: peer.clone(), mailboxes })
    }

    /// Free memory for a copy of the control block, if there is any for the owner.
    pub fn take_mailbox(&self) -> Option<Slot> {
        self.mailboxes.take(SlotUser::peer(&self.peer))
    }

    /// The request that reads the control block to `local`.
    pub fn control_request(&self, state: &mut AgentState, local: u64) -> Result<RequestId> {
        let size = session_control::SIZE as u64;
        let &Descriptor { address, device_id, memory_type, .. } = &self.served.arena;
        let here = [Span { address: local, size, device_id: 0 }].into_iter();
        let there = [Span { address, size, device_id }].into_iter();
        let side = RequestSide::Peer(self.peer.clone());
        state.create_request(Operation::Read, (memory_type, here), (&side, memory_type, there))
    }

    /// Adds to an error of the owner whose it is.
    pub fn explain(&self, error: Error) -> Error {
        error.context(format!("agent '{}' serves the layout", self.peer.name()))
    }
}
