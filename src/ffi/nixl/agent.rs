// SPDX-License-Identifier: Apache-2.0
//! Agents.

use std::ffi::{CString, c_char};
use std::time::Duration;

use crate::base::{Result, ensure};
use crate::ffi::agent::{Named, kvmem_agent};
use crate::ffi::common::{
    Out, borrow, call, check_flags, destroy, items, kvmem_error, kvmem_status, not_one_of, options, peek,
    read_nullable, text, timeout,
};
use crate::nixl::{Agent, AgentConfig, Command, SyncMode};

/// Without NIXL's progress thread: kvmem drives the idle agent.
pub const KVMEM_AGENT_NO_PROGRESS_THREAD: u64 = 1;
/// Run NIXL's listen thread, which exchanges metadata with peers by address. It listens on all network
/// interfaces, and loads what it receives: damaged metadata ends the process, with NIXL 1.5. So any program
/// that reaches the port can end it. Use it only if all of them are trusted. Otherwise exchange metadata as
/// bytes, or by a directory, whose entries have a checksum.
pub const KVMEM_AGENT_LISTEN_THREAD: u64 = 2;
/// NIXL measures transfers.
pub const KVMEM_AGENT_TELEMETRY: u64 = 4;

/// The same as KVMEM_SYNC_NONE.
pub const KVMEM_SYNC_DEFAULT: u32 = 0;
/// NIXL does not lock the agent. Safe: only kvmem, one thread at a time, and NIXL's threads use it.
pub const KVMEM_SYNC_NONE: u32 = 1;
/// NIXL locks the agent with a mutex.
pub const KVMEM_SYNC_STRICT: u32 = 2;
/// NIXL locks the agent with a read-write lock.
pub const KVMEM_SYNC_RW: u32 = 3;

/// Options of kvmem_agent_create.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct kvmem_agent_options {
    /// sizeof(kvmem_agent_options)
    pub struct_size: usize,
    /// KVMEM_AGENT_* flags.
    pub flags: u64,
    /// Nanoseconds that a call without a timeout of its own waits for NIXL: one that creates a backend,
    /// builds or imports a layout, registers memory, loads metadata and so on. Then it fails with
    /// KVMEM_STATUS_TIMED_OUT. 0 for 10 minutes; KVMEM_TIMEOUT_FOREVER for no limit.
    /// If NIXL finishes later, kvmem undoes the call: it deregisters memory, and releases requests, lists and
    /// views. It does not undo a backend or a loaded peer. NIXL may use memory that the call was to register
    /// or deregister until then: kvmem frees its own memory, and calls release of adopted memory, after that.
    /// Do not free other memory before the agent is destroyed.
    /// A call that destroys several registrations waits that long for the first, and not for the others.
    pub call_timeout_ns: u64,
    /// Nanoseconds between rounds of the progress thread, rounded up to microseconds; 0 for 1 ms.
    pub progress_delay_ns: u64,
    /// Nanoseconds between rounds of the listen thread, rounded up to microseconds; 0 for 100 ms. Must be 0
    /// without that thread.
    pub listen_delay_ns: u64,
    /// TCP port of the listen thread, for trusted programs only; 0 for 8888, and without that thread.
    pub listen_port: u32,
    /// KVMEM_SYNC_* value.
    pub sync_mode: u32,
}
options!(kvmem_agent_options);

/// Creates an agent. Loads NIXL if it is not loaded.
///
/// @param name the name by which peers know the agent; unique among agents that communicate, not empty
/// @return KVMEM_STATUS_INVALID_STATE: NIXL was loaded before this process was forked, or the process exits
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_agent_create(
    name: *const c_char,
    options: *const kvmem_agent_options,
    agent: *mut *mut kvmem_agent,
    error: *mut *mut kvmem_error,
) -> kvmem_status {
    call(error, |_| {
        // SAFETY: by contract.
        let (agent, name, options) =
            unsafe { (Out::new(agent, "agent")?, text::required(name, "name")?, read_nullable(options)?) };
        let config = options.map_or(Ok(AgentConfig::default()), |options| config(&options))?;
        let owned = CString::new(name).unwrap_or_default();
        agent.set(Named { agent: Agent::create(name, &config)?, name: owned });
        Ok(())
    })
}

/// Returns the name of an agent, which is valid as long as this handle; NULL if the agent is NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_agent_name(agent: *const kvmem_agent) -> *const c_char {
    peek(agent).map_or(std::ptr::null(), |named| named.name.as_ptr())
}

/// A parameter of a backend.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct kvmem_parameter {
    /// Name.
    pub key: *const c_char,
    /// Value.
    pub value: *const c_char,
}

