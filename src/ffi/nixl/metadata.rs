// SPDX-License-Identifier: Apache-2.0
//! Metadata of agents: what a peer loads to reach registered memory.

use std::ffi::{c_char, c_void};

use crate::ffi::agent::kvmem_agent;
use crate::ffi::common::blob::{self, kvmem_blob};
use crate::ffi::common::error::kvmem_error;
use crate::ffi::common::guard::call;
use crate::ffi::common::handle::{Out, borrow};
use crate::ffi::common::status::kvmem_status;
use crate::ffi::common::text;
use crate::ffi::common::time::timeout;
use crate::ffi::nixl::agent::tcp_port;

/// The agent's metadata: what a peer loads to reach its registered memory. Get it after the last registration
/// that peers shall see; how it travels is the caller's choice.
///
/// @param agent an agent with a backend that reaches peers
/// @param metadata gets NIXL's own bytes; the caller destroys the blob
/// @param error gets the failure; may be NULL
/// @return KVMEM_STATUS_OK; KVMEM_STATUS_NIXL without such a backend
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_agent_get_local_metadata(
    agent: *mut kvmem_agent,
    metadata: *mut *mut kvmem_blob,
    error: *mut *mut kvmem_error,
) -> kvmem_status {
    // SAFETY: by contract.
    unsafe {
        call(error, |scope| {
            let metadata = Out::new(metadata)?;
            let bytes = borrow(scope, agent)?.agent.call(|driver| driver.local_metadata())?;
            metadata.set(blob::value(bytes));
            Ok(())
        })
    }
}

/// Loads a peer's metadata. Loading it again after the peer registered more adds to it.
///
/// @param agent an agent
/// @param data what the peer's kvmem_agent_get_local_metadata, or any NIXL agent, gave
/// @param size its bytes
/// @param name gets the peer's name as text; the caller destroys the blob; may be NULL
/// @param error gets the failure; may be NULL
/// @return KVMEM_STATUS_OK; KVMEM_STATUS_ALREADY_EXISTS when another peer of that name is loaded, such as the
///         same one before it restarted: invalidate that first; KVMEM_STATUS_NIXL or KVMEM_STATUS_NOT_FOUND
///         for bytes that are no metadata, or of a peer no backend reaches
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_agent_load_remote_metadata(
    agent: *mut kvmem_agent,
    data: *const c_void,
    size: usize,
    name: *mut *mut kvmem_blob,
    error: *mut *mut kvmem_error,
) -> kvmem_status {
    // SAFETY: by contract.
    unsafe {
        call(error, |scope| {
            let name = Out::nullable(name);
            let agent = &borrow(scope, agent)?.agent;
            let bytes = text::bytes(data, size, "data")?.to_vec();
            let peer = agent.call(move |driver| driver.load_remote(&bytes))?;
            if let Some(name) = name {
                name.set(blob::value(peer.into_bytes()));
            }
            Ok(())
        })
    }
}

/// Whether the metadata of a peer is loaded. That says nothing of whether the peer lives.
///
/// @param agent an agent
/// @param name the peer's name
/// @param error gets the failure; may be NULL
/// @return KVMEM_STATUS_OK; KVMEM_STATUS_NOT_FOUND
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_agent_check_remote_metadata(
    agent: *mut kvmem_agent,
    name: *const c_char,
    error: *mut *mut kvmem_error,
) -> kvmem_status {
    // SAFETY: by contract.
    unsafe {
        call(error, |scope| {
            let agent = &borrow(scope, agent)?.agent;
            let name = text::required(name, "name")?.to_string();
            agent.call(move |driver| driver.check_remote(&name, &[]))
        })
    }
}

/// Forgets a peer. Layouts imported from it fail with KVMEM_STATUS_STALE from now on, also after a peer of
/// the same name is loaded.
///
/// A transfer is in flight from submit until its end is reported. If NIXL still has requests of it then, as
/// after KVMEM_STATUS_PEER_LOST, it stays in flight until NIXL has released them.
///
/// @param agent an agent
/// @param name the peer's name
/// @param error gets the failure; may be NULL
/// @return KVMEM_STATUS_OK.
///         KVMEM_STATUS_NOT_FOUND: the peer is not loaded.
///         KVMEM_STATUS_BUSY: a transfer with the peer is in flight.
///         KVMEM_STATUS_INVALID_ARGUMENT: the name is the agent's own.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_agent_invalidate_remote_metadata(
    agent: *mut kvmem_agent,
    name: *const c_char,
    error: *mut *mut kvmem_error,
) -> kvmem_status {
    // SAFETY: by contract.
    unsafe {
        call(error, |scope| {
            let agent = &borrow(scope, agent)?.agent;
            let name = text::required(name, "name")?.to_string();
            agent.call(move |driver| driver.invalidate_remote(&name))
        })
    }
}

