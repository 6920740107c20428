// SPDX-License-Identifier: Apache-2.0
//! What transfers ask of the regions of a layout, which takes as long for hundreds of regions as for one.

use std::os::fd::RawFd;
use std::sync::Arc;

use super::Layout;
use crate::base::Result;
use crate::base::file_systems::FileSystems;
use crate::region::{Contexts, Places, Region};

impl Layout {
    /// Fails if this process may not write all of its regions.
    pub fn ensure_writable(&self) -> Result<()> {
        let read_only = self.storage.read_only.and_then(|index| self.memory().regions().get(index));
        read_only.map_or(Ok(()), |region| region.ensure_writable())
    }

    /// Whether it has some memory in common with another one.
    pub fn has_common_memory(&self, other: &Self) -> bool {
        self.storage.places.meet(&other.storage.places)
    }

    pub fn places(&self) -> &Arc<Places> {
        &self.storage.places
    }

    /// The CUDA contexts that its memory belongs to; also those of page locks if a GPU will use them.
    pub fn contexts(&self, with_page_locks: bool) -> Contexts {
        let [memory, page_locks] = &self.storage.contexts;
        let mut contexts = memory.clone();
        if with_page_locks {
            contexts.add_all(page_locks);
        }
        contexts
    }

    /// The open file of each region; none if they are memory.
    pub fn files(&self) -> &Arc<[RawFd]> {
        &self.storage.files
    }

    /// The file systems that its files are on; none if they are memory.
    pub fn file_systems(&self) -> &FileSystems {
        &self.storage.file_systems
    }

    /// The devices that its memory is on.
    pub fn devices(&self) -> &[i32] {
        &self.storage.devices
    }

    /// Whether all its files bypass the page cache.
    pub fn is_direct(&self) -> bool {
        self.storage.is_direct
    }

    /// I/O on its files must be aligned to this many bytes; 1 if there is no restriction.
    pub fn io_alignment(&self) -> u64 {
        self.storage.io_alignment
    }

    /// Whether a region of it is elastic memory of this process.
    pub(super) fn has_elastic_regions(&self) -> bool {
        self.storage.is_elastic
    }

    /// The regions that its own regions are views of, each once.
    pub(super) fn roots(&self) -> impl Iterator<Item = &Arc<Region>> {
        let regions = self.memory().regions();
        self.storage.roots.iter().map(|index| Region::root_of(&regions[*index as usize]).0)
    }

    /// For each of its regions the index of the region that it is a view of.
    pub(super) fn root_of_region(&self) -> &[u32] {
        &self.storage.root_of_region
    }
}
