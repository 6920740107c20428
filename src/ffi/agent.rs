// SPDX-License-Identifier: Apache-2.0
//! Agents.

use std::ffi::{CString, c_char, c_void};
use std::sync::Arc;
use std::time::Duration;

use super::blob::{self, kvmem_blob};
use super::error::kvmem_error;
use super::guard::call;
use super::handle::{Handle, Out, borrow, destroy, opaque, peek};
use super::options::{check_flags, options, read_nullable};
use super::status::kvmem_status;
use super::text;
use super::time::timeout;
use crate::error::{Error, Result, Status, ensure};
use crate::nixl::{Agent, AgentConfig, SyncMode};

/// A NIXL agent, driven by a thread of its own, or by threads that wait for its transfers. Registrations, layouts and
/// transfers hold it.
///
/// Threads: all functions on one agent may run at once, except kvmem_agent_destroy. Calls of NIXL are made one at a time.
pub struct kvmem_agent {
    handle: Handle<Named>,
}
opaque!(kvmem_agent, Named, "agent");

/// The agent, and its name as C reads it.
pub struct Named {
    /// The agent.
    pub agent: Arc<Agent>,
    name: CString,
}

/// No progress thread of NIXL's. Then kvmem drives the idle agent, every progress_delay_us.
pub const KVMEM_AGENT_NO_PROGRESS_THREAD: u64 = 1;
/// A thread that answers peers who fetch metadata by address. It listens on all interfaces.
pub const KVMEM_AGENT_LISTEN_THREAD: u64 = 2;
/// NIXL measures transfers.
pub const KVMEM_AGENT_TELEMETRY: u64 = 4;

/// KVMEM_SYNC_RW.
pub const KVMEM_SYNC_DEFAULT: u32 = 0;
/// NIXL does not guard the agent: only kvmem, one thread at a time, and NIXL's own threads use it.
pub const KVMEM_SYNC_NONE: u32 = 1;
/// One lock.
pub const KVMEM_SYNC_STRICT: u32 = 2;
/// A read-write lock.
pub const KVMEM_SYNC_RW: u32 = 3;

/// How an agent runs. All zeroes but struct_size is the default.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct kvmem_agent_options {
    /// sizeof(kvmem_agent_options)
    pub struct_size: usize,
    /// KVMEM_AGENT_* flags.
    pub flags: u64,
    /// Microseconds between rounds of the progress thread; 0 for 1000.
    pub progress_delay_us: u64,
    /// Microseconds between rounds of the listen thread; 0 for 100000, and without that thread.
    pub listen_delay_us: u64,
    /// TCP port of the listen thread; 0 for 8888, and without that thread.
    pub listen_port: u32,
    /// A KVMEM_SYNC_* value.
    pub sync_mode: u32,
}
options!(kvmem_agent_options);

/// One parameter of a backend.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct kvmem_parameter {
    /// Its name.
    pub key: *const c_char,
    /// Its value.
    pub value: *const c_char,
}

/// Fills options with defaults.
///
/// @param options the caller's struct; NULL does nothing
/// @param struct_size sizeof(*options); no more is written
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_agent_options_init(options: *mut kvmem_agent_options, struct_size: usize) {
    // SAFETY: by contract.
    unsafe { super::options::init(options, struct_size) };
}

/// Creates an agent. Loads NIXL if that was not done yet.
///
/// @param name by which peers know it; unique among the agents that meet
/// @param options how it runs; NULL for the defaults
/// @param agent gets the agent; the caller destroys it
/// @param error gets the failure; may be NULL
/// @return KVMEM_STATUS_OK; KVMEM_STATUS_UNAVAILABLE_NIXL; KVMEM_STATUS_INVALID_ARGUMENT; KVMEM_STATUS_NIXL
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_agent_create(
    name: *const c_char,
    options: *const kvmem_agent_options,
    agent: *mut *mut kvmem_agent,
    error: *mut *mut kvmem_error,
) -> kvmem_status {
    let body = |_: &_| {
        // SAFETY: by contract.
        let (agent, name, options) =
            unsafe { (Out::new(agent)?, text::required(name, "name")?, read_nullable(options)?) };
        let config = options.map_or(Ok(AgentConfig::default()), |options| config(&options))?;
        let owned = CString::new(name).unwrap_or_default();
        agent.set(Named { agent: Agent::create(name, &config)?, name: owned });
        Ok(())
    };
    // SAFETY: NULL or writable, by contract.
    unsafe { call(error, body) }
}

/// The name of an agent.
///
/// @param agent an agent; NULL answers NULL
/// @return a string that lives as long as this handle
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_agent_name(agent: *const kvmem_agent) -> *const c_char {
    // SAFETY: NULL or a live agent, by contract.
    unsafe { peek(agent) }.map_or(std::ptr::null(), |named| named.name.as_ptr())
}

