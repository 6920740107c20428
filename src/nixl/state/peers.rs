// SPDX-License-Identifier: Apache-2.0
//! The peers that an agent knows, and their identities and its own.
//!
//! NIXL knows peers by their names. Its listen thread loads, replaces and removes their metadata without a report here, so a peer
//! is compared with what NIXL has before it is used.
#![allow(unsafe_code)]

use std::ffi::CStr;
use std::ptr;
use std::sync::Arc;

use super::AgentState;
use super::registrations::RegistrationList;
use super::request_creation::DescriptorList;
use crate::base::{Error, Result, Status, ensure, fail, log};
use crate::nixl::agent_identity::Identity;
use crate::nixl::arguments::CallOptions;
use crate::nixl::call::check;
use crate::nixl::command::Import;
use crate::nixl::descriptor::{Descriptor, MemoryType};
use crate::nixl::descriptors::Descriptors;
use crate::nixl::peer_metadata::{Connections, MetadataHead};
use crate::nixl::remote::{LoadedPeer, Remote};
use crate::nixl::request_handle::{RequestSide, RequestState, Span};
use crate::nixl::sys;

impl AgentState {
    /// Fails if the name is that of the agent itself.
    pub(super) fn ensure_peer(&self, name: &str, what: &str) -> Result<()> {
        ensure!(
            name.as_bytes() != self.name.to_bytes(),
            InvalidArgument,
            "'{name}' is the agent itself; {what}"
        );
        Ok(())
    }

    /// The peer of this name, for what needs its metadata.
    pub fn remote(&mut self, name: &str) -> Result<Arc<Remote>> {
        self.loaded(name).map_err(|error| match error.status() {
            Status::NotFound => error.followed_by(
                "load it first by kvmem_directory_entry_load or kvmem_agent_load_remote_metadata",
            ),
            _ => error,
        })
    }

    /// The peer of this name. Fails with NOT_FOUND unless its metadata is loaded: by a call here, or by NIXL's listen thread.
    fn loaded(&mut self, name: &str) -> Result<Arc<Remote>> {
        self.refresh(name)?;
        if let Some(peer) = self.peers.get(name) {
            return Ok(peer.remote.clone());
        }
        self.forget_retired();
        ensure!(
            !self.is_retired(name),
            NotFound,
            "the metadata of agent '{name}' was invalidated, and no other is loaded"
        );
        let remote = Remote::new(name)?;
        if !self.has(&remote, &[])? {
            self.note_name(&remote.c_name());
            fail!(NotFound, "agent '{}' has no metadata of an agent '{name}'", self.display_name());
        }
        self.add_peer(remote.clone());
        Ok(remote)
    }

    /// Notes the name of a peer that NIXL's listen thread may load later.
    pub(super) fn note_name(&mut self, name: &CStr) {
        if self.has_listen_thread {
            self.known_names.add(name);
        }
    }

    fn add_peer(&mut self, remote: Arc<Remote>) -> &mut LoadedPeer {
        let name = remote.name().to_string();
        self.peers.entry(name).or_insert(LoadedPeer {
            remote,
            look_up: None,
            connections: Connections::new(),
            identity: None,
        })
    }

    /// Notes that metadata of a peer was loaded, which NIXL may know by another name.
    pub(super) fn note_loaded(
        &mut self,
        name: &str,
        nixl_name: &str,
        connections: Connections,
    ) -> Result<()> {
        self.refresh(name)?;
        let remote = match self.peers.get(name) {
            Some(peer) => peer.remote.clone(),
            None => Remote::known_as(name, nixl_name)?,
        };
        self.add_peer(remote).connections.extend(connections);
        Ok(())
    }

    /// The exporter of a layout. Fails unless its metadata is loaded and covers the memory of the layout and of its service.
    pub fn exporter(&mut self, import: &Import) -> Result<Arc<Remote>> {
        self.ensure_peer(
            &import.peer,
            "the layout is its own, and is used without an import, or that of another agent of this name; agents that communicate \
             need different names",
        )?;
        // Before the rest: another agent of the name may have the same addresses.
        self.ensure_identity(&import.peer, import.identity)?;
        let remote = self.remote_with(&import.peer, &import.memory)?;
        remote.note_process(&import.process)?;
        Ok(remote)
    }

