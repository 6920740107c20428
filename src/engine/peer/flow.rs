// SPDX-License-Identifier: Apache-2.0
//! The requests of one run: where they come from, and for how long some are in flight.
#![forbid(unsafe_code)]

use std::time::{Duration, Instant};

use super::served::ServedFlow;
use super::staged::StagedFlow;
use crate::base::error::{Error, Result, Status};
use crate::engine::peer::plain::listed_requests::ListedFlow;
use crate::nixl::{AgentState, RequestId};

/// The requests of a run that are not posted yet.
pub(super) enum Flow {
    /// Between the layouts.
    Listed(ListedFlow),
    /// Through an arena of this process.
    Staged(StagedFlow),
    /// Through an arena of the owner, which gathers or scatters.
    Served(Box<ServedFlow>),
}

impl Flow {
    /// Whether none is left, and no chunk is in the arena.
    pub fn is_over(&self) -> bool {
        match self {
            Self::Listed(flow) => !flow.has_more(),
            Self::Staged(flow) => flow.is_over(),
            Self::Served(flow) => flow.is_over(),
        }
    }

    /// Whether some have not begun.
    pub fn has_more(&self) -> bool {
        match self {
            Self::Listed(flow) => flow.has_more(),
            Self::Staged(flow) => flow.has_more(),
            Self::Served(flow) => flow.has_more(),
        }
    }

    /// Begins no further ones.
    pub fn stop(&mut self) {
        match self {
            Self::Listed(flow) => flow.stop(),
            Self::Staged(flow) => flow.stop(),
            Self::Served(flow) => flow.stop(),
        }
    }

    /// The next to post, if it can be posted now.
    pub fn next(&mut self, state: &mut AgentState) -> Result<Option<RequestId>> {
        match self {
            Self::Listed(flow) => flow.next(state),
            Self::Staged(flow) => flow.next(state),
            Self::Served(flow) => flow.next(state),
        }
    }

    /// Whether a request only asks the owner how far it is.
    pub fn is_poll(&self, request: RequestId) -> bool {
        matches!(self, Self::Served(flow) if flow.is_control_read(request))
    }

    /// Handles what is done between requests. Returns whether there was anything.
    pub fn advance(&mut self, state: &mut AgentState) -> Result<bool> {
        match self {
            Self::Listed(_) => Ok(false),
            Self::Staged(flow) => flow.advance(),
            Self::Served(flow) => flow.advance(state),
        }
    }

    /// Handles the end of one. Returns whether the run has progressed.
    pub fn ended(&mut self, state: &mut AgentState, request: RequestId, has_failed: bool) -> Result<bool> {
        match self {
            Self::Listed(flow) => flow.ended(state, request, has_failed),
            Self::Staged(flow) => flow.ended(state, request, has_failed)?,
            Self::Served(flow) => return flow.ended(state, request, has_failed),
        }
        Ok(true)
    }

    /// Whether it waits for staging memory of this process, which other transfers have.
    pub fn lacks_memory(&self) -> bool {
        match self {
            Self::Listed(_) => false,
            Self::Staged(flow) => flow.lacks_memory(),
            Self::Served(flow) => flow.lacks_memory(),
        }
    }

    /// After a panic: never frees staging memory that NIXL may still use.
    pub fn abandon(&mut self) {
        match self {
            Self::Listed(_) => {}
            Self::Staged(flow) => flow.abandon(),
            Self::Served(flow) => flow.abandon(),
        }
    }

    /// Begins to count the bytes that have moved, before the first request.
    pub fn count_bytes(&mut self) {
        if let Self::Listed(flow) = self {
            flow.count_bytes();
        }
    }

    /// Bytes that have moved at least, if they are counted.
    pub fn moved(&self) -> u64 {
        match self {
            Self::Listed(flow) => flow.moved(),
            Self::Staged(flow) => flow.moved(),
            Self::Served(flow) => flow.moved(),
        }
    }

    /// Adds to an error where in the run it occurred.
    pub fn located(&self, error: Error) -> Error {
        match self {
            Self::Served(flow) => flow.located(error),
            _ => error,
        }
    }

    /// Handles the end of the run. Returns whether NIXL may still use memory of a layout.
    pub fn close(&mut self, state: &mut AgentState) -> bool {
        match self {
            Self::Listed(flow) => flow.close(state),
            Self::Staged(_) => false,
            Self::Served(flow) => {
                flow.close(state);
                flow.has_unreleased()
            }
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

/// The error of a run that has moved nothing for too long: because of its peer, or for lack of staging memory.
pub(super) fn stalled(peer: Option<&str>, stall_timeout: Duration) -> Error {
    let ms = stall_timeout.as_millis();
    let message = match peer {
        Some(peer) => format!(
            "nothing was moved to or from agent '{peer}' for {ms} ms; check whether its process runs, or increase \
             stall_timeout_ns"
        ),
        None => format!(
            "this process has had no staging memory for the transfer for {ms} ms, because other transfers with this peer or \
             with others that do not respond have it; submit fewer at a time, or check whether those processes run"
        ),
    };
    Error::new(Status::TimedOut, message)
}
