// SPDX-License-Identifier: Apache-2.0
//! A request of NIXL, and what it uses.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::{Holds, Prepared};
use crate::nixl::{Agent, Released, RequestId, RequestSide};

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
    #[expect(dead_code, reason = "kept until the request is released")]
    pub holds: Holds,
}

impl Drop for Resource {
    fn drop(&mut self) {
        if self.is_over.load(Ordering::Acquire) {
            return;
        }
        self.agent.release(Released::Requests(vec![self.id]));
    }
}
