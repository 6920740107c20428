// SPDX-License-Identifier: Apache-2.0
//! Registering memory with an agent and deregistering it, span by span. After a failure NIXL may still use some spans.

#![forbid(unsafe_code)]

use std::sync::Arc;

use crate::cuda::Context;
use crate::error::{Error, Result};
use crate::guarded::guarded;
use crate::nixl::state::AgentState;
use crate::nixl::{Agent, Descriptor};

/// A failure, and the spans that NIXL may still use: they must never be unmapped.
pub(super) struct SpanFailure {
    /// The first error.
    pub error: Error,
    /// The spans that NIXL may still use.
    pub stuck: Vec<Descriptor>,
}

/// The result of registering or deregistering spans.
pub(super) type SpanResult = std::result::Result<(), SpanFailure>;

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
pub(super) struct SpanRegistrar {
    pub agent: Arc<Agent>,
    pub context: Option<Arc<Context>>,
}

impl SpanRegistrar {
    /// Registers all spans, or none.
    pub fn register(&self, spans: &[Descriptor]) -> SpanResult {
        let (context, wanted) = (self.context.clone(), spans.to_vec());
        self.call(spans, move |state| {
            let anew = anew(&context);
            let entered = anew.as_ref().or(context.as_ref()).map(|context| context.enter()).transpose();
            let _entered = entered.map_err(|error| SpanFailure { error, stuck: Vec::new() })?;
            register_all(state, &wanted)
        })
    }

    /// Deregisters all spans, also after failures.
    pub fn deregister(&self, spans: &[Descriptor]) -> SpanResult {
        let (context, known) = (self.context.clone(), spans.to_vec());
        self.call(spans, move |state| deregister_in(&context, state, &known))
    }

    /// The same. On the agent's own thread it returns before the work is done. `then` runs on the agent's thread afterwards.
    pub fn deregister_or_defer(
        &mut self,
        spans: Vec<Descriptor>,
        then: impl FnOnce(SpanResult) + Send + 'static,
    ) {
        let context = self.context.take();
        self.agent.call_or_defer(move |state| {
            // After a panic the memory may still be registered, which `then` must know before anything is freed.
            let outcome = guarded(|| deregister_in(&context, state, &spans));
            then(outcome.unwrap_or_else(|error| Err(SpanFailure { error, stuck: spans })));
        });
    }

    /// If the agent's thread does not reply, all spans may be in use.
    fn call(
        &self,
        spans: &[Descriptor],
        function: impl FnOnce(&mut AgentState) -> SpanResult + Send + 'static,
    ) -> SpanResult {
        let result = self.agent.call(move |state| Result::Ok(function(state)));
        result.unwrap_or_else(|error| Err(SpanFailure { error, stuck: spans.to_vec() }))
    }
}

fn register_all(state: &mut AgentState, spans: &[Descriptor]) -> SpanResult {
    for (index, span) in spans.iter().enumerate() {
        if let Err(error) = state.register(*span) {
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
fn anew(context: &Option<Arc<Context>>) -> Option<Arc<Context>> {
    let reset = context.as_ref().filter(|context| context.ensure_alive().is_err())?;
    Context::retain(reset.device()).ok().map(Arc::new)
}

fn deregister_in(context: &Option<Arc<Context>>, state: &mut AgentState, spans: &[Descriptor]) -> SpanResult {
    let anew = anew(context);
    // Without a context NIXL fails to deregister, and reports that.
    let _entered = anew.as_ref().or(context.as_ref()).and_then(|context| context.enter_to_free().ok());
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
