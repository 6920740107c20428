// SPDX-License-Identifier: Apache-2.0
//! Finding what other processes have published in a directory.

use std::ffi::c_char;

use crate::base::{Result, Status, time_left};
use crate::directory::{Directory, Entry};
use crate::ffi::agent::kvmem_agent;
use crate::ffi::common::{
    borrow, borrow_nullable, call, call_new, deadline, kvmem_error, kvmem_status, text, timeout,
};
use crate::ffi::nixl::directory::kvmem_directory;
use crate::ffi::nixl::directory_entry::{FoundEntry, kvmem_directory_entry};

/// Finds the entry of an agent. The entry is a copy, which later changes of the directory do not affect.
///
/// Does not wait for an agent that is not published: kvmem_directory_connect does.
///
/// @return KVMEM_STATUS_NOT_FOUND: the agent was not published, was withdrawn, or its process has ended
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_directory_look_up(
    directory: *const kvmem_directory,
    agent: *const c_char,
    timeout_ns: u64,
    entry: *mut *mut kvmem_directory_entry,
    error: *mut *mut kvmem_error,
) -> kvmem_status {
    found(directory, agent, entry, error, |directory, agent| directory.look_up(agent, timeout(timeout_ns)))
}

/// # Safety
/// As for [`kvmem_directory_look_up`].
unsafe fn found(
    directory: *const kvmem_directory,
    agent: *const c_char,
    entry: *mut *mut kvmem_directory_entry,
    error: *mut *mut kvmem_error,
    find: impl FnOnce(&Directory, &str) -> Result<Entry>,
) -> kvmem_status {
    call_new(error, (entry, "entry"), |scope| {
        let directory = borrow(scope, directory)?;
        Ok(find(directory, text::required(agent, "agent")?)?.into())
    })
}

/// Waits until a peer is published, loads its metadata (kvmem_directory_entry_load) with the same deadline,
/// and returns its entry. Waits for nothing if it is published, also with a timeout of 0.
///
/// @param agent the agent that will access the memory of the peer; NULL loads no metadata
/// @param peer name of the agent that the peer publishes
/// @return KVMEM_STATUS_TIMED_OUT: the peer was not published in time, the directory does not respond, or
///           NIXL has not returned 100 ms after the timeout; it may load the metadata later
///         KVMEM_STATUS_PEER_LOST: the peer has ended, and the directory still has its entry
///         other statuses: as for kvmem_directory_look_up and kvmem_directory_entry_load
///
/// Notes: no events are reported for the peer, unless it is watched.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_directory_connect(
    directory: *const kvmem_directory,
    agent: *mut kvmem_agent,
    peer: *const c_char,
    timeout_ns: u64,
    entry: *mut *mut kvmem_directory_entry,
    error: *mut *mut kvmem_error,
) -> kvmem_status {
    call_new(error, (entry, "entry"), |scope| {
        let directory = borrow(scope, directory)?;
        let agent = borrow_nullable(scope, agent)?;
        let peer = text::required(peer, "peer")?;
        let deadline = deadline(timeout_ns);
        loop {
            let left = time_left(deadline);
            let found = FoundEntry::from(directory.wait_for(peer, left)?);
            let loaded = agent.map_or(Ok(()), |agent| found.load(&agent.agent, deadline));
            let is_stale = loaded.as_ref().is_err_and(|error| error.status() == Status::Stale);
            // Another thread has loaded a later entry since.
            if is_stale && left.is_none_or(|left| !left.is_zero()) {
                continue;
            }
            loaded?;
            return Ok(found);
        }
    })
}

/// Checks that an entry is still the current one of its agent.
///
/// @param entry an entry that was found in it
/// @return KVMEM_STATUS_STALE: the agent has published again since, or was restarted; the message says which
///         KVMEM_STATUS_NOT_FOUND: the agent was withdrawn, or its process has ended
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_directory_check(
    directory: *const kvmem_directory,
    entry: *const kvmem_directory_entry,
    timeout_ns: u64,
    error: *mut *mut kvmem_error,
) -> kvmem_status {
    call(error, |scope| {
        let presence = &borrow(scope, entry)?.entry.presence;
        borrow(scope, directory)?.check(presence, timeout(timeout_ns))
    })
}
