// SPDX-License-Identifier: Apache-2.0
//! The state that a broker shares with its thread.

use std::sync::atomic::{AtomicBool, AtomicU64};

use super::catalogue::Catalogue;

#[derive(Default)]
pub(super) struct BrokerCounts {
    pub clients: AtomicU64,
    pub granted: AtomicU64,
    pub refused: AtomicU64,
}

/// The state that a broker shares with its thread.
pub(super) struct BrokerState {
    pub catalogue: Catalogue,
    pub counts: BrokerCounts,
    pub stopping: AtomicBool,
    pub wake: rustix::fd::OwnedFd,
}