/// Requests a peer's metadata from its listen thread.
///
/// If no metadata of the peer is loaded, waits until it is. If older metadata is loaded, returns as soon as
/// the request is queued, because NIXL does not report the arrival of newer metadata: until then
/// kvmem_layout_import returns KVMEM_STATUS_NOT_FOUND for newer layouts. NIXL rejects the metadata of a
/// restarted peer while older metadata is loaded. To wait for the arrival in all cases, call
/// kvmem_agent_invalidate_remote_metadata first.
///
/// If nothing listens at the address, the call fails with KVMEM_STATUS_NOT_FOUND after about half a second.
/// With a shorter timeout it fails with KVMEM_STATUS_TIMED_OUT if no metadata of the peer is loaded. To check
/// the address, kvmem may connect to the address and reset the connection, which the peer's NIXL reports on
/// its stderr.
///
/// @param agent an agent that has a listen thread itself
/// @param name the peer's name
/// @param address the peer's IPv4 address, such as "127.0.0.1"
/// @param port the peer's listen port, 1 to 65535
/// @param timeout_ns nanoseconds, or KVMEM_TIMEOUT_FOREVER
/// @param error gets the failure; may be NULL
/// @return KVMEM_STATUS_OK.
///         KVMEM_STATUS_INVALID_ARGUMENT: the address is not an IPv4 address, the port is not in 1 to 65535,
///         or the name is the agent's own.
///         KVMEM_STATUS_INVALID_STATE: the agent has no listen thread.
///         KVMEM_STATUS_NOT_FOUND: nothing listens at the address.
///         KVMEM_STATUS_IO or KVMEM_STATUS_PERMISSION_DENIED: the address cannot be reached.
///         KVMEM_STATUS_TIMED_OUT: the metadata did not arrive in time.
///         KVMEM_STATUS_NIXL: NIXL failed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_agent_fetch_remote_metadata(
    agent: *mut kvmem_agent,
    name: *const c_char,
    address: *const c_char,
    port: u32,
    timeout_ns: u64,
    error: *mut *mut kvmem_error,
) -> kvmem_status {
    // SAFETY: by contract.
    unsafe {
        call(error, |scope| {
            let agent = &borrow(scope, agent)?.agent;
            let (name, address) = (text::required(name, "name")?, text::required(address, "address")?);
            agent.fetch_remote(name, address, tcp_port(port)?, timeout(timeout_ns))
        })
    }
}

/// Sends the agent's metadata to the listen thread of a peer, which loads it.
///
/// kvmem first connects to the address, for at most a second, and resets the connection, because NIXL does
/// not report a failed connection. The reset makes the peer's NIXL print an error to its stderr.
///
/// @param agent an agent that has a listen thread itself, and a backend that reaches peers
/// @param address the peer's IPv4 address, such as "127.0.0.1"
/// @param port the peer's listen port, 1 to 65535
/// @param error gets the failure; may be NULL
/// @return KVMEM_STATUS_OK: it is on its way. That it arrives is not certain.
///         KVMEM_STATUS_INVALID_ARGUMENT: the address is not an IPv4 address, or the port is not in 1 to
///         65535.
///         KVMEM_STATUS_INVALID_STATE: the agent has no listen thread.
///         KVMEM_STATUS_NOT_FOUND: nothing listens at the address.
///         KVMEM_STATUS_IO or KVMEM_STATUS_PERMISSION_DENIED: the address cannot be reached.
///         KVMEM_STATUS_NIXL: NIXL failed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_agent_send_local_metadata(
    agent: *mut kvmem_agent,
    address: *const c_char,
    port: u32,
    error: *mut *mut kvmem_error,
) -> kvmem_status {
    // SAFETY: by contract.
    unsafe {
        call(error, |scope| {
            let agent = &borrow(scope, agent)?.agent;
            agent.send_local(text::required(address, "address")?, tcp_port(port)?)
        })
    }
}
