// SPDX-License-Identifier: Apache-2.0
//! Finding what other processes have published in a directory.

use std::ffi::c_char;
use std::time::Instant;

use crate::base::{Result, Status};
use crate::directory::{Directory, Entry};
use crate::ffi::agent::kvmem_agent;
use crate::ffi::common::{Out, borrow, call, call_new, deadline, kvmem_error, kvmem_status, text, timeout};
use crate::ffi::nixl::directory::kvmem_directory;
use crate::ffi::nixl::directory_entry::{FoundEntry, kvmem_directory_entry};

/// Finds the entry of an agent. The entry is a copy, which later changes of the directory do not affect.
///
/// Does not wait for an agent that is not published: kvmem_directory_wait_for does.
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

/// Waits until an agent is published, and returns its entry. Returns at once if it is published, also with
/// a timeout of 0.
///
/// Notes: no events are reported for it, unless the agent is watched.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_directory_wait_for(
    directory: *const kvmem_directory,
    agent: *const c_char,
    timeout_ns: u64,
    entry: *mut *mut kvmem_directory_entry,
    error: *mut *mut kvmem_error,
) -> kvmem_status {
    found(directory, agent, entry, error, |directory, agent| directory.wait_for(agent, timeout(timeout_ns)))
}

/// Waits until a peer is published, loads its metadata, and returns its entry: kvmem_directory_wait_for and
/// kvmem_directory_entry_load with one deadline. Then import its layouts.
///
/// @param agent the agent that will access the memory of the peer
/// @param peer name of the agent that the peer publishes
/// @return KVMEM_STATUS_TIMED_OUT: the peer was not published in time, the directory does not respond, or
///           NIXL has not returned 100 ms after the timeout; it may load the metadata later
///         KVMEM_STATUS_PEER_LOST: the peer has ended, and the directory still has its entry
///         other statuses: as for kvmem_directory_wait_for and kvmem_directory_entry_load
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_directory_connect(
    directory: *const kvmem_directory,
    agent: *mut kvmem_agent,
    peer: *const c_char,
    timeout_ns: u64,
    entry: *mut *mut kvmem_directory_entry,
    error: *mut *mut kvmem_error,
) -> kvmem_status {
    call(error, |scope| {
        let entry = Out::new(entry, "entry")?;
        let directory = borrow(scope, directory)?;
        let agent = &borrow(scope, agent)?.agent;
        let peer = text::required(peer, "peer")?;
        let deadline = deadline(timeout_ns);
        loop {
            let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            let found = FoundEntry::from(directory.wait_for(peer, left)?);
            let loaded = found.load(agent, deadline);
            let is_stale = loaded.as_ref().is_err_and(|error| error.status() == Status::Stale);
            // Another thread has loaded a later entry since.
            if is_stale && left.is_none_or(|left| !left.is_zero()) {
                continue;
            }
            loaded?;
            entry.set(found);
            return Ok(());
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
