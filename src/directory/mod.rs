// SPDX-License-Identifier: Apache-2.0
//! A directory: agents publish their metadata and layouts under their names, and peers find them by name.
//!
//! An entry exists while its process lives: a folder knows that by a lock, etcd by a lease. Entries are stored in a [`Store`];
//! everything above it is the same for all stores.

pub mod board;
pub mod entry;
mod etcd;
mod folder;
pub mod offers;
mod store;
mod watch;

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_bytes::ByteBuf;

use crate::base::random::random as random_bytes;
use crate::base::{
    Count, Error, LogId, Mutex, Result, Status, Taken, Taker, Turn, Turns, deadline_of, earlier, ensure,
    error, fail, handoff, log,
};
use board::Event;
pub use entry::{Entry, Presence, PublishedLayout, PublishedShare};
use entry::{check_layouts, check_name};
pub use etcd::EtcdConfig;
use offers::{Offer, Offers};
use store::{Reply, Request, Sink, State, Store};
use watch::{Awaited, Watch, WatchState, ring};

/// The least time that a store has to respond: with a timeout of 0 it is asked once.
const RESPONSE: Duration = Duration::from_millis(100);
/// How long the end of a directory waits for the withdrawal of its entries.
const WITHDRAWAL_LIMIT: Duration = Duration::from_secs(1);

#[derive(Clone, PartialEq, Eq)]
pub enum Location {
    Folder(PathBuf),
    Etcd(EtcdConfig),
}

pub struct Directory {
    log_id: LogId,
    // Dropped before the rest: its thread reports to `watch`.
    store: Box<dyn Store>,
    watch: Arc<Watch>,
    published: Mutex<HashMap<String, Publisher>>,
    turns: Arc<Turns<String>>,
    offers: Offers,
}

pub struct Content {
    pub metadata: Vec<u8>,
    pub layouts: Vec<PublishedLayout>,
    /// What the layouts name, and what must exist while they are published.
    pub offers: Vec<Offer>,
}

/// The agent that has published an entry.
struct Publisher {
    /// Its number in this process. Another agent of the same name is another incarnation.
    agent: LogId,
    incarnation: u64,
    version: u64,
}

impl Directory {
    pub fn open(location: &Location) -> Result<Self> {
        let watch = Arc::<Watch>::default();
        let reporting = watch.clone();
        let sink: Sink = Box::new(move |report| reporting.report(report));
        let store: Box<dyn Store> = match location {
            Location::Folder(path) => Box::new(folder::FolderStore::open(path, sink)?),
            Location::Etcd(config) => Box::new(etcd::EtcdStore::open(config, sink)?),
        };
        let log_id = LogId::next();
        log!(Info, "directory {log_id} opened: {}", store.location());
        Ok(Self {
            log_id,
            store,
            watch,
            published: Mutex::default(),
            turns: Arc::default(),
            offers: Offers::default(),
        })
    }

    /// Publishes an agent: replaces its entry, also if another process published it. Keeps the entry there until it is withdrawn.
    ///
    /// `content` is called when no other call publishes or withdraws the agent:
    /// otherwise one could read older metadata, and store it last.
    pub fn publish(
        &self,
        name: &str,
        agent: LogId,
        content: impl FnOnce() -> Result<Content>,
        deadline: Option<Instant>,
    ) -> Result<()> {
        let responds_by = responding(deadline);
        let _turn = self.with_agent("publish", name, || self.turn(name, deadline))?;
        let Content { metadata, layouts, offers } = content()?;
        check_layouts(&layouts)?;
        let presence = self.next_version(name, agent)?;
        log!(
            Debug,
            "directory {}: publish agent '{name}' in {}: {} of metadata, {}",
            self.log_id,
            self.store.location(),
            Count(metadata.len() as u64, "byte"),
            Count(layouts.len() as u64, "layout")
        );
        let entry = Box::new(Entry { presence, metadata: ByteBuf::from(metadata), layouts });
        let stored = self.call(Request::Publish(entry), responds_by).map(drop);
        self.offers.keep(name, offers, stored.is_ok());
        self.with_agent("publish", name, || stored)
    }

    /// Does something with the entry of an agent.
    fn with_agent<R>(&self, doing: &str, name: &str, work: impl FnOnce() -> Result<R>) -> Result<R> {
        check_name(name, "the agent")?;
        work().map_err(|error| error.context(format!("{doing} agent '{name}' in {}", self.store.location())))
    }

    /// Waits until no other call changes the entry of an agent.
    fn turn(&self, name: &str, deadline: Option<Instant>) -> Result<Turn<String>> {
        let turn = self.turns.take(&name.to_string(), deadline);
        turn.ok_or_else(|| {
            error!(TimedOut, "another call publishes or withdraws the agent, and did not end in time")
        })
    }

