// SPDX-License-Identifier: Apache-2.0
//! The agent's own metadata, which peers need to access its memory, and the metadata of peers that it has loaded.

use std::ffi::c_void;
use std::ptr;
use std::sync::Arc;

use super::AgentState;
use super::registrations::RegistrationList;
use crate::error::{Error, Result, Status, ensure, fail};
use crate::log::log;
use crate::nixl::arguments::{Arguments, CallOptions};
use crate::nixl::call::{c_string, check, copied};
use crate::nixl::descriptor::Descriptor;
use crate::nixl::descriptors::Descriptors;
use crate::nixl::remote::{LookUp, Remote};
use crate::nixl::request::Span;
use crate::nixl::{sys, ucx_log};

impl AgentState {
    /// The agent's own metadata, for a peer to load.
    pub fn local_metadata(&self) -> Result<Vec<u8>> {
        let (mut data, mut size) = (ptr::null_mut(), 0);
        // SAFETY: live agent; the outputs are ours on success.
        let status = unsafe { sys::nixl_capi_get_local_md(self.agent, &mut data, &mut size) };
        check(status, || {
            format!(
                "get the metadata of agent '{}', which has {} (a backend that reaches peers, such as UCX, is needed)",
                self.display_name(),
                self.backend_names()
            )
        })?;
        if data.is_null() {
            fail!(Nixl, "agent '{}' has no metadata", self.display_name());
        }
        // SAFETY: `size` bytes from malloc that are ours now.
        let bytes = unsafe { std::slice::from_raw_parts(data.cast::<u8>(), size) }.to_vec();
        // SAFETY: see above; copied, not used again.
        unsafe { libc::free(data) };
        Ok(bytes)
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
        let owner = owner_of(metadata);
        let known_as = owner.as_deref().and_then(|owner| self.other_name(owner));
        let renamed = known_as.as_deref().and_then(|name| renamed(metadata, name));
        let given = renamed.as_deref().unwrap_or(metadata);
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
        let name = load().or_else(|first| self.explain_load(first, metadata, load))?;
        // SAFETY: a string from malloc that is ours now.
        let loaded = unsafe { copied(name) };
        // SAFETY: see above; copied, not used again.
        unsafe { libc::free(name.cast()) };
        let peer = owner.filter(|_| renamed.is_some()).unwrap_or_else(|| loaded.clone());
        if !self.remotes.contains_key(&peer) {
            self.remotes.insert(peer.clone(), Remote::known_as(&peer, &loaded)?);
        }
        log!(Debug, "agent {} loaded {} bytes of metadata of '{peer}'", self.log_name(), metadata.len());
        Ok(peer)
    }

    /// Loads the metadata of a peer of a known name. Metadata of the peer from before it restarted is removed first, so that
    /// layouts that were imported then become stale. The metadata is not trusted: it must be that of the peer. That of a
    /// predecessor must not replace that of the peer, which is known by the order in which they were looked up.
    pub fn load_peer(&mut self, name: &str, metadata: &[u8], look_up: LookUp) -> Result<()> {
        self.ensure_peer(name, "only the metadata of a peer can be loaded")?;
        let is_later =
            |loaded: &&LookUp| loaded.incarnation != look_up.incarnation && loaded.number > look_up.number;
        ensure!(
            self.look_ups.get(name).filter(is_later).is_none(),
            Stale,
            "agent '{name}' was restarted after this entry was looked up, and its new entry is loaded; look it up again"
        );
        let known: Vec<_> = self.remotes.keys().cloned().collect();
        let loaded = match self.load_remote(metadata) {
            Err(error) if error.status() == Status::AlreadyExists && self.remotes.contains_key(name) => {
                self.invalidate_remote(name)?;
                self.load_remote(metadata)
            }
            loaded => loaded,
        };
        let peer = loaded?;
        if peer == name {
            let last = self.look_ups.entry(peer).or_insert(look_up);
            if last.incarnation != look_up.incarnation || last.number < look_up.number {
                *last = look_up;
            }
            return Ok(());
        }
        if !known.contains(&peer) {
            self.retire(&peer)?;
        }
        fail!(Corrupt, "the metadata of agent '{name}' is that of another agent, '{peer}'")
    }

