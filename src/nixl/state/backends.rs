// SPDX-License-Identifier: Apache-2.0
//! Backends: the plugins an agent moves bytes with.
#![allow(unsafe_code)]

use std::collections::BTreeMap;
use std::ffi::CStr;
use std::ptr;

use super::AgentState;
use crate::base::sorting::sort_few_by;
use crate::base::{Error, Result, ensure, log, process, thread};
use crate::nixl::backend::{Backend, Params, memory_types};
use crate::nixl::call::{Owned, c_string, check, copied};
use crate::nixl::{exit, gusli, library, obj, signals, sys, tcp_send, ucx_log};

/// The plugins that take files and GPU memory; NIXL has one of them in an agent.
const GDS_PLUGINS: [&str; 2] = ["GDS", "GDS_MT"];

/// The parameter of UCX's plugins for settings of UCX.
const UCX_SETTINGS: &str = "engine_config";
/// Settings that they are created with, which the environment and the caller can change. UCX reads GPU memory of other processes
/// by CUDA IPC also on hosts without NVLink. By default it only writes it there, and reads through the host at less than 1 GB/s,
/// even within one GPU.
const FOR_ALL: &str = "CUDA_IPC_ENABLE_GET_ZCOPY=on";
/// The same with a progress thread of NIXL's. A thread that waits for UCX's lock sleeps: UCX holds the lock while it copies host
/// memory of a peer, and the progress thread would keep a processor busy for as long. Otherwise no thread waits for that lock,
/// and a mutex takes longer than a spinlock.
const FOR_TWO_THREADS: &str = "USE_MT_MUTEX=y,CUDA_IPC_ENABLE_GET_ZCOPY=on";

/// File descriptors that a UCX backend needs, rounded up. Measured: 18 for the first one of a process, 12 or 13 for another.
const FOR_UCX: usize = 20;

/// Addresses that a UCX backend maps, rounded up. Measured with NIXL 1.5: 183 to 192 MB for the first one of a process, with its
/// libraries; 91 to 149 MB for another.
const MAPPED_BY_UCX: usize = 224 << 20;

/// Memory types and parameters.
pub(super) type Properties = (Vec<sys::nixl_capi_mem_type_t>, BTreeMap<String, String>);

impl AgentState {
    /// Makes a backend from the plugin's own parameters, changed by `parameters`.
    pub fn create_backend(&mut self, plugin: &str, parameters: &[(String, String)]) -> Result<()> {
        ensure!(
            !self.backends.contains_key(plugin),
            AlreadyExists,
            "agent '{}' has a {plugin} backend already",
            self.display_name()
        );
        let name = c_string("the plugin's name", plugin)?;
        if plugin.starts_with("UCX") {
            // UCX ends the process if the thread that all its workers share cannot be started, and NIXL if that of the backend
            // cannot. They map memory before they start them, so the check leaves addresses for that.
            thread::ensure_startable(2, MAPPED_BY_UCX)
                .map_err(|error| error.context(format!("start the threads of a {plugin} backend")))?;
            let doing = |error: Error| error.context(format!("create a {plugin} backend"));
            process::ensure_free_descriptors(FOR_UCX).map_err(doing)?;
        }
        // From before the plugin is loaded for its parameters.
        let _dispositions = signals::Preserved::new();
        let merged = self.merged_parameters(plugin, &name, parameters)?;
        if plugin.starts_with("UCX") {
            tcp_send::redirect(plugin);
            ucx_log::listen(plugin);
        }
        let max_parts = if plugin == gusli::PLUGIN { gusli::max_parts(&merged) } else { None };
        let params = Params::from_entries(&merged)?;
        let raw = ucx_log::collecting(|| self.try_create_backend(&name, &params))
            .map_err(|error| self.explain_refusal(plugin, parameters, error))?;
        exit::precedes(plugin);
        let mut backend = Backend::around(raw);
        // NIXL has the backend whether or not this fails, and it cannot be created again.
        match self.backend_properties(&backend) {
            Ok((types, _)) => backend.memory_types = types,
            Err(error) => log!(Error, "{error}"),
        }
        backend.max_parts = max_parts;
        self.backends.insert(plugin.to_string(), backend);
        self.carrier = self.carrier.after_new_backend();
        // Layouts can be exported without it; then an importer cannot distinguish agents of one name.
        if let Err(error) = self.identify(plugin) {
            log!(Warn, "{error}");
        }
        log!(Info, "agent {} has a {plugin} backend", self.log_name());
        Ok(())
    }

