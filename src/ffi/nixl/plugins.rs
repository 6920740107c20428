// SPDX-License-Identifier: Apache-2.0
//! Discovery: the plugins of NIXL, the backends of an agent, and connections.

use std::collections::BTreeMap;
use std::ffi::{CString, c_char};

use crate::ffi::agent::{kvmem_agent, memory_type};
use crate::ffi::common::{
    Array, borrow, call, call_new, deadline, destroy, item_list, kvmem_error, kvmem_status, text,
};
use crate::ffi::nixl::agent::kvmem_parameter;
use crate::ffi::nixl::options::{call_options, kvmem_nixl_options};
use crate::nixl::{Command, PluginInfo};

/// Plugins, each with its texts.
pub type Plugins = Array<kvmem_plugin, Entry>;

/// A plugin, with its texts as C strings.
pub struct Entry {
    name: CString,
    failure: Option<CString>,
    memory_types: u32,
    parameters: Parameters,
}

/// A plugin of NIXL, or a backend that an agent has created from one.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct kvmem_plugin {
    /// Name of the plugin.
    pub name: *const c_char,
    /// Why the plugin does not load, such as a missing library; NULL if it loads.
    pub failure: *const c_char,
    /// Parameters: defaults of a plugin, the actual ones of a backend.
    pub parameters: *const kvmem_parameter,
    /// Number of parameters.
    pub parameter_count: usize,
    /// The memory types that it accepts: bit 1 << KVMEM_MEMORY_* for each.
    pub memory_types: u32,
    /// 0.
    pub reserved: u32,
}

/// A list of plugins or backends. The caller destroys it.
#[repr(C)]
pub struct kvmem_plugins {
    /// Plugins or backends, sorted by name; NULL if there are none.
    pub items: *const kvmem_plugin,
    /// Their number.
    pub count: usize,
}
item_list!(kvmem_plugins, Plugins, "plugins");

/// Lists the plugins that NIXL finds. Loads each of them, to get its parameters and memory types. A plugin
/// that does not load is in the list with the reason.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_agent_get_plugins(
    agent: *mut kvmem_agent,
    plugins: *mut *mut kvmem_plugins,
    error: *mut *mut kvmem_error,
) -> kvmem_status {
    call_new(error, (plugins, "plugins"), |scope| {
        Ok(entries(borrow(scope, agent)?.agent.call(Command::Plugins)?))
    })
}

/// Lists the backends of an agent.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_agent_get_backends(
    agent: *mut kvmem_agent,
    backends: *mut *mut kvmem_plugins,
    error: *mut *mut kvmem_error,
) -> kvmem_status {
    call_new(error, (backends, "backends"), |scope| {
        Ok(entries(borrow(scope, agent)?.agent.call(Command::Backends)?))
    })
}

/// Destroys a list of plugins or backends.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_plugins_destroy(plugins: *mut kvmem_plugins) {
    destroy(plugins);
}

/// Connects an agent to a peer now. Otherwise the first transfer or notification does, and takes longer.
///
/// @param options backends, custom_parameter; NULL for all backends
/// @return KVMEM_STATUS_TIMED_OUT: NIXL has not returned 100 ms after timeout_ns; it may connect later
///         KVMEM_STATUS_INVALID_ARGUMENT: the name is the agent's own
///         KVMEM_STATUS_STALE: the metadata of the peer was invalidated
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_agent_connect(
    agent: *mut kvmem_agent,
    remote: *const c_char,
    options: *const kvmem_nixl_options,
    timeout_ns: u64,
    error: *mut *mut kvmem_error,
) -> kvmem_status {
    call(error, |scope| {
        let agent = &borrow(scope, agent)?.agent;
        let remote = text::required(remote, "remote")?.to_string();
        let options = call_options(options)?;
        let deadline = deadline(timeout_ns).or_else(|| agent.call_deadline());
        agent.call_until(deadline, |reply| Command::Connect(remote, options, reply))
    })
}

fn entries(plugins: Vec<PluginInfo>) -> Plugins {
    let entry = |plugin: PluginInfo| Entry {
        name: c_text(&plugin.name),
        failure: plugin.failure.as_deref().map(c_text),
        memory_types: plugin.memory_types.into_iter().fold(0, |mask, each| mask | 1 << memory_type(each)),
        parameters: parameters(&plugin.parameters),
    };
    Array::new(plugins.into_iter().map(entry).collect(), |entry: &Entry| {
        let (parameters, parameter_count) = entry.parameters.raw();
        kvmem_plugin {
            name: entry.name.as_ptr(),
            failure: entry.failure.as_ref().map_or(std::ptr::null(), |failure| failure.as_ptr()),
            parameters,
            parameter_count,
            memory_types: entry.memory_types,
            reserved: 0,
        }
    })
}

/// A C string; empty for a text that contains a NUL.
fn c_text(text: &str) -> CString {
    CString::new(text).unwrap_or_default()
}

/// Parameters, each with its texts.
pub type Parameters = Array<kvmem_parameter, [CString; 2]>;

/// The parameters of a map.
pub(in crate::ffi) fn parameters(map: &BTreeMap<String, String>) -> Parameters {
    let owners = map.iter().map(|(key, value)| [c_text(key), c_text(value)]).collect();
    Array::new(owners, |[key, value]: &[CString; 2]| kvmem_parameter {
        key: key.as_ptr(),
        value: value.as_ptr(),
    })
}
