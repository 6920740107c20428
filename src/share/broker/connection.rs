// SPDX-License-Identifier: Apache-2.0
//! One client of a broker: it sends a request, and gets a reply. The connection is kept until the client has read the reply.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::PollFlags;

use super::request::{FetchRequest, MOST_REQUEST, Refusal};
use crate::error::{Error, Result, Status, ensure};
use crate::process::LocalFd;
use crate::share::frame::MessageKind;
use crate::share::incoming::{Boundaries, Incoming, ParcelLimits, ReceiveStep};
use crate::share::message::is_unread;
use crate::share::outgoing::{Outgoing, ParcelRef, SendStep};
use crate::share::parcel::Parcel;
use crate::share::socket::IN_FLIGHT_PAUSE;

/// The maximum number of messages of one client before the others are served.
const MESSAGES_A_TURN: usize = 16;
/// The interval of checks whether a slow client has read its reply.
const UNREAD_PAUSE: Duration = Duration::from_secs(1);

/// A client.
pub struct Connection {
    socket: LocalFd,
    user: u32,
    deadline: Instant,
    stage: Stage,
}

enum Stage {
    Asking(Incoming),
    /// It has sent a request, and other clients of its user must first read their replies.
    Queued(FetchRequest),
    Answering(Reply),
    /// The reply is sent, with this number of file descriptors; the kernel counts them until the client reads them.
    Leaving(usize),
}

/// A share that is being sent to a client.
pub struct Reply {
    outgoing: Outgoing,
    parcel: Arc<Parcel>,
    /// The kernel currently accepts no more file descriptors.
    held_up: bool,
}

/// The result of serving a client.
pub enum ClientEvent {
    /// It waits for the client.
    Waits,
    /// The client has sent a request.
    Asks(FetchRequest),
    /// The request is invalid: send the error to the client.
    Wrong(Error),
    /// The client is finished.
    Over,
}

impl Connection {
    /// A client that has just connected.
    pub fn new(socket: LocalFd, user: u32, deadline: Instant) -> Self {
        let limits = ParcelLimits { bytes: MOST_REQUEST, fds: 0 };
        Self { socket, user, deadline, stage: Stage::Asking(Incoming::new(Boundaries::None, limits)) }
    }

    /// The user of its process.
    pub fn user(&self) -> u32 {
        self.user
    }

    /// When it times out. A client that does not read its reply never times out, because the kernel keeps the reply.
    pub fn deadline(&self) -> Option<Instant> {
        (!matches!(self.stage, Stage::Leaving(_))).then_some(self.deadline)
    }

    /// The error to send after a timeout; `None` within a reply, which cannot be interrupted.
    pub fn complaint(&self, time: Duration) -> Option<Error> {
        match self.stage {
            Stage::Asking(_) => {
                Some(Error::new(Status::TimedOut, format!("no request was received within {time:?}")))
            }
            Stage::Queued(_) => Some(Error::new(
                Status::Busy,
                format!(
                    "other clients of user {} have not read their file descriptors within {time:?}",
                    self.user
                ),
            )),
            Stage::Answering(_) | Stage::Leaving(_) => None,
        }
    }

    /// The size of the share that is being sent to it.
    pub fn bytes(&self) -> u64 {
        match &self.stage {
            Stage::Answering(answer) => answer.parcel.bytes.len() as u64,
            Stage::Asking(_) | Stage::Queued(_) | Stage::Leaving(_) => 0,
        }
    }

    /// The number of file descriptors in flight to it.
    pub fn fds(&self) -> usize {
        match &self.stage {
            Stage::Answering(answer) => answer.parcel.fds.len(),
            Stage::Leaving(fds) => *fds,
            Stage::Asking(_) | Stage::Queued(_) => 0,
        }
    }

    /// The event it waits for; `None` if it must be polled.
    pub fn awaited(&self) -> Option<PollFlags> {
        match &self.stage {
            Stage::Asking(_) => Some(PollFlags::IN),
            Stage::Answering(answer) if !answer.held_up => Some(PollFlags::OUT),
            Stage::Answering(_) | Stage::Queued(_) | Stage::Leaving(_) => None,
        }
    }

    /// When to serve it again at the latest.
    pub fn next_look(&self, now: Instant) -> Option<Instant> {
        match self.awaited() {
            Some(_) => self.deadline(),
            None if now < self.deadline => Some(now + IN_FLIGHT_PAUSE),
            None => Some(now + UNREAD_PAUSE),
        }
    }

    /// Queues its request.
    pub fn queue(&mut self, request: FetchRequest) {
        self.stage = Stage::Queued(request);
    }

    /// Starts to send a reply.
    pub fn answer(&mut self, answer: Reply, deadline: Instant) {
        self.deadline = deadline;
        self.stage = Stage::Answering(answer);
    }

    /// Makes progress without waiting, up to a limit that keeps the service fair.
    pub fn turn(&mut self) -> ClientEvent {
        let socket = self.socket.as_fd();
        match &mut self.stage {
            Stage::Asking(incoming) => listen(incoming, socket),
            Stage::Queued(request) => ClientEvent::Asks(request.clone()),
            Stage::Answering(answer) => match answer.speak(socket) {
                Ok(true) => self.leave(),
                Ok(false) => ClientEvent::Waits,
                // Within a reply no error can be sent.
                Err(_) => ClientEvent::Over,
            },
            Stage::Leaving(_) => self.leave(),
        }
    }

    /// Ends once the kernel keeps no file descriptors for it.
    fn leave(&mut self) -> ClientEvent {
        let fds = self.fds();
        if fds == 0 || is_unread(self.socket.as_fd()) != Ok(true) {
            return ClientEvent::Over;
        }
        self.stage = Stage::Leaving(fds);
        ClientEvent::Waits
    }
}

impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Sends a client the error. It fits an empty socket buffer; a failure is the client's, and is ignored.
pub fn refuse(socket: BorrowedFd<'_>, why: Error) {
    let bytes = Refusal(why).write();
    let load: ParcelRef<'_, OwnedFd> = ParcelRef { bytes: &bytes, fds: &[] };
    let _ = Outgoing::new(MessageKind::Refusal, &load).and_then(|mut outgoing| outgoing.step(socket, &load));
}

fn listen(incoming: &mut Incoming, socket: BorrowedFd<'_>) -> ClientEvent {
    for _ in 0..MESSAGES_A_TURN {
        match incoming.step(socket) {
            Ok(ReceiveStep::All(kind, parcel)) => {
                return read_request(kind, &parcel).map_or_else(ClientEvent::Wrong, ClientEvent::Asks);
            }
            Ok(ReceiveStep::Some) => {}
            Ok(ReceiveStep::Nothing) => return ClientEvent::Waits,
            Err(error) if error.status() == Status::PeerLost => return ClientEvent::Over,
            Err(error) => return ClientEvent::Wrong(error),
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
        Ok(Self { outgoing, parcel, held_up: false })
    }

    /// Sends as many bytes as the socket accepts. Returns whether the reply is complete.
    fn speak(&mut self, socket: BorrowedFd<'_>) -> Result<bool> {
        self.held_up = false;
        for _ in 0..MESSAGES_A_TURN {
            match self.outgoing.step(socket, &self.parcel.load())? {
                SendStep::All => return Ok(true),
                SendStep::Some => {}
                SendStep::Full => return Ok(false),
                SendStep::TooManyInFlight => {
                    self.held_up = true;
                    return Ok(false);
                }
            }
        }
        Ok(false)
    }
}
