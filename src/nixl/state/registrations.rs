// SPDX-License-Identifier: Apache-2.0
//! Registering memory with an agent's backends: regions span by span, and lists of descriptors.
#![allow(unsafe_code)]

use super::AgentState;
use crate::base::{Count, Error, Result, Status, ensure, error, fail, leak, log};
use crate::nixl::arguments::{Arguments, CallOptions};
use crate::nixl::call::{Owned, check};
use crate::nixl::descriptor::{Descriptor, MemoryType, describe};
use crate::nixl::descriptors::Descriptors;
use crate::nixl::raw_descriptors::SegmentsId;
use crate::nixl::registration_table::Segments;
use crate::nixl::request_handle::Span;
use crate::nixl::{HostPages, gusli, sys, ucx_log};

impl AgentState {
    /// Registers a span with every backend that accepts its memory type. One of them is enough.
    pub fn register(&mut self, span: &Descriptor, pages: HostPages) -> Result<()> {
        let list = Descriptors::from_span(span)?;
        self.register_list(list, &CallOptions::default(), pages).map(drop)
    }

    /// Registers descriptors with the backends that the options name: with all of them, or not at all. Without a name it
    /// registers them with each backend that accepts their memory type; one of these is enough.
    pub fn register_segments(&mut self, list: Descriptors, options: &CallOptions) -> Result<SegmentsId> {
        ensure!(!list.entries().is_empty(), InvalidArgument, "the list has no descriptor to register");
        self.register_list(list, options, HostPages::Shared)
    }

    /// Each backend gets a call of its own. NIXL reports success if one backend of a list accepts the memory, and does not
    /// report which. It deregisters from every backend that has memory of the type, also from one that was added later
    /// and does not have this memory, and reports that as a failure. So the backends are stored with the memory.
    fn register_list(
        &mut self,
        list: Descriptors,
        options: &CallOptions,
        pages: HostPages,
    ) -> Result<SegmentsId> {
        let doing = format!("register {} with agent '{}'", describe_all(&list), self.display_name());
        let prepared = self.registered.ensure_new(&list);
        let prepared = prepared.and_then(|()| self.registered.reserve(&list));
        let prepared = prepared.and_then(|()| self.chosen_backends(options, list.memory_type()));
        let chosen = prepared.map_err(|error| error.context(&doing))?;
        self.uses_gpu |= list.memory_type() == MemoryType::Vram;
        let raw = RegistrationList::from_descriptors(&list)?;
        let (mut plugins, mut outcome) = (Vec::new(), Ok(()));
        for plugin in chosen {
            match self.register_pages_with(&plugin, &raw, &list, pages) {
                Ok(()) => plugins.push(plugin),
                Err(error) => outcome = and(outcome, error.context(format!("with its {plugin} backend"))),
            }
        }
        if let Err(error) = &outcome {
            if plugins.is_empty() || !options.backends.is_empty() {
                let undone = self.deregister_from_all(&plugins, list, &raw);
                let error = error.clone().context(doing);
                return Err(undone.err().into_iter().fold(error, Error::followed_by));
            }
            log!(Warn, "{doing}: {error}");
        }
        let id = SegmentsId(self.next_id());
        let refused = outcome.err().map(|error| error.to_string());
        self.registered.add(id, Segments { list, plugins, refused });
        Ok(id)
    }

    /// Registers memory with one backend. It fails without NIXL if the backend would end the process.
    fn register_pages_with(
        &self,
        plugin: &str,
        raw: &RegistrationList,
        list: &Descriptors,
        pages: HostPages,
    ) -> Result<()> {
        if plugin == gusli::PLUGIN {
            let of_host = self.registered.of_type(MemoryType::Dram);
            let is_with = |segments: &&Segments| segments.plugins.iter().any(|name| name == plugin);
            let known: usize = of_host.filter(is_with).map(|segments| segments.list.entries().len()).sum();
            for (index, descriptor) in list.descriptors().enumerate() {
                gusli::ensure_memory(&descriptor, pages, known + index)?;
            }
        }
        self.register_with(plugin, raw).map_err(|error| error.with_status(Status::Nixl))
    }

    /// Deregisters a span from the backends it was registered with. After a failure the memory may still be in use and
    /// must not be freed.
    pub fn deregister(&mut self, span: &Descriptor) -> Result<()> {
        let Some(id) = self.registered.find(span) else {
            fail!(InvalidState, "{} is not registered with agent '{}'", describe(span), self.display_name());
        };
        self.deregister_segments(id)
    }

    /// Deregisters descriptors, and releases requests that use them. Fails while one of these is in flight.
    pub fn deregister_segments(&mut self, id: SegmentsId) -> Result<()> {
        let gone = || error!(InvalidState, "the descriptors are not registered");
        let list = self.registered.get(id).ok_or_else(gone)?.list.clone();
        self.release_users_of(list.memory_type(), list.spans())?;
        let raw = RegistrationList::from_descriptors(&list)?;
        let Some(segments) = self.registered.remove(id) else { return Ok(()) };
        let doing = format!("deregister {} from agent '{}'", describe_all(&list), self.display_name());
        self.deregister_from_all(&segments.plugins, list, &raw).map_err(|error| error.context(doing))
    }