    fn try_create_backend(&self, plugin: &CStr, params: &Params) -> Result<sys::nixl_capi_backend_t> {
        let mut raw = ptr::null_mut();
        // SAFETY: live handles; the parameters are copied.
        let status =
            unsafe { sys::nixl_capi_create_backend(self.agent, plugin.as_ptr(), params.raw(), &mut raw) };
        check(status, || "create the backend".to_string()).map(|()| raw)
    }

    /// Parameters are named without their values, which may be secrets.
    fn explain_refusal(&self, plugin: &str, parameters: &[(String, String)], error: Error) -> Error {
        let doing = format!("create a {plugin} backend for agent '{}'", self.display_name());
        let mut settings = if plugin.starts_with("UCX") { ucx_settings() } else { Vec::new() };
        settings.extend(missing_store(plugin, parameters));
        if !parameters.is_empty() {
            let keys: Vec<_> = parameters.iter().map(|(key, _)| key.as_str()).collect();
            let keys = keys.join(", ");
            settings.push(format!(
                "the caller sets the parameters {keys}; NIXL writes what is wrong with a parameter to stderr"
            ));
        }
        settings.into_iter().fold(error.context(doing), Error::followed_by)
    }

    fn merged_parameters(
        &self,
        plugin: &str,
        name: &CStr,
        changes: &[(String, String)],
    ) -> Result<BTreeMap<String, String>> {
        let mut merged = self.plugin_parameters(plugin, name)?;
        merged.extend(changes.iter().cloned());
        if plugin.starts_with("UCX") {
            let further = merged.entry(UCX_SETTINGS.to_string()).or_default();
            *further = with_further(self.has_progress_thread, further);
        }
        match plugin {
            gusli::PLUGIN => gusli::ensure_parameters(&merged)?,
            obj::PLUGIN => obj::ensure_parameters(&merged)?,
            _ => {}
        }
        Ok(merged)
    }

    fn plugin_parameters(&self, plugin: &str, name: &CStr) -> Result<BTreeMap<String, String>> {
        let available = self.available_plugins()?;
        ensure!(
            available.iter().any(|known| known == plugin),
            NotFound,
            "NIXL has no plugin '{plugin}'; it has {}. It searches {}",
            if available.is_empty() { "none".to_string() } else { available.join(", ") },
            library::searched_for_plugins()
        );
        self.plugin_properties(plugin, name).map(|(_, parameters)| parameters)
    }

    /// The memory types that a plugin accepts, and the defaults of its parameters.
    pub(super) fn plugin_properties(&self, plugin: &str, name: &CStr) -> Result<Properties> {
        let failed = || match library::plugin_failure(plugin) {
            Some(reason) => format!("load plugin {plugin} ({reason})"),
            None => format!("load plugin {plugin}"),
        };
        // SAFETY: live handles.
        properties(failed, |mems, params| unsafe {
            sys::nixl_capi_get_plugin_params(self.agent, name.as_ptr(), mems, params)
        })
    }

    /// The memory types that a backend accepts, which may be others than its plugin says, and its parameters.
    pub(super) fn backend_properties(&self, backend: &Backend) -> Result<Properties> {
        // SAFETY: live handles.
        properties(
            || "get the properties of a backend".to_string(),
            |mems, params| unsafe {
                sys::nixl_capi_get_backend_params(self.agent, backend.raw(), mems, params)
            },
        )
    }

