// SPDX-License-Identifier: Apache-2.0
//! What a run keeps until its end.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::layout::Layout;
use crate::nixl::RemoteHold;
use crate::region::ExtentHold;

/// The objects of the caller that a run holds.
#[derive(Default)]
pub struct RunHolds {
    /// The source and the destination.
    pub layouts: Option<[Arc<Layout>; 2]>,
    /// The extents of both layouts that it accesses.
    pub extents: [Option<ExtentHold>; 2],
    /// The peer's metadata, which must stay loaded.
    pub peer: Option<RemoteHold>,
}

impl RunHolds {
    /// The memory on devices that it holds: ordinals and bytes.
    pub(super) fn device_memory(&self) -> Vec<(i32, u64)> {
        let regions = self.layouts.iter().flatten().flat_map(|layout| layout.memory().regions());
        let memory = regions.filter_map(|region| {
            let (address, bytes) = region.committed();
            Some(((region.ordinal()?, address), bytes))
        });
        // Views of an elastic region have the same.
        let memory: BTreeMap<_, _> = memory.collect();
        memory.into_iter().map(|((ordinal, _), bytes)| (ordinal, bytes)).collect()
    }

    /// Drops all of it. Returns whether it was the last holder of a layout.
    pub(super) fn release(self) -> bool {
        drop((self.extents, self.peer));
        self.layouts.into_iter().flatten().filter_map(Arc::into_inner).count() > 0
    }
}
