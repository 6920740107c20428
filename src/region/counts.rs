// SPDX-License-Identifier: Apache-2.0
//! Numbers of holders of a region in this process.

use std::sync::atomic::AtomicU64;

/// Each counts one kind of holder.
#[derive(Default)]
pub(super) struct Counts {
    pub views: AtomicU64,
    pub shares: AtomicU64,
    pub handles: AtomicU64,
}
