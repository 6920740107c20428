// SPDX-License-Identifier: Apache-2.0
//! Registering memory with an agent and deregistering it: memory and files span by span, other storage as one list. After a
//! failure NIXL may still use some spans.

#![forbid(unsafe_code)]

use std::sync::Arc;

use crate::base::error::{Error, Result};
use crate::base::guarded::guarded;
use crate::base::log::log;
use crate::cuda::Context;
use crate::nixl::state::AgentState;
use crate::nixl::{Agent, CallOptions, Descriptor, Descriptors, HostPages, SegmentsId};

/// A failure, and the spans that NIXL may still use: they must never be unmapped.
pub(in crate::region) struct SpanFailure {
    /// The first error.
    pub error: Error,
    /// The spans that NIXL may still use.
    pub stuck: Vec<Descriptor>,
}

/// The result of registering or deregistering spans.
pub(in crate::region) type SpanResult<T = ()> = std::result::Result<T, SpanFailure>;

/// What an agent has registered of a region.
pub(in crate::region) enum Registered {
    /// Memory, or a file.
    Spans(Vec<Descriptor>),
    /// Objects or block storage, of which no memory is mapped.
    Listed(StorageList),
}

/// Objects or block storage that an agent has registered as one list.
pub(in crate::region) struct StorageList {
    id: SegmentsId,
    /// The backends and stores, for messages.
    pub store: String,
}

impl Registered {
    /// Its spans, which NIXL may still use after a failure.
    fn spans(&self) -> Vec<Descriptor> {
        match self {
            Self::Spans(spans) => spans.clone(),
            Self::Listed(_) => Vec::new(),
        }
    }
}

impl SpanFailure {
    /// Adds a later failure, which occurred while this one was undone.
    pub fn and(mut self, later: Self) -> Self {
        let later_error = later.error.context("then, while earlier steps were undone");
        self.error = self.error.followed_by(&later_error);
        self.stuck.extend(later.stuck);
        self
    }
}

/// An agent, and the context that must be current: UCX registers VMM memory only if the primary context of its GPU is
/// current.
pub(in crate::region) struct Registrar {
    pub agent: Arc<Agent>,
    pub context: Option<Arc<Context>>,
    /// What else the pages of host memory contain.
    pub pages: HostPages,
}

impl Registrar {
    /// Registers a list of storage: all of it, or nothing.
    pub fn register_list(&self, list: Descriptors) -> SpanResult<Registered> {
        let register = move |state: &mut AgentState| {
            let id = state.register_segments(list, &CallOptions::default())?;
            Ok(StorageList { id, store: state.store_of(id) })
        };
        let undo = |state: &mut AgentState, late: StorageList| log_late(state.deregister_segments(late.id));
        let outcome = self.agent.call_or_undo(register, undo);
        outcome.map(Registered::Listed).map_err(|error| SpanFailure { error, stuck: Vec::new() })
    }

    /// Registers all spans, or none.
    pub fn register(&self, spans: &[Descriptor]) -> SpanResult {
        let (context, wanted, pages) = (self.context.clone(), spans.to_vec(), self.pages);
        let (later_context, later) = (self.context.clone(), Registered::Spans(spans.to_vec()));
        let register = move |state: &mut AgentState| {
            let retained_again = retained_again(&context);
            let entered =
                retained_again.as_ref().or(context.as_ref()).map(|context| context.enter()).transpose();
            let _entered = entered.map_err(|error| SpanFailure { error, stuck: Vec::new() })?;
            register_all(state, &wanted, pages)
        };
        let undo = move |state: &mut AgentState, outcome: SpanResult| {
            if outcome.is_ok() {
                log_late(deregister_in(&later_context, state, &later).map_err(|failure| failure.error));
            }
        };
        self.call(spans, register, undo)
    }

    /// Deregisters all of it, also after failures.
    pub fn deregister(&self, registered: Registered) -> SpanResult {
        let (context, spans) = (self.context.clone(), registered.spans());
        let deregister = move |state: &mut AgentState| deregister_in(&context, state, &registered);
        self.call(&spans, deregister, |_, _| ())
    }

    /// The same. On the agent's own thread it returns before the work is done. `then` runs on the agent's thread afterwards.
    pub fn deregister_or_defer(
        &mut self,
        registered: Registered,
        then: impl FnOnce(SpanResult) + Send + 'static,
    ) {
        let context = self.context.take();
        self.agent.call_or_defer(move |state| {
            // After a panic the memory may still be registered, which `then` must know before anything is freed.
            let outcome = guarded(|| deregister_in(&context, state, &registered));
            then(outcome.unwrap_or_else(|error| Err(SpanFailure { error, stuck: registered.spans() })));
        });
    }

    /// If the agent's thread does not reply, all spans may be in use.
    fn call(
        &self,
        spans: &[Descriptor],
        function: impl FnOnce(&mut AgentState) -> SpanResult + Send + 'static,
        undo: impl FnOnce(&mut AgentState, SpanResult) + Send + 'static,
    ) -> SpanResult {
        let result = self.agent.call_or_undo(move |state| Result::Ok(function(state)), undo);
        result.unwrap_or_else(|error| Err(SpanFailure { error, stuck: spans.to_vec() }))
    }
}

/// The call has timed out, so only the log has a failure.
fn log_late(outcome: Result<()>) {
    if let Err(error) = outcome {
        log!(Error, "{error}; the memory stays registered until its agent ends");
    }
}

fn register_all(state: &mut AgentState, spans: &[Descriptor], pages: HostPages) -> SpanResult {
    for (index, span) in spans.iter().enumerate() {
        if let Err(error) = state.register(*span, pages) {
            let failure = SpanFailure { error, stuck: Vec::new() };
            return Err(match deregister_all(state, &spans[..index]) {
                Ok(()) => failure,
                Err(later) => failure.and(later),
            });
        }
    }
    Ok(())
}

/// The new primary context after a reset. VMM memory still exists then.
fn retained_again(context: &Option<Arc<Context>>) -> Option<Arc<Context>> {
    let reset = context.as_ref().filter(|context| context.ensure_alive().is_err())?;
    Context::retain(reset.device()).ok().map(Arc::new)
}

fn deregister_in(
    context: &Option<Arc<Context>>,
    state: &mut AgentState,
    registered: &Registered,
) -> SpanResult {
    let spans = match registered {
        Registered::Spans(spans) => spans,
        Registered::Listed(list) => {
            let outcome = state.deregister_segments(list.id);
            return outcome.map_err(|error| SpanFailure { error, stuck: Vec::new() });
        }
    };
    let retained_again = retained_again(context);
    // Without a context NIXL fails to deregister, and reports that.
    let _entered =
        retained_again.as_ref().or(context.as_ref()).and_then(|context| context.enter_to_free().ok());
    deregister_all(state, spans)
}

fn deregister_all(state: &mut AgentState, spans: &[Descriptor]) -> SpanResult {
    let mut failed: SpanResult = Ok(());
    for span in spans {
        if let Err(error) = state.deregister(span) {
            let one = SpanFailure { error, stuck: vec![*span] };
            failed = Err(match failed {
                Ok(()) => one,
                Err(first) => SpanFailure { error: first.error, stuck: [first.stuck, one.stuck].concat() },
            });
        }
    }
    failed
}
