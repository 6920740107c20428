// SPDX-License-Identifier: Apache-2.0
//! Memory at an address, and what devices may do with it.

use std::sync::Arc;

use super::memory::{HandleOrigin, PhysicalMemory};
use super::properties::{Granularity, Location};
use super::range::AddressRange;
use crate::cuda::codes::{INVALID_VALUE, NOT_SUPPORTED, has_code};
use crate::cuda::device::Device;
use crate::cuda::raw::{RawAccess, RawLocation};
use crate::error::{Error, Result, Status, ensure};
use crate::log::log;

/// What a device may do with a mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceAccess {
    /// Nothing.
    None,
    /// Read.
    Read,
    /// Read and write.
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

/// Memory at an address. Holds both.
pub struct DeviceMapping {
    range: Arc<AddressRange>,
    memory: Arc<PhysicalMemory>,
    offset: u64,
}

impl DeviceMapping {
    /// Maps all of `memory` at `offset` in `range`. No device may touch it until [`DeviceMapping::set_access`] says so.
    pub fn create(range: &Arc<AddressRange>, offset: u64, memory: &Arc<PhysicalMemory>) -> Result<Arc<Self>> {
        let size = memory.size();
        let granularity = memory.properties().granularity(Granularity::Minimum)?;
        ensure!(
            (range.address + offset.min(range.size)).is_multiple_of(granularity),
            InvalidArgument,
            "offset {offset} is no multiple of the granularity {granularity}"
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
            crate::error::fail!(AlreadyExists, "{there} bytes are mapped at offset {at} already");
        }
        // SAFETY: reserved addresses with nothing mapped there, and live memory.
        let answer = unsafe {
            range.driver.api.mem_map.call(range.address + offset, size as usize, 0, memory.handle, 0)
        };
        range
            .driver
            .check(answer, format_args!("map {size} bytes at offset {offset}"))
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

    /// Its bytes.
    pub fn size(&self) -> u64 {
        self.memory.size()
    }

    /// The memory behind it.
    pub fn memory(&self) -> &Arc<PhysicalMemory> {
        &self.memory
    }

    /// Where in its range it begins.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// Says what a device may do with it.
    pub fn set_access(&self, ordinal: i32, access: DeviceAccess) -> Result<()> {
        let device = Device::get(ordinal)?;
        if let (Location::Device(owner), true) =
            (self.memory.properties().location, access != DeviceAccess::None)
        {
            ensure!(
                device.can_access(&Device::get(owner)?)?,
                Unsupported,
                "device {ordinal} does not reach memory of device {owner}"
            );
        }
        let description = raw_access(ordinal, access)?;
        let driver = self.range.driver;
        // SAFETY: mapped addresses; the description lives through the call.
        let answer =
            unsafe { driver.api.mem_set_access.call(self.address(), self.size() as usize, &description, 1) };
        driver.check(answer, format_args!("set the access of device {ordinal} to {} bytes", self.size()))
    }

    /// Says what some devices may do with some mappings, in as few calls as there are stretches of neighbours: the driver
    /// takes as long for one extent as for many.
    pub fn set_access_of_all(mappings: &[Arc<Self>], accesses: &[(i32, DeviceAccess)]) -> Result<()> {
        let descriptions = accesses.iter().map(|(ordinal, access)| raw_access(*ordinal, *access));
        let descriptions = descriptions.collect::<Result<Vec<_>>>()?;
        for stretch in mappings.chunk_by(|one, next| one.address() + one.size() == next.address()) {
            let (address, size) = (stretch[0].address(), stretch.iter().map(|each| each.size()).sum::<u64>());
            let driver = stretch[0].range.driver;
            // SAFETY: mapped addresses; the descriptions live through the call.
            let answer = unsafe {
                driver.api.mem_set_access.call(
                    address,
                    size as usize,
                    descriptions.as_ptr(),
                    descriptions.len(),
                )
            };
            driver.check(answer, format_args!("set the access to {size} bytes"))?;
        }
        Ok(())
    }

    /// What a device may do with it.
    pub fn access(&self, ordinal: i32) -> Result<DeviceAccess> {
        let location = RawLocation::device(Device::get(ordinal)?.ordinal());
        let driver = self.range.driver;
        let mut flags = 0u64;
        // SAFETY: the location and the output live through the call.
        let answer = unsafe { driver.api.mem_get_access.call(&mut flags, &location, self.address()) };
        driver.check(answer, format_args!("ask the access of device {ordinal}"))?;
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
        // SAFETY: mapped by this value, and used by nobody any more.
        let unmap = || unsafe { driver.api.mem_unmap.call(self.address(), self.size() as usize) };
        // A failure may be of earlier work, told by a call that did its own: the second one answers for itself, and
        // the driver takes addresses that are not mapped any more.
        let first = unmap();
        let answer = if first.is_success() { first } else { unmap() };
        let unmapped = driver.check(answer, format_args!("unmap {} bytes", self.size()));
        if unmapped.is_ok() {
            mapped.remove(&self.offset);
        }
        drop(mapped);
        if let Err(error) = unmapped {
            log!(Error, "{error}");
        }
    }
}

/// Mapping is where the driver first sees the size that an importer was told.
fn explain(memory: &PhysicalMemory, error: Error) -> Error {
    if memory.origin != HandleOrigin::Imported || !has_code(&error, &[INVALID_VALUE, NOT_SUPPORTED]) {
        return error;
    }
    let message = format!(
        "the memory was imported as {} bytes, and is likely of another size: ask its exporter",
        memory.size()
    );
    error.context(message).with_status(Status::InvalidArgument)
}