    /// Fails unless the loaded metadata of a name is that of the agent with this identity.
    fn ensure_identity(&mut self, name: &str, identity: Option<Descriptor>) -> Result<()> {
        let remote = self.remote(name)?;
        let Some(identity) = identity else { return Ok(()) };
        self.covers(&remote, &[identity]).map_err(|error| {
            error.context(format!(
                "the loaded metadata of agent '{name}' is not of the agent that exported the layout: it is that of another agent of \
                 this name, of an earlier time, or only partial. Invalidate it, and load the complete metadata of the exporter"
            ))
        })?;
        self.add_peer(remote).identity.get_or_insert(identity);
        Ok(())
    }

    /// Forgets a peer whose metadata NIXL no longer has, or has replaced by that of another agent. Fails if that cannot be found out.
    pub(super) fn refresh(&mut self, name: &str) -> Result<()> {
        let Some(peer) = self.peers.get(name) else { return Ok(()) };
        let (remote, identity) = (peer.remote.clone(), peer.identity);
        if !self.has(&remote, identity.as_slice())? {
            self.forget_replaced(name);
        }
        Ok(())
    }

    /// Whether NIXL has metadata of a peer that covers all of `descriptors`.
    fn has(&mut self, remote: &Remote, descriptors: &[Descriptor]) -> Result<bool> {
        match self.covers(remote, descriptors) {
            Err(error) if error.status() == Status::NotFound => Ok(false),
            covered => covered.map(|()| true),
        }
    }

    /// Forgets a peer whose metadata NIXL no longer has. Its transfers in flight fail.
    pub(super) fn forget_replaced(&mut self, name: &str) {
        if let Some(peer) = self.peers.remove(name) {
            log!(Debug, "agent {}: the metadata of '{name}' was removed by NIXL", self.log_name());
            peer.remote.invalidate();
            self.release_users(&peer.remote);
        }
    }

    /// The failure of a call of NIXL for a request with a peer: STALE if NIXL no longer has the metadata that it was created with.
    pub(super) fn explain_missing(&mut self, side: &RequestSide, is_created: bool, error: Error) -> Error {
        let RequestSide::Peer(remote) = side else { return error };
        if error.status() != Status::NotFound {
            return error;
        }
        let is_current = self.peers.get(remote.name()).is_some_and(|peer| Arc::ptr_eq(&peer.remote, remote));
        match is_created && is_current {
            true => self.forget_replaced(remote.name()),
            // If it fails, too, the first error remains.
            false => drop(self.refresh(remote.name())),
        }
        match remote.ensure_valid() {
            Ok(()) => error,
            Err(stale) => stale,
        }
    }

    /// Fails if NIXL's listen thread has replaced the metadata of a peer.
    pub(super) fn ensure_current(&mut self, side: &RequestSide) -> Result<()> {
        match side {
            RequestSide::Peer(remote) if self.has_listen_thread => {
                self.refresh(remote.name())?;
                remote.ensure_valid()
            }
            _ => Ok(()),
        }
    }

    /// The peer of this name, if its metadata is loaded and covers some memory. NIXL checks memory of one type at a time.
    pub fn remote_with(&mut self, name: &str, memory: &[Descriptor]) -> Result<Arc<Remote>> {
        let remote = if memory.is_empty() { self.loaded(name) } else { self.remote(name) }?;
        for of_one_type in memory.chunk_by(|one, other| one.memory_type == other.memory_type) {
            self.covers(&remote, of_one_type).map_err(|error| {
                error.followed_by("the owner must take it after building the layout; then load it again")
            })?;
        }
        Ok(remote)
    }