    fn next_version(&self, name: &str, agent: LogId) -> Result<Presence> {
        let mut published = self.published.lock();
        let publisher = match published.remove(name) {
            Some(known) if known.agent == agent => Publisher { version: known.version + 1, ..known },
            _ => Publisher { agent, incarnation: random()?, version: 1 },
        };
        let (incarnation, version) = (publisher.incarnation, publisher.version);
        published.insert(name.to_string(), publisher);
        Ok(Presence { name: name.to_string(), incarnation, version })
    }

    /// Removes an entry that this directory has published.
    pub fn withdraw(&self, name: &str, timeout: Option<Duration>) -> Result<()> {
        let deadline = deadline_of(timeout);
        let responds_by = responding(deadline);
        self.with_agent("withdraw", name, || {
            let _turn = self.turn(name, deadline)?;
            let is_own = self.published.lock().contains_key(name);
            ensure!(is_own, NotFound, "this directory has not published it");
            let result = self.call(Request::Withdraw(name.to_string()), responds_by);
            if result.as_ref().err().is_none_or(|error| error.status() == Status::Stale) {
                self.published.lock().remove(name);
                self.offers.end(name);
            }
            result.map(drop)
        })
    }

    pub fn look_up(&self, name: &str, timeout: Option<Duration>) -> Result<Entry> {
        self.with_agent("look up", name, || self.find(name, responding(deadline_of(timeout)))).map_err(
            |error| match error.status() {
                Status::NotFound => error.followed_by("kvmem_directory_connect waits until it is published"),
                _ => error,
            },
        )
    }

    fn find(&self, name: &str, deadline: Option<Instant>) -> Result<Entry> {
        match self.call(Request::LookUp(name.to_string()), deadline)? {
            Reply::Entry(entry) => Ok(*entry),
            other => fail!(Panic, "the reply to a look-up is {other:?}"),
        }
    }

    /// Returns the entry of an agent. Waits until it is published; without a timeout left, looks once.
    pub fn wait_for(&self, name: &str, timeout: Option<Duration>) -> Result<Entry> {
        let deadline = deadline_of(timeout);
        let responds_by = responding(deadline);
        self.with_agent("wait for", name, || {
            let (awaited, reply) = Awaited::begin(&self.watch, &*self.store, name, responds_by);
            self.receive(reply, responds_by)?;
            let mut seen = 0;
            loop {
                let late = || late("it was not published within the timeout", self.store.trouble());
                seen = awaited.arrival(seen, deadline)?.ok_or_else(late)?;
                match self.find(name, responds_by) {
                    // It has ended since.
                    Err(error) if error.status() == Status::NotFound => {}
                    found => return found,
                }
            }
        })
    }

    /// Checks that an entry that was looked up is still the current one of its agent.
    pub fn check(&self, looked_up: &Presence, timeout: Option<Duration>) -> Result<()> {
        let name = &looked_up.name;
        self.with_agent("check the entry of", name, || {
            let reply = self.call(Request::Check(name.clone()), responding(deadline_of(timeout)))?;
            compare(looked_up, reply, self.store.location())
        })
    }

    /// Begins to watch an agent, or all. Its state is reported now, and every change.
    pub fn watch(&self, name: Option<&str>, timeout: Option<Duration>) -> Result<()> {
        name.map_or(Ok(()), |name| check_name(name, "the agent"))?;
        let deadline = responding(deadline_of(timeout));
        let (begun, reply) = {
            let mut state = self.watch.state.lock();
            (state.watched.begin(name), self.submit(Request::Watch(name.map(str::to_string)), deadline))
        };
        let result = self.receive(reply, deadline);
        let mut state = self.watch.state.lock();
        if state.watched.finish(name, begun, result.is_ok()) {
            // The store may execute the request later: then it executes the end of the watch after it.
            self.forget(&mut state, name);
        }
        result.map(drop).map_err(|error| {
            error.context(match name {
                Some(name) => format!("watch agent '{name}' in {}", self.store.location()),
                None => format!("watch all agents in {}", self.store.location()),
            })
        })
    }

    /// Ends the watch of an agent, or of all.
    pub fn unwatch(&self, name: Option<&str>, timeout: Option<Duration>) -> Result<()> {
        let reply = {
            let mut state = self.watch.state.lock();
            ensure!(
                state.watched.contains(name),
                NotFound,
                "{} is not watched",
                name.map_or("the directory as a whole".to_string(), |name| format!("agent '{name}'"))
            );
            self.forget(&mut state, name)
        };
        reply.map_or(Ok(()), |reply| self.receive(reply, responding(deadline_of(timeout))).map(drop))
    }

    /// Ends a watch of the caller. The store continues to watch what a call waits for. Requests of the store are submitted
    /// under the lock of what is watched, so that both change in the same order.
    fn forget(&self, state: &mut WatchState, name: Option<&str>) -> Option<Taker<Result<Reply>>> {
        state.watched.end(name);
        let WatchState { board, watched, .. } = state;
        board.retain(|name| watched.has(name));
        ring(state);
        let is_awaited = name.is_some_and(|name| state.awaited.contains_key(name));
        (!is_awaited).then(|| self.submit(Request::Unwatch(name.map(str::to_string)), None))
    }

