// SPDX-License-Identifier: Apache-2.0
//! Requests for leases to the owner of a layout, as work of the agent's thread: messages, and the owner's reply in its control block, as
//! for sessions. Messages may be lost: they are repeated.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::base::{Error, Milliseconds, ProcessIdentity, Result, error, fail, has_passed, log};
use crate::engine::peer::served::protocol::message::{Body, Message, SessionKey};
use crate::engine::peer::served::protocol::session_control::{Entry, SessionState};
use crate::engine::peer::served::{OpenSession, ServedOwner};
use crate::engine::peer::{DYING, LIVENESS};
use crate::layout::RemoteMemory;
use crate::nixl::{AgentState, AgentTask, Command, Remote, RemoteHold, Reply, ServiceId, TaskStep};
use crate::run::{Granted, LeaseRequest};

/// Asks for a lease or a renewal, until the owner has replied.
pub(super) struct LeaseTask {
    owner: Arc<ServedOwner>,
    /// Of the owner.
    process: ProcessIdentity,
    key: SessionKey,
    first: Arc<LeaseRequest>,
    /// Asks for the reply to the same.
    again: Arc<LeaseRequest>,
    deadline: Option<Instant>,
    timeout: Option<Duration>,
    session: Option<OpenSession>,
    last_check: Instant,
    /// Of NIXL, and since when.
    failure: Option<(Error, Instant)>,
    /// Until the reply was given. Then the request that reads the control block may still be in flight.
    reply: Option<Reply<Granted>>,
    outcome: Option<Result<Granted>>,
    _hold: RemoteHold,
}

impl LeaseTask {
    /// Asks the owner, whose memory is known as `remote`, and waits for its reply until a deadline, which follows from a timeout.
    pub fn ask(
        owner: &Arc<ServedOwner>,
        remote: &RemoteMemory,
        (key, first): (SessionKey, LeaseRequest),
        (timeout, deadline): (Option<Duration>, Option<Instant>),
    ) -> Result<Granted> {
        let hold = remote.peer.hold()?;
        let again = LeaseRequest { process: first.process.clone(), blocks: Vec::new(), ..first };
        remote.agent.call_until(deadline, |reply| {
            Command::Start(Box::new(Self {
                owner: owner.clone(),
                process: remote.process.clone(),
                key,
                first: Arc::new(first),
                again: Arc::new(again),
                deadline,
                timeout,
                session: None,
                last_check: Instant::now(),
                failure: None,
                reply: Some(reply),
                outcome: None,
                _hold: hold,
            }))
        })
    }
}

impl AgentTask for LeaseTask {
    fn step(&mut self, state: &mut AgentState) -> TaskStep {
        let outcome = self.advance(state).transpose();
        let is_in_flight = self.session.as_ref().is_some_and(|session| session.is_in_flight);
        match (outcome, is_in_flight) {
            (None, true) if self.reply.is_some() => TaskStep::InFlight,
            (None, false) if self.reply.is_some() => TaskStep::Waiting,
            (outcome, true) => {
                self.outcome = outcome;
                self.report();
                TaskStep::Waiting
            }
            (outcome, false) => {
                self.outcome = outcome;
                if let Some(session) = self.session.take() {
                    session.release(state);
                }
                TaskStep::Done
            }
        }
    }

    /// The caller finds nothing of this in use.
    fn end(mut self: Box<Self>) {
        let (reply, outcome) = (self.reply.take(), self.outcome.take());
        drop(self);
        if let (Some(reply), Some(outcome)) = (reply, outcome) {
            let _ = reply.give(outcome);
        }
    }

    fn not_begun(&mut self, error: &Error) {
        self.outcome = Some(Err(error.clone()));
        self.report();
    }

    fn abandon(&mut self, error: Error) {
        self.not_begun(&error);
        if let Some(session) = self.session.take() {
            session.abandon();
        }
    }
}

impl LeaseTask {
    fn report(&mut self) {
        if let (Some(outcome), Some(reply)) = (self.outcome.take(), self.reply.take()) {
            // A caller that has left ends the lease.
            let _ = reply.give(outcome);
        }
    }

    /// Takes the next step. Returns `Some` once the owner has granted it.
    fn advance(&mut self, state: &mut AgentState) -> Result<Option<Granted>> {
        if self.end_read(state) {
            return self.read(state);
        }
        let Some(reply) = &self.reply else { return Ok(None) };
        self.ensure_awaited(reply.is_awaited())?;
        if self.failure.is_some() {
            return Ok(None);
        }
        let Some(session) = &mut self.session else {
            self.session = OpenSession::new(state, &self.owner, self.key)?;
            self.say(state, self.first.clone())?;
            return Ok(None);
        };
        if session.is_silent() {
            self.say(state, self.again.clone())?;
        }
        let Some(request) = self.session.as_mut().and_then(|session| session.begin_read(false)) else {
            return Ok(None);
        };
        match state.post(request) {
            Ok(false) => Ok(None),
            posted => self.note_read(posted.map(drop)).map_or(Ok(None), |()| self.read(state)),
        }
    }

