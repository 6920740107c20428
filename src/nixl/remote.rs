// SPDX-License-Identifier: Apache-2.0
//! Peers whose metadata an agent has loaded.

#![forbid(unsafe_code)]

use std::ffi::CStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use once_cell::sync::OnceCell;

use super::call::c_string;
use crate::error::{Error, Result, Status};
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
    /// Its name for NIXL: another one while NIXL needs an earlier peer of the same name.
    c_name: Arc<CStr>,
    /// How many transfers with it are in flight, with [`INVALID`] once it was invalidated.
    in_flight: AtomicUsize,
    /// The process of the peer, once a layout was imported that names it: metadata does not.
    process: OnceCell<ProcessIdentity>,
}

const INVALID: usize = 1 << (usize::BITS - 1);

impl Remote {
    pub(super) fn new(name: &str) -> Result<Arc<Self>> {
        Self::known_as(name, name)
    }

    /// One that NIXL knows by another name.
    pub(super) fn known_as(name: &str, nixl_name: &str) -> Result<Arc<Self>> {
        Ok(Arc::new(Self {
            name: name.to_string(),
            c_name: c_string("the peer's name", nixl_name)?.into(),
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
        if self.in_flight.load(Ordering::Acquire) & INVALID != 0 { Err(self.stale()) } else { Ok(()) }
    }

    /// Whether a transfer with the peer is in flight.
    pub(super) fn is_in_use(&self) -> bool {
        self.in_flight.load(Ordering::Acquire) & !INVALID != 0
    }

    /// Keeps NIXL's metadata of it until the hold is dropped.
    pub fn hold(self: &Arc<Self>) -> Result<RemoteHold> {
        let one_more = |count| if count & INVALID == 0 { Some(count + 1) } else { None };
        match self.in_flight.fetch_update(Ordering::AcqRel, Ordering::Acquire, one_more) {
            Ok(_) => Ok(RemoteHold(self.clone())),
            Err(_) => Err(self.stale()),
        }
    }

    /// Prevents further transfers. Those in flight hold it until they have ended.
    pub(super) fn invalidate(&self) {
        self.in_flight.fetch_or(INVALID, Ordering::AcqRel);
    }

    fn stale(&self) -> Error {
        let message = format!(
            "the metadata of agent '{}' was invalidated; load it again, then import its layouts and create the requests again",
            self.name
        );
        Error::new(Status::Stale, message)
    }
}

/// A transfer with a peer that is in flight. NIXL has the metadata of the peer until it has ended, also if it was invalidated.
#[derive(Debug)]
pub struct RemoteHold(Arc<Remote>);

impl Drop for RemoteHold {
    fn drop(&mut self) {
        self.0.in_flight.fetch_sub(1, Ordering::AcqRel);
    }
}
