// SPDX-License-Identifier: Apache-2.0
//! Numbers of holders of a region in this process.

use std::sync::Arc;

/// Each counts one kind of holder, which has one more reference.
#[derive(Default)]
pub(super) struct Counts {
    pub views: Arc<()>,
    pub shares: Arc<()>,
    pub handles: Arc<()>,
}

pub(super) fn holders(count: &Arc<()>) -> u64 {
    Arc::strong_count(count) as u64 - 1
}