/// Creates a backend of an agent.
///
/// A backend is a NIXL plugin that moves bytes, such as "UCX" (peers), "POSIX" (files), "GDS" or "GDS_MT"
/// (files and GPU memory; requires libcufile and libcudart). Regions that are already registered are not
/// registered with the new backend.
///
/// @param parameters parameters that replace those of the plugin; NULL with count 0 for none. NIXL ignores
///        keys that the plugin does not have
/// @return KVMEM_STATUS_NOT_FOUND: NIXL has no such plugin
///         KVMEM_STATUS_ALREADY_EXISTS: the agent has a backend of this plugin
///         KVMEM_STATUS_INVALID_ARGUMENT: with a parameter the plugin GUSLI would end the process, or the
///           plugin OBJ would never end a request; the message has the parameter
///         KVMEM_STATUS_INVALID_STATE: the process exits, and NIXL's objects are destroyed
///         KVMEM_STATUS_TIMED_OUT: NIXL has not created it within call_timeout_ns; it may exist later
///         KVMEM_STATUS_NIXL: the plugin does not load, or the backend cannot be created; the message has
///           what UCX logged, and the UCX_* variables of the environment
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_agent_create_backend(
    agent: *mut kvmem_agent,
    plugin: *const c_char,
    parameters: *const kvmem_parameter,
    count: usize,
    error: *mut *mut kvmem_error,
) -> kvmem_status {
    call(error, |scope| {
        let agent = &borrow(scope, agent)?.agent;
        let plugin = text::required(plugin, "plugin")?.to_string();
        let parameters = items(parameters, count, ("parameters", "count"))?
            .iter()
            .enumerate()
            .map(|(index, each)| {
                let pair = text::required(each.key, "key")
                    .and_then(|key| Ok((key.to_string(), text::required(each.value, "value")?.to_string())));
                pair.map_err(|error| error.context(format!("parameters[{index}]")))
            })
            .collect::<Result<Vec<_>>>()?;
        agent.call(|reply| Command::CreateBackend(plugin, parameters, reply))
    })
}

/// Destroys an agent handle. The agent ends when no registration, layout or transfer uses it.
///
/// The destroy call of the last handle that uses the agent ends the thread of the agent before it returns.
/// If a transfer in flight, or a session of a peer with a served layout, uses the agent longer, its thread
/// ends after that. If NIXL takes more than 10 s to destroy the agent, the thread ends later, too, and the
/// log has a warning. Calls that wait in vain share these 10 s: each further one waits for 0.1 s, until NIXL
/// destroys an agent again. A process that calls exit waits for agents that are being destroyed, for 10 s
/// after the last of them began. Other agents are not destroyed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_agent_destroy(agent: *mut kvmem_agent) {
    destroy(agent);
}

fn config(options: &kvmem_agent_options) -> Result<AgentConfig> {
    let known = KVMEM_AGENT_NO_PROGRESS_THREAD | KVMEM_AGENT_LISTEN_THREAD | KVMEM_AGENT_TELEMETRY;
    check_flags("kvmem_agent_options", options.flags, known)?;
    let has = |flag| options.flags & flag != 0;
    for (name, value) in
        [("listen_port", options.listen_port.into()), ("listen_delay_ns", options.listen_delay_ns)]
    {
        ensure!(
            value == 0 || has(KVMEM_AGENT_LISTEN_THREAD),
            InvalidArgument,
            "{name} is {value}, and the agent has no listen thread; set KVMEM_AGENT_LISTEN_THREAD"
        );
    }
    let default = AgentConfig::default();
    let delay = |value, default| if value == 0 { default } else { Duration::from_nanos(value) };
    Ok(AgentConfig {
        progress_thread: !has(KVMEM_AGENT_NO_PROGRESS_THREAD),
        progress_delay: delay(options.progress_delay_ns, default.progress_delay),
        listen_thread: has(KVMEM_AGENT_LISTEN_THREAD),
        listen_port: if options.listen_port == 0 {
            default.listen_port
        } else {
            tcp_port("listen_port", options.listen_port)?
        },
        listen_delay: delay(options.listen_delay_ns, default.listen_delay),
        sync_mode: match options.sync_mode {
            KVMEM_SYNC_DEFAULT | KVMEM_SYNC_NONE => SyncMode::None,
            KVMEM_SYNC_STRICT => SyncMode::Strict,
            KVMEM_SYNC_RW => SyncMode::ReadWrite,
            other => {
                return Err(not_one_of("sync_mode", other, "KVMEM_SYNC_*"));
            }
        },
        telemetry: has(KVMEM_AGENT_TELEMETRY),
        call_timeout: if options.call_timeout_ns == 0 {
            default.call_timeout
        } else {
            timeout(options.call_timeout_ns)
        },
    })
}

/// Checks a TCP port.
pub(in crate::ffi) fn tcp_port(name: &str, port: u32) -> Result<u16> {
    let valid = u16::try_from(port).ok().filter(|port| *port > 0);
    ensure!(valid.is_some(), InvalidArgument, "{name} is {port}; it must be 1 to 65535");
    Ok(valid.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nixl_locks_an_agent_only_if_the_caller_asks_for_it() {
        for (sync_mode, expected) in [
            (KVMEM_SYNC_DEFAULT, SyncMode::None),
            (KVMEM_SYNC_NONE, SyncMode::None),
            (KVMEM_SYNC_STRICT, SyncMode::Strict),
            (KVMEM_SYNC_RW, SyncMode::ReadWrite),
        ] {
            let options = kvmem_agent_options {
                struct_size: size_of::<kvmem_agent_options>(),
                flags: 0,
                progress_delay_ns: 0,
                listen_delay_ns: 0,
                listen_port: 0,
                sync_mode,
                call_timeout_ns: 0,
            };
            assert_eq!(config(&options).unwrap().sync_mode, expected);
        }
        assert_eq!(AgentConfig::default().sync_mode, SyncMode::None);
    }
}