    /// Fails with NOT_FOUND unless NIXL has metadata under a peer's name, and it covers all of `descriptors`.
    fn covers(&mut self, remote: &Remote, descriptors: &[Descriptor]) -> Result<()> {
        let (peer, name) = (remote.c_name(), remote.name());
        let list = match descriptors {
            [] => None,
            [first, ..] => {
                let spans = descriptors.iter().map(Span::from);
                Some(self.descriptor_list(first.memory_type, spans)?)
            }
        };
        let raw = list.as_ref().map_or(ptr::null_mut(), DescriptorList::raw);
        // SAFETY: live handles; a null list checks for the agent only.
        let status = unsafe { sys::nixl_capi_check_remote_md(self.agent, peer.as_ptr(), raw) };
        check(status, || match status {
            sys::NIXL_CAPI_ERROR_NOT_FOUND => {
                format!("the loaded metadata of agent '{name}' does not cover that memory")
            }
            _ => format!("check the loaded metadata of agent '{name}'"),
        })
    }

    /// Removes a peer; layouts that were imported from it become stale. NIXL keeps the metadata as long as transfers with the peer are
    /// in flight: a peer may hang, and its successor must be able to replace it.
    pub fn invalidate_remote(&mut self, name: &str) -> Result<()> {
        // NIXL knows an agent under its own name, too, and does not forget that.
        self.ensure_peer(name, "only the metadata of a peer can be invalidated")?;
        self.loaded(name)?;
        log!(Debug, "agent {} invalidates the metadata of '{name}'", self.log_name());
        self.retire(name)
    }

    /// Prevents further transfers with a peer, and has NIXL forget it, now or after the last transfer in flight.
    pub(super) fn retire(&mut self, name: &str) -> Result<()> {
        let Some(LoadedPeer { remote, .. }) = self.peers.remove(name) else { return Ok(()) };
        remote.invalidate();
        if remote.is_in_use() {
            log!(Debug, "agent {}: transfers with '{name}' are still in flight", self.log_name());
            self.retired.push(remote);
            return Ok(());
        }
        self.forget(&remote)
    }

