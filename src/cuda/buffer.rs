// SPDX-License-Identifier: Apache-2.0
//! Memory of a device for kvmem's own use.

use std::sync::Arc;

use super::device::Device;
use super::memory::Allocation;
use super::vmm::{
    AddressRange, AllocationProperties, DeviceAccess, DeviceMapping, Granularity, PhysicalMemory,
};
use crate::base::{Result, Status, error};

/// Memory of a device. Unlike [`Allocation`], it is freed without waiting for other work on the device, if the device
/// supports virtual memory management.
pub enum DeviceBuffer {
    /// VMM memory.
    Mapped(Arc<DeviceMapping>),
    /// Memory of cuMemAlloc.
    Plain(Allocation),
}

impl DeviceBuffer {
    /// At least `size` bytes on a device, for kernels of this device.
    pub fn new(device: Device, size: u64) -> Result<Self> {
        Self::with_users(device, size, &[device.ordinal()])
    }

    /// The same for kernels of several devices, if the device supports virtual memory management.
    pub fn with_users(device: Device, size: u64, users: &[i32]) -> Result<Self> {
        if !device.has_vmm() {
            return Allocation::new(device.ordinal(), size).map(Self::Plain);
        }
        match Self::map(device, size, users) {
            Err(error) if error.status() != Status::OutOfMemory => {
                Allocation::new(device.ordinal(), size).map(Self::Plain)
            }
            mapped => mapped,
        }
    }

    fn map(device: Device, size: u64, users: &[i32]) -> Result<Self> {
        let properties = AllocationProperties::on_device(device.ordinal());
        let granularity = properties.granularity(Granularity::Minimum)?;
        let size = size.checked_next_multiple_of(granularity);
        let size = size.ok_or_else(|| error!(OutOfMemory, "no GPU has 2^64 bytes of memory"))?;
        let memory = PhysicalMemory::create(size, properties)?;
        let range = AddressRange::reserve(memory.size(), granularity)?;
        let mapping = DeviceMapping::create(&range, 0, &memory)?;
        let accesses: Vec<_> = users.iter().map(|ordinal| (*ordinal, DeviceAccess::ReadWrite)).collect();
        DeviceMapping::set_access_of_all(std::slice::from_ref(&mapping), &accesses)?;
        Ok(Self::Mapped(mapping))
    }

    /// Its first byte.
    pub fn address(&self) -> u64 {
        match self {
            Self::Mapped(mapping) => mapping.address(),
            Self::Plain(memory) => memory.address(),
        }
    }

    pub fn size(&self) -> u64 {
        match self {
            Self::Mapped(mapping) => mapping.size(),
            Self::Plain(memory) => memory.size(),
        }
    }
}
