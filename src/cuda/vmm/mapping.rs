// SPDX-License-Identifier: Apache-2.0
//! Mappings of physical memory at addresses, and the access rights of devices.
#![allow(unsafe_code)]

use std::sync::Arc;

use super::memory::{HandleOrigin, PhysicalMemory};
use super::properties::{Granularity, Location};
use super::range::AddressRange;
use crate::base::{Error, Result, Status, ensure, log};
use crate::cuda::codes::{INVALID_VALUE, NOT_SUPPORTED, has_code};
use crate::cuda::device::Device;
use crate::cuda::driver_structs::{RawAccess, RawLocation};
use crate::cuda::ending::released;

/// The access of a device to a mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceAccess {
    /// No access.
    None,
    Read,
    ReadWrite,
}

fn raw_access(ordinal: i32, access: DeviceAccess) -> Result<RawAccess> {
    let flags = match access {
        DeviceAccess::None => 0,
        DeviceAccess::Read => 1,
        DeviceAccess::ReadWrite => 3,
    };
    Ok(RawAccess { location: RawLocation::device(Device::get(ordinal)?.ordinal()), flags })
}

/// Physical memory at an address. Holds both.
pub struct DeviceMapping {
    range: Arc<AddressRange>,
    memory: Arc<PhysicalMemory>,
    offset: u64,
}

impl DeviceMapping {
    /// Maps all of `memory` at `offset` in `range`. No device has access before [`DeviceMapping::set_access`].
    pub fn create(range: &Arc<AddressRange>, offset: u64, memory: &Arc<PhysicalMemory>) -> Result<Arc<Self>> {
        let size = memory.size();
        let granularity = memory.properties().granularity(Granularity::Minimum)?;
        ensure!(
            (range.address + offset.min(range.size)).is_multiple_of(granularity),
            InvalidArgument,
            "offset is {offset}; the address there must be a multiple of the granularity, {granularity}"
        );
        ensure!(
            offset.checked_add(size).is_some_and(|end| end <= range.size),
            OutOfRange,
            "{size} bytes at offset {offset} do not fit a range of {} bytes",
            range.size
        );
        let mut mapped = range.mapped();
        let before = mapped.range(..offset + size).next_back();
        if let Some((at, there)) = before.filter(|(at, there)| **at + **there > offset) {
            crate::base::error::fail!(
                AlreadyExists,
                "{there} bytes are already mapped at offset {at}; unmap them first"
            );
        }
        // SAFETY: reserved addresses without a mapping, and live memory.
        let result = unsafe {
            range.driver.api.mem_map.call(range.address + offset, size as usize, 0, memory.handle, 0)
        };
        range
            .driver
            .check(result, format_args!("map {size} bytes at offset {offset}"))
            .map_err(|error| explain(memory, error))?;
        mapped.insert(offset, size);
        drop(mapped);
        log!(Trace, "{size} bytes mapped at {:#x}", range.address + offset);
        Ok(Arc::new(Self { range: range.clone(), memory: memory.clone(), offset }))
    }

    /// Its first address.
    pub fn address(&self) -> u64 {
        self.range.address + self.offset
    }

    pub fn size(&self) -> u64 {
        self.memory.size()
    }

    pub fn memory(&self) -> &Arc<PhysicalMemory> {
        &self.memory
    }

    /// Its offset in its range.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    pub fn set_access(&self, ordinal: i32, access: DeviceAccess) -> Result<()> {
        let device = Device::get(ordinal)?;
        if let (Location::Device(owner), true) =
            (self.memory.properties().location, access != DeviceAccess::None)
        {
            ensure!(
                device.can_access(&Device::get(owner)?)?,
                Unsupported,
                "device {ordinal} cannot access memory of device {owner}"
            );
        }
        let description = raw_access(ordinal, access)?;
        let driver = self.range.driver;
        // SAFETY: mapped addresses; the description lives through the call.
        let result =
            unsafe { driver.api.mem_set_access.call(self.address(), self.size() as usize, &description, 1) };
        driver.check(result, format_args!("set the access of device {ordinal} to {} bytes", self.size()))
    }

    /// Sets the access of some devices to some mappings, with one call per sequence of adjacent mappings: a call is as slow
    /// for one mapping as for many.
    pub fn set_access_of_all(mappings: &[Arc<Self>], accesses: &[(i32, DeviceAccess)]) -> Result<()> {
        let descriptions = accesses.iter().map(|(ordinal, access)| raw_access(*ordinal, *access));
        let descriptions = descriptions.collect::<Result<Vec<_>>>()?;
        for stretch in mappings.chunk_by(|one, next| one.address() + one.size() == next.address()) {
            let (address, size) = (stretch[0].address(), stretch.iter().map(|each| each.size()).sum::<u64>());
            let driver = stretch[0].range.driver;
            // SAFETY: mapped addresses; the descriptions live through the call.
            let result = unsafe {
                driver.api.mem_set_access.call(
                    address,
                    size as usize,
                    descriptions.as_ptr(),
                    descriptions.len(),
                )
            };
            driver.check(result, format_args!("set the access to {size} bytes"))?;
        }
        Ok(())
    }

    pub fn access(&self, ordinal: i32) -> Result<DeviceAccess> {
        let location = RawLocation::device(Device::get(ordinal)?.ordinal());
        let driver = self.range.driver;
        let mut flags = 0u64;
        // SAFETY: the location and the output live through the call.
        let result = unsafe { driver.api.mem_get_access.call(&mut flags, &location, self.address()) };
        driver.check(result, format_args!("get the access of device {ordinal}"))?;
        Ok(match flags {
            3 => DeviceAccess::ReadWrite,
            1 => DeviceAccess::Read,
            _ => DeviceAccess::None,
        })
    }
}

impl Drop for DeviceMapping {
    fn drop(&mut self) {
        log!(Trace, "{} bytes at {:#x} are unmapped", self.size(), self.address());
        let driver = self.range.driver;
        let mut mapped = self.range.mapped();
        // SAFETY: mapped by this value, and no longer in use.
        let unmap = || unsafe { driver.api.mem_unmap.call(self.address(), self.size() as usize) };
        // A failed call may have unmapped the addresses and report a failure of earlier work. So the call is repeated: the
        // driver accepts addresses that are no longer mapped.
        let first = unmap();
        let result = if first.is_success() { first } else { unmap() };
        let unmapped = driver.check(result, format_args!("unmap {} bytes", self.size()));
        if unmapped.is_ok() {
            mapped.remove(&self.offset);
        }
        drop(mapped);
        released(unmapped);
    }
}

/// Adds the likely cause: the driver checks the size of imported memory when it is mapped.
fn explain(memory: &PhysicalMemory, error: Error) -> Error {
    if memory.origin != HandleOrigin::Imported || !has_code(&error, &[INVALID_VALUE, NOT_SUPPORTED]) {
        return error;
    }
    let message = format!(
        "the memory was imported as {} bytes, and probably has another size: import it with the exporter's size",
        memory.size()
    );
    error.context(message).with_status(Status::InvalidArgument)
}
