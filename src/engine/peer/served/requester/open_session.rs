// SPDX-License-Identifier: Apache-2.0
//! A session or a lease that was requested from the owner, on the requester's side: its messages, and its reads of the control block.

use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

use super::served_owner::ServedOwner;
use crate::base::{Error, Result, Status, fail, log};
use crate::engine::peer::served::protocol::message::{Body, Message, SessionKey};
use crate::engine::peer::served::protocol::session_control::{self, Entry, SessionState};
use crate::engine::peer::served::protocol::words;
use crate::engine::peer::staged::Slot;
use crate::nixl::{AgentState, RequestId};

/// After this time without a message, the last report is sent again: the owner drops messages if too many wait. The request,
/// which may be large, is sent again only if the owner does not know the session, and at most as often.
const REPEAT: Duration = Duration::from_millis(200);

/// A session or a lease that was requested from the owner.
pub struct OpenSession {
    key: SessionKey,
    /// Reads the control block.
    request: RequestId,
    mailbox: Slot,
    /// It is being read.
    pub is_in_flight: bool,
    /// Whether it was posted after the last chunk had been read.
    pub is_last: bool,
    /// When it was posted the last time, by the clock of the lease.
    posted: Duration,
    /// When the last message was sent, and the last request for the session.
    said: Instant,
    requested: Instant,
    /// Until when a write to the owner's slots may begin: after that, the owner may have ended the session.
    lease_end: Duration,
}

impl OpenSession {
    /// One that is to be requested, if there is memory for a copy of the control block, and unless that is known to have ended.
    pub fn new(state: &mut AgentState, owner: &ServedOwner, key: SessionKey) -> Result<Option<Self>> {
        owner.served.end.ensure_unknown(owner.peer.name())?;
        let Some(mailbox) = owner.take_mailbox() else { return Ok(None) };
        let request = owner.control_request(state, mailbox.address())?;
        let now = Instant::now();
        Ok(Some(Self {
            key,
            request,
            mailbox,
            is_in_flight: false,
            is_last: false,
            posted: Duration::ZERO,
            said: now,
            requested: now,
            lease_end: Duration::ZERO,
        }))
    }

    pub fn say(&mut self, state: &mut AgentState, owner: &ServedOwner, body: Body) -> Result<()> {
        self.said = Instant::now();
        let is_request = match &body {
            Body::Open(_) => true,
            Body::Lease(request) => !request.blocks.is_empty(),
            Body::Progress { .. } | Body::Close => false,
        };
        if is_request {
            self.requested = self.said;
        }
        let message = Message { session: self.key, body }.write(&owner.served.id)?;
        state.notify_remote(&owner.peer, &message)
    }

    /// The checksum of what precedes the bytes of a chunk.
    pub fn seed(&self, chunk: u64) -> u32 {
        session_control::seed(self.key, chunk)
    }

    /// Whether the last report is to be sent again.
    pub fn is_silent(&self) -> bool {
        self.said.elapsed() >= REPEAT
    }

    /// Whether the request may be sent again.
    pub fn may_request_again(&self) -> bool {
        self.requested.elapsed() >= REPEAT
    }

    /// Whether the owner keeps the slots of a write for this session, so that a write to them may begin.
    pub fn has_lease(&self) -> bool {
        lease_clock() < self.lease_end
    }

    /// The request that reads the control block, which is posted now; `None` if it is in flight.
    pub fn begin_read(&mut self, is_last: bool) -> Option<RequestId> {
        if self.is_in_flight {
            return None;
        }
        if let Some(region) = self.mailbox.region() {
            words::forget(self.mailbox.address(), region);
        }
        (self.is_in_flight, self.is_last, self.posted) = (true, is_last, lease_clock());
        Some(self.request)
    }

    /// Notes the end of a request. Returns whether it is the one that reads the control block.
    pub fn has_ended_read(&mut self, request: RequestId) -> bool {
        let is_it = self.is_read(request);
        self.is_in_flight &= !is_it;
        is_it
    }

    pub fn is_read(&self, request: RequestId) -> bool {
        self.request == request
    }

    /// The request that reads the control block.
    pub fn request(&self) -> RequestId {
        self.request
    }

    /// The entry of the session in the control block that was read. An open one renews the lease.
    pub fn entry(&mut self, owner: &ServedOwner) -> Result<Entry> {
        let bytes = match self.mailbox.region() {
            Some(region) => words::read(self.mailbox.address(), region),
            None => fail!(Panic, "a session has no copy of the control block"),
        };
        let explained = |error: Error| {
            if error.status() == Status::Stale {
                owner.served.end.note();
            }
            owner.explain(error)
        };
        let lease = session_control::lease_of(&bytes, &owner.served.id).map_err(explained)?;
        let entry = SessionState::find(&bytes, self.key, owner.served.slots).map_err(explained)?;
        if let Entry::State(SessionState::Open { .. }) = entry {
            self.lease_end = self.posted.saturating_add(lease);
        }
        Ok(entry)
    }

    /// Releases the request. Nothing is in flight.
    pub fn release(self, state: &mut AgentState) {
        if let Err(error) = state.release_request(self.request) {
            log!(Error, "{error}; kvmem intentionally leaks a part of the staging memory of the agent");
            self.mailbox.retire();
        }
    }

    /// Never frees the copy of the control block, because NIXL may still use it.
    pub fn abandon(self) {
        self.mailbox.retire();
    }
}

/// The time since this machine started, in which it was suspended too: the owner's machine goes on, and so does its clock.
fn lease_clock() -> Duration {
    let now = clock_gettime(ClockId::Boottime);
    Duration::new(now.tv_sec.try_into().unwrap_or(0), now.tv_nsec.try_into().unwrap_or(0))
}
