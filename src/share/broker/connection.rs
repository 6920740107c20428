// SPDX-License-Identifier: Apache-2.0
//! One client of a broker: it sends a request, and gets a reply. The connection is kept until the client has read the reply.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::PollFlags;
use rustix::net::Shutdown;

use super::fetch_request::{FetchRequest, MAX_REQUEST, Refusal};
use crate::base::{Error, LocalFd, Result, Status, ensure, error};
use crate::share::frame::{MessageKind, Parcel};
use crate::share::incoming::{Boundaries, Incoming, ParcelLimits, ReceiveStep};
use crate::share::message::is_unread;
use crate::share::outgoing::{Outgoing, ParcelRef, SendStep};
use crate::share::socket::IN_FLIGHT_PAUSE;

/// The maximum number of messages of one client before the others are served.
const MESSAGES_A_TURN: usize = 16;
/// The interval of checks whether a slow client has read its reply.
const UNREAD_PAUSE: Duration = Duration::from_secs(1);

pub struct Connection {
    socket: LocalFd,
    user: u32,
    deadline: Instant,
    stage: Stage,
}

enum Stage {
    Receiving(Incoming),
    /// It has sent a request, and other clients of its user must first read their replies.
    Queued(FetchRequest),
    Replying(Reply),
    /// The reply has ended, with this number of file descriptors; the kernel counts them until the client reads them.
    Draining(usize),
}

/// A share that is being sent to a client.
pub struct Reply {
    outgoing: Outgoing,
    parcel: Arc<Parcel>,
    /// The kernel currently accepts no more file descriptors.
    is_held_up: bool,
}

pub enum ClientEvent {
    /// It waits for the client.
    Waits,
    Request(FetchRequest),
    /// The request is invalid: send the error to the client.
    Invalid(Error),
    Done,
}

impl Connection {
    /// A client that has just connected.
    pub fn new(socket: LocalFd, user: u32, deadline: Instant) -> Self {
        let limits = ParcelLimits { bytes: MAX_REQUEST, fds: 0 };
        Self { socket, user, deadline, stage: Stage::Receiving(Incoming::new(Boundaries::None, limits)) }
    }

    pub fn user(&self) -> u32 {
        self.user
    }

    /// When it times out. A client that does not read its reply never times out, because the kernel keeps the reply.
    pub fn deadline(&self) -> Option<Instant> {
        (!matches!(self.stage, Stage::Draining(_))).then_some(self.deadline)
    }

    /// Whether it has had the time to read its reply. The kernel keeps the file descriptors until it reads them or ends, so they still
    /// count, but the client does not.
    pub fn is_overdue(&self, now: Instant) -> bool {
        matches!(self.stage, Stage::Draining(_)) && self.deadline <= now
    }

    /// The error to send after a timeout; `None` within a reply, which cannot be interrupted.
    pub fn timeout_error(&self, time: Duration) -> Option<Error> {
        match self.stage {
            Stage::Receiving(_) => Some(error!(TimedOut, "no request was received within {time:?}")),
            Stage::Queued(_) => Some(error!(
                Busy,
                "other clients of user {} have not read their file descriptors within {time:?}", self.user
            )),
            Stage::Replying(_) | Stage::Draining(_) => None,
        }
    }

    /// The size of the share that is being sent to it.
    pub fn bytes(&self) -> u64 {
        match &self.stage {
            Stage::Replying(reply) => reply.parcel.bytes.len() as u64,
            Stage::Receiving(_) | Stage::Queued(_) | Stage::Draining(_) => 0,
        }
    }

    /// The number of file descriptors in flight to it.
    pub fn fds(&self) -> usize {
        match &self.stage {
            Stage::Replying(reply) => reply.parcel.fds.len(),
            Stage::Draining(fds) => *fds,
            Stage::Receiving(_) | Stage::Queued(_) => 0,
        }
    }

    /// The event it waits for; `None` if it must be polled.
    pub fn awaited(&self) -> Option<PollFlags> {
        match &self.stage {
            Stage::Receiving(_) => Some(PollFlags::IN),
            Stage::Replying(reply) if !reply.is_held_up => Some(PollFlags::OUT),
            Stage::Replying(_) | Stage::Queued(_) | Stage::Draining(_) => None,
        }
    }

