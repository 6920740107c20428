// SPDX-License-Identifier: Apache-2.0
//! Telling an agent of memory and taking that back, span by span, and what NIXL may still use when that fails.

#![forbid(unsafe_code)]

use std::sync::Arc;

use crate::cuda::Context;
use crate::error::{Error, Result};
use crate::guarded::guarded;
use crate::nixl::state::AgentState;
use crate::nixl::{Agent, Descriptor};

/// A failure, and the spans that NIXL may still use after it: they must never be unmapped.
pub(super) struct SpanFailure {
    /// The first thing that failed.
    pub error: Error,
    /// What NIXL did not let go of.
    pub stuck: Vec<Descriptor>,
}

/// What came of it.
pub(super) type SpanResult = std::result::Result<(), SpanFailure>;

impl SpanFailure {
    /// This failure, which came first, and what followed from it.
    pub fn and(mut self, later: Self) -> Self {
        let later_error = later.error.context("then, while what had been done was taken back");
        self.error = self.error.followed_by(&later_error);
        self.stuck.extend(later.stuck);
        self
    }
}

/// An agent, and the context in which it is told of memory: UCX registers memory that was mapped apart only where that
/// of its GPU is current.
pub(super) struct SpanRegistrar {
    pub agent: Arc<Agent>,
    pub context: Option<Arc<Context>>,
}

impl SpanRegistrar {
    /// All of them, or none.
    pub fn register(&self, spans: &[Descriptor]) -> SpanResult {
        let (context, wanted) = (self.context.clone(), spans.to_vec());
        self.call(spans, move |state| {
            let anew = anew(&context);
            let entered = anew.as_ref().or(context.as_ref()).map(|context| context.enter()).transpose();
            let _entered = entered.map_err(|error| SpanFailure { error, stuck: Vec::new() })?;
            register_all(state, &wanted)
        })
    }

    /// All of them, whatever fails.
    pub fn deregister(&self, spans: &[Descriptor]) -> SpanResult {
        let (context, known) = (self.context.clone(), spans.to_vec());
        self.call(spans, move |state| deregister_in(&context, state, &known))
    }

    /// The same without waiting for it where this is the agent's own thread; `then` runs on that thread when it is over.
    pub fn deregister_or_defer(
        &mut self,
        spans: Vec<Descriptor>,
        then: impl FnOnce(SpanResult) + Send + 'static,
    ) {
        let context = self.context.take();
        self.agent.call_or_defer(move |state| {
            // After a panic NIXL may still know the memory, which `then` must learn of before anything is freed.
            let outcome = guarded(|| deregister_in(&context, state, &spans));
            then(outcome.unwrap_or_else(|error| Err(SpanFailure { error, stuck: spans })));
        });
    }

    /// Where the agent's thread does not answer, nobody knows what became of the spans.
    fn call(
        &self,
        spans: &[Descriptor],
        function: impl FnOnce(&mut AgentState) -> SpanResult + Send + 'static,
    ) -> SpanResult {
        let answer = self.agent.call(move |state| Result::Ok(function(state)));
        answer.unwrap_or_else(|error| Err(SpanFailure { error, stuck: spans.to_vec() }))
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

/// The primary context that there is in place of one that was reset: memory that was mapped apart is still there.
fn anew(context: &Option<Arc<Context>>) -> Option<Arc<Context>> {
    let reset = context.as_ref().filter(|context| context.ensure_alive().is_err())?;
    Context::retain(reset.device()).ok().map(Arc::new)
}

fn deregister_in(context: &Option<Arc<Context>>, state: &mut AgentState, spans: &[Descriptor]) -> SpanResult {
    let anew = anew(context);
    // Without it NIXL fails to deregister, and says so.
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