    /// If it fails, NIXL may still use the memory, so what owns it is intentionally leaked.
    fn deregister_from_all(
        &self,
        plugins: &[String],
        list: Descriptors,
        raw: &RegistrationList,
    ) -> Result<()> {
        // From each of them, also after a failure.
        let mut outcome = Ok(());
        for plugin in plugins {
            if let Err(error) = self.deregister_from(plugin, raw) {
                let error = error.context(format!("from its {plugin} backend"));
                outcome = and(outcome, error.with_status(Status::Nixl));
            }
        }
        if outcome.is_err() {
            leak::intentionally(list);
        }
        outcome
    }

    /// Adds why a backend does not have the memory of a failed request, if that was only logged: another one accepted it.
    pub(super) fn explain_refused(
        &self,
        error: Error,
        memory_type: MemoryType,
        mut spans: impl Iterator<Item = Span>,
    ) -> Error {
        let reason = spans.find_map(|span| {
            let mut all = self.registered.of_type(memory_type).filter(|segments| segments.has(&span));
            all.find_map(|segments| segments.refused.as_ref())
        });
        match reason {
            Some(reason) => error.followed_by(format!("when memory was registered: {reason}")),
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
        let error = error!(
            Unsupported,
            "no backend of agent '{}' has both the storage and the {} memory at {:#x}",
            self.display_name(),
            memory_type.name(),
            apart.address
        );
        Err(self.explain_refused(error, memory_type, std::iter::once(*apart)))
    }

    /// The plugins that memory is registered with.
    fn holders(&self, memory_type: MemoryType, span: Span) -> impl Iterator<Item = &String> {
        let all = self.registered.of_type(memory_type).filter(move |segments| segments.has(&span));
        all.flat_map(|segments| &segments.plugins)
    }

    /// Registers a list with one backend.
    pub(super) fn register_with(&self, plugin: &str, list: &RegistrationList) -> Result<()> {
        let backend = self.backend(plugin)?;
        let arguments = Arguments::with_backend(backend.raw())?;
        let outcome = ucx_log::collecting(|| {
            // SAFETY: live handles; the list is copied.
            let status = unsafe { sys::nixl_capi_register_mem(self.agent, list.raw(), arguments.raw()) };
            check(status, || "register".to_string())
        });
        let is_gpu = list.memory_type == MemoryType::Vram && plugin.starts_with("UCX");
        if is_gpu { outcome.map_err(explain_vram) } else { outcome }
    }

    pub(super) fn deregister_from(&self, plugin: &str, list: &RegistrationList) -> Result<()> {
        // Backends are never removed before the agent.
        let missing = || error!(Nixl, "the backend does not exist");
        let backend = self.backends.get(plugin).ok_or_else(missing)?;
        let arguments = Arguments::with_backend(backend.raw())?;
        // SAFETY: live handles; the list is copied.
        let status = unsafe { sys::nixl_capi_deregister_mem(self.agent, list.raw(), arguments.raw()) };
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

fn and(outcome: Result<()>, error: Error) -> Result<()> {
    Err(match outcome {
        Ok(()) => error,
        Err(first) => first.followed_by(error),
    })
}

/// A list, for messages.
fn describe_all(list: &Descriptors) -> String {
    let is_storage = matches!(list.memory_type(), MemoryType::Object | MemoryType::Block);
    match (list.descriptors().next(), list.entries().len()) {
        (Some(descriptor), 1) if !is_storage => describe(&descriptor),
        (_, count) => {
            format!("{} of {} memory", Count(count as u64, "descriptor"), list.memory_type().name())
        }
    }
}

/// NIXL's list of spans to register.
pub(super) struct RegistrationList {
    list: Owned,
    memory_type: MemoryType,
}

impl RegistrationList {
    /// A list of raw descriptors with their metadata.
    pub fn from_descriptors(descriptors: &Descriptors) -> Result<Self> {
        let list = Self::empty(descriptors.memory_type())?;
        for (descriptor, entry) in descriptors.descriptors().zip(descriptors.entries()) {
            list.add(&descriptor, &entry.metadata)?;
        }
        Ok(list)
    }

    fn empty(memory_type: MemoryType) -> Result<Self> {
        // SAFETY: the output is ours on success.
        let list = unsafe {
            let destroy = sys::nixl_capi_destroy_reg_dlist;
            let create = |raw| sys::nixl_capi_create_reg_dlist(memory_type.raw(), raw);
            Owned::create("a registration list", destroy, create)
        };
        Ok(Self { list: list?, memory_type })
    }

    pub fn raw(&self) -> sys::nixl_capi_reg_dlist_t {
        self.list.raw()
    }

    pub fn add(&self, descriptor: &Descriptor, metadata: &[u8]) -> Result<()> {
        // SAFETY: live list; the metadata is copied.
        let status = unsafe {
            sys::nixl_capi_reg_dlist_add_desc(
                self.raw(),
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
