// SPDX-License-Identifier: Apache-2.0
//! What transfers need to know of the regions of a layout. It is found when the layout is built, because its regions never
//! change: a transfer is then created as fast for hundreds of regions as for one.

#![forbid(unsafe_code)]

use std::collections::HashMap;
use std::os::fd::RawFd;
use std::sync::Arc;

use super::Layout;
use super::occupied::Occupied;
use crate::error::Result;
use crate::region::{Contexts, Region};

/// What some regions have in common.
#[derive(Default)]
pub(super) struct Storage {
    /// One region of each memory, by its index: many regions may be views of one.
    roots: Vec<u32>,
    /// For each region the index of its memory in that list.
    root_of_region: Vec<u32>,
    is_elastic: bool,
    /// The first region that this process may not write.
    read_only: Option<usize>,
    /// The contexts of memory, and of page locks.
    contexts: [Contexts; 2],
    /// The open file of each region; none if they are memory.
    files: Arc<[RawFd]>,
    /// All files bypass the page cache.
    is_direct: bool,
    io_alignment: u64,
    occupied: Occupied,
}

impl Storage {
    /// That of the regions of a layout; none if they belong to a peer.
    pub fn of(regions: &[Arc<Region>]) -> Self {
        let (mut roots, mut root_of_region) = (Vec::new(), Vec::with_capacity(regions.len()));
        let mut known = HashMap::new();
        for (region, index) in regions.iter().zip(0u32..) {
            let (root, _) = Region::root_of(region);
            root_of_region.push(*known.entry(Arc::as_ptr(root)).or_insert_with(|| {
                roots.push(index);
                roots.len() as u32 - 1
            }));
        }
        let files = || regions.iter().filter_map(|region| region.file());
        Self {
            roots,
            root_of_region,
            is_elastic: regions.iter().any(|region| region.elastic_memory().is_some()),
            read_only: regions.iter().position(|region| region.read_only_because().is_some()),
            contexts: [Contexts::of_memory(regions), Contexts::of_page_locks(regions)],
            files: regions.iter().filter_map(|region| region.fd()).collect(),
            is_direct: files().all(|file| file.is_direct()),
            io_alignment: files().map(|file| file.io_alignment()).max().unwrap_or(1),
            occupied: Occupied::of(regions),
        }
    }
}

impl Layout {
    /// Fails if this process may not write all of its regions.
    pub fn ensure_writable(&self) -> Result<()> {
        let read_only = self.storage.read_only.and_then(|index| self.memory().regions().get(index));
        read_only.map_or(Ok(()), |region| region.ensure_writable())
    }

    /// Whether it has some memory in common with another one.
    pub fn has_common_memory(&self, other: &Self) -> bool {
        let regions = [self, other].map(|layout| layout.memory().regions());
        self.storage.occupied.meet(&other.storage.occupied, regions)
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

    /// Whether all its files bypass the page cache.
    pub fn is_direct(&self) -> bool {
        self.storage.is_direct
    }

    /// I/O on its files must be aligned to this many bytes; 1 if there is no restriction.
    pub fn io_alignment(&self) -> u64 {
        self.storage.io_alignment.max(1)
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
