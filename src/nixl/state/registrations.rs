// SPDX-License-Identifier: Apache-2.0
//! Registering memory with an agent's backends.

use std::ptr;

use super::AgentState;
use crate::base::error::{Error, Result, Status, ensure, fail};
use crate::base::log::log;
use crate::nixl::arguments::Arguments;
use crate::nixl::call::check;
use crate::nixl::descriptor::{Descriptor, MemoryType};
use crate::nixl::descriptors::Descriptors;
use crate::nixl::request_handle::Span;
use crate::nixl::{HostPages, gusli, sys, ucx_log};

impl AgentState {
    /// Registers a span with every backend that accepts its memory type. One of them is enough.
    ///
    /// Each backend gets a call of its own. NIXL reports success if one backend of a list accepts the span, and does not
    /// report which. It deregisters from every backend that has memory of the type, also from one that was added later
    /// and does not have this span, and reports that as a failure. So the backends are stored with the span.
    pub fn register(&mut self, descriptor: Descriptor, pages: HostPages) -> Result<()> {
        ensure!(
            !self.registered.contains_key(&descriptor),
            AlreadyExists,
            "{} is already registered with agent '{}'",
            describe(&descriptor),
            self.display_name()
        );
        self.uses_gpu |= descriptor.memory_type == MemoryType::Vram;
        let list = RegistrationList::new(&descriptor)?;
        let mut accepted = Vec::new();
        let mut refused: Option<Error> = None;
        for (plugin, _) in self.backends.iter().filter(|(_, backend)| backend.accepts(&descriptor)) {
            match self.register_pages_with(plugin, &list, std::iter::once(descriptor), pages) {
                Ok(()) => accepted.push(plugin.clone()),
                Err(error) => {
                    let error = error.context(format!("with its {plugin} backend"));
                    refused = Some(match refused {
                        Some(first) => first.followed_by(error),
                        None => error,
                    });
                }
            }
        }
        if accepted.is_empty() {
            return Err(self.registration_failure(&descriptor, refused));
        }
        if let Some(error) = refused {
            log!(Warn, "register {} with agent '{}': {error}", describe(&descriptor), self.display_name());
            self.refused.insert(descriptor, error.to_string());
        }
        self.registered.insert(descriptor, accepted);
        Ok(())
    }

    /// Registers memory with one backend. It fails without NIXL if the backend would end the process.
    pub(super) fn register_pages_with(
        &self,
        plugin: &str,
        list: &RegistrationList,
        memory: impl Iterator<Item = Descriptor>,
        pages: HostPages,
    ) -> Result<()> {
        if plugin == gusli::PLUGIN {
            let known = self.host_ranges_of(plugin);
            for (index, descriptor) in memory.enumerate() {
                gusli::ensure_memory(&descriptor, pages, known + index)?;
            }
        }
        self.register_with(plugin, list).map_err(|error| error.with_status(Status::Nixl))
    }

    /// Number of ranges of host memory that a backend has.
    fn host_ranges_of(&self, plugin: &str) -> usize {
        let is_with = |plugins: &[String]| plugins.iter().any(|name| name == plugin);
        let spans = self
            .registered
            .iter()
            .filter(|(memory, plugins)| memory.memory_type == MemoryType::Dram && is_with(plugins));
        let lists = self
            .segments
            .values()
            .filter(|segments| segments.list.memory_type() == MemoryType::Dram && is_with(&segments.plugins));
        spans.count() + lists.map(|segments| segments.list.entries().len()).sum::<usize>()
    }

    /// Adds why a backend does not have the memory of a failed request, if that was only logged: another one accepted it.
    pub(super) fn explain_refused(
        &self,
        error: Error,
        memory_type: MemoryType,
        mut spans: impl Iterator<Item = Span>,
    ) -> Error {
        let reason = spans.find_map(|span| {
            let mut refused = self.refused.iter();
            refused.find(|(memory, _)| contains(memory, memory_type, &span)).map(|(_, reason)| reason)
        });
        match reason {
            Some(reason) => error.followed_by(refused_then(reason)),
            None => error,
        }
    }

