// SPDX-License-Identifier: Apache-2.0
//! What transfers need to know of the regions of a layout. It is found when the layout is built, because its regions
//! never change: a transfer is then created as fast for hundreds of regions as for one.

use std::collections::HashMap;
use std::os::fd::RawFd;
use std::sync::Arc;

use super::memory::{Memory, RemoteMemory};
use crate::base::file_systems::FileSystems;
use crate::base::sorting::few_distinct;
use crate::region::{Contexts, Places, Region};

/// What some regions have in common.
pub(super) struct Storage {
    /// One region of each memory, by its index: many regions may be views of one.
    pub roots: Vec<u32>,
    /// For each region the index of its memory in that list.
    pub root_of_region: Vec<u32>,
    pub is_elastic: bool,
    /// The first region that this process may not write.
    pub read_only: Option<usize>,
    /// The contexts of memory, and of page locks.
    pub contexts: [Contexts; 2],
    /// The open file of each region; none if they are memory.
    pub files: Arc<[RawFd]>,
    pub file_systems: FileSystems,
    /// The devices that memory of regions is on.
    pub devices: Vec<i32>,
    /// All files bypass the page cache.
    pub is_direct: bool,
    pub io_alignment: u64,
    pub places: Arc<Places>,
}

impl Storage {
    /// That of the memory of a layout; of a peer's only where it is.
    pub fn from_memory(memory: &Memory) -> Self {
        let regions = memory.regions();
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
            contexts: Contexts::from_regions(regions),
            files: regions.iter().filter_map(|region| region.fd()).collect(),
            file_systems: few_distinct(files().map(|file| file.file_system())).into(),
            devices: few_distinct(regions.iter().filter_map(|region| region.ordinal())),
            is_direct: files().all(|file| file.is_direct()),
            io_alignment: regions.iter().map(|region| region.io_alignment()).max().unwrap_or(1),
            places: Arc::new(match memory {
                Memory::Local(_) => Places::from_regions(regions),
                Memory::Remote(RemoteMemory { process, descriptors, .. }) => {
                    Places::of_peer(process, descriptors.iter().map(|each| (each.address, each.size)))
                }
            }),
        }
    }
}
