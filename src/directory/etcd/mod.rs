// SPDX-License-Identifier: Apache-2.0
//! Entries as keys of etcd, for agents on many machines.
//!
//! The client is a library of its own, which runs one thread per directory. It knows neither the wire forms nor what is
//! valid: it passes bytes, and this file decides about them.

mod config;
#[cfg(test)]
#[path = "../../../etcd/src/paging.rs"]
mod paging;
mod plugin;
mod protocol;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use serde_bytes::ByteBuf;

use super::entry::{Entry, Presence, decode, encode, invalid, not_found, refused};
use super::store::{self, Reply, Report, Request, Sink, State, Store};
use crate::base::wire::read_fields;
use crate::base::{Error, Giver, Mutex, Result, Status, Taken, error, fail, handoff, log, time_left};
pub use config::EtcdConfig;
use plugin::Plugin;
use protocol::{Command, DECISION_NONE, DECISION_RESTORE, DECISION_YIELD, Failure, Message, Value};

/// How long the first connection may take: longer than the limits of the client.
const OPENING: Duration = Duration::from_secs(20);

/// How long a caller waits: a little longer than the client for one call of a server.
const LONGEST: Duration = Duration::from_millis(10_100);

/// A client, and the requests that it executes.
pub struct EtcdStore {
    location: String,
    // Dropped first: its thread uses `shared`.
    plugin: Plugin,
    shared: Arc<Shared>,
    next_request: AtomicU64,
}

struct Shared {
    location: String,
    sink: Sink,
    requests: Mutex<HashMap<u64, Pending>>,
    trouble: Mutex<Option<Error>>,
    opened: Giver<Result<()>>,
    /// The client has ended by a bug.
    has_ended: AtomicBool,
}

/// A request that the client executes.
struct Pending {
    expects: Expects,
    reply: Giver<Result<Reply>>,
}

/// How the value of a reply is read.
enum Expects {
    Nothing,
    Entry(String),
    Presence(String),
}

impl EtcdStore {
    pub fn open(config: &EtcdConfig, sink: Sink) -> Result<Self> {
        let location = config.location();
        let (opened, result) = handoff();
        let shared = Arc::new(Shared::new(location.clone(), sink, opened));
        let receiving = shared.clone();
        let options = written(&config.options()?)?;
        let plugin = Plugin::open(&options, Box::new(move |bytes| receiving.receive(bytes)))?;
        let outcome = match result.take(Some(Instant::now() + OPENING)) {
            Taken::Value(outcome) => outcome,
            Taken::TooLate => Err(error!(TimedOut, "etcd did not respond in time")),
            Taken::Gone => fail!(Panic, "the client of etcd ended"),
        };
        outcome.map_err(|error| error.context(format!("connect to {location}")))?;
        Ok(Self { location, plugin, shared, next_request: AtomicU64::new(1) })
    }
}

impl Store for EtcdStore {
    fn submit(&self, request: Request, deadline: Option<Instant>, reply: Giver<Result<Reply>>) {
        let (request, expects) = match self.shared.translated(request) {
            Ok(translated) => translated,
            Err(error) => return drop(reply.give(Err(error))),
        };
        let id = self.next_request.fetch_add(1, Ordering::Relaxed);
        let timeout_ms = time_left(deadline).map(|left| u64::try_from(left.as_millis()).unwrap_or(u64::MAX));
        match written(&Command { id, timeout_ms, request }) {
            Ok(bytes) => {
                self.shared.requests.lock().insert(id, Pending { expects, reply });
                self.plugin.send(&bytes);
                self.shared.drop_requests_if_ended();
            }
            Err(error) => drop(reply.give(Err(error))),
        }
    }

    fn location(&self) -> &str {
        &self.location
    }

    fn trouble(&self) -> Option<Error> {
        self.shared.trouble.lock().clone()
    }

    /// Requests are executed one after the other, and each may need several calls of a server.
    fn longest(&self) -> Option<Duration> {
        Some(LONGEST)
    }
}

impl Shared {
    fn new(location: String, sink: Sink, opened: Giver<Result<()>>) -> Self {
        Self {
            location,
            sink,
            requests: Mutex::default(),
            trouble: Mutex::default(),
            opened,
            has_ended: AtomicBool::new(false),
        }
    }

    /// Without a client nothing replies: the callers see that their requests were dropped.
    fn drop_requests_if_ended(&self) {
        if self.has_ended.load(Ordering::Acquire) {
            self.requests.lock().clear();
        }
    }

