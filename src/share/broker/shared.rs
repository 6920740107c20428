// SPDX-License-Identifier: Apache-2.0
//! What the thread of a broker and the rest of the library both use.

use std::sync::atomic::{AtomicBool, AtomicU64};

use super::catalogue::Catalogue;

/// Counts that the thread keeps.
#[derive(Default)]
pub(super) struct Counts {
    pub clients: AtomicU64,
    pub granted: AtomicU64,
    pub refused: AtomicU64,
}

/// What the thread and the rest of the library both use.
pub(super) struct Shared {
    pub catalogue: Catalogue,
    pub counts: Counts,
    pub stopping: AtomicBool,
    pub wake: rustix::fd::OwnedFd,
}