    /// The names of the plugins that NIXL finds, sorted.
    pub(super) fn available_plugins(&self) -> Result<Vec<String>> {
        exit::ensure_running()?;
        let mut list = ptr::null_mut();
        let mut names = Vec::new();
        // SAFETY: live handles; the strings are copied before their list is freed.
        unsafe {
            let status = sys::nixl_capi_get_available_plugins(self.agent, &mut list);
            check(status, || "list the plugins".to_string())?;
            let mut size = 0;
            sys::nixl_capi_string_list_size(list, &mut size);
            for index in 0..size {
                let mut name = ptr::null();
                if sys::nixl_capi_string_list_get(list, index, &mut name) == sys::NIXL_CAPI_SUCCESS {
                    names.push(copied(name));
                }
            }
            sys::nixl_capi_destroy_string_list(list);
        }
        sort_few_by(&mut names, String::cmp);
        Ok(names)
    }

    /// The agent's backend for files and GPU memory; where there is none, the names of those it has.
    pub fn gds_backend(&self) -> std::result::Result<&'static str, String> {
        let found = GDS_PLUGINS.iter().find(|plugin| self.backends.contains_key(**plugin));
        found.copied().ok_or_else(|| self.backend_names())
    }

    /// The names of the agent's backends, for messages.
    pub(super) fn backend_names(&self) -> String {
        let names: Vec<_> = self.backends.keys().map(String::as_str).collect();
        if names.is_empty() { "no backend".to_string() } else { names.join(", ") }
    }
}

/// What NIXL writes by `get`.
fn properties(
    doing: impl FnOnce() -> String,
    get: impl FnOnce(*mut sys::nixl_capi_mem_list_t, *mut sys::nixl_capi_params_t) -> sys::nixl_capi_status_t,
) -> Result<Properties> {
    let (mut mems, mut params) = (ptr::null_mut(), ptr::null_mut());
    check(get(&mut mems, &mut params), doing)?;
    // SAFETY: both are ours on success.
    let (mems, params) =
        unsafe { (Owned::around(mems, sys::nixl_capi_destroy_mem_list), Params::around(params)) };
    Ok((memory_types(&mems), params.entries()?))
}

/// Settings of UCX for an agent, before those of the plugin and the caller: of two values the last one holds.
fn with_further(has_progress_thread: bool, further: &str) -> String {
    let settings = if has_progress_thread { FOR_TWO_THREADS } else { FOR_ALL };
    format!("{settings},{further}")
}

/// Plugins that need to know a store: the parameter that names it, and the variable of the environment instead.
const STORES: [[&str; 3]; 2] = [
    [obj::PLUGIN, "bucket", "AWS_DEFAULT_BUCKET"],
    ["AZURE_BLOB", "container_name", "AZURE_STORAGE_CONTAINER_NAME"],
];

/// Says that the store was not named, which NIXL reports to stderr only.
fn missing_store(plugin: &str, parameters: &[(String, String)]) -> Option<String> {
    let [_, parameter, variable] = STORES.into_iter().find(|[of, ..]| *of == plugin)?;
    let is_given = parameters.iter().any(|(key, value)| key == parameter && !value.is_empty());
    let is_missing = !is_given && std::env::var_os(variable).is_none();
    is_missing.then(|| {
        format!("neither the parameter {parameter} nor {variable} of the environment is set; one of them must name the store")
    })
}

/// UCX's settings in the environment, for example which transports and devices to use.
pub(super) fn ucx_settings() -> Vec<String> {
    let mut settings: Vec<_> = std::env::vars_os()
        .filter(|(key, _)| key.as_encoded_bytes().starts_with(b"UCX_"))
        .map(|(key, value)| format!("{}={}", key.to_string_lossy(), value.to_string_lossy()))
        .collect();
    sort_few_by(&mut settings, String::cmp);
    match settings.is_empty() {
        true => {
            vec!["the environment sets no UCX_* variable, so UCX chooses among all transports".to_string()]
        }
        false => vec![format!("the environment sets {}", settings.join(" "))],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ucx_has_mutexes_only_for_a_progress_thread_and_the_settings_of_the_caller_last() {
        assert_eq!(with_further(false, "TLS=tcp"), "CUDA_IPC_ENABLE_GET_ZCOPY=on,TLS=tcp");
        assert_eq!(with_further(true, "TLS=tcp"), "USE_MT_MUTEX=y,CUDA_IPC_ENABLE_GET_ZCOPY=on,TLS=tcp");
    }
}
