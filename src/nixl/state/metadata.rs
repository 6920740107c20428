// SPDX-License-Identifier: Apache-2.0
//! The agent's own metadata, which peers need to access its memory, and loading that of peers.
#![allow(unsafe_code)]

use std::ffi::{CStr, c_void};
use std::ptr;

use super::AgentState;
use crate::base::{Count, Error, ProcessIdentity, Result, Status, ensure, error, fail, lists, log, process};
use crate::nixl::arguments::{Arguments, CallOptions};
use crate::nixl::call::{c_string, check, copied};
use crate::nixl::command::{ForListener, FoundMetadata};
use crate::nixl::descriptors::Descriptors;
use crate::nixl::peer_metadata::{self, Connections, MetadataHead, are_different, impossible_memory_type};
use crate::nixl::remote::LookUp;
use crate::nixl::{sys, ucx_log};

/// File descriptors that loading metadata needs, rounded up: UCX creates an endpoint for the peer, which connects later.
const FOR_LOADING: usize = 8;

impl AgentState {
    /// The agent's own metadata, for a peer to load.
    pub fn local_metadata(&self) -> Result<Vec<u8>> {
        // SAFETY: live agent.
        self.metadata("", |data, size| unsafe { sys::nixl_capi_get_local_md(self.agent, data, size) })
    }

    /// The agent's own metadata for some of its registered memory. It contains no connection information if there are
    /// descriptors, and only connection information if there are none.
    pub fn partial_metadata(&mut self, list: &Descriptors, options: &CallOptions) -> Result<Vec<u8>> {
        self.ensure_registered(list, options)?;
        let (raw_list, arguments) = (self.partial_list(list)?, self.arguments(options)?);
        let of = format!("{} of ", Count(list.entries().len() as u64, "descriptor"));
        // SAFETY: live handles.
        self.metadata(&of, |data, size| unsafe {
            sys::nixl_capi_get_local_partial_md(self.agent, raw_list.raw(), data, size, arguments.raw())
        })
    }

    /// Metadata that NIXL writes by `get`. `of` is what it is of, for messages.
    fn metadata(
        &self,
        of: &str,
        get: impl FnOnce(*mut *mut c_void, *mut usize) -> sys::nixl_capi_status_t,
    ) -> Result<Vec<u8>> {
        let (mut data, mut size) = (ptr::null_mut(), 0);
        let name = self.display_name();
        check(get(&mut data, &mut size), || {
            format!(
                "get the metadata of {of}agent '{name}', which has {} (a backend that reaches peers, such as UCX, is needed)",
                self.backend_names()
            )
        })?;
        ensure!(!data.is_null(), Nixl, "there is no metadata of {of}agent '{name}'");
        // SAFETY: `size` bytes from malloc that are ours now.
        let bytes = lists::copied(unsafe { std::slice::from_raw_parts(data.cast::<u8>(), size) });
        // SAFETY: see above; copied, not used again.
        unsafe { libc::free(data) };
        bytes
    }

    /// Fails if the agent has no backend that reaches peers: then it has no metadata either.
    pub fn ensure_reaches_peers(&self) -> Result<()> {
        let unreachable =
            |error: Error| error.context("no peer could reach it").with_status(Status::InvalidState);
        self.local_metadata().map(drop).map_err(unreachable)
    }

    /// Loads a peer's metadata, and returns the peer's name.
    pub fn load_remote(&mut self, metadata: &[u8]) -> Result<String> {
        ensure!(!metadata.is_empty(), InvalidArgument, "the metadata is empty");
        if let Some(memory_type) = impossible_memory_type(metadata) {
            fail!(Nixl, "the metadata is damaged: a list in it has memory type {memory_type}");
        }
        self.forget_retired();
        let head = MetadataHead::read(metadata);
        if let Some(head) = &head {
            self.ensure_loadable(head)?;
        }
        let other_name = head.as_ref().and_then(|head| self.other_name(&head.agent));
        let renamed = other_name.and_then(|name| peer_metadata::renamed(metadata, &name));
        let given = renamed.as_deref().unwrap_or(metadata);
        process::ensure_free_descriptors(FOR_LOADING)
            .map_err(|error| error.context("load the metadata of a peer"))?;
        let load = || {
            let mut name = ptr::null_mut();
            // SAFETY: live agent; the bytes are copied; the name is ours on success.
            let status = unsafe {
                sys::nixl_capi_load_remote_md(
                    self.agent,
                    given.as_ptr().cast::<c_void>(),
                    given.len(),
                    &mut name,
                )
            };
            check(status, || format!("load {} bytes of metadata", given.len())).map(|()| name)
        };
        // The system can refuse a connection of UCX once and accept the next. NIXL loads metadata again as after a success.
        let loaded = match &head {
            Some(head) => {
                twice(|| ucx_log::collecting(load), &format!("load the metadata of '{}'", head.agent))
            }
            None => ucx_log::collecting(load),
        };
        let name = loaded.map_err(|error| self.explain_load(error, head.as_ref())).inspect_err(|_| {
            // NIXL removes a peer if a part of its metadata is damaged.
            if let Some(head) = &head {
                // If it fails, too, the first error remains.
                drop(self.refresh(&head.agent));
            }
        })?;
        // SAFETY: a string from malloc that is ours now.
        let is_text = unsafe { CStr::from_ptr(name) }.to_str().is_ok();
        if !is_text {
            // SAFETY: live agent and string. The error below remains if it fails.
            unsafe { sys::nixl_capi_invalidate_remote_md(self.agent, name) };
        }
        // SAFETY: see above.
        let loaded = unsafe { copied(name) };
        // SAFETY: see above; copied, not used again.
        unsafe { libc::free(name.cast()) };
        ensure!(is_text, Nixl, "the metadata is that of agent '{loaded}', whose name is not UTF-8");
        let (peer, connections) =
            head.map_or_else(|| (loaded.clone(), Connections::new()), |head| (head.agent, head.connections));
        self.note_loaded(&peer, &loaded, connections)?;
        log!(Debug, "agent {} loaded {} bytes of metadata of '{peer}'", self.log_name(), metadata.len());
        Ok(peer)
    }