    /// Fails if some of the agent's memory has no backend in common with storage, because a backend has refused it.
    pub fn ensure_shares_backend(
        &self,
        memory_type: MemoryType,
        memory: &[Span],
        storage: &[Descriptor],
    ) -> Result<()> {
        let of_storage: Vec<_> =
            storage.iter().flat_map(|part| self.holders(part.memory_type, Span::from(part))).collect();
        let is_apart = |span: &&Span| {
            let mut plugins = self.holders(memory_type, **span).peekable();
            plugins.peek().is_some() && !plugins.any(|plugin| of_storage.contains(&plugin))
        };
        let Some(apart) = memory.iter().find(is_apart).filter(|_| !of_storage.is_empty()) else {
            return Ok(());
        };
        let error = Error::new(
            Status::Unsupported,
            format!(
                "no backend of agent '{}' has both the storage and the {} memory at {:#x}",
                self.display_name(),
                memory_type.name(),
                apart.address
            ),
        );
        Err(self.explain_refused(error, memory_type, std::iter::once(*apart)))
    }

    /// The plugins that memory is registered with.
    fn holders(&self, memory_type: MemoryType, span: Span) -> impl Iterator<Item = &String> {
        let has = move |memory: &Descriptor| contains(memory, memory_type, &span);
        let spans = self.registered.iter().filter(move |(memory, _)| has(memory)).map(|(_, plugins)| plugins);
        let lists =
            self.segments.values().filter(move |segments| segments.list.descriptors().any(|m| has(&m)));
        spans.chain(lists.map(|segments| &segments.plugins)).flatten()
    }

    /// Registers a list with one backend. If UCX refuses it, the attempt is repeated to collect what UCX logs.
    pub(super) fn register_with(&self, plugin: &str, list: &RegistrationList) -> Result<()> {
        let backend = self.backend(plugin)?;
        let arguments = Arguments::with_backend(backend.raw())?;
        let register = || {
            // SAFETY: live handles; the list is copied.
            let status = unsafe { sys::nixl_capi_register_mem(self.agent, list.raw, arguments.raw()) };
            check(status, || "register".to_string())
        };
        let outcome = register().or_else(|first| ucx_log::repeat_collecting(plugin, first, register));
        let is_gpu = list.memory_type == MemoryType::Vram && plugin.starts_with("UCX");
        if is_gpu { outcome.map_err(explain_vram) } else { outcome }
    }

    fn registration_failure(&self, descriptor: &Descriptor, refused: Option<Error>) -> Error {
        let doing = format!("register {} with agent '{}'", describe(descriptor), self.display_name());
        let memory_type = descriptor.memory_type.name();
        let error = refused.unwrap_or_else(|| {
            let has = self.backend_names();
            let message = format!("it has {has}; create a backend that accepts {memory_type} memory first");
            Error::new(Status::Nixl, message)
        });
        error.context(doing)
    }

    /// Deregisters a span from the backends it was registered with. After a failure the memory may still be in use and
    /// must not be freed.
    pub fn deregister(&mut self, descriptor: &Descriptor) -> Result<()> {
        let span = Span::from(descriptor);
        self.release_users_of(descriptor.memory_type, std::iter::once(span))?;
        let Some(plugins) = self.registered.remove(descriptor) else {
            fail!(
                InvalidState,
                "{} is not registered with agent '{}'",
                describe(descriptor),
                self.display_name()
            );
        };
        self.refused.remove(descriptor);
        let list = RegistrationList::new(descriptor)?;
        let mut outcome: Result<()> = Ok(());
        for plugin in &plugins {
            if let Err(error) = self.deregister_from(plugin, &list) {
                let error = error.context(format!("from its {plugin} backend")).with_status(Status::Nixl);
                outcome = Err(match outcome {
                    Ok(()) => error,
                    Err(first) => first.followed_by(error),
                });
            }
        }
        outcome.map_err(|error| {
            error.context(format!("deregister {} from agent '{}'", describe(descriptor), self.display_name()))
        })
    }