    /// Whether the control block was read.
    fn end_read(&mut self, state: &mut AgentState) -> bool {
        let Some(session) = self.session.as_ref().filter(|session| session.is_in_flight) else {
            return false;
        };
        match state.is_done(session.request()) {
            Ok(false) => false,
            done => self.note_read(done.map(drop)).is_some(),
        }
    }

    /// Notes that the read has ended; `None` if it has failed.
    fn note_read(&mut self, outcome: Result<()>) -> Option<()> {
        if let Some(session) = &mut self.session {
            session.is_in_flight = false;
        }
        match outcome {
            Ok(()) => Some(()),
            Err(error) => {
                self.failure.get_or_insert((error, Instant::now()));
                None
            }
        }
    }

    /// Fails if the owner is lost, the time is over, or NIXL has failed and the reason is known or will not be.
    fn ensure_awaited(&mut self, is_awaited: bool) -> Result<()> {
        let (peer, is_due) = (&self.owner.peer, has_passed(self.deadline));
        let is_late = is_due || !is_awaited;
        if is_late || self.failure.is_some() || self.last_check.elapsed() >= LIVENESS {
            self.last_check = Instant::now();
            let error = self.failure.as_ref().map(|(error, _)| error.clone());
            if self.process.is_gone() {
                let error = error
                    .unwrap_or_else(|| error!(PeerLost, "it has not replied to the request for a lease"));
                return Err(peer.lost(&self.process, error));
            }
            // The sockets of a process close before it ends.
            let is_dying = |since: Instant| self.process.is_visible() && since.elapsed() < DYING;
            if let Some((error, since)) = &self.failure
                && (is_late || !is_dying(*since))
            {
                let error = error.clone().context(format!("with agent '{}'", peer.name()));
                return Err(peer.explain_posted(error));
            }
        }
        if is_late {
            let within =
                self.timeout.map_or(String::new(), |timeout| format!(" within {}", Milliseconds(timeout)));
            fail!(
                TimedOut,
                "agent '{}' has not replied{within} to the request for a lease; check whether its process runs, or increase timeout_ns of \
                 kvmem_lease_options and call_timeout_ns of the agent",
                peer.name()
            );
        }
        Ok(())
    }

    fn say(&mut self, state: &mut AgentState, request: Arc<LeaseRequest>) -> Result<()> {
        match &mut self.session {
            Some(session) => session.say(state, &self.owner, Body::Lease(request)),
            None => Ok(()),
        }
    }

    /// Reads the owner's reply, if it is there.
    fn read(&mut self, state: &mut AgentState) -> Result<Option<Granted>> {
        let Some(session) = self.session.as_mut().filter(|_| self.reply.is_some()) else { return Ok(None) };
        match session.entry(&self.owner)? {
            Entry::State(SessionState::Leased(granted)) if granted.number >= self.first.number => {
                Ok(Some(granted))
            }
            Entry::State(SessionState::Ended { status, reason }) => {
                Err(self.owner.explain(SessionState::error(status, &reason)))
            }
            Entry::State(SessionState::Unknown) if session.may_request_again() => {
                self.say(state, self.first.clone())?;
                Ok(None)
            }
            Entry::State(SessionState::Open { .. }) => {
                Err(self.owner.explain(error!(Corrupt, "its entry of a lease is one of a session")))
            }
            Entry::Missing | Entry::Torn | Entry::State(_) => Ok(None),
        }
    }
}

/// Tells the owner that a lease has ended.
pub(super) struct EndTask {
    service: ServiceId,
    peer: Arc<Remote>,
    key: SessionKey,
    _hold: RemoteHold,
}

impl EndTask {
    /// `None` if the owner was invalidated, so that it gets no message.
    pub fn new(owner: &ServedOwner, key: SessionKey) -> Option<Box<Self>> {
        let (service, peer) = (owner.served.id, owner.peer.clone());
        let _hold = peer.hold().ok()?;
        Some(Box::new(Self { service, peer, key, _hold }))
    }
}

impl AgentTask for EndTask {
    fn step(&mut self, state: &mut AgentState) -> TaskStep {
        let message = Message { session: self.key, body: Body::Close }.write(&self.service);
        if let Err(error) = message.and_then(|message| state.notify_remote(&self.peer, &message)) {
            log!(Debug, "a lease of agent '{}' was not ended: {error}", self.peer.name());
        }
        TaskStep::Done
    }

    fn abandon(&mut self, _: Error) {}
}
