// SPDX-License-Identifier: Apache-2.0
//! Raw descriptors: what backends report about them, and memory views.
#![allow(unsafe_code)]

use std::collections::BTreeMap;
use std::ffi::CStr;
use std::ptr;
use std::sync::Arc;

use super::AgentState;
use super::registrations::RegistrationList;
use crate::base::{Count, Error, Result, ensure, error, fail, log};
use crate::nixl::arguments::CallOptions;
use crate::nixl::backend::{Backend, Params};
use crate::nixl::call::{Owned, check, too_old};
use crate::nixl::descriptor::MemoryType;
use crate::nixl::descriptors::Descriptors;
use crate::nixl::raw_descriptors::ViewId;
use crate::nixl::request_handle::RequestSide;
use crate::nixl::sys;

impl AgentState {
    /// Queries one backend: the properties of each descriptor, `None` if it does not exist.
    pub fn query(
        &self,
        list: &Descriptors,
        options: &CallOptions,
    ) -> Result<Vec<Option<BTreeMap<String, String>>>> {
        ensure!(!list.entries().is_empty(), InvalidArgument, "the list has no descriptor to query");
        ensure_paths(list)?;
        let chosen = self.chosen_backends(options, list.memory_type())?;
        let [plugin] = &chosen[..] else {
            fail!(
                InvalidArgument,
                "one backend is queried, and {} accept {} memory; name one in backends",
                chosen.join(" and "),
                list.memory_type().name()
            );
        };
        let options = CallOptions { backends: vec![plugin.clone()], ..options.clone() };
        let arguments = self.arguments(&options)?;
        let raw_list = RegistrationList::from_descriptors(list)?;
        // SAFETY: the output is ours on success.
        let results = unsafe {
            let destroy = sys::nixl_capi_destroy_query_resp_list;
            Owned::create("a list of query results", destroy, |raw| {
                sys::nixl_capi_create_query_resp_list(raw)
            })?
        };
        // SAFETY: live handles.
        let status =
            unsafe { sys::nixl_capi_query_mem(self.agent, raw_list.raw(), results.raw(), arguments.raw()) };
        check(status, || {
            let count = Count(list.entries().len() as u64, "descriptor");
            format!("query the {plugin} backend of agent '{}' for {count}", self.display_name())
        })
        .map_err(|error| self.explain_query(plugin, error))?;
        let mut count = 0;
        // SAFETY: live list.
        let status = unsafe { sys::nixl_capi_query_resp_list_size(results.raw(), &mut count) };
        check(status, || "count the results of a query".to_string())?;
        (0..count).map(|index| result(&results, index)).collect()
    }

    /// Adds to the failure of a query which backends have something to query, if this one has not.
    fn explain_query(&self, plugin: &str, error: Error) -> Error {
        let has_storage = |backend: &&Backend| {
            STORAGE.iter().any(|memory_type| backend.memory_types.contains(&memory_type.raw()))
        };
        if self.backends.get(plugin).as_ref().is_some_and(has_storage) {
            return error;
        }
        let others = self.backends.iter().filter(|(_, backend)| has_storage(backend));
        let others: Vec<_> = others.map(|(plugin, _)| plugin.as_str()).collect();
        let own = self.display_name();
        error.followed_by(match others.is_empty() {
            true => format!(
                "files, objects and block storage can be queried, and none of the backends of agent '{own}', {}, has storage",
                self.backend_names()
            ),
            false => format!(
                "files, objects and block storage can be queried: of the backends of agent '{own}', {} has storage",
                others.join(" or ")
            ),
        })
    }

    /// Prepares a memory view: of the agent's own memory, or of that of peers if the descriptors name agents.
    pub fn create_view(&mut self, list: &Descriptors, options: &CallOptions) -> Result<(ViewId, usize)> {
        ensure!(!list.entries().is_empty(), InvalidArgument, "the list has no descriptor to view");
        let is_remote = list.entries().iter().any(|entry| entry.agent.is_some());
        let mut peers = Vec::new();
        for entry in list.entries() {
            let remote = entry.agent_name()?.map(|name| self.remote(name)).transpose()?;
            peers.push(remote.map(|remote| remote.c_name()));
        }
        let arguments = self.arguments(options)?;
        let mut view = ptr::null_mut();
        let status = if is_remote {
            let raw_list = remote_list(list, &peers)?;
            // SAFETY: live handles; the list is copied, and the output is ours on success.
            unsafe {
                sys::nixl_capi_prep_mem_view_remote(self.agent, raw_list.raw(), &mut view, arguments.raw())
            }
        } else {
            let raw_list = self.descriptor_list(list.memory_type(), list.spans())?;
            // SAFETY: see above.
            unsafe {
                sys::nixl_capi_prep_mem_view_local(self.agent, raw_list.raw(), &mut view, arguments.raw())
            }
        };
        check(status.map_err(too_old)?, || {
            format!(
                "create a view of {} of {} memory by agent '{}', which has {} (memory views are for kernels that \
                 communicate: UCX needs a GPU, also for other memory, and a build with its device API)",
                Count(list.entries().len() as u64, "descriptor"),
                list.memory_type().name(),
                self.display_name(),
                self.backend_names()
            )
        })?;
        let id = ViewId(self.next_id());
        self.views.insert(id, view);
        Ok((id, view.expose_provenance()))
    }

