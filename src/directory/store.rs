// SPDX-License-Identifier: Apache-2.0
//! What a directory needs of the place where entries are stored: a folder, or etcd.

use std::time::{Duration, Instant};

use super::entry::{Entry, Presence};
use crate::base::{Error, Giver, Result, error};

/// Stores entries. Requests are executed in order, by a thread of the store: a caller waits for the reply until
/// its own deadline, even if the store blocks for longer.
pub trait Store: Send + Sync {
    /// Queues a request. The reply is sent once, unless the store ends before.
    fn submit(&self, request: Request, deadline: Option<Instant>, reply: Giver<Result<Reply>>);
    /// Where entries are stored, for messages.
    fn location(&self) -> &str;
    /// Why the store is out of reach now, if it knows that it is.
    fn trouble(&self) -> Option<Error>;
    /// How long a request may take, also if its caller has no deadline; `None` for no limit.
    fn longest(&self) -> Option<Duration> {
        None
    }
    /// Why a request has no reply in time, if a reason is known.
    fn silence(&self) -> Option<Error> {
        self.trouble()
    }
}

pub enum Request {
    /// Stores an entry, and keeps it stored while the process lives.
    Publish(Box<Entry>),
    /// Removes an entry that this store has published.
    Withdraw(String),
    LookUp(String),
    /// Reads the presence of an agent.
    Check(String),
    /// Reports the presence of an agent, or of all, now and when it changes.
    Watch(Option<String>),
    Unwatch(Option<String>),
}

#[derive(Debug)]
pub enum Reply {
    Done,
    Entry(Box<Entry>),
    Presence(State),
}

/// The presence of an agent, as far as a store knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// There is no entry, or its process has ended.
    Absent,
    Present(Presence),
    /// There is an entry that is not valid, for this reason.
    Invalid(String),
}

pub enum Report {
    /// The state of an agent, which is watched.
    State(String, State),
    /// The states of all agents whose state is not [`State::Absent`], in parts that follow each other.
    States {
        /// One name; `None` for all names.
        scope: Option<String>,
        states: Vec<(String, State)>,
        /// It is the first part. Earlier parts without a last one are of no use.
        is_first: bool,
        /// It is the last part.
        is_last: bool,
    },
    /// Another process has published an agent that this store had published.
    Superseded(String),
    /// An entry that this store had published was missing or damaged, and is published again.
    Restored(String),
    /// Reports may be missing from now on.
    Interrupted(Error),
    /// No reports are missing any more: the states of all that is watched were reported again.
    Resumed,
    /// The thread of the store has ended by a bug: there are no further reports, and no replies.
    Ended(Error),
}

/// Receives reports, on a thread of the store.
pub type Sink = Box<dyn Fn(Report) + Send + Sync>;

/// The error of a store whose thread has ended, which has this reason.
pub fn ended(reason: impl std::fmt::Display) -> Error {
    error!(Panic, "{reason}; open the directory again")
}
