// SPDX-License-Identifier: Apache-2.0
//! The arena of an owner that serves transfers of a layout, with its control block.

use std::sync::{Arc, Weak};
use std::time::Duration;

use crate::copy::gpu::row_copier::RowCopier;
use crate::engine::peer::served::protocol::{session_control, words};
use crate::layout::{Layout, Served};
use crate::region::{Contexts, RegistrationHold};

/// The arena of a layout's owner. The layout holds it, and every copy.
pub(super) struct Service {
    pub served: Served,
    pub layout: Weak<Layout>,
    /// How long a peer may leave a session waiting.
    pub stall_timeout: Duration,
    pub arena: Arc<ServiceMemory>,
    /// What copies between slots and the layout; `None` for the threads that copy host memory.
    pub copier: Option<Arc<RowCopier>>,
    /// The contexts of the layout's memory.
    pub contexts: Contexts,
}

/// The control block, and the slots.
pub(super) struct ServiceMemory {
    /// Also the slots, unless they are in GPU memory.
    pub host: RegistrationHold,
    pub _device: Option<RegistrationHold>,
}

impl Service {
    /// Replaces an entry of the control block; the first is the head.
    pub fn write(&self, index: usize, bytes: &[u8; session_control::ENTRY]) {
        let region = self.arena.host.region();
        words::write(region.address() + (index * session_control::ENTRY) as u64, region, bytes);
    }

    /// Reports to requesters that the service has ended.
    pub fn end(&self) {
        self.write(0, &[0; session_control::ENTRY]);
    }
}

impl Drop for Service {
    /// No copy is in progress. A peer that still reads the control block finds that it is no more.
    fn drop(&mut self) {
        self.end();
    }
}
