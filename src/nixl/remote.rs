// SPDX-License-Identifier: Apache-2.0
//! Peers whose metadata an agent has loaded.

use std::ffi::CStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};
use std::time::Instant;

use once_cell::sync::OnceCell;

use super::call::c_string;
use super::descriptor::Descriptor;
use super::peer_metadata::Connections;
use super::sys;
use crate::base::{Cause, Error, LogId, Mutex, ProcessIdentity, Result, Status, ensure, error, process};

/// The look-up in a directory that metadata was found by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LookUp {
    /// The incarnation of the peer. A restarted peer has another one.
    pub incarnation: u64,
    /// Counts the look-ups of this process: what was looked up later is not older.
    pub number: u64,
}

/// What an agent knows of a peer whose metadata is loaded.
pub(super) struct LoadedPeer {
    pub remote: Arc<Remote>,
    /// The last look-up that its metadata was found by, if it was found in a directory.
    pub look_up: Option<LookUp>,
    /// Empty if NIXL's listen thread has loaded it.
    pub connections: Connections,
    /// That of the first layout that was imported from it.
    pub identity: Option<Descriptor>,
}

impl LoadedPeer {
    pub fn note_look_up(&mut self, look_up: LookUp) {
        let last = self.look_up.get_or_insert(look_up);
        if last.incarnation != look_up.incarnation || last.number < look_up.number {
            *last = look_up;
        }
    }
}

/// A peer. Once its metadata is invalidated, this value remains invalid, also if metadata of the same name is
/// loaded later: that is a different peer.
#[derive(Debug)]
pub struct Remote {
    number: LogId,
    name: String,
    /// Its name for NIXL: another one while NIXL needs an earlier peer of the same name.
    c_name: Arc<CStr>,
    /// The calls that have connected to it, see [`Connecting`].
    connected: AtomicU8,
    /// How many transfers with it are in flight, with [`INVALID`] once it was invalidated.
    in_flight: AtomicUsize,
    /// The process of the peer, once a layout was imported that names it: metadata does not.
    process: OnceCell<ProcessIdentity>,
    /// When a run has last moved bytes to it or from it.
    last_moved: Mutex<Option<Instant>>,
}

/// Calls of NIXL that open a connection to a peer when they are made first. After a failure UCX opens none to that peer.
#[derive(Clone, Copy)]
pub(super) enum Connecting {
    Post = 1,
    Notify = 2,
}

/// File descriptors that a connection needs, rounded up: over TCP a socket for each of its lanes, and those of shared memory.
const FOR_CONNECTION: usize = 8;

const INVALID: usize = 1 << (usize::BITS - 1);

impl Remote {
    pub(super) fn new(name: &str) -> Result<Arc<Self>> {
        Self::known_as(name, name)
    }

    /// One that NIXL knows by another name.
    pub(super) fn known_as(name: &str, nixl_name: &str) -> Result<Arc<Self>> {
        Ok(Arc::new(Self {
            number: LogId::next(),
            name: name.to_string(),
            c_name: c_string("the peer's name", nixl_name)?.into(),
            connected: AtomicU8::new(0),
            in_flight: AtomicUsize::new(0),
            process: OnceCell::new(),
            last_moved: Mutex::new(None),
        }))
    }

    /// Unique: a peer that was loaded again has another one, whatever its address.
    pub fn number(&self) -> LogId {
        self.number
    }

    /// Fails if the first call of this kind could not open a connection.
    #[inline]
    pub(super) fn ensure_connectable(&self, by: Connecting) -> Result<()> {
        if self.connected.load(Ordering::Relaxed) & by as u8 != 0 {
            Ok(())
        } else {
            self.ensure_descriptors()
        }
    }

    /// The same for a call that may always open one.
    #[cold]
    pub(super) fn ensure_descriptors(&self) -> Result<()> {
        let doing = |error: Error| error.context(format!("connect to agent '{}'", self.name));
        process::ensure_free_descriptors(FOR_CONNECTION).map_err(doing)
    }

    /// Notes that a call of this kind has succeeded.
    #[inline]
    pub(super) fn note_connected(&self, by: Connecting) {
        if self.connected.load(Ordering::Relaxed) & by as u8 == 0 {
            self.connected.fetch_or(by as u8, Ordering::Relaxed);
        }
    }

