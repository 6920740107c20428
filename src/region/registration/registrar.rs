// SPDX-License-Identifier: Apache-2.0
//! The commands by which a region is registered with an agent and deregistered.

use std::sync::Arc;

use crate::base::{Result, Status};
use crate::nixl::{
    Agent, CallOptions, Command, Descriptor, Descriptors, MemoryReply, RegionMemory, Registered, SpanFailure,
    SpanResult,
};

/// An agent, and what it has to know of the memory.
pub struct Registrar {
    pub agent: Arc<Agent>,
    pub memory: RegionMemory,
}

impl Registrar {
    /// Registers a list of storage: all of it, or nothing.
    pub fn register_list(&self, list: Descriptors) -> SpanResult<Registered> {
        let register = |reply| Command::RegisterSegments(list, CallOptions::default(), reply);
        let (id, store) = self.agent.call(register)?;
        Ok(Registered::Listed(id, store))
    }

    /// Registers all spans, or none. `late` holds the memory: NIXL may use it until the call returns. If that is too late, `late` gets
    /// the outcome on the agent's thread when it was undone.
    pub fn register(
        &self,
        spans: &[Descriptor],
        late: impl FnOnce(SpanResult) + Send + 'static,
    ) -> SpanResult {
        let (memory, wanted) = (self.memory.clone(), spans.to_vec());
        let register = |reply| Command::Register(memory, wanted, MemoryReply::new(reply, late));
        outcome(spans, self.agent.call(register))
    }

    /// Deregisters all of it, also after failures. `late` as above.
    pub fn deregister(
        &self,
        registered: Registered,
        late: impl FnOnce(SpanResult) + Send + 'static,
    ) -> SpanResult {
        let (memory, spans) = (self.memory.clone(), registered.spans());
        let deregister = |reply| Command::Deregister(memory, registered, MemoryReply::new(reply, late));
        outcome(&spans, self.agent.call(deregister))
    }

    /// The same. On the agent's own thread it returns before the work is done. `then` runs on the agent's thread afterwards.
    pub fn deregister_or_defer(
        &mut self,
        registered: Registered,
        then: impl FnOnce(SpanResult) + Send + 'static,
    ) {
        let memory = RegionMemory { context: self.memory.context.take(), ..self.memory };
        self.agent.call_or_defer(|reply| {
            let ended = move |outcome| {
                then(outcome);
                drop(reply.give(Ok(())));
            };
            Command::Deregister(memory, registered, MemoryReply::without_caller(ended))
        });
    }
}

/// If the agent's thread has ended, all spans may be in use. If it has not replied in time, the command keeps the memory.
fn outcome(spans: &[Descriptor], replied: Result<SpanResult>) -> SpanResult {
    replied.unwrap_or_else(|error| {
        let stuck = if error.status() == Status::TimedOut { Vec::new() } else { spans.to_vec() };
        Err(SpanFailure { error, stuck })
    })
}