    /// Loads the metadata of a peer of a known name. Metadata of the peer from before it restarted is removed first, so that
    /// layouts that were imported then become stale. The metadata is not trusted: it must be that of the peer. That of a
    /// predecessor must not replace that of the peer, which is known by the order in which they were looked up. NIXL may load the
    /// metadata of a process that has ended, or fail without that reason.
    pub fn load_peer(&mut self, found: &FoundMetadata) -> Result<()> {
        let FoundMetadata { peer: name, metadata, look_up, process } = found;
        self.ensure_peer(name, "only the metadata of a peer can be loaded")?;
        let is_later =
            |loaded: &LookUp| loaded.incarnation != look_up.incarnation && loaded.number > look_up.number;
        ensure!(
            !self.peers.get(name).and_then(|peer| peer.look_up.as_ref()).is_some_and(is_later),
            Stale,
            "agent '{name}' was restarted after this entry was looked up, and its new entry is loaded; look it up again"
        );
        let ensure_alive = || match process.as_ref().filter(|process| process.is_gone()) {
            Some(ProcessIdentity { pid, .. }) => {
                fail!(
                    PeerLost,
                    "process {pid} of agent '{name}', which published the entry, has ended; look it up again"
                )
            }
            None => Ok(()),
        };
        ensure_alive()?;
        let other = |agent: &str| {
            error!(Corrupt, "the metadata of agent '{name}' is that of another agent, '{agent}'")
        };
        let before: Vec<_> = match MetadataHead::read(metadata) {
            Some(head) if head.agent != *name => return Err(other(&head.agent)),
            Some(_) => Vec::new(),
            // Whose it is, is known only when it is loaded.
            None => self.peers.keys().cloned().collect(),
        };
        let loaded = match self.load_remote(metadata) {
            Err(error) if error.status() == Status::AlreadyExists && self.peers.contains_key(name) => {
                self.invalidate_remote(name)?;
                self.load_remote(metadata)
            }
            loaded => loaded,
        };
        let loaded = loaded
            .map_err(|error| ensure_alive().err().map_or(error.clone(), |lost| lost.followed_by(error)))?;
        match self.peers.get_mut(&loaded).filter(|_| loaded == *name) {
            Some(peer) => peer.note_look_up(*look_up),
            // What was loaded before stays loaded.
            None if before.contains(&loaded) => return Err(other(&loaded)),
            None => {
                let undone = self.retire(&loaded);
                return Err(undone.err().into_iter().fold(other(&loaded), Error::followed_by));
            }
        }
        Ok(())
    }

    /// Fails for metadata that NIXL would not load beside what it has. NIXL would write to stderr, and give no reason.
    fn ensure_loadable(&mut self, head: &MetadataHead) -> Result<()> {
        let name = &head.agent;
        if name.as_bytes() == self.name.to_bytes() {
            let own = self.local_metadata().ok().and_then(|own| MetadataHead::read(&own));
            ensure!(
                own.is_some_and(|own| are_different(&own.connections, &head.connections)),
                InvalidArgument,
                "the bytes are the metadata of agent '{name}' itself; load that of a peer"
            );
            fail!(
                AlreadyExists,
                "the bytes are the metadata of another agent that is named '{name}' as this one; agents that exchange metadata \
                 need different names"
            );
        }
        self.refresh(name)?;
        let loaded = self.peers.get(name);
        ensure!(
            !loaded.is_some_and(|peer| are_different(&peer.connections, &head.connections)),
            AlreadyExists,
            "agent '{name}' is loaded already, and this is the metadata of another agent of that name; if it restarted, \
             invalidate its metadata first"
        );
        Ok(())
    }

