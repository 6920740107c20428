// SPDX-License-Identifier: Apache-2.0
//! Device memory that an engine of another process has mapped: its physical memories are mapped here in the same order.

#![forbid(unsafe_code)]

use std::sync::Arc;

use super::{DeviceUsers, OpenDevices};
use crate::cuda::vmm::{
    AddressRange, AllocationProperties, DeviceMapping, Granularity, Location, PhysicalMemory, Shareable,
};
use crate::error::{Result, ensure};

/// A part of adjacent mappings.
pub struct MappedDevice {
    range: Arc<AddressRange>,
    mappings: Vec<Arc<DeviceMapping>>,
    reach: OpenDevices,
    ordinal: i32,
    offset: u64,
    size: u64,
}

/// The memory of one mapping.
pub struct ImportedMapping<'a> {
    /// Its size in bytes, as the exporter reported.
    pub size: u64,
    /// The handle to import it from.
    pub memory: Shareable<'a>,
}

impl MappedDevice {
    /// Maps memories at adjacent addresses; the region is `size` bytes at `offset` in them. The sum of their sizes must
    /// contain the region, and fit the address space. They are opened for their own device and for `users`.
    pub fn import(
        (ordinal, users): (i32, DeviceUsers),
        (offset, size): (u64, u64),
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
        let range = AddressRange::reserve(shared.iter().map(|each| each.size).sum(), granularity)?;
        let mut mappings = Vec::with_capacity(shared.len());
        let mut next = 0;
        for each in shared {
            let memory = PhysicalMemory::import(each.memory, each.size, Some(location))?;
            mappings.push(DeviceMapping::create(&range, next, &memory)?);
            next += each.size;
        }
        let reach = OpenDevices::open(&mappings, ordinal, users, writable)?;
        Ok(Self { range, mappings, reach, ordinal, offset, size })
    }

    /// Opens it for more devices of this process.
    pub(super) fn open_for(&self, users: DeviceUsers) -> Result<()> {
        self.reach.extend(&self.mappings, self.ordinal, users)
    }

    /// The region's first byte.
    pub fn address(&self) -> u64 {
        self.range.address() + self.offset
    }

    /// The region's size in bytes.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// The number of its mappings.
    pub fn pieces(&self) -> usize {
        self.mappings.len()
    }

    /// The device's ordinal.
    pub fn ordinal(&self) -> i32 {
        self.ordinal
    }
}
