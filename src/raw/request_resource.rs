// SPDX-License-Identifier: Apache-2.0
//! A request of NIXL, and what it uses.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::{Holds, Prepared};
use crate::base::log::log;
use crate::nixl::{Agent, AgentState, RequestId, RequestSide};

/// The request of NIXL, and what it uses. It is released before the memory.
pub(super) struct Resource {
    pub agent: Arc<Agent>,
    pub id: RequestId,
    pub side: RequestSide,
    /// No run can begin any more, because one has failed. NIXL has released the request, or never does.
    pub is_over: AtomicBool,
    /// The prepared lists that it was made from.
    #[expect(dead_code, reason = "kept until the request is released")]
    pub prepared: Option<[Arc<Prepared>; 2]>,
    /// What owns the memory.
    #[expect(dead_code, reason = "kept until the request is released")]
    pub holds: Holds,
}

impl Drop for Resource {
    fn drop(&mut self) {
        if self.is_over.load(Ordering::Acquire) {
            return;
        }
        let id = self.id;
        self.agent.call_or_defer(move |state| release(state, id));
    }
}

/// Releases a request that nothing uses any more.
pub(super) fn release(state: &mut AgentState, id: RequestId) {
    if let Err(error) = state.release_request(id) {
        log!(Error, "{error}; NIXL may use the memory of the request until the process ends");
    }
}