    fn translated(&self, request: Request) -> Result<(protocol::Request, Expects)> {
        let watched = |name: Option<String>| name.map(|name| encode(&name));
        Ok(match request {
            Request::Publish(entry) => {
                let name = encode(&entry.presence.name);
                let presence = ByteBuf::from(entry.presence.write()?);
                let bytes = ByteBuf::from(entry.write()?);
                (protocol::Request::Publish { name, presence, entry: bytes }, Expects::Nothing)
            }
            Request::Withdraw(name) => (protocol::Request::Withdraw(encode(&name)), Expects::Nothing),
            Request::LookUp(name) => (protocol::Request::Entry(encode(&name)), Expects::Entry(name)),
            Request::Check(name) => (protocol::Request::Presence(encode(&name)), Expects::Presence(name)),
            Request::Watch(name) => (protocol::Request::Watch(watched(name)), Expects::Nothing),
            Request::Unwatch(name) => (protocol::Request::Unwatch(watched(name)), Expects::Nothing),
        })
    }

    /// Takes a message of the client, on its thread.
    fn receive(&self, bytes: &[u8]) -> u32 {
        let message = match read_fields::<Message>(bytes) {
            Ok(message) => message,
            Err(error) => {
                log!(Error, "{}: a message of the client is damaged: {error}", self.location);
                return DECISION_NONE;
            }
        };
        match message {
            Message::Opened(outcome) => drop(self.opened.give(outcome.map_err(error_of))),
            Message::Done { id, result } => self.finish(id, result),
            Message::Changed(name, value) => {
                if let Some(name) = decode(&name) {
                    let state = state(&name, value);
                    (self.sink)(Report::State(name, state));
                }
            }
            Message::Snapshot { scope, states, is_first, is_last } => {
                let scope = scope.and_then(|name| decode(&name));
                (self.sink)(Report::States { scope, states: known(states), is_first, is_last });
            }
            Message::Foreign { name, own, value } => return self.decide(&name, &own, value),
            Message::Interrupted(failure) => {
                let error = error_of(failure);
                // Not again at every attempt to reach it.
                if self.trouble.lock().replace(error.clone()).is_none() {
                    log!(Warn, "{} cannot be reached: {error}", self.location);
                }
                (self.sink)(Report::Interrupted(error));
            }
            Message::Resumed => {
                log!(Info, "{} is reached again", self.location);
                *self.trouble.lock() = None;
                (self.sink)(Report::Resumed);
            }
            Message::Restored(name) => {
                if let Some(name) = decode(&name) {
                    (self.sink)(Report::Restored(name));
                }
            }
            Message::Log(line) => log!(Info, "{}: {line}", self.location),
            Message::Ended => {
                let error = store::ended("a bug in the client of etcd has ended it");
                log!(Error, "{}: {error}", self.location);
                // A caller that sees its request dropped finds the reason.
                (self.sink)(Report::Ended(error));
                self.has_ended.store(true, Ordering::Release);
                self.drop_requests_if_ended();
            }
        }
        DECISION_NONE
    }

    /// Another value is stored under a name that was published here: that of another process, or damage.
    fn decide(&self, encoded: &str, own: &[u8], value: Value) -> u32 {
        let Some(name) = decode(encoded) else { return DECISION_NONE };
        match (Presence::read(&name, own), state(&name, value)) {
            (Ok(own), State::Present(other)) if own.incarnation == other.incarnation => {
                // A server may execute a publication after its limit, and after a later one.
                if other.version < own.version { DECISION_RESTORE } else { DECISION_NONE }
            }
            (_, State::Present(_)) => {
                (self.sink)(Report::Superseded(name));
                DECISION_YIELD
            }
            (_, State::Invalid(_)) => DECISION_RESTORE,
            (_, State::Absent) => DECISION_NONE,
        }
    }

    fn finish(&self, id: u64, result: std::result::Result<Value, Failure>) {
        let Some(pending) = self.requests.lock().remove(&id) else { return };
        let outcome = result.map_err(error_of).and_then(|value| match pending.expects {
            Expects::Nothing => Ok(Reply::Done),
            Expects::Presence(name) => Ok(Reply::Presence(state(&name, value))),
            Expects::Entry(name) => entry(&name, value, &self.location),
        });
        let _ = pending.reply.give(outcome);
    }
}