    /// Has NIXL forget invalidated peers with which no transfer is in flight any more.
    pub(in crate::nixl) fn forget_retired(&mut self) {
        if self.retired.is_empty() {
            return;
        }
        let (used, over): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.retired).into_iter().partition(|remote| remote.is_in_use());
        self.retired = used;
        for remote in over {
            if let Err(error) = self.forget(&remote) {
                log!(Warn, "agent {}: {error}", self.log_name());
            }
        }
    }

    /// Whether NIXL still has an invalidated peer.
    pub(in crate::nixl) fn has_retired(&self) -> bool {
        !self.retired.is_empty()
    }

    /// Whether NIXL still has an invalidated peer by this name.
    pub(super) fn is_retired(&self, nixl_name: &str) -> bool {
        self.retired.iter().any(|remote| remote.c_name().to_bytes() == nixl_name.as_bytes())
    }

    /// The name by which NIXL is to know a peer, if that is not its own: NIXL identifies peers by name, and may still need an
    /// invalidated one of the same name. Notifications and requests name the peer only to this process.
    pub(super) fn other_name(&mut self, name: &str) -> Option<String> {
        match self.peers.get(name).map(|peer| peer.remote.c_name()) {
            Some(known) => {
                (known.to_bytes() != name.as_bytes()).then(|| known.to_string_lossy().into_owned())
            }
            None => self.is_retired(name).then(|| format!("{name} #{}", self.next_id())),
        }
    }

    /// Has NIXL forget a peer with which no transfer is in flight.
    pub(super) fn forget(&mut self, remote: &Arc<Remote>) -> Result<()> {
        self.release_users(remote);
        let peer = remote.c_name();
        // SAFETY: live agent and string.
        let status = unsafe { sys::nixl_capi_invalidate_remote_md(self.agent, peer.as_ptr()) };
        // NOT_FOUND: NIXL itself has already removed it.
        if status == sys::NIXL_CAPI_ERROR_NOT_FOUND {
            return Ok(());
        }
        check(status, || format!("invalidate the metadata of agent '{}'", remote.name()))
    }

    /// Releases the requests with a peer that are not in flight, then its lists.
    fn release_users(&mut self, remote: &Arc<Remote>) {
        let is_idle = |state| state != RequestState::InFlight;
        let requests = self.requests.iter().filter(|(_, r)| r.is_for(remote) && is_idle(r.state));
        let requests: Vec<_> = requests.map(|(id, _)| *id).collect();
        self.release_idle_requests(requests);
        let lists: Vec<_> = self.lists.iter().filter(|(_, l)| l.is_for(remote)).map(|(id, _)| *id).collect();
        lists.into_iter().for_each(|id| self.release_list(id));
    }

    /// Removes all peers that are known here, like [`Self::invalidate_remote`]. Returns their number. NIXL does not list those that its
    /// listen thread has loaded, so all names that were heard of are looked up.
    pub fn invalidate_all_remotes(&mut self) -> Result<usize> {
        let mut names: Vec<_> = self.peers.keys().cloned().collect();
        if self.has_listen_thread {
            names.extend(self.known_names.iter().filter(|name| name.as_bytes() != self.name.to_bytes()));
        }
        // What cannot be found out does not matter: those that remain are removed anyway.
        names.iter().for_each(|name| drop(self.loaded(name)));
        let names: Vec<_> = self.peers.keys().cloned().collect();
        let mut outcome = Ok(names.len());
        for name in names {
            if let Err(error) = self.invalidate_remote(&name) {
                outcome = outcome.and(Err(error));
            }
        }
        outcome
    }

    /// Gives the agent an identity with a new backend, if that reaches peers and accepts host memory.
    pub(super) fn identify(&mut self, plugin: &str) -> Result<()> {
        let options = CallOptions { backends: vec![plugin.to_string()], ..CallOptions::default() };
        let none = Descriptors::empty(MemoryType::Dram);
        let connection = self.partial_metadata(&none, &options).ok();
        let head = connection.and_then(|connection| MetadataHead::read(&connection));
        if head.is_none_or(|head| head.connections.is_empty()) {
            return Ok(());
        }
        let mut identity = self.identity.take().map_or_else(Identity::new, Ok)?;
        let registered = match self.backend(plugin)?.accepts(&identity.descriptor()) {
            true => self.register_identity(plugin, identity.descriptor()),
            false => Ok(()),
        };
        if registered.is_ok() {
            identity.plugins.push(plugin.to_string());
        }
        // NIXL may have it, so it is kept also after a failure.
        self.identity = Some(identity);
        registered
    }

    fn register_identity(&self, plugin: &str, identity: Descriptor) -> Result<()> {
        let list = RegistrationList::from_descriptors(&Descriptors::from_span(&identity)?)?;
        self.register_with(plugin, &list).map_err(|error| {
            error.context(format!("register the identity of agent '{}'", self.display_name()))
        })
    }

    /// Replaces the identity in the metadata: what peers load from here on is not what they have loaded.
    pub(super) fn renew_identity(&mut self) -> Result<()> {
        let Some(mut identity) = self.identity.take() else { return Ok(()) };
        let renewed = identity.renew().and_then(|previous| {
            let previous = RegistrationList::from_descriptors(&Descriptors::from_span(&previous)?)?;
            identity.plugins.iter().try_for_each(|plugin| {
                self.register_identity(plugin, identity.descriptor())?;
                self.deregister_from(plugin, &previous)
            })
        });
        self.identity = Some(identity);
        renewed
    }

    /// The identity that descriptors of layouts name, if a backend has it.
    pub fn identity(&self) -> Option<Descriptor> {
        let identity = self.identity.as_ref().filter(|identity| !identity.plugins.is_empty());
        identity.map(Identity::descriptor)
    }

    /// A list for partial metadata. That of host memory contains the identity, too.
    pub(super) fn partial_list(&self, list: &Descriptors) -> Result<RegistrationList> {
        let raw = RegistrationList::from_descriptors(list)?;
        let of_host = list.memory_type() == MemoryType::Dram && !list.entries().is_empty();
        if let Some(identity) = self.identity().filter(|_| of_host) {
            raw.add(&identity, &[])?;
        }
        Ok(raw)
    }
}
