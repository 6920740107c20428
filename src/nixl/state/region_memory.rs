// SPDX-License-Identifier: Apache-2.0
//! Registering the memory of a region: memory and files span by span, other storage as one list. After a failure NIXL may still use
//! some spans.

use std::sync::Arc;

use super::AgentState;
use crate::base::{Error, Result, Status, guarded};
use crate::cuda::Context;
use crate::nixl::HostPages;
use crate::nixl::descriptor::{Descriptor, MemoryType};
use crate::nixl::raw_descriptors::SegmentsId;
use crate::nixl::request_handle::Span;

/// What an agent has to know of the memory of a region.
#[derive(Clone)]
pub struct RegionMemory {
    /// The context that must be current: UCX registers VMM memory only if the primary context of its GPU is.
    pub context: Option<Arc<Context>>,
    /// What else the pages of host memory contain.
    pub pages: HostPages,
}

/// What an agent has registered of a region.
#[derive(Clone)]
pub enum Registered {
    /// Memory, or a file.
    Spans(Vec<Descriptor>),
    /// Objects or block storage, of which no memory is mapped, and the backends and stores that they are in, for messages.
    Listed(SegmentsId, String),
}

/// A failure, and the spans that NIXL may still use: they must never be unmapped.
pub struct SpanFailure {
    /// The first error.
    pub error: Error,
    /// The spans that NIXL may still use.
    pub stuck: Vec<Descriptor>,
}

pub type SpanResult<T = ()> = std::result::Result<T, SpanFailure>;

impl Registered {
    /// Its spans, which NIXL may still use after a failure.
    pub fn spans(&self) -> Vec<Descriptor> {
        match self {
            Self::Spans(spans) => spans.clone(),
            Self::Listed(..) => Vec::new(),
        }
    }
}

impl From<Error> for SpanFailure {
    /// A failure after which NIXL uses no span.
    fn from(error: Error) -> Self {
        Self { error, stuck: Vec::new() }
    }
}

impl SpanFailure {
    /// Whether nothing was deregistered, because a request in flight uses some of it: all of it is registered as before.
    pub fn is_refusal(&self) -> bool {
        self.error.status() == Status::Busy
    }

    /// Adds a later failure, which occurred while this one was undone.
    pub fn and(self, later: Self) -> Self {
        let error = later.error.context("then, while earlier steps were undone");
        Self { error: self.error.followed_by(&error), stuck: [self.stuck, later.stuck].concat() }
    }
}

impl RegionMemory {
    /// The new primary context after a reset. VMM memory still exists then.
    fn retained_again(&self) -> Option<Arc<Context>> {
        let reset = self.context.as_ref().filter(|context| context.ensure_alive().is_err())?;
        Context::retain(reset.device()).ok().map(Arc::new)
    }
}

impl AgentState {
    /// Registers all spans, or none. After a panic some may be registered.
    pub(in crate::nixl) fn register_memory(
        &mut self,
        memory: &RegionMemory,
        spans: &[Descriptor],
    ) -> SpanResult {
        let outcome = guarded(|| self.register_spans(memory, spans));
        outcome.unwrap_or_else(|error| Err(SpanFailure { error, stuck: spans.to_vec() }))
    }

    fn register_spans(&mut self, memory: &RegionMemory, spans: &[Descriptor]) -> SpanResult {
        let again = memory.retained_again();
        let _entered =
            again.as_ref().or(memory.context.as_ref()).map(|context| context.enter()).transpose()?;
        for (index, span) in spans.iter().enumerate() {
            if let Err(error) = self.register(span, memory.pages) {
                let failure = SpanFailure::from(error);
                return Err(match self.deregister_all(&spans[..index]) {
                    Ok(()) => failure,
                    Err(later) => failure.and(later),
                });
            }
        }
        Ok(())
    }

    /// Deregisters all spans, also after failures; none while a request on one of them is in flight.
    fn deregister_spans(&mut self, memory: &RegionMemory, spans: &[Descriptor]) -> SpanResult {
        if let Err(error) = self.release_users_of_spans(spans)
            && error.status() == Status::Busy
        {
            return Err(SpanFailure { error, stuck: spans.to_vec() });
        }
        let again = memory.retained_again();
        // Without a context NIXL fails to deregister, and reports that.
        let context = again.as_ref().or(memory.context.as_ref());
        let _entered = context.and_then(|context| context.enter_to_free().ok());
        self.deregister_all(spans)
    }

    fn release_users_of_spans(&mut self, spans: &[Descriptor]) -> Result<()> {
        MemoryType::ALL.into_iter().try_for_each(|memory_type| {
            let of_type = spans.iter().filter(|span| span.memory_type == memory_type);
            self.release_users_of(memory_type, of_type.map(Span::from))
        })
    }

    /// Deregisters what was registered of a region. After a panic it may still be registered.
    pub(in crate::nixl) fn deregister_memory(
        &mut self,
        memory: &RegionMemory,
        registered: &Registered,
    ) -> SpanResult {
        let outcome = guarded(|| match registered {
            Registered::Spans(spans) => self.deregister_spans(memory, spans),
            Registered::Listed(id, _) => self.deregister_segments(*id).map_err(SpanFailure::from),
        });
        outcome.unwrap_or_else(|error| Err(SpanFailure { error, stuck: registered.spans() }))
    }

    fn deregister_all(&mut self, spans: &[Descriptor]) -> SpanResult {
        let (mut first, mut stuck) = (None, Vec::new());
        for span in spans {
            if let Err(error) = self.deregister(span) {
                first.get_or_insert(error);
                stuck.push(*span);
            }
        }
        first.map_or(Ok(()), |error| Err(SpanFailure { error, stuck }))
    }
}
