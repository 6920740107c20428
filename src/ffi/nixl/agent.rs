// SPDX-License-Identifier: Apache-2.0
//! Agents.

use std::ffi::{CString, c_char};
use std::time::Duration;

use crate::error::{Error, Result, Status, ensure};
use crate::ffi::agent::{Named, kvmem_agent};
use crate::ffi::common::error::kvmem_error;
use crate::ffi::common::guard::call;
use crate::ffi::common::handle::{Out, borrow, destroy, peek};
use crate::ffi::common::options::{check_flags, options, read_nullable};
use crate::ffi::common::pointer::items;
use crate::ffi::common::status::kvmem_status;
use crate::ffi::common::text;
use crate::nixl::{Agent, AgentConfig, SyncMode};

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

/// Fills options with defaults.
///
/// @param options the caller's struct; NULL does nothing
/// @param struct_size sizeof(*options); no more is written
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_agent_options_init(options: *mut kvmem_agent_options, struct_size: usize) {
    // SAFETY: by contract.
    unsafe { crate::ffi::common::options::init(options, struct_size) };
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

/// One parameter of a backend.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct kvmem_parameter {
    /// Its name.
    pub key: *const c_char,
    /// Its value.
    pub value: *const c_char,
}

/// Creates a backend of an agent: a NIXL plugin that moves bytes, such as "UCX" (peers), "POSIX" (files),
/// "GDS" or "GDS_MT" (files and GPU memory; needs libcufile and libcudart). Regions that are already
/// registered stay unknown to it.
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
            let parameters = items(parameters, count, "parameters")?
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

/// A TCP port, checked.
pub(in crate::ffi) fn tcp_port(port: u32) -> Result<u16> {
    let valid = u16::try_from(port).ok().filter(|port| *port > 0);
    ensure!(valid.is_some(), InvalidArgument, "{port} is no TCP port");
    Ok(valid.unwrap_or_default())
}
