// SPDX-License-Identifier: Apache-2.0
//! The calls of NIXL that prepare lists and create requests.
#![allow(unsafe_code)]

use std::ptr;

use super::AgentState;
use crate::base::{Count, Result, error};
use crate::nixl::arguments::CallOptions;
use crate::nixl::call::{Owned, check};
use crate::nixl::descriptor::MemoryType;
use crate::nixl::request_handle::{
    ListId, ObjectRequest, Operation, PreparedList, RequestHandle, RequestId, RequestSide, RequestState, Span,
};
use crate::nixl::sys;

impl AgentState {
    /// Resolves a list once, for requests that choose from it by index.
    pub fn prepare_list(
        &mut self,
        side: &RequestSide,
        (memory_type, spans): (MemoryType, impl Iterator<Item = Span>),
        options: &CallOptions,
    ) -> Result<ListId> {
        let owner = if let RequestSide::Local = side { c"".into() } else { self.agent_name(side)? };
        let arguments = self.arguments(options)?;
        let list = self.descriptor_list(memory_type, spans)?;
        let mut prepared = ptr::null_mut();
        // SAFETY: live handles; the list is copied.
        let status = unsafe {
            let (list, arguments) = (list.raw(), arguments.raw());
            sys::nixl_capi_prep_xfer_dlist(self.agent, owner.as_ptr(), list, &mut prepared, arguments)
        };
        check(status, || {
            let (count, whose) = (Count(list.count, "descriptor"), self.whose(side));
            format!("prepare {count} of {} memory{whose}", memory_type.name())
        })
        .map_err(|error| self.explain_missing(side, false, error))?;
        let id = ListId(self.next_id());
        let list = PreparedList { raw: prepared, side: side.clone(), memory_type, own: None };
        self.lists.insert(id, list);
        Ok(id)
    }

    /// A request over indices of two prepared lists; `objects` are the device ids of the objects that it is for. NIXL merges runs of
    /// consecutive indices.
    pub fn make_request(
        &mut self,
        operation: Operation,
        (local, local_indices): (ListId, &[i32]),
        (remote, remote_indices): (ListId, &[i32]),
        objects: impl IntoIterator<Item = u64>,
        options: &CallOptions,
    ) -> Result<RequestId> {
        let stale = || {
            error!(
                Stale,
                "a prepared list was released, because the metadata of its peer was invalidated, or its memory \
                           deregistered; load the metadata again, and prepare the list again"
            )
        };
        let arguments = self.arguments(options)?;
        let local = self.lists.get(&local).ok_or_else(stale)?.raw;
        let PreparedList { raw: remote, side, memory_type, .. } =
            self.lists.get(&remote).ok_or_else(stale)?;
        let (side, memory_type) = (side.clone(), *memory_type);
        let mut request = ptr::null_mut();
        // SAFETY: live handles of this agent's; the indices are copied.
        let status = unsafe {
            sys::nixl_capi_make_xfer_req(
                self.agent,
                operation.raw(),
                local,
                local_indices.as_ptr(),
                local_indices.len(),
                *remote,
                remote_indices.as_ptr(),
                remote_indices.len(),
                &mut request,
                arguments.raw(),
            )
        };
        check(status, || {
            let count = Count(local_indices.len() as u64, "index pair");
            format!("create a request of {count}{}", self.whose(&side))
        })
        .map_err(|error| self.explain_missing(&side, true, error))?;
        let parts = if memory_type == MemoryType::Block { remote_indices.len() } else { 0 };
        Ok(self.keep(request, operation, side, (ObjectRequest::from_devices(objects), parts)))
    }

    /// A request over spans that are listed for it alone.
    pub(super) fn new_request(
        &mut self,
        operation: Operation,
        (local_type, local): (MemoryType, impl Iterator<Item = Span>),
        (side, remote_type, remote): (&RequestSide, MemoryType, impl Iterator<Item = Span>),
        options: &CallOptions,
    ) -> Result<RequestId> {
        let name = self.agent_name(side)?;
        let arguments = self.arguments(options)?;
        let local = self.descriptor_list(local_type, local)?;
        let mut objects = Vec::new();
        let is_object = remote_type == MemoryType::Object;
        let remote = remote.inspect(|span| objects.extend(is_object.then_some(span.device_id)));
        let remote = self.descriptor_list(remote_type, remote)?;
        let mut request = ptr::null_mut();
        // SAFETY: live handles; the lists are copied.
        let status = unsafe {
            sys::nixl_capi_create_xfer_req(
                self.agent,
                operation.raw(),
                local.raw(),
                remote.raw(),
                name.as_ptr(),
                &mut request,
                arguments.raw(),
            )
        };
        check(status, || {
            format!(
                "create a request of {} from {} to {} memory{}; agent '{}' has {}, of which one must have both sides \
                 registered",
                Count(remote.count, "descriptor"),
                local_type.name(),
                remote_type.name(),
                self.whose(side),
                self.display_name(),
                self.backend_names()
            )
        })
        .map_err(|error| self.explain_missing(side, false, error))?;
        let parts = if remote_type == MemoryType::Block { remote.count as usize } else { 0 };
        let objects = ObjectRequest::from_devices(objects);
        let id = self.keep(request, operation, side.clone(), (objects, parts));
        self.ensure_unreplaced(id)?;
        Ok(id)
    }

    fn keep(
        &mut self,
        raw: sys::nixl_capi_xfer_req_t,
        operation: Operation,
        remote: RequestSide,
        (objects, block_parts): (Option<ObjectRequest>, usize),
    ) -> RequestId {
        let id = RequestId(self.next_id());
        let (state, was_posted, own) = (RequestState::Idle, false, Vec::new());
        let request = RequestHandle { raw, remote, operation, state, was_posted, objects, block_parts, own };
        self.requests.insert(id, request);
        id
    }

    pub(super) fn descriptor_list(
        &mut self,
        memory_type: MemoryType,
        spans: impl Iterator<Item = Span>,
    ) -> Result<DescriptorList> {
        self.uses_gpu |= memory_type == MemoryType::Vram;
        // SAFETY: the output is ours on success.
        let list = unsafe {
            let destroy = sys::nixl_capi_destroy_xfer_dlist;
            let create = |raw| sys::nixl_capi_create_xfer_dlist(memory_type.raw(), raw);
            Owned::create("a descriptor list", destroy, create)
        };
        let mut list = DescriptorList { list: list?, count: 0 };
        for Span { address, size, device_id } in spans {
            // SAFETY: live list.
            let status = unsafe {
                sys::nixl_capi_xfer_dlist_add_desc(list.raw(), address as usize, size as usize, device_id)
            };
            check(status, || format!("list {size} bytes at {address:#x}"))?;
            list.count += 1;
        }
        Ok(list)
    }

    fn whose(&self, side: &RequestSide) -> String {
        match side {
            RequestSide::Local | RequestSide::Own => format!(" of agent '{}'", self.display_name()),
            RequestSide::Peer(remote) => format!(" of agent '{}'", remote.name()),
        }
    }
}

pub(super) struct DescriptorList {
    list: Owned,
    count: u64,
}

impl DescriptorList {
    pub fn raw(&self) -> sys::nixl_capi_xfer_dlist_t {
        self.list.raw()
    }
}
