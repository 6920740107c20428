// SPDX-License-Identifier: Apache-2.0
//! Metadata of agents, which peers load to access registered memory.

use std::ffi::{c_char, c_void};

use crate::base::lists;
use crate::ffi::agent::kvmem_agent;
use crate::ffi::common::{
    Out, blob, borrow, call, call_new, kvmem_blob, kvmem_error, kvmem_status, text, timeout,
};
use crate::ffi::nixl::agent::tcp_port;
use crate::ffi::nixl::descriptors::{kvmem_nixl_descriptor, list};
use crate::ffi::nixl::options::{call_options, kvmem_nixl_options};
use crate::nixl::{Command, ForListener};

/// Returns the metadata of an agent. A peer loads it to access the registered memory of the agent.
///
/// Get it after all memory that peers will access is registered. The caller chooses how to send it.
///
/// @param agent an agent with a backend that reaches peers
/// @return KVMEM_STATUS_NIXL: the agent has no such backend
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_agent_get_local_metadata(
    agent: *mut kvmem_agent,
    metadata: *mut *mut kvmem_blob,
    error: *mut *mut kvmem_error,
) -> kvmem_status {
    call_new(error, (metadata, "metadata"), |scope| {
        let bytes = borrow(scope, agent)?.agent.call(Command::LocalMetadata)?;
        Ok(blob::value(bytes))
    })
}

/// Loads the metadata of a peer. If it has registered more memory, its new metadata can be loaded, too.
///
/// NIXL and UCX do not check all bytes, and damaged ones can end the process: trust the peer and channel.
///
/// @param data bytes of kvmem_agent_get_local_metadata of the peer, or of any NIXL agent
/// @param name receives the name of the peer as text; may be NULL
/// @return KVMEM_STATUS_INVALID_ARGUMENT: size is 0, or the metadata is the agent's own
///         KVMEM_STATUS_ALREADY_EXISTS: another peer of that name is loaded, such as the same one before it
///           restarted; call kvmem_agent_invalidate_remote_metadata first. Or the agent itself has that name
///         KVMEM_STATUS_NIXL, KVMEM_STATUS_NOT_FOUND: the bytes are not metadata, or no backend reaches the
///           peer
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_agent_load_remote_metadata(
    agent: *mut kvmem_agent,
    data: *const c_void,
    size: usize,
    name: *mut *mut kvmem_blob,
    error: *mut *mut kvmem_error,
) -> kvmem_status {
    call(error, |scope| {
        let name = Out::nullable(name);
        let agent = &borrow(scope, agent)?.agent;
        let bytes = lists::copied(text::bytes(data, size, "data")?)?;
        let peer = agent.call(|reply| Command::LoadRemote(bytes, reply))?;
        if let Some(name) = name {
            name.set(blob::value(peer.into_bytes()));
        }
        Ok(())
    })
}

/// Checks whether the metadata of a peer is loaded. Does not check whether the peer is alive.
///
/// @return KVMEM_STATUS_NOT_FOUND: it is not loaded
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_agent_check_remote_metadata(
    agent: *mut kvmem_agent,
    name: *const c_char,
    error: *mut *mut kvmem_error,
) -> kvmem_status {
    call(error, |scope| {
        let agent = &borrow(scope, agent)?.agent;
        let name = text::required(name, "name")?.to_string();
        agent.call(|reply| Command::Remote(name, Vec::new(), reply)).map(drop)
    })
}

/// Removes the metadata of a peer. Layouts that were imported from the peer fail with KVMEM_STATUS_STALE from
/// now on, even after a peer of the same name is loaded.
///
/// @param name name of the peer; NULL for all peers. NIXL does not list its peers: one whose metadata the
///        listen thread of the agent has loaded is removed by NULL only if it has sent a notification, or a
///        function was called with its name before
/// @param count receives the number of peers that were removed; may be NULL
/// @return KVMEM_STATUS_NOT_FOUND: the peer is not loaded
///         KVMEM_STATUS_INVALID_ARGUMENT: the name is the agent's own
///
/// Notes: a run in flight completes, or fails with KVMEM_STATUS_STALE if it has to create further requests.
/// If the peer hangs, the run ends at its deadline, and kvmem keeps its memory until NIXL has released the
/// requests. Another process of the same name can be loaded meanwhile.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_agent_invalidate_remote_metadata(
    agent: *mut kvmem_agent,
    name: *const c_char,
    count: *mut usize,
    error: *mut *mut kvmem_error,
) -> kvmem_status {
    call(error, |scope| {
        let agent = &borrow(scope, agent)?.agent;
        let removed = if name.is_null() {
            agent.call(Command::InvalidateAll)?
        } else {
            let name = text::required(name, "name")?.to_string();
            agent.call(|reply| Command::InvalidateRemote(name, reply))?;
            1
        };
        if let Some(count) = count.as_mut() {
            *count = removed;
        }
        Ok(())
    })
}