    /// The peer agent's name for NIXL.
    pub(super) fn c_name(&self) -> Arc<CStr> {
        self.c_name.clone()
    }

    /// The peer agent's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    pub fn note_moved(&self, at: Instant) {
        *self.last_moved.lock() = Some(at);
    }

    /// When bytes were moved by any run.
    pub fn last_moved(&self) -> Option<Instant> {
        *self.last_moved.lock()
    }

    /// Notes the process of the peer, as its layouts state it. Fails if a layout of another process was imported before: the
    /// metadata is that of one of them.
    pub fn note_process(&self, process: &ProcessIdentity) -> Result<()> {
        let known = self.process.get_or_init(|| process.clone());
        ensure!(
            known == process,
            Stale,
            "the loaded metadata of agent '{}' is that of process {}, and the layout is that of process {}; agents need different \
             names. Invalidate the metadata, then load that of the layout's process",
            self.name,
            known.pid,
            process.pid
        );
        Ok(())
    }

    /// A failure of a request to the peer: NIXL does not say that a peer's process has ended.
    pub fn explain(&self, error: Error) -> Error {
        match self.process.get().filter(|process| process.is_gone()) {
            Some(process) => self.lost(process, error),
            None => error,
        }
    }

    /// The failure of a request to the peer that was posted. UCX closes the connection to a peer after any failure of it, and NIXL
    /// returns one status for all. So if it cannot be known whether the process has ended, the peer is lost.
    pub fn explain_posted(&self, error: Error) -> Error {
        let is_of_connection = error.cause() == Some(&Cause::Nixl(sys::NIXL_CAPI_ERROR_BACKEND));
        let is_hidden = self.process.get().is_some_and(|process| !process.is_visible());
        if is_of_connection && is_hidden {
            let reason = format!(
                "the connection to agent '{}' has failed. Whether its process has ended is not visible from here: it is on another \
                 machine, or in another PID namespace. Invalidate its metadata, then load that of its successor, or its own again",
                self.name
            );
            return error.context(reason).with_status(Status::PeerLost);
        }
        let error = self.explain(error);
        let advice = format!(
            "if the next calls fail too, UCX has closed the connection to agent '{}': invalidate its metadata, load it again, and import \
             its layouts again",
            self.name
        );
        // A call may explain what the call below it has explained.
        let is_known =
            !is_of_connection || error.status() == Status::PeerLost || error.message().ends_with(&advice);
        if is_known { error } else { error.followed_by(advice) }
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

    pub(super) fn stale(&self) -> Error {
        error!(
            Stale,
            "agent '{}' was restarted, has withdrawn its metadata, or was invalidated, since its layouts were imported and its \
             requests created; load its metadata if it is not loaded again, then import the layouts and create the requests again",
            self.name
        )
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_that_was_loaded_again_has_another_number() {
        // The second one may have the address of the first, which nothing holds any more.
        assert_ne!(Remote::new("far").unwrap().number(), Remote::new("far").unwrap().number());
    }

    #[test]
    fn a_layout_of_another_process_is_stale() {
        let remote = Remote::new("far").unwrap();
        let one = ProcessIdentity::sample();
        let twin = ProcessIdentity { pid: one.pid + 1, ..one.clone() };
        remote.note_process(&one).unwrap();
        remote.note_process(&one).unwrap();
        let lost = remote.explain_posted(error!(Nixl, "a request failed"));
        assert_eq!(lost.status(), Status::Nixl, "not a failure of NIXL's");
        let failure =
            || error!(Nixl, "a request failed").with_cause(Cause::Nixl(sys::NIXL_CAPI_ERROR_BACKEND));
        assert_eq!(remote.explain_posted(failure()).status(), Status::PeerLost);
        assert_eq!(remote.explain(failure()).status(), Status::Nixl);
        let near = Remote::new("near").unwrap();
        let twice = near.explain_posted(near.explain_posted(failure()));
        assert_eq!(twice.status(), Status::Nixl);
        assert_eq!(twice.message().matches("invalidate its metadata").count(), 1, "advice once: {twice}");
        let error = remote.note_process(&twin).unwrap_err();
        assert_eq!(error.status(), Status::Stale);
        assert!(error.message().contains("process 7") && error.message().contains("process 8"), "{error}");
    }
}
