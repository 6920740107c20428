// SPDX-License-Identifier: Apache-2.0
//! The commands by which a region is registered with an agent and deregistered.

use std::sync::Arc;

use crate::base::error::Result;
use crate::nixl::{
    Agent, CallOptions, Command, Descriptor, Descriptors, RegionMemory, Registered, SpanFailure, SpanResult,
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

    /// Registers all spans, or none.
    pub fn register(&self, spans: &[Descriptor]) -> SpanResult {
        let (memory, wanted) = (self.memory.clone(), spans.to_vec());
        outcome(spans, self.agent.call(|reply| Command::Register(memory, wanted, reply)))
    }

    /// Deregisters all of it, also after failures.
    pub fn deregister(&self, registered: Registered) -> SpanResult {
        let (memory, spans) = (self.memory.clone(), registered.spans());
        let deregistered = self.agent.call(|reply| {
            Command::Deregister(memory, registered, Box::new(move |outcome| drop(reply.give(Ok(outcome)))))
        });
        outcome(&spans, deregistered)
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
            Command::Deregister(memory, registered, Box::new(ended))
        });
    }
}

/// If the agent's thread does not reply, all spans may be in use.
fn outcome(spans: &[Descriptor], replied: Result<SpanResult>) -> SpanResult {
    replied.unwrap_or_else(|error| Err(SpanFailure { error, stuck: spans.to_vec() }))
}