    pub(super) fn deregister_from(&self, plugin: &str, list: &RegistrationList) -> Result<()> {
        // Backends are never removed before the agent.
        let missing = || Error::new(Status::Nixl, "the backend does not exist");
        let backend = self.backends.get(plugin).ok_or_else(missing)?;
        let arguments = Arguments::with_backend(backend.raw())?;
        // SAFETY: live handles; the list is copied.
        let status = unsafe { sys::nixl_capi_deregister_mem(self.agent, list.raw, arguments.raw()) };
        check(status, || "deregister".to_string())
    }
}

/// NIXL reports one status if UCX takes GPU memory for host memory, as without its CUDA transports.
fn explain_vram(error: Error) -> Error {
    let advice = "UCX registers GPU memory only with its CUDA transports: a GPU and its driver must be there, and UCX_TLS, if \
                  it is set, must contain cuda_copy, and cuda_ipc for GPUs of one host";
    super::backends::ucx_settings()
        .into_iter()
        .fold(error.followed_by(advice), |error, text| error.followed_by(text))
}

/// Whether a span begins in memory.
fn contains(memory: &Descriptor, memory_type: MemoryType, span: &Span) -> bool {
    memory.memory_type == memory_type
        && memory.device_id == span.device_id
        && memory.address <= span.address
        && span.address - memory.address < memory.size
}

/// Why a backend does not have memory, for the message of a later failure.
fn refused_then(reason: &str) -> String {
    format!("when memory was registered: {reason}")
}

pub(super) fn describe(descriptor: &Descriptor) -> String {
    let Descriptor { address, size, device_id, memory_type } = descriptor;
    format!("{} memory at {address:#x} of {size} bytes on device {device_id}", memory_type.name())
}

/// NIXL's list of spans to register.
pub(super) struct RegistrationList {
    pub raw: sys::nixl_capi_reg_dlist_t,
    memory_type: MemoryType,
}

impl RegistrationList {
    /// A list of one span, without metadata.
    pub fn new(descriptor: &Descriptor) -> Result<Self> {
        let list = Self::empty(descriptor.memory_type)?;
        list.add(descriptor, &[])?;
        Ok(list)
    }

    /// A list of raw descriptors with their metadata.
    pub fn from_descriptors(descriptors: &Descriptors) -> Result<Self> {
        let list = Self::empty(descriptors.memory_type())?;
        for (descriptor, entry) in descriptors.descriptors().zip(descriptors.entries()) {
            list.add(&descriptor, &entry.metadata)?;
        }
        Ok(list)
    }

    fn empty(memory_type: MemoryType) -> Result<Self> {
        let mut raw = ptr::null_mut();
        // SAFETY: the output is ours on success.
        let status = unsafe { sys::nixl_capi_create_reg_dlist(memory_type.raw(), &mut raw) };
        check(status, || "create a registration list".to_string())?;
        Ok(Self { raw, memory_type })
    }

    pub fn add(&self, descriptor: &Descriptor, metadata: &[u8]) -> Result<()> {
        // SAFETY: live list; the metadata is copied.
        let status = unsafe {
            sys::nixl_capi_reg_dlist_add_desc(
                self.raw,
                descriptor.address as usize,
                descriptor.size as usize,
                descriptor.device_id,
                metadata.as_ptr().cast(),
                metadata.len(),
            )
        };
        check(status, || format!("list {}", describe(descriptor)))
    }
}

impl Drop for RegistrationList {
    fn drop(&mut self) {
        // SAFETY: created by this value, and not shared.
        unsafe { sys::nixl_capi_destroy_reg_dlist(self.raw) };
    }
}
