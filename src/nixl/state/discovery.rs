// SPDX-License-Identifier: Apache-2.0
//! What NIXL and the agent have: plugins, backends, and connections to peers.
#![allow(unsafe_code)]

use super::AgentState;
use super::backends::Properties;
use crate::base::{Result, ensure, error, log};
use crate::nixl::arguments::{Arguments, CallOptions};
use crate::nixl::call::{c_string, check};
use crate::nixl::descriptor::MemoryType;
use crate::nixl::raw_descriptors::PluginInfo;
use crate::nixl::{library, signals, sys};

impl AgentState {
    /// All plugins that NIXL finds, also those that do not load.
    pub fn plugins(&self) -> Result<Vec<PluginInfo>> {
        let _dispositions = signals::Preserved::new();
        Ok(self.available_plugins()?.into_iter().map(|name| self.plugin(name)).collect())
    }

    fn plugin(&self, name: String) -> PluginInfo {
        // Asked first, because NIXL reports a plugin that does not load on stderr, and to the caller without the reason.
        let is_file = library::plugin_file(&name).is_some_and(|file| file.exists());
        let failure = if is_file { library::plugin_failure(&name) } else { None };
        let properties = match failure {
            Some(reason) => Err(reason),
            None => c_string("the plugin's name", &name)
                .and_then(|text| self.plugin_properties(&name, &text))
                .map_err(|error| error.message().to_string()),
        };
        let (properties, failure) = match properties {
            Ok(properties) => (properties, None),
            Err(failure) => (Properties::default(), Some(failure)),
        };
        info(name, properties, failure)
    }

    pub fn backends(&self) -> Result<Vec<PluginInfo>> {
        let backends = self.backends.iter();
        backends
            .map(|(name, backend)| Ok(info(name.clone(), self.backend_properties(backend)?, None)))
            .collect()
    }

    /// Connects to a peer now, so that the first transfer need not.
    pub fn connect(&mut self, peer: &str, options: &CallOptions) -> Result<()> {
        self.ensure_peer(peer, "an agent connects to a peer")?;
        let remote = self.remote(peer)?;
        remote.ensure_valid()?;
        remote.ensure_descriptors()?;
        let name = remote.c_name();
        let arguments = self.arguments(options)?;
        // SAFETY: live handles.
        let status =
            unsafe { sys::nixl_capi_agent_make_connection(self.agent, name.as_ptr(), arguments.raw()) };
        check(status, || {
            format!(
                "connect agent '{}', which has {}, to '{peer}'",
                self.display_name(),
                self.backend_names()
            )
        })
        .map_err(|error| remote.explain(error))?;
        log!(Debug, "agent {} connected to '{peer}'", self.log_name());
        Ok(())
    }

    /// NIXL's arguments for the caller's options.
    pub(super) fn arguments(&self, options: &CallOptions) -> Result<Arguments> {
        let backends = options.backends.iter().map(|plugin| Ok(self.backend(plugin)?.raw()));
        Arguments::with_options(options, &backends.collect::<Result<Vec<_>>>()?)
    }

    /// A backend of the agent, by its plugin.
    pub(super) fn backend(&self, plugin: &str) -> Result<&crate::nixl::backend::Backend> {
        self.backends.get(plugin).ok_or_else(|| {
            error!(
                NotFound,
                "agent '{}' has no {plugin} backend; it has {}. Create the backend first",
                self.display_name(),
                self.backend_names()
            )
        })
    }

    /// The plugins of the backends that an operation on this type of memory uses: those that the caller names, or all that
    /// accept it.
    pub(super) fn chosen_backends(
        &self,
        options: &CallOptions,
        memory_type: MemoryType,
    ) -> Result<Vec<String>> {
        for plugin in &options.backends {
            ensure!(
                self.backend(plugin)?.memory_types.contains(&memory_type.raw()),
                Unsupported,
                "the {plugin} backend of agent '{}' accepts no {} memory",
                self.display_name(),
                memory_type.name()
            );
        }
        if !options.backends.is_empty() {
            return Ok(options.backends.clone());
        }
        let accepts = |types: &[sys::nixl_capi_mem_type_t]| types.contains(&memory_type.raw());
        let all = self.backends.iter().filter(|(_, backend)| accepts(&backend.memory_types));
        let all: Vec<_> = all.map(|(plugin, _)| plugin.clone()).collect();
        ensure!(
            !all.is_empty(),
            Nixl,
            "agent '{}' has {}; create a backend that accepts {} memory first, such as {}",
            self.display_name(),
            self.backend_names(),
            memory_type.name(),
            usual_plugin(memory_type)
        );
        Ok(all)
    }
}

/// What a caller who has forgotten a backend usually needs.
fn usual_plugin(memory_type: MemoryType) -> &'static str {
    match memory_type {
        MemoryType::Dram | MemoryType::Vram => "UCX",
        MemoryType::File => "POSIX, or omit the agent: transfers with files need none",
        MemoryType::Block => "GUSLI",
        MemoryType::Object => "OBJ",
    }
}

/// With the memory types that kvmem has names for.
fn info(name: String, (types, parameters): Properties, failure: Option<String>) -> PluginInfo {
    let memory_types = types.iter().filter_map(|raw| MemoryType::from_raw(*raw)).collect();
    PluginInfo { name, memory_types, parameters, failure }
}
