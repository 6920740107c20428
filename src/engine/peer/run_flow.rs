// SPDX-License-Identifier: Apache-2.0
//! The requests of one run that are not posted yet.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::staged::{Arena, SlotUser};
use crate::base::{Error, Milliseconds, Result, Status};
use crate::nixl::{AgentState, Remote, RequestId};

pub enum Awaited<'a> {
    /// Staging memory of this process.
    Memory(&'a Arc<Arena>),
    Slots,
}

impl Awaited<'_> {
    /// When a run that may have it has last moved bytes. The slots of one peer are those that runs with it have, and so is memory
    /// once they have their share.
    pub fn last_moved(&self, peer: &Arc<Remote>) -> Option<Instant> {
        match self {
            Self::Memory(arena) if !arena.has_share(SlotUser::peer(peer)) => arena.last_moved(),
            Self::Memory(_) | Self::Slots => peer.last_moved(),
        }
    }
}

/// The error of a run for which nothing was moved for too long, by itself or, if it waits for something, by those that may have it.
pub fn stalled(
    awaited: Option<Awaited<'_>>,
    peer: &Arc<Remote>,
    last_progress: Instant,
    stall_timeout: Option<Duration>,
) -> Option<Error> {
    let of_others = awaited.as_ref().and_then(|awaited| awaited.last_moved(peer));
    let last = of_others.map_or(last_progress, |moved| moved.max(last_progress));
    let stall_timeout = stall_timeout.filter(|stall_timeout| last.elapsed() >= *stall_timeout)?;
    let (name, time) = (peer.name(), Milliseconds(stall_timeout));
    let advice = "check whether its process runs, or increase stall_timeout_ns";
    let message = match awaited {
        Some(Awaited::Memory(arena)) if arena.has_share(SlotUser::peer(peer)) => format!(
            "other transfers with agent '{name}' have all staging memory of this process that those with one peer may have, and have \
             moved nothing for {time}; {advice}"
        ),
        Some(Awaited::Memory(_)) => format!(
            "this process has had no staging memory for the transfer for {time}, because transfers with peers that do not respond \
             have it; submit fewer at a time, or check whether those processes run"
        ),
        Some(Awaited::Slots) | None => {
            format!("nothing was moved for {time}; {advice}")
        }
    };
    Some(Error::new(Status::TimedOut, message))
}

/// By any method.
pub trait RunFlow {
    /// Whether no request is left, and no chunk is in an arena.
    fn is_over(&self) -> bool {
        !self.has_more()
    }

    /// Whether some have not begun.
    fn has_more(&self) -> bool;

    /// Begins no further ones. Those in flight end.
    fn stop(&mut self);

    /// The next to post, if it can be posted now.
    fn next(&mut self, state: &mut AgentState) -> Result<Option<RequestId>>;

    /// Whether a request only asks the owner how far it is.
    fn is_poll(&self, _: RequestId) -> bool {
        false
    }

    /// Handles what is done between requests. Returns whether there was anything.
    fn advance(&mut self, _: &mut AgentState) -> Result<bool> {
        Ok(false)
    }

    /// Handles the end of one. Returns whether the run has progressed.
    fn ended(&mut self, state: &mut AgentState, request: RequestId, has_failed: bool) -> Result<bool>;

    /// What it waits for that other runs have, if it waits for that.
    fn awaited(&self) -> Option<Awaited<'_>> {
        None
    }

    /// Notes that a request has moved bytes.
    fn note_moved(&self, _: Instant) {}

    /// After a panic: never frees staging memory that NIXL or a copy may still use.
    fn abandon(&mut self) {}

    /// Begins to count the bytes that have moved, before the first request.
    fn count_bytes(&mut self) {}

    /// Bytes that have moved at least, if they are counted.
    fn moved(&self) -> u64;

    /// Adds to an error where in the run it occurred.
    fn located(&self, error: Error) -> Error {
        error
    }

    /// Handles the end of the run. Returns whether NIXL may still use memory of a layout.
    fn close(&mut self, _: &mut AgentState) -> bool {
        false
    }
}