    /// Removes all events and returns them. Waits for one if there is none. Fails if none will come, because the store has ended.
    pub fn take_events(&self, timeout: Option<Duration>) -> Result<Vec<Event>> {
        let deadline = deadline_of(timeout);
        let mut state = self.watch.state.lock();
        loop {
            let events = state.board.take();
            if !events.is_empty() {
                state.is_rung = false;
                return Ok(events);
            }
            state.ensure_running()?;
            let Ok(woken) = self.watch.arrival.wait_until(state, deadline) else {
                fail!(TimedOut, "no event arrived within the timeout");
            };
            state = woken;
        }
    }

    /// Calls `bell` when events arrive and none waited before; the bell must not block. `None` ends that.
    pub fn ring_on_events(&self, bell: Option<Box<dyn Fn() + Send + Sync>>) {
        let mut state = self.watch.state.lock();
        state.bell = bell;
        state.is_rung = false;
        ring(&mut state);
    }

    fn call(&self, request: Request, deadline: Option<Instant>) -> Result<Reply> {
        self.receive(self.submit(request, deadline), deadline)
    }

    fn submit(&self, request: Request, deadline: Option<Instant>) -> Taker<Result<Reply>> {
        let (giver, reply) = handoff();
        self.store.submit(request, deadline, giver);
        reply
    }

    /// Waits for a reply. If the store does not respond in time, the error contains the reason that the store knows.
    fn receive(&self, reply: Taker<Result<Reply>>, deadline: Option<Instant>) -> Result<Reply> {
        let limit = self.store.longest().map(|longest| Instant::now() + longest);
        match reply.take(earlier(deadline, limit)) {
            Taken::Value(reply) => reply,
            Taken::Gone => {
                self.watch.state.lock().ensure_running()?;
                fail!(Panic, "the thread of the directory ended or panicked")
            }
            Taken::TooLate => Err(late("there was no response in time", self.store.silence())),
        }
    }
}

fn late(what: &'static str, reason: Option<Error>) -> Error {
    let late = Error::new(Status::TimedOut, what);
    match reason {
        Some(reason) => late.followed_by(reason),
        None => late,
    }
}

/// Until when a store may respond, in a call that ends at this deadline.
fn responding(deadline: Option<Instant>) -> Option<Instant> {
    deadline.map(|deadline| deadline.max(Instant::now() + RESPONSE))
}

/// Compares an entry that was looked up with the current state.
fn compare(looked_up: &Presence, reply: Reply, location: &str) -> Result<()> {
    let name = &looked_up.name;
    match reply {
        Reply::Presence(State::Present(current)) if current == *looked_up => Ok(()),
        Reply::Presence(State::Present(current)) if current.incarnation == looked_up.incarnation => {
            fail!(
                Stale,
                "the agent has published version {} since, and the entry is version {}; look it up again",
                current.version,
                looked_up.version
            )
        }
        Reply::Presence(State::Present(_)) => {
            fail!(
                Stale,
                "the entry is that of another agent since: the agent was restarted, or another process has published its name; look it up \
                 again, and load its metadata"
            )
        }
        Reply::Presence(State::Absent) => Err(entry::not_found()),
        Reply::Presence(State::Invalid(reason)) => Err(entry::refused(name, &reason, location)),
        other => fail!(Panic, "the reply to a check is {other:?}"),
    }
}

fn random() -> Result<u64> {
    Ok(u64::from_ne_bytes(random_bytes()?) | 1)
}

impl Drop for Directory {
    fn drop(&mut self) {
        // A thread of the store that is stuck reports no more once the caller has destroyed this.
        self.ring_on_events(None);
        // Together, so that the wait is bounded for any number of them.
        let deadline = Instant::now() + WITHDRAWAL_LIMIT;
        let names: Vec<_> = self.published.get_mut().drain().map(|(name, _)| name).collect();
        let replies: Vec<_> = names
            .into_iter()
            .map(|name| {
                let reply = self.submit(Request::Withdraw(name.clone()), Some(deadline));
                (name, reply)
            })
            .collect();
        for (name, reply) in replies {
            match reply.take(Some(deadline)) {
                Taken::Value(Ok(_)) => {}
                Taken::Value(Err(error)) if error.status() == Status::Stale => {}
                Taken::Value(Err(error)) => {
                    log!(Warn, "directory {}: withdraw agent '{name}': {error}", self.log_id)
                }
                Taken::Gone | Taken::TooLate => log!(
                    Warn,
                    "directory {}: agent '{name}' was not withdrawn in time; its entry is removed when its lease ends",
                    self.log_id
                ),
            }
        }
        log!(Info, "directory {} closed: {}", self.log_id, self.store.location());
    }
}

#[cfg(test)]
mod tests;