    /// NIXL reports no reason but what UCX logs.
    fn explain_load(&self, error: Error, head: Option<&MetadataHead>) -> Error {
        let Some(head) = head else {
            return error.context("the bytes are not NIXL metadata, or are damaged");
        };
        let name = &head.agent;
        // NIXL's listen thread has loaded the peer, so that its connections are not known here.
        let loaded = self.peers.get(name).map(|peer| &peer.connections);
        if loaded.is_some_and(|loaded| head.connections.keys().any(|plugin| !loaded.contains_key(plugin))) {
            return error
                .context(format!(
                    "agent '{name}' is loaded already, and this is probably another of that name; if it restarted, \
                     invalidate its metadata first"
                ))
                .with_status(Status::AlreadyExists);
        }
        error.context(self.why_unreached(head))
    }

    /// Why NIXL may have failed to load the metadata of a peer, as far as that is known.
    fn why_unreached(&self, head: &MetadataHead) -> String {
        let (name, own) = (&head.agent, self.display_name());
        let plugins = head.connections.keys().map(|plugin| String::from_utf8_lossy(plugin).into_owned());
        let (common, others): (Vec<_>, Vec<_>) =
            plugins.partition(|plugin| self.backends.contains_key(plugin));
        if head.connections.is_empty() {
            return format!(
                "the metadata of agent '{name}' has no connection: it is partial, or damaged, or the agent had no backend that \
                 reaches peers; load all of its metadata first"
            );
        }
        if common.is_empty() {
            let (others, has) = (others.join(", "), self.backend_names());
            return format!(
                "agent '{name}' is reached by {others}, and agent '{own}' has {has}; create one of these backends first"
            );
        }
        let common = common.join(" or ");
        format!(
            "the metadata of agent '{name}' is damaged, or the {common} backend of agent '{own}' does not reach it"
        )
    }

    /// Asks the listen thread of a peer at `address`:`port` for its metadata. It arrives later.
    pub fn request_remote(&mut self, name: &str, address: &str, port: u16) -> Result<()> {
        self.forget_retired();
        let is_replaced =
            self.peers.get(name).is_some_and(|peer| peer.remote.c_name().to_bytes() != name.as_bytes());
        ensure!(
            !is_replaced && !self.is_retired(name),
            Busy,
            "transfers with an earlier process of agent '{name}' are in flight, and NIXL's listen thread cannot load another \
             one of that name: load its metadata from bytes or a directory"
        );
        let peer = c_string("the peer's name", name)?;
        self.note_name(&peer);
        let arguments = Arguments::with_address(address, port)?;
        // SAFETY: live handles.
        let status = unsafe { sys::nixl_capi_fetch_remote_md(self.agent, peer.as_ptr(), arguments.raw()) };
        check(status, || format!("fetch the metadata of agent '{name}' from {address}:{port}"))?;
        log!(Debug, "agent {} requested the metadata of '{name}' from {address}:{port}", self.log_name());
        Ok(())
    }

    /// Sends something to the listen thread of a peer.
    pub fn send_to(&mut self, address: &str, port: u16, sent: &ForListener) -> Result<()> {
        let given = Arguments::with_address(address, port)?;
        let (agent, arguments) = (self.agent, given.raw());
        let status = match sent {
            // SAFETY: live handles.
            ForListener::Metadata => unsafe { sys::nixl_capi_send_local_md(agent, arguments) },
            ForListener::PartialMetadata(list) => {
                self.ensure_registered(list, &CallOptions::default())?;
                let list = self.partial_list(list)?;
                // SAFETY: live handles.
                unsafe { sys::nixl_capi_send_local_partial_md(agent, list.raw(), arguments) }
            }
            // SAFETY: live handles.
            ForListener::Withdrawal => unsafe { sys::nixl_capi_invalidate_local_md(agent, arguments) },
        };
        check(status, || {
            format!("{} of agent '{}', listen thread {address}:{port}", sent.doing(), self.display_name())
        })?;
        match sent {
            ForListener::Withdrawal => self.renew_identity(),
            _ => Ok(()),
        }
    }
}

/// Makes a second attempt after a failure. If that fails, too, the error has the reasons of both.
fn twice<T>(attempt: impl Fn() -> Result<T>, doing: &str) -> Result<T> {
    attempt().or_else(|first| match attempt() {
        Ok(done) => {
            log!(Warn, "{doing}: the second attempt succeeds, after: {first}");
            Ok(done)
        }
        Err(second) if second.message() == first.message() => Err(second),
        Err(second) => {
            Err(second.followed_by(format!("the attempt before failed for another reason: {first}")))
        }
    })
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn the_error_of_two_attempts_has_the_reasons_of_both() {
        let fails = |reasons: [&'static str; 2]| {
            let attempts = Cell::new(0);
            let failed = twice(
                || -> Result<()> {
                    attempts.set(attempts.get() + 1);
                    fail!(Nixl, "{}", reasons[attempts.get() - 1])
                },
                "load",
            );
            failed.unwrap_err().message().to_string()
        };
        assert_eq!(fails(["refused", "refused"]), "refused");
        let both = fails(["connection refused", "not found"]);
        assert!(both.starts_with("not found; ") && both.ends_with("connection refused"), "{both}");
    }
}
