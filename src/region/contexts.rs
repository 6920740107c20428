// SPDX-License-Identifier: Apache-2.0
//! The CUDA contexts that memory belongs to. A kernel that accessed lost memory would destroy the GPU's
//! primary context, so the driver is queried before each run.

use std::sync::Arc;

use super::Region;
use crate::base::Result;
use crate::cuda::memory::AllocationStamp;
use crate::cuda::{ContextIdentity, not_started};

/// A set of contexts: each is checked once, however many regions belong to it.
#[derive(Clone, Default)]
pub struct Contexts {
    /// The contexts of memory that kvmem allocated.
    own: Vec<ContextIdentity>,
    /// One allocation per context of adopted memory. It exists as long as the context.
    adopted: Vec<AllocationStamp>,
}

impl Contexts {
    /// The contexts that device memory of some regions belongs to, and those that their page locks belong to.
    pub fn from_regions(regions: &[Arc<Region>]) -> [Self; 2] {
        let [mut memory, mut page_locks] = [Self::default(), Self::default()];
        regions.iter().for_each(|region| region.memory.add_contexts(&mut memory, &mut page_locks));
        [memory, page_locks]
    }

    /// Adds a context of memory that kvmem allocated.
    pub fn add(&mut self, identity: ContextIdentity) {
        if !self.own.contains(&identity) {
            self.own.push(identity);
        }
    }

    pub fn add_adopted(&mut self, stamp: AllocationStamp) {
        if !self.adopted.iter().any(|known| known.is_of_context_of(&stamp)) {
            self.adopted.push(stamp);
        }
    }

    /// Adds all of another set.
    pub fn add_all(&mut self, other: &Self) {
        other.own.iter().for_each(|identity| self.add(*identity));
        other.adopted.iter().for_each(|stamp| self.add_adopted(*stamp));
    }

    /// Fails with INVALID_STATE if one of them was reset or destroyed.
    pub fn ensure_alive(&self) -> Result<()> {
        self.own.iter().try_for_each(|identity| identity.ensure_alive().map_err(not_started))?;
        self.adopted.iter().try_for_each(AllocationStamp::ensure_exists)
    }
}
