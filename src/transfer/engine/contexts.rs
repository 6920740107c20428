// SPDX-License-Identifier: Apache-2.0
//! The contexts that memory goes with: a kernel that touched what was lost would take the GPU's primary context along, so
//! that the driver is asked before anything runs.

use crate::cuda::ContextIdentity;
use crate::cuda::context::not_started;
use crate::cuda::memory::AllocationStamp;
use crate::error::Result;
use crate::layout::Layout;
use crate::region::Backing;

/// Each context once: a run costs no more if a layout has many regions.
#[derive(Clone, Default)]
pub struct Contexts {
    /// Those that the library's memory is in.
    own: Vec<ContextIdentity>,
    /// One allocation in each of those that adopted memory is in: it is there as long as the context.
    adopted: Vec<AllocationStamp>,
}

impl Contexts {
    /// Those of the memory of some layouts; of page locks too if a GPU is to use them.
    pub fn of<'a>(layouts: impl IntoIterator<Item = &'a Layout>, with_page_locks: bool) -> Self {
        let mut contexts = Self::default();
        for region in layouts.into_iter().flat_map(|layout| layout.memory().regions()) {
            match region.root() {
                Backing::Device(memory) => {
                    memory.identity().into_iter().for_each(|identity| contexts.add(identity));
                    memory.stamp().into_iter().for_each(|stamp| contexts.add_adopted(stamp));
                }
                Backing::Pinned(memory) if with_page_locks => contexts.add(memory.identity()),
                _ => {}
            }
        }
        contexts
    }

    /// One more that the library's memory is in.
    pub fn add(&mut self, identity: ContextIdentity) {
        if !self.own.contains(&identity) {
            self.own.push(identity);
        }
    }

    /// One more that adopted memory is in.
    pub fn add_adopted(&mut self, stamp: AllocationStamp) {
        if !self.adopted.iter().any(|known| known.is_of_context_of(&stamp)) {
            self.adopted.push(stamp);
        }
    }

    /// Fails with INVALID_STATE if one of them was reset or destroyed.
    pub fn ensure_alive(&self) -> Result<()> {
        self.own.iter().try_for_each(|identity| identity.ensure_alive().map_err(not_started))?;
        self.adopted.iter().try_for_each(AllocationStamp::ensure_exists)
    }
}
