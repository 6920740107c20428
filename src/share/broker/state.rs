// SPDX-License-Identifier: Apache-2.0
//! What the thread of a broker and the rest of the library both use.

use std::sync::atomic::{AtomicBool, AtomicU64};

use super::catalogue::Catalogue;

/// Counts that the thread keeps.
#[derive(Default)]
pub(super) struct BrokerCounts {
    pub clients: AtomicU64,
    pub granted: AtomicU64,
    pub refused: AtomicU64,
}

/// What the thread and the rest of the library both use.
pub(super) struct BrokerState {
    pub catalogue: Catalogue,
    pub counts: BrokerCounts,
    pub stopping: AtomicBool,
    pub wake: rustix::fd::OwnedFd,
}
