// SPDX-License-Identifier: Apache-2.0
//! Resources of a device that runs wait for, because their number is limited. Runs that need the same
//! resource get it in order of submission; a run that needs none of them waits for none.

use std::sync::atomic::{AtomicUsize, Ordering};

use crate::base::{Gauge, Result};

/// A resource that a run needs, and that other runs may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Resource {
    Stream,
    /// Space in the descriptor ring.
    DescriptorSlot,
    /// Staging memory for copies to the host.
    StagingToHost,
    /// Staging memory for copies from the host.
    StagingToDevice,
}

/// Number of times that a run has begun to wait for each resource, for statistics.
pub static WAITS: [Gauge; 4] = [const { Gauge::new() }; 4];

/// The acquired object, or the resource that other runs use.
pub type Acquired<T> = Result<std::result::Result<T, Resource>>;

/// The number of runs that wait for each resource.
#[derive(Default)]
pub struct WaitCounts([AtomicUsize; 4]);

impl WaitCounts {
    /// One more run waits.
    pub fn add(&self, resource: Resource) {
        self.0[resource as usize].fetch_add(1, Ordering::AcqRel);
        WAITS[resource as usize].add(1);
    }

    /// One run fewer waits.
    pub fn remove(&self, resource: Resource) {
        self.0[resource as usize].fetch_sub(1, Ordering::AcqRel);
    }

    pub fn has(&self, resource: Resource) -> bool {
        self.0[resource as usize].load(Ordering::Acquire) > 0
    }
}
