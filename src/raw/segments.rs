// SPDX-License-Identifier: Apache-2.0
//! Segments and memory views: descriptors that an agent has registered, or made accessible to kernels.

use std::sync::Arc;

use crate::base::{Mutex, Result, Status, fail};
use crate::nixl::{Agent, CallOptions, Command, Descriptors, Released, SegmentsId, ViewId};

/// Raw descriptors that are registered with an agent, which keeps what owns their memory. They are deregistered when it is dropped.
pub struct Segments {
    agent: Arc<Agent>,
    /// `None` once they were deregistered.
    id: Mutex<Option<SegmentsId>>,
}

impl Segments {
    /// Registers descriptors with the backends that the options name, or with each that accepts their memory type.
    pub fn register(agent: &Arc<Agent>, list: Descriptors, options: CallOptions) -> Result<Self> {
        let (id, _) = agent.call(|reply| Command::RegisterSegments(list, options, reply))?;
        Ok(Self { agent: agent.clone(), id: Mutex::new(Some(id)) })
    }

    /// Deregisters them. Fails while a request on them is in flight.
    pub fn deregister(&self) -> Result<()> {
        // Without the lock: NIXL may not return.
        let Some(registered) = self.id.lock().take() else {
            fail!(
                InvalidState,
                "the descriptors were deregistered already, or another thread deregisters them"
            );
        };
        let outcome = self.agent.call(|reply| Command::DeregisterSegments(registered, reply));
        if outcome.as_ref().is_err_and(|error| error.status() == Status::Busy) {
            *self.id.lock() = Some(registered);
        }
        outcome
    }
}

impl Drop for Segments {
    fn drop(&mut self) {
        let Some(id) = self.id.get_mut().take() else { return };
        self.agent.release(Released::Segments(id));
    }
}

pub struct View {
    agent: Arc<Agent>,
    id: ViewId,
    handle: usize,
    _list: Descriptors,
}

impl View {
    /// Creates a view of the agent's memory, or of the memory of peers if the descriptors name agents.
    pub fn create(agent: &Arc<Agent>, list: &Descriptors, options: CallOptions) -> Result<Self> {
        let owned = list.clone();
        let (id, handle) = agent.call(|reply| Command::CreateView(owned, options, reply))?;
        Ok(Self { agent: agent.clone(), id, handle, _list: list.clone() })
    }

    /// The address of the view, for kernels.
    pub fn handle(&self) -> usize {
        self.handle
    }
}

impl Drop for View {
    fn drop(&mut self) {
        self.agent.release(Released::View(self.id));
    }
}
