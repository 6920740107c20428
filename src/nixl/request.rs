// SPDX-License-Identifier: Apache-2.0
//! Handles of prepared descriptor lists and of transfer requests.

use std::sync::Arc;

use super::descriptor::Descriptor;
use super::remote::Remote;
use super::sys;

/// A prepared list of one agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ListId(pub(super) u64);

/// A request of one agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RequestId(pub(super) u64);

/// The direction of a request, as seen from the agent that posts it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// From the remote side to the local one.
    Read,
    /// From the local side to the remote one.
    Write,
}

/// One memory range of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// Address, or offset in a file.
    pub address: u64,
    /// Bytes.
    pub size: u64,
    /// NIXL's device id.
    pub device_id: u64,
}

impl From<&Descriptor> for Span {
    fn from(descriptor: &Descriptor) -> Self {
        Self { address: descriptor.address, size: descriptor.size, device_id: descriptor.device_id }
    }
}

/// Whose memory a list describes.
#[derive(Clone, Debug)]
pub enum RequestSide {
    /// The agent's own, as the local side of a request.
    Local,
    /// The agent's own, as the remote side: files.
    Own,
    /// A peer's.
    Peer(Arc<Remote>),
}

impl RequestSide {
    fn is_for(&self, remote: &Arc<Remote>) -> bool {
        matches!(self, Self::Peer(peer) if Arc::ptr_eq(peer, remote))
    }
}

/// A descriptor list NIXL has resolved for one side.
pub struct PreparedList {
    pub(super) raw: sys::nixl_capi_xfer_dlist_handle_t,
    pub(super) side: RequestSide,
}

impl PreparedList {
    pub(super) fn is_for(&self, remote: &Arc<Remote>) -> bool {
        self.side.is_for(remote)
    }
}

/// A request and its state.
pub struct RequestHandle {
    pub(super) raw: sys::nixl_capi_xfer_req_t,
    pub(super) remote: RequestSide,
    pub(super) operation: Operation,
    pub(super) state: RequestState,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RequestState {
    /// Not posted yet, or complete.
    Idle,
    InFlight,
    /// A part of it has failed. The backend may still be busy with other parts, which NIXL does not report: it must be
    /// released before its memory is freed, and must not be posted again.
    Failed,
}

impl RequestState {
    pub fn of(status: sys::nixl_capi_status_t) -> Self {
        match status {
            sys::NIXL_CAPI_SUCCESS => Self::Idle,
            sys::NIXL_CAPI_IN_PROG => Self::InFlight,
            _ => Self::Failed,
        }
    }
}

impl RequestHandle {
    pub(super) fn is_for(&self, remote: &Arc<Remote>) -> bool {
        self.remote.is_for(remote)
    }
}

impl Operation {
    pub(super) fn raw(self) -> sys::nixl_capi_xfer_op_t {
        match self {
            Self::Read => sys::NIXL_CAPI_XFER_OP_READ,
            Self::Write => sys::NIXL_CAPI_XFER_OP_WRITE,
        }
    }
}

/// NIXL's list of spans.
pub(super) struct DescriptorList(pub sys::nixl_capi_xfer_dlist_t);

impl DescriptorList {
    pub(super) fn raw(&self) -> sys::nixl_capi_xfer_dlist_t {
        self.0
    }
}

impl Drop for DescriptorList {
    fn drop(&mut self) {
        // SAFETY: created by this value, and not shared.
        unsafe { sys::nixl_capi_destroy_xfer_dlist(self.0) };
    }
}
