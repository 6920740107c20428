// SPDX-License-Identifier: Apache-2.0
//! Peers whose metadata an agent has loaded.

#![forbid(unsafe_code)]

use std::ffi::CStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use once_cell::sync::OnceCell;

use super::call::c_string;
use crate::error::{Error, Result, Status, fail};
use crate::process::ProcessIdentity;

/// The look-up in a directory that metadata was found by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LookUp {
    /// The incarnation of the peer. A restarted peer has another one.
    pub incarnation: u64,
    /// Counts the look-ups of this process: what was looked up later is not older.
    pub number: u64,
}

/// A peer whose metadata is loaded. Once invalidated, this value remains invalid, also if metadata of the same name is
/// loaded later: that is a different peer.
#[derive(Debug)]
pub struct Remote {
    name: String,
    /// The same for NIXL.
    c_name: Arc<CStr>,
    /// How many transfers with it are in flight, or [`INVALID`].
    in_flight: AtomicUsize,
    /// The process of the peer, once a layout was imported that names it: metadata does not.
    process: OnceCell<ProcessIdentity>,
}

const INVALID: usize = usize::MAX;

impl Remote {
    pub(super) fn new(name: &str) -> Result<Arc<Self>> {
        Ok(Arc::new(Self {
            name: name.to_string(),
            c_name: c_string("the peer's name", name)?.into(),
            in_flight: AtomicUsize::new(0),
            process: OnceCell::new(),
        }))
    }

    /// The peer agent's name for NIXL.
    pub(super) fn c_name(&self) -> Arc<CStr> {
        self.c_name.clone()
    }

    /// The peer agent's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Notes the process of the peer, as its layouts state it.
    pub fn note_process(&self, process: &ProcessIdentity) {
        let _ = self.process.set(process.clone());
    }

    /// A failure of a request to the peer: NIXL does not say that a peer's process has ended.
    pub fn explain(&self, error: Error) -> Error {
        match self.process.get().filter(|process| process.is_gone()) {
            Some(process) => self.lost(process, error),
            None => error,
        }
    }

    /// The failure of a request to the peer, whose process has ended. A part of the request may have reported that already.
    pub fn lost(&self, process: &ProcessIdentity, error: Error) -> Error {
        let reason = format!("agent '{}' is lost: its process {} has ended", self.name, process.pid);
        let error = if error.message().contains(&reason) { error } else { error.context(reason) };
        error.with_status(Status::PeerLost)
    }

    /// Whether the process of the peer is known to have ended.
    pub fn is_gone(&self) -> bool {
        self.process.get().is_some_and(ProcessIdentity::is_gone)
    }

    /// Fails if the metadata of the peer was invalidated.
    pub fn ensure_valid(&self) -> Result<()> {
        if self.in_flight.load(Ordering::Acquire) == INVALID { Err(self.stale()) } else { Ok(()) }
    }

    /// Whether a transfer with the peer is in flight.
    pub(super) fn is_in_use(&self) -> bool {
        !matches!(self.in_flight.load(Ordering::Acquire), 0 | INVALID)
    }

    /// Prevents invalidation until the hold is dropped.
    pub fn hold(self: &Arc<Self>) -> Result<RemoteHold> {
        let one_more = |count| if count == INVALID { None } else { Some(count + 1) };
        match self.in_flight.fetch_update(Ordering::AcqRel, Ordering::Acquire, one_more) {
            Ok(_) => Ok(RemoteHold(self.clone())),
            Err(_) => Err(self.stale()),
        }
    }

    pub(super) fn invalidate(&self) -> Result<()> {
        match self.in_flight.compare_exchange(0, INVALID, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) | Err(INVALID) => Ok(()),
            Err(count) => fail!(
                Busy,
                "{count} transfers with agent '{}' are in flight; wait for them, or cancel them and wait, then \
                 invalidate its metadata",
                self.name
            ),
        }
    }

    fn stale(&self) -> Error {
        let message = format!(
            "the metadata of agent '{}' was invalidated; load it again, then import its layouts and create the requests again",
            self.name
        );
        Error::new(Status::Stale, message)
    }
}

/// A transfer with a peer that is in flight. It prevents invalidating the peer's metadata.
#[derive(Debug)]
pub struct RemoteHold(Arc<Remote>);

impl Drop for RemoteHold {
    fn drop(&mut self) {
        self.0.in_flight.fetch_sub(1, Ordering::AcqRel);
    }
}