/// Requests the metadata of a peer from its listen thread.
///
/// If no metadata of the peer is loaded, the call waits until it is. If older metadata is loaded, the call
/// returns as soon as the request is queued, because NIXL does not report the arrival of newer metadata.
/// Until it arrives, kvmem_layout_import fails with KVMEM_STATUS_NOT_FOUND for newer layouts.
///
/// NIXL rejects the metadata of a restarted peer while older metadata is loaded. To wait for the arrival in
/// all cases, call kvmem_agent_invalidate_remote_metadata first. While requests to the earlier process are in
/// flight, only kvmem_agent_load_remote_metadata and directories can load its successor.
///
/// @return KVMEM_STATUS_INVALID_ARGUMENT: the name is the agent's own
///         KVMEM_STATUS_BUSY: requests to an earlier process of that name are in flight
///         KVMEM_STATUS_TIMED_OUT: the metadata did not arrive in time, or the host was not found in time
///
/// Notes: if nothing listens at the address, the call fails after about half a second. With a shorter
/// timeout, it fails with KVMEM_STATUS_TIMED_OUT if no metadata of the peer is loaded.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_agent_fetch_remote_metadata(
    agent: *mut kvmem_agent,
    name: *const c_char,
    address: *const c_char,
    port: u32,
    timeout_ns: u64,
    error: *mut *mut kvmem_error,
) -> kvmem_status {
    call(error, |scope| {
        let agent = &borrow(scope, agent)?.agent;
        let (name, address) = (text::required(name, "name")?, text::required(address, "address")?);
        agent.fetch_remote(name, address, tcp_port("port", port)?, timeout(timeout_ns))
    })
}

/// Sends the metadata of an agent to the listen thread of a peer, which loads it.
///
/// @param agent an agent with a backend that reaches peers
/// @return KVMEM_STATUS_OK: the metadata is queued. Its arrival is not certain
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_agent_send_local_metadata(
    agent: *mut kvmem_agent,
    address: *const c_char,
    port: u32,
    error: *mut *mut kvmem_error,
) -> kvmem_status {
    call(error, |scope| {
        let agent = &borrow(scope, agent)?.agent;
        agent.send_to(text::required(address, "address")?, tcp_port("port", port)?, ForListener::Metadata)
    })
}

/// Returns metadata of some of an agent's memory. A peer adds it to the metadata that it has loaded.
///
/// The metadata of an empty list is the connection information; that of other lists does not have it. So a
/// peer first loads the metadata of an empty list, or all metadata. Before it imports a layout, it also loads
/// that of some host memory, or all metadata: these identify the agent.
///
/// @param descriptors registered memory, of one memory type; NULL with count 0 for none
/// @param options backends; NULL for all
/// @return KVMEM_STATUS_NIXL: the agent has no backend that reaches peers
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_agent_get_partial_metadata(
    agent: *mut kvmem_agent,
    descriptors: *const kvmem_nixl_descriptor,
    count: usize,
    options: *const kvmem_nixl_options,
    metadata: *mut *mut kvmem_blob,
    error: *mut *mut kvmem_error,
) -> kvmem_status {
    call_new(error, (metadata, "metadata"), |scope| {
        let agent = &borrow(scope, agent)?.agent;
        let list = list(scope, descriptors, count, "descriptors")?;
        let options = call_options(options)?;
        let bytes = agent.call(|reply| Command::PartialMetadata(list, options, reply))?;
        Ok(blob::value(bytes))
    })
}

/// Sends metadata of some of an agent's memory to the listen thread of a peer, which adds it.
///
/// @param agent an agent with a backend that reaches peers
/// @param descriptors registered memory; NULL with count 0 sends the connection information only
/// @return KVMEM_STATUS_OK: the metadata is queued. Its arrival is not certain
///         KVMEM_STATUS_NOT_FOUND: memory is not registered
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_agent_send_partial_metadata(
    agent: *mut kvmem_agent,
    descriptors: *const kvmem_nixl_descriptor,
    count: usize,
    address: *const c_char,
    port: u32,
    error: *mut *mut kvmem_error,
) -> kvmem_status {
    call(error, |scope| {
        let agent = &borrow(scope, agent)?.agent;
        let list = list(scope, descriptors, count, "descriptors")?;
        let address = text::required(address, "address")?;
        agent.send_to(address, tcp_port("port", port)?, ForListener::PartialMetadata(list))
    })
}

/// Requests that the listen thread of a peer removes the metadata of an agent. Call it before the agent ends.
///
/// If the peer uses kvmem, its layouts of this agent then fail with KVMEM_STATUS_STALE, also after it has
/// loaded the metadata again. Later exports can be imported with later metadata only, also by other peers.
///
/// @return KVMEM_STATUS_OK: the message is queued. Its arrival is not certain
///
/// Notes: NIXL removes the metadata at the peer at once: transfers of the peer with this agent then fail.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_agent_invalidate_local_metadata(
    agent: *mut kvmem_agent,
    address: *const c_char,
    port: u32,
    error: *mut *mut kvmem_error,
) -> kvmem_status {
    call(error, |scope| {
        let agent = &borrow(scope, agent)?.agent;
        let address = text::required(address, "address")?;
        agent.send_to(address, tcp_port("port", port)?, ForListener::Withdrawal)
    })
}
