// SPDX-License-Identifier: Apache-2.0
//! Device memory that an engine of another process has mapped: its physical memories are mapped here in the same order.

use std::sync::Arc;

use super::adopted_device::ensure_one_mapping;
use super::open_devices::{DeviceUsers, OpenDevices};
use crate::base::{Result, ensure, fail};
use crate::cuda::DevicePair;
use crate::cuda::vmm::{
    AddressRange, AllocationProperties, DeviceMapping, Granularity, Location, PhysicalMemory, Shareable,
};
use crate::region::registration::Registrations;
use crate::region::{Backing, Export, MemoryRange, PeerMemory, Properties, Source, Tier};

pub struct MappedDevice {
    range: Arc<AddressRange>,
    mappings: Vec<Arc<DeviceMapping>>,
    reach: OpenDevices,
    ordinal: i32,
    offset: u64,
    size: u64,
}

/// A part of memories side by side.
#[derive(Clone, Copy, Debug)]
pub struct MappedPart {
    /// Where in the first of them it starts.
    pub offset: u64,
    pub size: u64,
    /// Alignment of its address, a power of two.
    pub alignment: u64,
}

pub struct ImportedMapping<'a> {
    /// Its size in bytes, as the exporter reported.
    pub size: u64,
    /// The handle to import it from.
    pub memory: Shareable<'a>,
}

impl MappedDevice {
    /// Maps memories side by side; the region is a part of them. What they say must add up: at least that much, and no
    /// more than can be addressed. They are opened for their own device and for `users`.
    pub fn import(
        (ordinal, users): (i32, DeviceUsers),
        MappedPart { offset, size, alignment }: MappedPart,
        shared: &[ImportedMapping<'_>],
        writable: bool,
    ) -> Result<Self> {
        let location = Location::Device(ordinal);
        let granularity = AllocationProperties::on_device(ordinal).granularity(Granularity::Minimum)?;
        for each in shared {
            ensure!(
                each.size.is_multiple_of(granularity),
                InvalidArgument,
                "a mapping of {} bytes is not a multiple of the granularity {granularity}",
                each.size
            );
        }
        let head = head(offset, alignment, granularity);
        let total: u64 = shared.iter().map(|each| each.size).sum();
        let Some(reserved) = total.checked_add(head) else {
            fail!(InvalidArgument, "an alignment of {alignment} bytes is more than can be addressed");
        };
        let range = AddressRange::reserve(reserved, granularity.max(alignment))?;
        let mut mappings = Vec::with_capacity(shared.len());
        let mut next = head;
        for each in shared {
            let memory = PhysicalMemory::import(each.memory, each.size, Some(location))?;
            mappings.push(DeviceMapping::create(&range, next, &memory)?);
            next += each.size;
        }
        let reach = OpenDevices::open(&mappings, ordinal, users, writable)?;
        Ok(Self { range, mappings, reach, ordinal, offset: head + offset, size })
    }
}

impl Backing for MappedDevice {
    fn range(&self) -> MemoryRange {
        MemoryRange { tier: Tier::Device, address: self.range.address() + self.offset, size: self.size }
    }

    fn properties(&self) -> Properties {
        Properties { source: Source::Imported, ..Properties::default() }
    }

    fn export(&self) -> Result<Export<'_>> {
        fail!(Unsupported, "memory of another process cannot be shared")
    }

    fn devices(&self) -> Option<DevicePair> {
        Some(DevicePair::on(self.ordinal))
    }

    fn peer_memory(&self) -> PeerMemory {
        PeerMemory::Vmm(self.address())
    }

    fn open_for(&self, users: DeviceUsers, _registrations: &Registrations) -> Result<()> {
        self.reach.extend(&self.mappings, self.ordinal, users)
    }

    fn ensure_registrable(&self) -> Result<()> {
        ensure_one_mapping(self.mappings.len())
    }
}

/// Addresses before the first mapping, so that the part is aligned if the range is. None if mappings, which are multiples
/// of the granularity, cannot be placed so: then the part was not aligned where it was shared either.
fn head(offset: u64, alignment: u64, granularity: u64) -> u64 {
    let head = offset.next_multiple_of(alignment) - offset;
    if head.is_multiple_of(granularity) { head } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn the_part_is_aligned_if_the_granularity_permits_it() {
        assert_eq!(head(0, 1, 2 * MIB), 0);
        assert_eq!(head(4096, 4096, 2 * MIB), 0);
        assert_eq!(head(6 * MIB, 8 * MIB, 2 * MIB), 2 * MIB);
        assert_eq!(head(4096, 8 * MIB, 2 * MIB), 0);
    }
}