fn entry(name: &str, value: Value, location: &str) -> Result<Reply> {
    match value {
        Value::Absent => Err(not_found()),
        Value::Bytes(bytes) => match Entry::read(name, &bytes) {
            Ok(entry) => Ok(Reply::Entry(Box::new(entry))),
            Err(error) => Err(refused(name, &invalid(&error), location)),
        },
        Value::TooLarge(size) => Err(refused(name, &invalid(&too_large(size)), location)),
    }
}

/// The states of agents. A key that is no encoded name is not that of any agent.
fn known(values: Vec<(String, Value)>) -> Vec<(String, State)> {
    let named = values.into_iter().filter_map(|(name, value)| Some((decode(&name)?, value)));
    let states = named.map(|(name, value)| {
        let state = state(&name, value);
        (name, state)
    });
    states.filter(|(_, state)| *state != State::Absent).collect()
}

fn state(name: &str, value: Value) -> State {
    match value {
        Value::Absent => State::Absent,
        Value::Bytes(bytes) => match Presence::read(name, &bytes) {
            Ok(presence) => State::Present(presence),
            Err(error) => State::Invalid(invalid(&error)),
        },
        Value::TooLarge(size) => State::Invalid(invalid(&too_large(size))),
    }
}

fn too_large(size: usize) -> Error {
    error!(Corrupt, "it has {size} bytes, which are too many")
}

fn error_of(failure: Failure) -> Error {
    Error::new(Status::from_code(failure.status).unwrap_or(Status::Io), failure.message)
}

fn written<T: serde::Serialize>(message: &T) -> Result<Vec<u8>> {
    minicbor_serde::to_vec(message).map_err(|error| error!(OutOfMemory, "write a message: {error}"))
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::sync_channel;

    use super::*;

    fn shared(sink: Sink) -> Shared {
        Shared::new("etcd".to_string(), sink, handoff().0)
    }

    #[test]
    fn a_client_that_ends_by_a_bug_leaves_no_caller_waiting() {
        let (reports, reported) = sync_channel(4);
        let shared = shared(Box::new(move |report| drop(reports.send(report))));
        let (reply, replied) = handoff();
        shared.requests.lock().insert(1, Pending { expects: Expects::Nothing, reply });
        shared.drop_requests_if_ended();
        assert!(!replied.wait(Some(Instant::now())), "the client lives");
        shared.receive(&written(&Message::Ended).unwrap());
        assert!(matches!(replied.take(Some(Instant::now())), Taken::Gone));
        assert!(matches!(reported.try_recv(), Ok(Report::Ended(error)) if error.status() == Status::Panic));
        let (reply, replied) = handoff();
        shared.requests.lock().insert(2, Pending { expects: Expects::Nothing, reply });
        shared.drop_requests_if_ended();
        assert!(matches!(replied.take(Some(Instant::now())), Taken::Gone));
    }

    #[test]
    fn a_damaged_message_is_no_decision() {
        let shared = shared(Box::new(|_| panic!("nothing is reported")));
        assert_eq!(shared.receive(b"damage"), DECISION_NONE);
        let other =
            Message::Foreign { name: "%zz".to_string(), own: ByteBuf::default(), value: Value::Absent };
        assert_eq!(shared.receive(&written(&other).unwrap()), DECISION_NONE, "no name is encoded so");
    }

    #[test]
    fn what_is_stored_under_an_own_name_is_kept_or_replaced_or_takes_over() {
        let (reports, reported) = sync_channel(4);
        let shared = shared(Box::new(move |report| drop(reports.send(report))));
        let bytes = |incarnation, version| {
            let presence = Presence { name: "a".to_string(), incarnation, version };
            ByteBuf::from(presence.write().unwrap())
        };
        let decision = |value| {
            let message = Message::Foreign { name: "a".to_string(), own: bytes(7, 3), value };
            shared.receive(&written(&message).unwrap())
        };
        assert_eq!(decision(Value::Bytes(bytes(7, 4))), DECISION_NONE);
        assert_eq!(decision(Value::Bytes(bytes(7, 2))), DECISION_RESTORE, "a publication that came late");
        assert_eq!(decision(Value::Bytes(ByteBuf::from([1]))), DECISION_RESTORE);
        assert_eq!(decision(Value::Absent), DECISION_NONE);
        assert!(reported.try_recv().is_err());
        assert_eq!(decision(Value::Bytes(bytes(8, 1))), DECISION_YIELD);
        assert!(matches!(reported.try_recv(), Ok(Report::Superseded(name)) if name == "a"));
    }
}
