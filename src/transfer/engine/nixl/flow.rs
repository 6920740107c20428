// SPDX-License-Identifier: Apache-2.0
//! The requests of one run: where they come from, and for how long some are in flight.
#![forbid(unsafe_code)]

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use super::staged::StagedFlow;
use crate::error::Result;
use crate::nixl::{AgentState, RequestId};

/// The requests of a run that are not posted yet.
pub(super) enum Flow {
    /// All are created.
    Listed(VecDeque<RequestId>),
    /// Created chunk by chunk.
    Staged(StagedFlow),
}

impl Flow {
    /// Whether none is left, and no chunk is in the arena.
    pub fn is_over(&self) -> bool {
        match self {
            Self::Listed(waiting) => waiting.is_empty(),
            Self::Staged(flow) => flow.is_over(),
        }
    }

    /// Whether some have not begun.
    pub fn has_more(&self) -> bool {
        match self {
            Self::Listed(waiting) => !waiting.is_empty(),
            Self::Staged(flow) => flow.has_more(),
        }
    }

    /// Begins no further ones.
    pub fn stop(&mut self) {
        match self {
            Self::Listed(waiting) => waiting.clear(),
            Self::Staged(flow) => flow.stop(),
        }
    }

    /// The next to post, if it can be posted now.
    pub fn next(&mut self, state: &mut AgentState) -> Result<Option<RequestId>> {
        match self {
            Self::Listed(waiting) => Ok(waiting.pop_front()),
            Self::Staged(flow) => flow.next(state),
        }
    }

    /// Handles the end of one.
    pub fn ended(&mut self, state: &mut AgentState, request: RequestId, has_failed: bool) {
        if let Self::Staged(flow) = self {
            flow.ended(state, request, has_failed);
        }
    }
}

/// The time in which a request was in flight.
#[derive(Default)]
pub(super) struct BusyTime {
    since: Option<Instant>,
    /// All of it until the last end.
    pub all: Duration,
}

impl BusyTime {
    /// A request is in flight from now on.
    pub fn begin(&mut self) {
        self.since.get_or_insert_with(Instant::now);
    }

    /// No request is in flight any more.
    pub fn end(&mut self) {
        self.all += self.since.take().map_or(Duration::ZERO, |since| since.elapsed());
    }
}
