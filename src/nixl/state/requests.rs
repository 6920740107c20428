// SPDX-License-Identifier: Apache-2.0
//! Prepared descriptor lists and transfer requests.
#![allow(unsafe_code)]

use std::ffi::CStr;
use std::sync::Arc;

use super::AgentState;
use crate::base::{Error, Result, ensure, error, log};
use crate::nixl::arguments::CallOptions;
use crate::nixl::call::check;
use crate::nixl::descriptor::MemoryType;
use crate::nixl::request_handle::{
    ListId, Operation, RequestHandle, RequestId, RequestSide, RequestState, Span,
};
use crate::nixl::{gusli, sys};

/// Plugins for storage that report a failure only when all parts of the request have ended.
const SETTLING: [&str; 1] = [gusli::PLUGIN];
/// Plugins for storage that abort the process if a request is posted again.
const SINGLE_USE: [&str; 1] = [gusli::PLUGIN];

impl AgentState {
    /// Whether a list still exists: those of a peer go when it is invalidated.
    pub fn has_list(&self, id: ListId) -> bool {
        self.lists.contains_key(&id)
    }

    /// Releases a list, if it still exists.
    pub fn release_list(&mut self, id: ListId) {
        if let Some(list) = self.lists.remove(&id) {
            // SAFETY: a live handle of this agent, which was removed from the map and is not used again.
            let status = unsafe { sys::nixl_capi_release_xfer_dlist_handle(self.agent, list.raw) };
            if status != sys::NIXL_CAPI_SUCCESS {
                log!(Warn, "release a prepared list: {}", sys::status_name(status));
            }
        }
    }

    /// A request over spans listed for it alone.
    pub fn create_request(
        &mut self,
        operation: Operation,
        (local_type, local): (MemoryType, impl Iterator<Item = Span>),
        (side, remote_type, remote): (&RequestSide, MemoryType, impl Iterator<Item = Span>),
    ) -> Result<RequestId> {
        let (mut own, is_block) = (Vec::new(), remote_type == MemoryType::Block);
        let local = local.inspect(|span| own.extend(is_block.then_some(*span)));
        let remote = (side, remote_type, remote);
        self.new_request(operation, (local_type, local), remote, &CallOptions::default())
            .map_err(|error| self.explain_refused(error, local_type, own.into_iter()))
    }

    /// Whether a backend for block storage executes a request of so many parts beside those in flight. Otherwise NIXL would fail
    /// the request.
    pub fn has_space_for(&self, parts: usize) -> bool {
        let Some(most) = self.backends.values().find_map(|backend| backend.max_parts) else { return true };
        let in_flight = self.requests.values().filter(|request| request.state == RequestState::InFlight);
        let busy: usize = in_flight.map(|request| request.block_parts).sum();
        busy == 0 || busy + parts <= most
    }

    /// Starts a request, or starts it again; `true` when it was done within the call.
    pub fn post(&mut self, id: RequestId) -> Result<bool> {
        self.post_raw(id, None)
    }

    /// Whether a posted request is complete. The call also makes progress on it.
    pub fn is_done(&mut self, id: RequestId) -> Result<bool> {
        let agent = self.agent;
        let request = self.request(id)?;
        let before = request.state;
        // SAFETY: live handles.
        let status = unsafe { sys::nixl_capi_get_xfer_status(agent, request.raw) };
        request.state = RequestState::from_status(status);
        let has_reply = request.has_reply_of_store();
        if before == RequestState::InFlight {
            self.note_state(id);
            if has_reply {
                self.note_reply(id);
            }
        }
        check(status, || "a request failed in flight".to_string())
            .map_err(|error| self.stale_if_missing(id, error))?;
        Ok(status == sys::NIXL_CAPI_SUCCESS)
    }

    /// The failure of a request, which may be that its peer has withdrawn its metadata.
    #[cold]
    pub(super) fn stale_if_missing(&mut self, id: RequestId, error: Error) -> Error {
        let side = self.requests.get(&id).map(|request| request.remote.clone());
        side.map_or(error.clone(), |side| self.explain_missing(&side, true, error))
    }

    /// Releases a new request if the metadata of its peer was replaced before it was created. If it is replaced later, NIXL does not
    /// post the request.
    pub(super) fn ensure_unreplaced(&mut self, id: RequestId) -> Result<()> {
        let side = self.request(id)?.remote.clone();
        self.ensure_current(&side).inspect_err(|_| self.release_idle_requests([id]))
    }

    /// Releases a request, if it still exists. If that fails, NIXL may use its memory until the process ends.
    pub fn release_request(&mut self, id: RequestId) -> Result<()> {
        let is_unsettled = self.is_unsettled(id);
        let Some(request) = self.requests.remove(&id) else { return Ok(()) };
        let released = self.release_handle(&request, is_unsettled);
        if released.is_err() {
            self.unreleased.push(request);
        }
        released
    }

    /// Whether parts of a failed request may still be in flight. Releasing it would free memory that their ends are written to:
    /// by the kernel for a file, by threads of the backend for objects. A request for one object has no other parts.
    fn is_unsettled(&mut self, id: RequestId) -> bool {
        let is_suspect = |request: &RequestHandle| {
            request.state == RequestState::Failed
                && matches!(request.remote, RequestSide::Own)
                && !request.is_for_one_object()
        };
        self.requests.get(&id).is_some_and(is_suspect) && !self.is_by(id, &SETTLING)
    }

    fn release_handle(&self, request: &RequestHandle, is_unsettled: bool) -> Result<()> {
        ensure!(request.state != RequestState::InFlight, Nixl, "a request in flight cannot be released");
        ensure!(
            !is_unsettled,
            Nixl,
            "a failed request to storage cannot be released: its backend does not wait for its other parts"
        );
        // SAFETY: a live handle of this agent's; the caller does not use it again after a success.
        let status = unsafe { sys::nixl_capi_release_xfer_req(self.agent, request.raw) };
        check(status, || "release a request".to_string())?;
        // SAFETY: see above; the request itself is released.
        unsafe { sys::nixl_capi_destroy_xfer_req(request.raw) };
        Ok(())
    }

    /// Whether a request must not be posted again.
    pub fn is_single_use(&mut self, id: RequestId) -> bool {
        let is_own = |request: &RequestHandle| matches!(request.remote, RequestSide::Own);
        self.requests.get(&id).is_some_and(is_own) && self.is_by(id, &SINGLE_USE)
    }

    fn is_by(&mut self, id: RequestId, plugins: &[&str]) -> bool {
        self.chosen_backend(id).is_ok_and(|(plugin, _)| plugins.contains(&plugin.as_str()))
    }

    /// Releases requests that are idle, and logs failures.
    pub fn release_idle_requests(&mut self, ids: impl IntoIterator<Item = RequestId>) {
        for id in ids {
            if let Err(error) = self.release_request(id) {
                log!(
                    Error,
                    "agent {}: {error}; NIXL may use its memory until the process ends",
                    self.log_name()
                );
            }
        }
    }

    pub(super) fn request(&mut self, id: RequestId) -> Result<&mut RequestHandle> {
        let gone = || {
            error!(
                Stale,
                "the request was released, because its peer was invalidated or its memory deregistered; create it again"
            )
        };
        self.requests.get_mut(&id).ok_or_else(gone)
    }

    pub(super) fn agent_name(&self, side: &RequestSide) -> Result<Arc<CStr>> {
        match side {
            RequestSide::Local | RequestSide::Own => Ok(self.name.clone()),
            RequestSide::Peer(remote) => {
                remote.ensure_valid()?;
                Ok(remote.c_name())
            }
        }
    }
}
