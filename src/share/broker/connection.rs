// SPDX-License-Identifier: Apache-2.0
//! One client of a broker: first it asks, then it is answered. It is there until it has read what it got.

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

/// How many messages of one client are moved before the others get their turn.
const MESSAGES_A_TURN: usize = 16;
/// How long to leave off when a client takes its time to read.
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
    /// It has asked, and its user must first read what others of its clients were sent.
    Queued(FetchRequest),
    Answering(Reply),
    /// All is sent, with so many file descriptors; the kernel counts them until they are read.
    Leaving(usize),
}

/// A share on its way to a client.
pub struct Reply {
    outgoing: Outgoing,
    parcel: Arc<Parcel>,
    /// The kernel takes no more file descriptors for now.
    held_up: bool,
}

/// What a turn came to.
pub enum ClientEvent {
    /// It waits for the client.
    Waits,
    /// The client has asked.
    Asks(FetchRequest),
    /// The client must be told why it gets nothing.
    Wrong(Error),
    /// There is nothing left to do for it.
    Over,
}

impl Connection {
    /// A client that has just come.
    pub fn new(socket: LocalFd, user: u32, deadline: Instant) -> Self {
        let limits = ParcelLimits { bytes: MOST_REQUEST, fds: 0 };
        Self { socket, user, deadline, stage: Stage::Asking(Incoming::new(Boundaries::None, limits)) }
    }

    /// Whose process it is.
    pub fn user(&self) -> u32 {
        self.user
    }

    /// When it has taken too long. A client that does not read what it was sent is never let go: the kernel keeps that
    /// for it.
    pub fn deadline(&self) -> Option<Instant> {
        (!matches!(self.stage, Stage::Leaving(_))).then_some(self.deadline)
    }

    /// What to tell it when it has taken too long; amid an answer there is no way to.
    pub fn complaint(&self, time: Duration) -> Option<Error> {
        match self.stage {
            Stage::Asking(_) => {
                Some(Error::new(Status::TimedOut, format!("nothing was asked within {time:?}")))
            }
            Stage::Queued(_) => Some(Error::new(
                Status::Busy,
                format!("user {} has not read the file descriptors it was sent within {time:?}", self.user),
            )),
            Stage::Answering(_) | Stage::Leaving(_) => None,
        }
    }

    /// Bytes of the share that it is being sent.
    pub fn bytes(&self) -> u64 {
        match &self.stage {
            Stage::Answering(answer) => answer.parcel.bytes.len() as u64,
            Stage::Asking(_) | Stage::Queued(_) | Stage::Leaving(_) => 0,
        }
    }

    /// File descriptors on their way to it.
    pub fn fds(&self) -> usize {
        match &self.stage {
            Stage::Answering(answer) => answer.parcel.fds.len(),
            Stage::Leaving(fds) => *fds,
            Stage::Asking(_) | Stage::Queued(_) => 0,
        }
    }

    /// What it waits for; `None` while nothing but looking again tells.
    pub fn awaited(&self) -> Option<PollFlags> {
        match &self.stage {
            Stage::Asking(_) => Some(PollFlags::IN),
            Stage::Answering(answer) if !answer.held_up => Some(PollFlags::OUT),
            Stage::Answering(_) | Stage::Queued(_) | Stage::Leaving(_) => None,
        }
    }

    /// When to look again at the latest.
    pub fn next_look(&self, now: Instant) -> Option<Instant> {
        match self.awaited() {
            Some(_) => self.deadline(),
            None if now < self.deadline => Some(now + IN_FLIGHT_PAUSE),
            None => Some(now + UNREAD_PAUSE),
        }
    }

    /// Has it wait, with what it asks.
    pub fn queue(&mut self, request: FetchRequest) {
        self.stage = Stage::Queued(request);
    }

    /// Begins to answer.
    pub fn answer(&mut self, answer: Reply, deadline: Instant) {
        self.deadline = deadline;
        self.stage = Stage::Answering(answer);
    }

    /// Moves on as far as it can without waiting, and no further than is fair.
    pub fn turn(&mut self) -> ClientEvent {
        let socket = self.socket.as_fd();
        match &mut self.stage {
            Stage::Asking(incoming) => listen(incoming, socket),
            Stage::Queued(request) => ClientEvent::Asks(request.clone()),
            Stage::Answering(answer) => match answer.speak(socket) {
                Ok(true) => self.leave(),
                Ok(false) => ClientEvent::Waits,
                // Amid an answer there is no way to say more.
                Err(_) => ClientEvent::Over,
            },
            Stage::Leaving(_) => self.leave(),
        }
    }

    /// Goes when the kernel keeps no file descriptors for it any more.
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

/// Tells a client why it gets nothing. That fits in a socket which nothing was sent on yet; a client that makes it
/// fail is not heard.
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
    ensure!(kind == MessageKind::Request, Corrupt, "a message came that is no request ({kind:?})");
    FetchRequest::read(&parcel.bytes)
}

impl Reply {
    /// An answer of which nothing is sent yet.
    pub fn new(parcel: Arc<Parcel>) -> Result<Self> {
        let outgoing = Outgoing::new(MessageKind::Share, &parcel.load())?;
        Ok(Self { outgoing, parcel, held_up: false })
    }

    /// Sends what there is room for, and answers whether that was the last of it.
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
