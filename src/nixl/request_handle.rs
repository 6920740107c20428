// SPDX-License-Identifier: Apache-2.0
//! Handles of prepared descriptor lists and of transfer requests.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::descriptor::{Descriptor, MemoryType};
use super::remote::Remote;
use super::sys;

/// A prepared list of one agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ListId(pub(super) u64);

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(test, derive(Default))]
pub struct RequestId(pub(super) u64);

/// Objects of an agent by their ids. A look-up is a part of each call of NIXL for a request.
pub(super) type ById<K, V> = HashMap<K, V, BuildHasherDefault<IdHasher>>;

/// The ids are counted up in this process, so that no caller or peer can choose ids that collide.
#[derive(Default)]
pub(super) struct IdHasher(u64);

impl Hasher for IdHasher {
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u64(u64::from(*byte)));
    }

    fn write_u64(&mut self, id: u64) {
        // The map takes the group from the lowest bits, and compares the highest.
        self.0 = (self.0 ^ id).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

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
    pub size: u64,
    pub device_id: u64,
}

impl From<&Descriptor> for Span {
    fn from(descriptor: &Descriptor) -> Self {
        Self { address: descriptor.address, size: descriptor.size, device_id: descriptor.device_id }
    }
}

pub(super) type RawSpans = (MemoryType, Vec<Span>);

/// Whose memory a list describes.
#[derive(Clone, Debug)]
pub enum RequestSide {
    /// The agent's own, as the local side of a request.
    Local,
    /// The agent's own, as the remote side: storage.
    Own,
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
    pub(super) memory_type: MemoryType,
    /// The memory of this agent in a list of raw descriptors.
    pub(super) own: Option<RawSpans>,
}

impl PreparedList {
    pub(super) fn is_for(&self, remote: &Arc<Remote>) -> bool {
        self.side.is_for(remote)
    }
}

pub struct RequestHandle {
    pub(super) raw: sys::nixl_capi_xfer_req_t,
    pub(super) remote: RequestSide,
    pub(super) operation: Operation,
    pub(super) state: RequestState,
    pub(super) was_posted: bool,
    /// `None` unless the request is for objects.
    pub(super) objects: Option<ObjectRequest>,
    /// Parts of block storage; 0 for other memory.
    pub(super) block_parts: usize,
    /// The memory of this agent that a request on raw descriptors uses: the local side, and the remote one if it is to itself.
    pub(super) own: Vec<RawSpans>,
}

/// What the failure of a request for objects is explained with.
#[derive(Clone, Copy)]
pub(super) struct ObjectRequest {
    /// `None` if there are several.
    pub device_id: Option<u64>,
    /// When it was posted the last time.
    pub posted: Option<Instant>,
}

impl ObjectRequest {
    /// `None` if there is no object.
    pub fn from_devices(devices: impl IntoIterator<Item = u64>) -> Option<Self> {
        let mut devices = devices.into_iter();
        let first = devices.next()?;
        Some(Self { device_id: devices.next().is_none().then_some(first), posted: None })
    }

    /// The duration for which the store has been silent: since it last replied to any request, or since this one was posted. A
    /// request may have waited for others in its backend, which execute a few at a time.
    pub fn silence(&self, last_reply: Option<Instant>, now: Instant) -> Duration {
        self.posted.max(last_reply).map_or(Duration::ZERO, |since| now.saturating_duration_since(since))
    }
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
    pub fn from_status(status: sys::nixl_capi_status_t) -> Self {
        match status {
            sys::NIXL_CAPI_SUCCESS => Self::Idle,
            sys::NIXL_CAPI_IN_PROG => Self::InFlight,
            _ => Self::Failed,
        }
    }
}

impl RequestHandle {
    /// Whether the request has one part, whose end is the end of all that the backend does for it.
    pub(super) fn is_for_one_object(&self) -> bool {
        self.objects.is_some_and(|objects| objects.device_id.is_some())
    }

    /// Whether a backend for storage is to run it again.
    pub(super) fn repeats_with_storage(&self) -> bool {
        self.was_posted && matches!(self.remote, RequestSide::Own)
    }

    /// Whether a store of objects has completed it.
    pub(super) fn has_reply_of_store(&self) -> bool {
        self.objects.is_some() && self.state == RequestState::Idle
    }

    pub(super) fn is_for(&self, remote: &Arc<Remote>) -> bool {
        self.remote.is_for(remote)
    }
}

impl Operation {
    /// What it does, for messages.
    pub(super) fn verb(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
        }
    }

    pub(super) fn raw(self) -> sys::nixl_capi_xfer_op_t {
        match self {
            Self::Read => sys::NIXL_CAPI_XFER_OP_READ,
            Self::Write => sys::NIXL_CAPI_XFER_OP_WRITE,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn ids_that_follow_each_other_are_in_different_places_of_a_map() {
        let hash = |id: u64| {
            let mut hasher = IdHasher::default();
            hasher.write_u64(id);
            hasher.finish()
        };
        let low: HashSet<_> = (1..=4096).map(|id| hash(id) & 4095).collect();
        let high: HashSet<_> = (1..=4096).map(|id| hash(id) >> 57).collect();
        assert_eq!((low.len(), high.len()), (4096, 128));
    }
}
