// SPDX-License-Identifier: Apache-2.0
//! A broker: publishes shares by name at a socket path, for authorised clients.
//!
//! One thread serves all clients and never waits for one of them. A client gets a share if its user is allowed, and if it
//! sends a request with a valid token in time. docs/share-transport.md specifies the protocol.

mod catalogue;
mod config;
mod connection;
mod listener;
mod fetch_request;
mod broker_thread;
mod token;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;

pub use catalogue::{Publication, TokenTerms};
pub use config::BrokerConfig;
pub(super) use fetch_request::check_name;
pub use fetch_request::{FetchRequest, Refusal};
pub(super) use listener::address;
pub use token::Token;

use crate::base::{Error, EventFd, Result, log, thread};
use broker_thread::{BrokerCounts, BrokerState, Service};
use catalogue::Catalogue;
use listener::Listener;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BrokerInfo {
    pub publications: u64,
    pub clients: u64,
    pub granted: u64,
    pub refused: u64,
}

/// A broker. Dropping it ends its thread, and closes and removes its socket.
pub struct Broker {
    shared: Arc<BrokerState>,
    path: PathBuf,
    thread: Option<JoinHandle<()>>,
}

impl Broker {
    pub fn start(config: BrokerConfig) -> Result<Self> {
        let config = config.check()?;
        let shown = config.path.display().to_string();
        let doing = |error: Error| error.context(format!("start a broker at {shown}"));
        let wake = EventFd::new().map_err(doing)?;
        let listener = Listener::bind(&config.path, config.mode, config.max_clients).map_err(doing)?;
        let path = listener.path().to_path_buf();
        let shared = Arc::new(BrokerState {
            catalogue: Catalogue::default(),
            counts: BrokerCounts::default(),
            stopping: AtomicBool::new(false),
            wake,
        });
        let service = Service::new(shared.clone(), listener, config);
        let thread = thread::spawn("kvmem-broker", move || service.run()).map_err(doing)?;
        log!(Info, "a broker listens at {shown}");
        Ok(Self { shared, path, thread: Some(thread) })
    }

    /// Publishes under an unused name. Returns the token that clients fetch it with.
    pub fn publish(
        &self,
        name: &str,
        publication: Arc<dyn Publication>,
        terms: &TokenTerms,
    ) -> Result<Token> {
        let token = self.shared.catalogue.publish(name, publication, terms)?;
        log!(Debug, "broker publishes '{name}'");
        Ok(token)
    }

    /// Publishes under an unused name, until the result is dropped.
    pub fn lend(
        &self,
        name: String,
        publication: Arc<dyn Publication>,
        terms: &TokenTerms,
    ) -> Result<(Token, Loan)> {
        let token = self.publish(&name, publication, terms)?;
        Ok((token, Loan { broker: Arc::downgrade(&self.shared), name }))
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Creates another token for a published name.
    pub fn grant(&self, name: &str, terms: &TokenTerms) -> Result<Token> {
        self.shared.catalogue.grant(name, terms)
    }

    /// Removes a name with all its tokens. Fetches in progress complete.
    pub fn unpublish(&self, name: &str) -> Result<()> {
        self.shared.catalogue.unpublish(name)?;
        log!(Debug, "broker no longer publishes '{name}'");
        Ok(())
    }

    pub fn info(&self) -> BrokerInfo {
        let BrokerCounts { clients, granted, refused } = &self.shared.counts;
        BrokerInfo {
            publications: self.shared.catalogue.len() as u64,
            clients: clients.load(Ordering::Relaxed),
            granted: granted.load(Ordering::Relaxed),
            refused: refused.load(Ordering::Relaxed),
        }
    }
}

/// A name that a broker publishes until this is dropped, unless the broker ends before.
pub struct Loan {
    broker: Weak<BrokerState>,
    name: String,
}

impl Drop for Loan {
    fn drop(&mut self) {
        // The caller may have unpublished it, by its name.
        let _ = self.broker.upgrade().map(|broker| broker.catalogue.unpublish(&self.name));
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        self.shared.stopping.store(true, Ordering::Release);
        self.shared.wake.signal();
        let Some(thread) = self.thread.take() else { return };
        // A publication may hold the broker, and may be dropped by the broker's thread.
        if thread.thread().id() != std::thread::current().id() && thread.join().is_err() {
            log!(Error, "the broker's thread panicked");
        }
        log!(Debug, "broker destroyed");
    }
}