/// Creates a backend of an agent: a NIXL plugin that moves bytes, such as "UCX" (peers), "POSIX" (files), "GDS" or "GDS_MT"
/// (files and GPU memory; needs libcufile and libcudart). Regions that are already registered stay unknown to it.
///
/// If it can't be created, the error message holds what UCX logs, and the UCX_* variables of the environment.
///
/// @param agent an agent
/// @param plugin the plugin's name
/// @param parameters changes to the plugin's own parameters; NULL with count 0 for none
/// @param count number of parameters
/// @param error gets the failure; may be NULL
/// @return KVMEM_STATUS_OK.
///         KVMEM_STATUS_NOT_FOUND: NIXL has no such plugin.
///         KVMEM_STATUS_ALREADY_EXISTS: the agent has a backend of this plugin.
///         KVMEM_STATUS_NIXL: the plugin does not load, or the backend can't be created.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_agent_create_backend(
    agent: *mut kvmem_agent,
    plugin: *const c_char,
    parameters: *const kvmem_parameter,
    count: usize,
    error: *mut *mut kvmem_error,
) -> kvmem_status {
    // SAFETY: by contract.
    unsafe {
        call(error, |scope| {
            let agent = &borrow(scope, agent)?.agent;
            let plugin = text::required(plugin, "plugin")?.to_string();
            let parameters = text::items(parameters, count, "parameters")?
                .iter()
                .map(|each| {
                    let key = text::required(each.key, "a parameter's key")?;
                    Ok((key.to_string(), text::required(each.value, "a parameter's value")?.to_string()))
                })
                .collect::<Result<Vec<_>>>()?;
            agent.call(move |driver| driver.create_backend(&plugin, &parameters))
        })
    }
}

/// The agent's metadata: what a peer loads to reach its registered memory. Get it after the last registration that
/// peers shall see; how it travels is the caller's choice.
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
/// @return KVMEM_STATUS_OK; KVMEM_STATUS_ALREADY_EXISTS when another peer of that name is loaded, such as the same
///         one before it restarted: invalidate that first; KVMEM_STATUS_NIXL or KVMEM_STATUS_NOT_FOUND for bytes
///         that are no metadata, or of a peer no backend reaches
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

/// Forgets a peer. Layouts imported from it fail with KVMEM_STATUS_STALE from now on, also after a peer of the same name
/// is loaded.
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
/// If no metadata of the peer is loaded, waits until it is. If older metadata is loaded, returns as soon as the request
/// is queued, because NIXL does not report the arrival of newer metadata: until then kvmem_layout_import returns
/// KVMEM_STATUS_NOT_FOUND for newer layouts. NIXL rejects the metadata of a restarted peer while older metadata is
/// loaded. To wait for the arrival in all cases, call kvmem_agent_invalidate_remote_metadata first.
///
/// If nothing listens at the address, the call fails with KVMEM_STATUS_NOT_FOUND after about half a second. With a
/// shorter timeout it fails with KVMEM_STATUS_TIMED_OUT if no metadata of the peer is loaded. To check the address,
/// kvmem may connect to the address and reset the connection, which the peer's NIXL reports on its stderr.
///
/// @param agent an agent that has a listen thread itself
/// @param name the peer's name
/// @param address the peer's IPv4 address, such as "127.0.0.1"
/// @param port the peer's listen port, 1 to 65535
/// @param timeout_ns nanoseconds, or KVMEM_TIMEOUT_FOREVER
/// @param error gets the failure; may be NULL
/// @return KVMEM_STATUS_OK.
///         KVMEM_STATUS_INVALID_ARGUMENT: the address is not an IPv4 address, the port is not in 1 to 65535, or the
///         name is the agent's own.
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

/// Destroys an agent handle. The agent is destroyed when nothing holds it. If the last holder is a handle,
/// the destroy call of that handle ends the agent's thread before it returns.
///
/// @param agent an agent that no other call uses; NULL does nothing
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_agent_destroy(agent: *mut kvmem_agent) {
    // SAFETY: by contract.
    unsafe { destroy(agent) };
}

fn config(options: &kvmem_agent_options) -> Result<AgentConfig> {
    let known = KVMEM_AGENT_NO_PROGRESS_THREAD | KVMEM_AGENT_LISTEN_THREAD | KVMEM_AGENT_TELEMETRY;
    check_flags("kvmem_agent_options", options.flags, known)?;
    let has = |flag| options.flags & flag != 0;
    for (name, value) in
        [("listen_port", options.listen_port.into()), ("listen_delay_us", options.listen_delay_us)]
    {
        ensure!(
            value == 0 || has(KVMEM_AGENT_LISTEN_THREAD),
            InvalidArgument,
            "{name} is {value}, and the agent has no listen thread; set KVMEM_AGENT_LISTEN_THREAD"
        );
    }
    let default = AgentConfig::default();
    let micros = |value, default| if value == 0 { default } else { Duration::from_micros(value) };
    Ok(AgentConfig {
        progress_thread: !has(KVMEM_AGENT_NO_PROGRESS_THREAD),
        progress_delay: micros(options.progress_delay_us, default.progress_delay),
        listen_thread: has(KVMEM_AGENT_LISTEN_THREAD),
        listen_port: if options.listen_port == 0 {
            default.listen_port
        } else {
            tcp_port(options.listen_port)?
        },
        listen_delay: micros(options.listen_delay_us, default.listen_delay),
        sync_mode: match options.sync_mode {
            KVMEM_SYNC_DEFAULT | KVMEM_SYNC_RW => SyncMode::ReadWrite,
            KVMEM_SYNC_NONE => SyncMode::None,
            KVMEM_SYNC_STRICT => SyncMode::Strict,
            other => {
                let message = format!("sync_mode is {other}, which is no KVMEM_SYNC_* value");
                return Err(Error::new(Status::InvalidArgument, message));
            }
        },
        telemetry: has(KVMEM_AGENT_TELEMETRY),
    })
}

fn tcp_port(port: u32) -> Result<u16> {
    let valid = u16::try_from(port).ok().filter(|port| *port > 0);
    ensure!(valid.is_some(), InvalidArgument, "{port} is no TCP port");
    Ok(valid.unwrap_or_default())
}