    /// NIXL reports no reason. The usual one is a restarted peer whose old metadata is still loaded. Without a reason that is known
    /// here, the call is repeated to collect what UCX logs, as for a backend.
    fn explain_load<R>(&self, error: Error, metadata: &[u8], load: impl FnOnce() -> Result<R>) -> Result<R> {
        let holds = |name: &str| metadata.windows(name.len()).any(|window| window == name.as_bytes());
        let explained = match self.remotes.keys().find(|name| holds(name)) {
            Some(name) => error
                .context(format!(
                    "agent '{name}' is loaded already, and this is another of that name; if it restarted, \
                     invalidate its metadata first"
                ))
                .with_status(Status::AlreadyExists),
            None if holds(&self.display_name()) => error
                .context(format!(
                    "the bytes are the metadata of agent '{}' itself; load that of a peer",
                    self.display_name()
                ))
                .with_status(Status::InvalidArgument),
            None => {
                let unknown = |error: Error| {
                    let (own, has) = (self.display_name(), self.backend_names());
                    error.context(format!(
                        "the bytes are not NIXL metadata, or no backend of agent '{own}', which has {has}, reaches that peer"
                    ))
                };
                return match self.backends.contains_key("UCX") {
                    true => ucx_log::repeat_collecting("UCX", error, load).map_err(unknown),
                    false => Err(unknown(error)),
                };
            }
        };
        Err(explained)
    }

    /// Fails if the name is that of the agent itself.
    pub(super) fn ensure_peer(&self, name: &str, what: &str) -> Result<()> {
        ensure!(
            name.as_bytes() != self.name.to_bytes(),
            InvalidArgument,
            "'{name}' is the agent itself; {what}"
        );
        Ok(())
    }

    /// The peer of this name, if its metadata is loaded: by a call here, or by NIXL's listen thread.
    pub fn remote(&mut self, name: &str) -> Result<Arc<Remote>> {
        if let Some(remote) = self.remotes.get(name) {
            return Ok(remote.clone());
        }
        self.forget_retired();
        ensure!(
            !self.is_retired(name),
            NotFound,
            "the metadata of agent '{name}' was invalidated, and no other is loaded; load it first"
        );
        let remote = Remote::new(name)?;
        let peer = remote.c_name();
        // SAFETY: live handles; a null list checks for the agent only.
        let status = unsafe { sys::nixl_capi_check_remote_md(self.agent, peer.as_ptr(), ptr::null_mut()) };
        ensure!(
            status == sys::NIXL_CAPI_SUCCESS,
            NotFound,
            "agent '{}' has not loaded the metadata of agent '{name}'; load it first",
            self.display_name()
        );
        self.remotes.insert(name.to_string(), remote.clone());
        Ok(remote)
    }

    /// Whether a peer's metadata is loaded and covers all of `descriptors`.
    pub fn check_remote(&mut self, name: &str, descriptors: &[Descriptor]) -> Result<()> {
        let peer = self.remote(name)?.c_name();
        let list = match descriptors {
            [] => None,
            [first, ..] => {
                let spans = descriptors.iter().map(Span::from);
                Some(self.descriptor_list(first.memory_type, spans)?)
            }
        };
        let raw = list.as_ref().map_or(ptr::null_mut(), |list| list.raw());
        // SAFETY: live handles; a null list checks for the agent only.
        let status = unsafe { sys::nixl_capi_check_remote_md(self.agent, peer.as_ptr(), raw) };
        check(status, || format!("the loaded metadata of agent '{name}' does not cover that memory")).map_err(
            |error| {
                let advice = "the owner must take it after building the layout; then load it again";
                error.with_status(Status::NotFound).followed_by(advice)
            },
        )
    }

