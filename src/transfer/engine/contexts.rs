// SPDX-License-Identifier: Apache-2.0
//! The CUDA contexts that memory belongs to. A kernel that accessed lost memory would destroy the GPU's
//! primary context, so the driver is queried before each run.
#![forbid(unsafe_code)]

use crate::cuda::ContextIdentity;
use crate::cuda::context::not_started;
use crate::cuda::memory::AllocationStamp;
use crate::error::Result;
use crate::layout::Layout;
use crate::region::Backing;

/// A set of contexts: each is checked once, however many regions belong to it.
#[derive(Clone, Default)]
pub struct Contexts {
    /// The contexts of memory that kvmem allocated.
    own: Vec<ContextIdentity>,
    /// One allocation per context of adopted memory. It exists as long as the context.
    adopted: Vec<AllocationStamp>,
}

impl Contexts {
    /// The contexts of the memory of some layouts; also of page locks if a GPU will use them.
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

    /// Adds a context of memory that kvmem allocated.
    pub fn add(&mut self, identity: ContextIdentity) {
        if !self.own.contains(&identity) {
            self.own.push(identity);
        }
    }

    /// Adds a context of adopted memory.
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
