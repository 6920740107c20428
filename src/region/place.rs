// SPDX-License-Identifier: Apache-2.0
//! Where the bytes of a region are. Two regions have bytes in common if they have some place in common, also by different
//! addresses or file descriptors.
//!
//! A file is identified by its device and inode, memory of another process by the id of its owner's control block. The
//! files of memory that the caller has mapped are found at its adoption. Some common bytes cannot be detected: a file of a
//! network file system that is mounted twice, GPU memory that the caller has mapped at two addresses, memory of devices,
//! anonymous memory of another process, and what the caller maps after the adoption.

use std::sync::Arc;

use super::{FileId, Region};
use crate::base::ProcessIdentity;

/// What bytes are counted in: an offset in an address space is one byte.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum AddressSpace {
    Process,
    File(FileId),
    /// Memory with a control block, by its id.
    Shared([u8; 16]),
    /// Objects, by the prefix of their keys and their size.
    Objects(Arc<str>, u64),
    BlockDevice(u64),
    /// The addresses of another process, which NIXL accesses.
    Peer(Arc<ProcessIdentity>),
}

/// Bytes of a region in an address space.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    pub space: AddressSpace,
    /// The first of the bytes there.
    pub start: u64,
    pub end: u64,
    /// The first of the bytes in the region.
    pub offset: u64,
}

impl Place {
    /// A region of `size` bytes that starts at `start`.
    pub fn new(space: AddressSpace, start: u64, size: u64) -> Self {
        Self { space, start, end: start.saturating_add(size), offset: 0 }
    }

    /// What a view of `size` bytes at `offset` has of it.
    pub fn part(&self, offset: u64, size: u64) -> Option<Self> {
        let first = self.offset.max(offset);
        let end = self.offset.saturating_add(self.end - self.start).min(offset.saturating_add(size));
        let at = |in_region: u64| self.start + (in_region - self.offset);
        (first < end).then(|| Self {
            space: self.space.clone(),
            start: at(first),
            end: at(end),
            offset: first - offset,
        })
    }

    /// Where the region starts in the address space; before it, if only later bytes of the region are in it.
    pub fn start_of_region(&self) -> i128 {
        i128::from(self.start) - i128::from(self.offset)
    }

    /// Whether a place that starts no earlier has bytes in common with it.
    pub fn reaches(&self, later: &Self) -> bool {
        self.space == later.space && later.start < self.end
    }
}

impl Region {
    pub fn places(&self) -> Vec<Place> {
        let memory = &self.memory;
        let whole = |space, start| Place::new(space, start, memory.size());
        let mut places = vec![whole(memory.address_space(), memory.address())];
        places.extend(self.shared_id().map(|id| whole(AddressSpace::Shared(id), 0)));
        places.extend(memory.mapped_files());
        let offset = self.offset_in_root();
        places.iter().filter_map(|place| place.part(offset, self.size())).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::region::SystemConfig;

    #[test]
    fn a_part_has_the_bytes_that_it_is_a_part_of() {
        let place = Place { offset: 10, ..Place::new(AddressSpace::Process, 1000, 50) };
        let part = |offset, size| place.part(offset, size).map(|part| (part.start, part.end, part.offset));
        assert_eq!(part(0, 100), Some((1000, 1050, 10)));
        assert_eq!(part(0, 10), None);
        assert_eq!(part(5, 10), Some((1000, 1005, 5)));
        assert_eq!(part(20, 10), Some((1010, 1020, 0)));
        assert_eq!(part(60, u64::MAX), None);
        assert_eq!(place.start_of_region(), 990);
    }

    #[test]
    fn a_view_is_at_its_offset_in_the_file_of_its_region() {
        let config = SystemConfig { size: 8192, shareable: true, ..SystemConfig::default() };
        let region = Region::system(&config).unwrap();
        let view = Region::view(&region, 4096, 100).unwrap();
        let file = |region: &Region| {
            let mut places = region.places().into_iter();
            places.find(|place| matches!(place.space, AddressSpace::File(_))).unwrap()
        };
        assert_eq!((file(&view).start, file(&view).end), (4096, 4196));
        assert_eq!(file(&view).space, file(&region).space);
    }
}