    /// Removes a peer; layouts that were imported from it become stale. NIXL keeps the metadata as long as transfers with the peer are
    /// in flight: a peer may hang, and its successor must be able to replace it.
    pub fn invalidate_remote(&mut self, name: &str) -> Result<()> {
        // NIXL knows an agent under its own name, too, and does not forget that.
        self.ensure_peer(name, "only the metadata of a peer can be invalidated")?;
        self.remote(name)?;
        log!(Debug, "agent {} invalidates the metadata of '{name}'", self.log_name());
        self.retire(name)
    }

    /// Prevents further transfers with a peer, and has NIXL forget it, now or after the last transfer in flight.
    pub(super) fn retire(&mut self, name: &str) -> Result<()> {
        self.look_ups.remove(name);
        let Some(remote) = self.remotes.remove(name) else { return Ok(()) };
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

    /// Whether NIXL still has an invalidated peer by this name.
    fn is_retired(&self, nixl_name: &str) -> bool {
        self.retired.iter().any(|remote| remote.c_name().to_bytes() == nixl_name.as_bytes())
    }

    /// The name by which NIXL is to know a peer, if that is not its own: NIXL identifies peers by name, and may still need an
    /// invalidated one of the same name. Notifications and requests name the peer only to this process.
    fn other_name(&mut self, name: &str) -> Option<String> {
        match self.remotes.get(name).map(|remote| remote.c_name()) {
            Some(known) => {
                (known.to_bytes() != name.as_bytes()).then(|| known.to_string_lossy().into_owned())
            }
            None => self.is_retired(name).then(|| format!("{name} #{}", self.next_id())),
        }
    }

    /// Has NIXL forget a peer with which no transfer is in flight: first its requests, all of which are idle, then its lists.
    pub(super) fn forget(&mut self, remote: &Arc<Remote>) -> Result<()> {
        let requests: Vec<_> =
            self.requests.iter().filter(|(_, r)| r.is_for(remote)).map(|(id, _)| *id).collect();
        self.release_idle_requests(requests);
        let lists: Vec<_> = self.lists.iter().filter(|(_, l)| l.is_for(remote)).map(|(id, _)| *id).collect();
        lists.into_iter().for_each(|id| self.release_list(id));

        let peer = remote.c_name();
        // SAFETY: live agent and string.
        let status = unsafe { sys::nixl_capi_invalidate_remote_md(self.agent, peer.as_ptr()) };
        // NOT_FOUND: NIXL itself has already removed it.
        if status == sys::NIXL_CAPI_ERROR_NOT_FOUND {
            return Ok(());
        }
        check(status, || format!("invalidate the metadata of agent '{}'", remote.name()))
    }

    /// Asks the listen thread of a peer at `address`:`port` for its metadata. It arrives later.
    pub fn request_remote(&mut self, name: &str, address: &str, port: u16) -> Result<()> {
        self.forget_retired();
        let is_replaced =
            self.remotes.get(name).is_some_and(|remote| remote.c_name().to_bytes() != name.as_bytes());
        ensure!(
            !is_replaced && !self.is_retired(name),
            Busy,
            "transfers with an earlier process of agent '{name}' are in flight, and NIXL's listen thread cannot load another \
             one of that name: load its metadata from bytes or a directory"
        );
        let peer = c_string("the peer's name", name)?;
        let arguments = Arguments::of_address(address, port)?;
        // SAFETY: live handles.
        let status = unsafe { sys::nixl_capi_fetch_remote_md(self.agent, peer.as_ptr(), arguments.raw()) };
        check(status, || format!("fetch the metadata of agent '{name}' from {address}:{port}"))?;
        log!(Debug, "agent {} requested the metadata of '{name}' from {address}:{port}", self.log_name());
        Ok(())
    }

    /// Sends the agent's own metadata to the listen thread of a peer.
    pub fn send_local(&mut self, address: &str, port: u16) -> Result<()> {
        let arguments = Arguments::of_address(address, port)?;
        // SAFETY: live handles.
        let status = unsafe { sys::nixl_capi_send_local_md(self.agent, arguments.raw()) };
        check(status, || format!("send the metadata of agent '{}' to {address}:{port}", self.display_name()))
    }

    /// Sends the metadata of some of the agent's memory to the listen thread of a peer.
    pub fn send_partial(&mut self, list: &Descriptors, address: &str, port: u16) -> Result<()> {
        self.ensure_registered(list, &CallOptions::default())?;
        let raw_list = RegistrationList::of(list)?;
        let arguments = Arguments::of_address(address, port)?;
        // SAFETY: live handles.
        let status =
            unsafe { sys::nixl_capi_send_local_partial_md(self.agent, raw_list.raw, arguments.raw()) };
        check(status, || {
            let name = self.display_name();
            format!(
                "send the metadata of {} descriptors of agent '{name}' to {address}:{port}",
                list.entries().len()
            )
        })
    }

    /// Has the listen thread of a peer remove this agent's metadata there.
    pub fn withdraw_local(&mut self, address: &str, port: u16) -> Result<()> {
        let arguments = Arguments::of_address(address, port)?;
        // SAFETY: live handles.
        let status = unsafe { sys::nixl_capi_invalidate_local_md(self.agent, arguments.raw()) };
        check(status, || {
            format!("withdraw the metadata of agent '{}' from {address}:{port}", self.display_name())
        })
    }

    /// Removes all peers, like [`Self::invalidate_remote`]. Returns their number.
    pub fn invalidate_all_remotes(&mut self) -> Result<usize> {
        let names: Vec<_> = self.remotes.keys().cloned().collect();
        let mut outcome = Ok(names.len());
        for name in names {
            if let Err(error) = self.invalidate_remote(&name) {
                outcome = outcome.and(Err(error));
            }
        }
        outcome
    }
}

/// The memory type of a list in metadata that NIXL does not have: NIXL 1.5.1 uses it as an index without a check.
fn impossible_memory_type(metadata: &[u8]) -> Option<u32> {
    /// What precedes the four bytes of the type.
    const LIST: &[u8] = b"nixlSDList|t\x04\0\0\0\0\0\0\0";
    /// NIXL's number of files, the last of its types.
    const LAST: u32 = 4;
    let types = metadata.windows(LIST.len() + size_of::<u32>()).filter_map(|bytes| bytes.strip_prefix(LIST));
    types.filter_map(|bytes| bytes.try_into().ok().map(u32::from_le_bytes)).find(|known| *known > LAST)
}

/// What NIXL's metadata begins with, before the length of its owner's name and the name.
const OWNER: &[u8] = b"nixlSerDes|Agent";

/// The name of the agent whose metadata this is.
fn owner_of(metadata: &[u8]) -> Option<String> {
    let (length, rest) = metadata.strip_prefix(OWNER)?.split_at_checked(size_of::<u64>())?;
    let length = usize::try_from(u64::from_le_bytes(length.try_into().ok()?)).ok()?;
    let name = rest.get(..length).filter(|_| rest.get(length) == Some(&b'|'))?;
    std::str::from_utf8(name).ok().map(str::to_string)
}

/// The same metadata with another name of its owner.
fn renamed(metadata: &[u8], name: &str) -> Option<Vec<u8>> {
    let rest = &metadata[OWNER.len() + size_of::<u64>() + owner_of(metadata)?.len()..];
    Some([OWNER, &(name.len() as u64).to_le_bytes(), name.as_bytes(), rest].concat())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_owner_of_metadata_is_found_and_renamed() {
        let of =
            |name: &str| [OWNER, &(name.len() as u64).to_le_bytes(), name.as_bytes(), b"|Conns"].concat();
        for (before, after) in [("prefill", "prefill #7"), ("e", ""), ("", "x")] {
            assert_eq!(owner_of(&of(before)).as_deref(), Some(before));
            assert_eq!(renamed(&of(before), after), Some(of(after)));
        }
        let whole = of("prefill");
        for length in 0..OWNER.len() + 16 {
            assert_eq!(owner_of(&whole[..length]), None, "{length}");
        }
        assert_eq!(owner_of(&[OWNER, &[0xff; 8], b"x|"].concat()), None);
    }
}
