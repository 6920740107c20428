// SPDX-License-Identifier: Apache-2.0
//! The requests of one run: where they come from, and for how long some are in flight.
#![forbid(unsafe_code)]

use std::ops::{Deref, DerefMut};
use std::time::{Duration, Instant};

use super::run_flow::RunFlow;
use super::served::ServedFlow;
use super::staged::StagedFlow;
use crate::base::error::{Error, Status};
use crate::engine::peer::plain::listed_requests::ListedFlow;

/// The requests of a run that are not posted yet.
pub(super) enum Flow {
    /// Between the layouts.
    Listed(ListedFlow),
    /// Through an arena of this process.
    Staged(StagedFlow),
    /// Through an arena of the owner, which gathers or scatters.
    Served(Box<ServedFlow>),
}

impl Deref for Flow {
    type Target = dyn RunFlow;

    fn deref(&self) -> &Self::Target {
        match self {
            Self::Listed(flow) => flow,
            Self::Staged(flow) => flow,
            Self::Served(flow) => &**flow,
        }
    }
}

impl DerefMut for Flow {
    fn deref_mut(&mut self) -> &mut Self::Target {
        match self {
            Self::Listed(flow) => flow,
            Self::Staged(flow) => flow,
            Self::Served(flow) => &mut **flow,
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
