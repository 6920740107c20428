// SPDX-License-Identifier: Apache-2.0
//! One client of a broker: first it asks, then it is answered.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Instant;

use rustix::event::PollFlags;

use super::Parcel;
use super::request::{MOST_REQUEST, Refusal, Request};
use crate::error::{Error, Result, Status, ensure};
use crate::share::frame::Kind;
use crate::share::incoming::{Boundaries, Got, Incoming, Limits};
use crate::share::outgoing::{Load, Outgoing, Sent};

/// How many messages of one client are moved before the others get their turn.
const MESSAGES_A_TURN: usize = 16;

/// A client.
pub struct Connection {
    socket: OwnedFd,
    user: u32,
    deadline: Instant,
    stage: Stage,
}

enum Stage {
    Asking(Incoming),
    Answering(Answer),
}

/// A share on its way to a client.
pub struct Answer {
    outgoing: Outgoing,
    parcel: Arc<Parcel>,
    /// The kernel takes no more file descriptors for now.
    held_up: bool,
}

/// What a turn came to.
pub enum Turn {
    /// It waits for the client.
    Waits,
    /// The client has asked.
    Asks(Request),
    /// The client must be told why it gets nothing.
    Wrong(Error),
    /// There is nothing left to do for it.
    Over,
}

impl Connection {
    /// A client that has just come.
    pub fn new(socket: OwnedFd, user: u32, deadline: Instant) -> Self {
        let limits = Limits { bytes: MOST_REQUEST, fds: 0 };
        Self { socket, user, deadline, stage: Stage::Asking(Incoming::new(Boundaries::None, limits)) }
    }

    /// Whose process it is.
    pub fn user(&self) -> u32 {
        self.user
    }

    /// When it has taken too long.
    pub fn deadline(&self) -> Instant {
        self.deadline
    }

    /// Whether it has yet to say what it wants.
    pub fn is_asking(&self) -> bool {
        matches!(self.stage, Stage::Asking(_))
    }

    /// Bytes of the share that it is being sent.
    pub fn bytes(&self) -> u64 {
        match &self.stage {
            Stage::Asking(_) => 0,
            Stage::Answering(answer) => answer.parcel.bytes.len() as u64,
        }
    }

    /// What it waits for; nothing while only time can help.
    pub fn awaited(&self) -> PollFlags {
        match &self.stage {
            Stage::Asking(_) => PollFlags::IN,
            Stage::Answering(answer) if answer.held_up => PollFlags::empty(),
            Stage::Answering(_) => PollFlags::OUT,
        }
    }

    /// Whether only time can help.
    pub fn is_held_up(&self) -> bool {
        matches!(&self.stage, Stage::Answering(answer) if answer.held_up)
    }

    /// Begins to answer.
    pub fn answer(&mut self, answer: Answer, deadline: Instant) {
        self.deadline = deadline;
        self.stage = Stage::Answering(answer);
    }

    /// Moves on as far as it can without waiting, and no further than is fair.
    pub fn turn(&mut self) -> Turn {
        match &mut self.stage {
            Stage::Asking(incoming) => listen(incoming, self.socket.as_fd()),
            Stage::Answering(answer) => answer.speak(self.socket.as_fd()),
        }
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
    let load: Load<'_, OwnedFd> = Load { bytes: &bytes, fds: &[] };
    let _ = Outgoing::new(Kind::Refusal, &load).and_then(|mut outgoing| outgoing.step(socket, &load));
}

fn listen(incoming: &mut Incoming, socket: BorrowedFd<'_>) -> Turn {
    for _ in 0..MESSAGES_A_TURN {
        match incoming.step(socket) {
            Ok(Got::All(kind, parcel)) => {
                return read_request(kind, &parcel).map_or_else(Turn::Wrong, Turn::Asks);
            }
            Ok(Got::Some) => {}
            Ok(Got::Nothing) => return Turn::Waits,
            Err(error) if error.status() == Status::PeerLost => return Turn::Over,
            Err(error) => return Turn::Wrong(error),
        }
    }
    Turn::Waits
}

fn read_request(kind: Kind, parcel: &Parcel) -> Result<Request> {
    ensure!(kind == Kind::Request, Corrupt, "a message came that is no request ({kind:?})");
    Request::read(&parcel.bytes)
}

impl Answer {
    /// An answer of which nothing is sent yet.
    pub fn new(parcel: Arc<Parcel>) -> Result<Self> {
        let outgoing = Outgoing::new(Kind::Share, &parcel.load())?;
        Ok(Self { outgoing, parcel, held_up: false })
    }

    fn speak(&mut self, socket: BorrowedFd<'_>) -> Turn {
        self.held_up = false;
        for _ in 0..MESSAGES_A_TURN {
            match self.outgoing.step(socket, &self.parcel.load()) {
                Ok(Sent::All) => return Turn::Over,
                Ok(Sent::Some) => {}
                Ok(Sent::Full) => return Turn::Waits,
                Ok(Sent::TooManyInFlight) => {
                    self.held_up = true;
                    return Turn::Waits;
                }
                // Amid an answer there is no way to say more.
                Err(_) => return Turn::Over,
            }
        }
        Turn::Waits
    }
}
