// SPDX-License-Identifier: Apache-2.0
//! Physical memory without an address, as this process creates it. Imported memory is in `handles`.
#![allow(unsafe_code)]

use std::sync::Arc;

use super::properties::{AllocationProperties, Granularity, Location};
use crate::base::{Error, Result, ensure, log};
use crate::cuda::driver::{self, Driver};
use crate::cuda::driver_structs::RawProperties;
use crate::cuda::ending::released;
use crate::cuda::{Device, deferred, memory};

/// How this process obtained the memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HandleOrigin {
    /// Created here.
    Created,
    /// From a handle of another process, with the size that the caller passed.
    Imported,
    /// From a mapping of other code in this process.
    Retained,
}

/// Physical memory without an address.
pub struct PhysicalMemory {
    pub(super) driver: &'static Driver,
    pub(super) handle: u64,
    pub(super) origin: HandleOrigin,
    size: u64,
    properties: AllocationProperties,
}

impl PhysicalMemory {
    /// Creates memory; `size` must be a multiple of the granularity.
    pub fn create(size: u64, properties: AllocationProperties) -> Result<Arc<Self>> {
        let ordinal = match properties.location {
            Location::Device(ordinal) => Some(ordinal),
            Location::HostNuma(_) => None,
        };
        deferred::allocate(ordinal, || Self::create_now(size, properties))
    }

    fn create_now(size: u64, properties: AllocationProperties) -> Result<Arc<Self>> {
        let driver = driver::get()?;
        let raw = properties.raw()?;
        check_size(size, &properties)?;
        let mut handle = 0;
        // SAFETY: the properties and the output live through the call.
        let result = unsafe { driver.api.mem_create.call(&mut handle, size as usize, &raw, 0) };
        driver
            .check(result, format_args!("create {size} bytes on {}", properties.location))
            .map_err(|error| with_free_memory(error, properties.location, size))?;
        log!(Trace, "memory of {size} bytes created on {}", properties.location);
        Ok(Arc::new(Self { driver, handle, origin: HandleOrigin::Created, size, properties }))
    }

    /// Memory of a handle that this process already has. The driver reports its properties, but reports no size before it is
    /// mapped.
    pub(super) fn from_handle(held: OwnedHandle, size: u64, expected: Option<Location>) -> Result<Arc<Self>> {
        let properties = held.properties()?;
        if let Some(expected) = expected {
            ensure!(
                properties.location == expected,
                InvalidArgument,
                "the memory is located on {}, not on {expected}",
                properties.location
            );
        }
        check_size(size, &properties)?;
        let OwnedHandle { driver, handle, origin } = held;
        std::mem::forget(held);
        Ok(Arc::new(Self { driver, handle, origin, size, properties }))
    }

    /// Its size in bytes; of imported memory, the size that was passed to the import.
    pub fn size(&self) -> u64 {
        self.size
    }

    pub fn properties(&self) -> AllocationProperties {
        self.properties
    }
}

impl Drop for PhysicalMemory {
    fn drop(&mut self) {
        log!(Trace, "memory of {} bytes on {} released", self.size, self.properties.location);
        // SAFETY: this value owns one reference. Mappings and exported descriptors keep the memory itself.
        let result = unsafe { self.driver.api.mem_release.call(self.handle) };
        released(self.driver.check(result, format_args!("release {} bytes", self.size)));
    }
}

/// A new handle from the driver. It becomes a [`PhysicalMemory`], or is released on drop.
pub(super) struct OwnedHandle {
    pub(super) driver: &'static Driver,
    pub(super) handle: u64,
    pub(super) origin: HandleOrigin,
}

impl OwnedHandle {
    fn properties(&self) -> Result<AllocationProperties> {
        let mut raw = RawProperties::empty();
        // SAFETY: a live handle; the output lives through the call.
        let result = unsafe { self.driver.api.mem_get_properties.call(&mut raw, self.handle) };
        self.driver.check(result, "get the properties of the memory")?;
        AllocationProperties::from_raw(&raw)
    }
}

impl Drop for OwnedHandle {
    fn drop(&mut self) {
        // SAFETY: this value owns one reference.
        let result = unsafe { self.driver.api.mem_release.call(self.handle) };
        released(self.driver.check(result, "release memory that is not used"));
    }
}

fn with_free_memory(error: Error, location: Location, size: u64) -> Error {
    let Location::Device(ordinal) = location else { return error };
    match Device::get(ordinal) {
        Ok(device) => memory::with_free_memory(error, device, size),
        Err(_) => error,
    }
}

fn check_size(size: u64, properties: &AllocationProperties) -> Result<()> {
    let granularity = properties.granularity(Granularity::Minimum)?;
    ensure!(size > 0, InvalidArgument, "size is 0 bytes; it must be at least 1");
    ensure!(
        size.is_multiple_of(granularity),
        InvalidArgument,
        "size is {size} bytes; it must be a multiple of the granularity, {granularity}"
    );
    Ok(())
}