    pub fn release_view(&mut self, id: ViewId) {
        let Some(view) = self.views.remove(&id) else { return };
        // SAFETY: a live handle of this agent, which was removed from the map and is not used again.
        match unsafe { sys::nixl_capi_release_mem_view(self.agent, view) } {
            Ok(sys::NIXL_CAPI_SUCCESS) => {}
            Ok(status) => log!(Warn, "release a memory view: {}", sys::status_name(status)),
            Err(function) => log!(Warn, "release a memory view: NIXL has no function {function}"),
        }
    }

    /// Fails if memory is not registered: NIXL makes metadata without it then, and reports nothing.
    pub(super) fn ensure_registered(&mut self, list: &Descriptors, options: &CallOptions) -> Result<()> {
        if list.entries().is_empty() {
            return Ok(());
        }
        let id = self.prepare_raw(&RequestSide::Local, list, options)?;
        self.release_list(id);
        Ok(())
    }
}

/// Memory types whose backends can be queried.
const STORAGE: [MemoryType; 3] = [MemoryType::File, MemoryType::Object, MemoryType::Block];

/// Backends look files up by their paths. One without a path would be reported as missing.
fn ensure_paths(list: &Descriptors) -> Result<()> {
    let mut entries = list.entries().iter();
    let unnamed = entries.position(|file| file.metadata.is_empty());
    let unnamed = unnamed.filter(|_| list.memory_type() == MemoryType::File);
    let Some(index) = unnamed else { return Ok(()) };
    Err(error!(
        InvalidArgument,
        "descriptor {index} has no metadata; a query needs the path of each file there"
    ))
}

/// NIXL's list of remote descriptors. `peers` are the names of their agents for NIXL.
fn remote_list(list: &Descriptors, peers: &[Option<Arc<CStr>>]) -> Result<Owned> {
    let mut raw = ptr::null_mut();
    // SAFETY: the output is ours on success.
    let status = unsafe { sys::nixl_capi_create_remote_dlist(list.memory_type().raw(), &mut raw) };
    check(status.map_err(too_old)?, || "create a list of remote descriptors".to_string())?;
    // SAFETY: ours, see above. A library with the other function has this one.
    let owned = unsafe {
        Owned::around(raw, |raw| sys::nixl_capi_destroy_remote_dlist(raw).unwrap_or(sys::NIXL_CAPI_SUCCESS))
    };
    for (span, peer) in list.spans().zip(peers) {
        let agent = peer.as_ref().map_or(ptr::null(), |name| name.as_ptr());
        let (address, size) = (span.address as usize, span.size as usize);
        // SAFETY: live handle and string, which is copied.
        let status =
            unsafe { sys::nixl_capi_remote_dlist_add_desc(raw, address, size, span.device_id, agent) };
        check(status.map_err(too_old)?, || format!("list {size} bytes at {address:#x}"))?;
    }
    Ok(owned)
}

/// A result of a query; `None` if the descriptor does not exist.
fn result(results: &Owned, index: usize) -> Result<Option<BTreeMap<String, String>>> {
    let reading = || format!("read result {index} of a query");
    let mut has_value = false;
    // SAFETY: live list, an index within its size.
    let status = unsafe { sys::nixl_capi_query_resp_list_has_value(results.raw(), index, &mut has_value) };
    check(status, reading)?;
    if !has_value {
        return Ok(None);
    }
    let mut params = ptr::null_mut();
    // SAFETY: see above.
    let status = unsafe { sys::nixl_capi_query_resp_list_get_params(results.raw(), index, &mut params) };
    check(status, reading)?;
    // SAFETY: the output is ours on success.
    unsafe { Params::around(params) }.entries().map(Some)
}