    /// When to serve it again at the latest.
    pub fn next_turn(&self, now: Instant) -> Option<Instant> {
        match self.awaited() {
            Some(_) => self.deadline(),
            None if now < self.deadline => Some(now + IN_FLIGHT_PAUSE),
            None => Some(now + UNREAD_PAUSE),
        }
    }

    pub fn queue(&mut self, request: FetchRequest) {
        self.stage = Stage::Queued(request);
    }

    pub fn reply(&mut self, reply: Reply, deadline: Instant) {
        self.deadline = deadline;
        self.stage = Stage::Replying(reply);
    }

    /// Makes progress without waiting, up to a limit that keeps the service fair.
    pub fn advance(&mut self) -> ClientEvent {
        let socket = self.socket.as_fd();
        match &mut self.stage {
            Stage::Receiving(incoming) => receive(incoming, socket),
            Stage::Queued(request) => ClientEvent::Request(request.clone()),
            Stage::Replying(reply) => match reply.send(socket) {
                Ok(true) => self.drain(),
                Ok(false) => ClientEvent::Waits,
                // Within a reply no error can be sent.
                Err(_) => self.end_reply(),
            },
            Stage::Draining(_) => self.drain(),
        }
    }

    /// Sends no more of a reply. The kernel keeps what was sent.
    pub fn end_reply(&mut self) -> ClientEvent {
        // The client finds the end of the stream behind that. A failure means that it has left.
        let _ = rustix::net::shutdown(&self.socket, Shutdown::Write);
        self.drain()
    }

    /// Ends once the kernel keeps no file descriptors for it.
    fn drain(&mut self) -> ClientEvent {
        let fds = self.fds();
        if fds == 0 || is_unread(self.socket.as_fd()) != Ok(true) {
            return ClientEvent::Done;
        }
        self.stage = Stage::Draining(fds);
        ClientEvent::Waits
    }
}

impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Sends a client the error. It fits an empty socket buffer; a failure is the client's, and is ignored.
pub fn refuse(socket: BorrowedFd<'_>, error: Error) {
    let bytes = Refusal(error).write();
    let load: ParcelRef<'_, OwnedFd> = ParcelRef { bytes: &bytes, fds: &[] };
    let _ = Outgoing::new(MessageKind::Refusal, &load).and_then(|mut outgoing| outgoing.step(socket, &load));
}

fn receive(incoming: &mut Incoming, socket: BorrowedFd<'_>) -> ClientEvent {
    for _ in 0..MESSAGES_A_TURN {
        match incoming.step(socket) {
            Ok(ReceiveStep::All(kind, parcel)) => {
                return read_request(kind, &parcel).map_or_else(ClientEvent::Invalid, ClientEvent::Request);
            }
            Ok(ReceiveStep::Some) => {}
            Ok(ReceiveStep::Nothing) => return ClientEvent::Waits,
            Err(error) if error.status() == Status::PeerLost => return ClientEvent::Done,
            Err(error) => return ClientEvent::Invalid(error),
        }
    }
    ClientEvent::Waits
}

fn read_request(kind: MessageKind, parcel: &Parcel) -> Result<FetchRequest> {
    ensure!(kind == MessageKind::Request, Corrupt, "received a message that is not a request ({kind:?})");
    FetchRequest::read(&parcel.bytes)
}

impl Reply {
    /// A reply of which nothing is sent yet.
    pub fn new(parcel: Arc<Parcel>) -> Result<Self> {
        let outgoing = Outgoing::new(MessageKind::Share, &parcel.load())?;
        Ok(Self { outgoing, parcel, is_held_up: false })
    }

    /// Sends as many bytes as the socket accepts. Returns whether the reply is complete.
    fn send(&mut self, socket: BorrowedFd<'_>) -> Result<bool> {
        self.is_held_up = false;
        for _ in 0..MESSAGES_A_TURN {
            match self.outgoing.step(socket, &self.parcel.load())? {
                SendStep::All => return Ok(true),
                SendStep::Some => {}
                SendStep::Full => return Ok(false),
                SendStep::TooManyInFlight => {
                    self.is_held_up = true;
                    return Ok(false);
                }
            }
        }
        Ok(false)
    }
}
