// SPDX-License-Identifier: Apache-2.0
//! A broker: shares published by name at a socket path, for whoever may have them.
//!
//! One thread serves all clients and never waits for one of them. A client is heard if its user is allowed, says what
//! it wants in time, and shows a token; docs/share-transport.md has the exchange byte by byte.

mod catalogue;
mod connection;
mod listener;
mod request;
mod service;
mod token;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::event::{EventfdFlags, eventfd};

pub use catalogue::Terms;
pub(super) use listener::address;
pub(super) use request::check_name;
pub use request::{Refusal, Request};
pub use token::Token;

use super::Parcel;
use crate::error::{Error, Result, Status, ensure};
use crate::log::log;
use crate::region::Access;
use catalogue::Catalogue;
use listener::Listener;
use service::Service;

/// What a name stands for.
pub trait Publication: Send + Sync {
    /// What a client gets whose token grants this access, and who asks for no more than that; `None` for all that may
    /// be had. Called on the broker's thread, with no lock held, each time a client fetches; no other client is served
    /// meanwhile.
    fn parcel(&self, granted: Access, asked: Option<Access>) -> Result<Arc<Parcel>>;
}

/// How a broker runs.
#[derive(Clone, Debug)]
pub struct BrokerConfig {
    /// Where its socket lies.
    pub path: PathBuf,
    /// Permission bits of the socket.
    pub mode: u32,
    /// The users that may fetch; none for the broker's own alone. Nobody else may, root included.
    pub users: Vec<u32>,
    /// The most clients at once.
    pub max_clients: usize,
    /// The most clients at once of one user; 0 for an equal part of `max_clients`.
    pub max_clients_per_user: usize,
    /// The most bytes of shares on their way to one user at once.
    pub max_bytes_per_user: u64,
    /// How long a client may take to ask, and again to read the answer.
    pub client_timeout: Duration,
}

impl BrokerConfig {
    /// The defaults, at a path.
    pub fn at(path: impl Into<PathBuf>) -> Self {
        Self {
            path: path.into(),
            mode: 0o600,
            users: Vec::new(),
            max_clients: 256,
            max_clients_per_user: 0,
            max_bytes_per_user: 256 << 20,
            client_timeout: Duration::from_secs(10),
        }
    }

    fn check(mut self) -> Result<Self> {
        let own = rustix::process::geteuid().as_raw();
        if self.users.is_empty() {
            self.users.push(own);
        }
        ensure!(self.mode & !0o777 == 0, InvalidArgument, "{:#o} are no permission bits", self.mode);
        let others = self.users.iter().any(|user| *user != own);
        ensure!(
            !others || self.mode & 0o022 != 0,
            InvalidArgument,
            "users {:?} may fetch, but a socket of mode {:#o} lets only its owner connect; ask for 0660 or 0666",
            self.users,
            self.mode
        );
        ensure!(self.max_clients > 0, InvalidArgument, "a broker with room for no client is of no use");
        if self.max_clients_per_user == 0 {
            self.max_clients_per_user = (self.max_clients / self.users.len()).max(1);
        }
        Ok(self)
    }
}

/// What a broker has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BrokerInfo {
    /// Names published now.
    pub publications: u64,
    /// Clients connected now.
    pub clients: u64,
    /// Shares that were handed out.
    pub granted: u64,
    /// Clients that were told no.
    pub refused: u64,
}

/// Counts that the thread keeps.
#[derive(Default)]
struct Counts {
    clients: AtomicU64,
    granted: AtomicU64,
    refused: AtomicU64,
}

/// What the thread and the rest of the library both use.
struct Shared {
    catalogue: Catalogue,
    counts: Counts,
    stopping: AtomicBool,
    wake: rustix::fd::OwnedFd,
}

/// A broker. Dropping it ends its thread, and closes and removes its socket.
pub struct Broker {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl Broker {
    /// Starts to listen.
    pub fn start(config: BrokerConfig) -> Result<Self> {
        let config = config.check()?;
        let path = config.path.display().to_string();
        let doing = |error: Error| error.context(format!("start a broker at {path}"));
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(|errno| doing(Error::errno("make an event fd", errno)))?;
        let listener = Listener::bind(&config.path, config.mode, config.max_clients).map_err(doing)?;
        let shared = Arc::new(Shared {
            catalogue: Catalogue::default(),
            counts: Counts::default(),
            stopping: AtomicBool::new(false),
            wake,
        });
        let service = Service::new(shared.clone(), listener, config);
        let thread = std::thread::Builder::new()
            .name("kvmem-broker".to_string())
            .spawn(move || service.run())
            .map_err(|error| doing(Error::new(Status::OutOfMemory, format!("start its thread: {error}"))))?;
        log!(Info, "a broker listens at {path}");
        Ok(Self { shared, thread: Some(thread) })
    }

    /// Offers something under a name that is free, and answers the token by which it is fetched.
    pub fn publish(&self, name: &str, publication: Arc<dyn Publication>, terms: &Terms) -> Result<Token> {
        let token = self.shared.catalogue.publish(name, publication, terms)?;
        log!(Debug, "broker publishes '{name}'");
        Ok(token)
    }

    /// Makes another token for what is published.
    pub fn grant(&self, name: &str, terms: &Terms) -> Result<Token> {
        self.shared.catalogue.grant(name, terms)
    }

    /// Takes an offer back, and all its tokens with it. Who is being sent it just now still gets it.
    pub fn unpublish(&self, name: &str) -> Result<()> {
        self.shared.catalogue.unpublish(name)?;
        log!(Debug, "broker no longer publishes '{name}'");
        Ok(())
    }

    /// What it has done.
    pub fn info(&self) -> BrokerInfo {
        let Counts { clients, granted, refused } = &self.shared.counts;
        BrokerInfo {
            publications: self.shared.catalogue.len() as u64,
            clients: clients.load(Ordering::Relaxed),
            granted: granted.load(Ordering::Relaxed),
            refused: refused.load(Ordering::Relaxed),
        }
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        self.shared.stopping.store(true, Ordering::Release);
        if let Err(errno) = rustix::io::write(&self.shared.wake, &1u64.to_ne_bytes()) {
            log!(Error, "wake the broker's thread: {errno}");
        }
        let Some(thread) = self.thread.take() else { return };
        // A publication may hold the broker, and be let go by its thread.
        if thread.thread().id() != std::thread::current().id() && thread.join().is_err() {
            log!(Error, "the broker's thread ended by a panic");
        }
        log!(Debug, "broker destroyed");
    }
}
