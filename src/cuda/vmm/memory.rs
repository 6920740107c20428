// SPDX-License-Identifier: Apache-2.0
//! Memory without an address: created here. What comes from elsewhere is in `handles`.

use std::sync::Arc;

use super::properties::{AllocationProperties, Granularity, Location};
use crate::cuda::driver::{self, Driver};
use crate::cuda::raw::RawProperties;
use crate::cuda::{Device, memory};
use crate::error::{Error, Result, ensure};
use crate::log::log;

/// How this process came by memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HandleOrigin {
    /// Created here.
    Created,
    /// From a handle of another process's, with the size we were told.
    Imported,
    /// Mapped by somebody else in this process.
    Retained,
}

/// Memory without an address.
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
        let driver = driver::get()?;
        let raw = properties.raw()?;
        check_size(size, &properties)?;
        let mut handle = 0;
        // SAFETY: the properties and the output live through the call.
        let answer = unsafe { driver.api.mem_create.call(&mut handle, size as usize, &raw, 0) };
        driver
            .check(answer, format_args!("create {size} bytes on {}", properties.location))
            .map_err(|error| with_room(error, properties.location, size))?;
        log!(Trace, "memory of {size} bytes created on {}", properties.location);
        Ok(Arc::new(Self { driver, handle, origin: HandleOrigin::Created, size, properties }))
    }

    /// Memory of a handle that this process holds already. What it is, the driver says; of its size the driver says
    /// nothing until it is mapped.
    pub(super) fn of_handle(held: OwnedHandle, size: u64, expected: Option<Location>) -> Result<Arc<Self>> {
        let properties = held.properties()?;
        if let Some(expected) = expected {
            ensure!(
                properties.location == expected,
                InvalidArgument,
                "the memory lies on {}, not on {expected}",
                properties.location
            );
        }
        check_size(size, &properties)?;
        let OwnedHandle { driver, handle, origin } = held;
        std::mem::forget(held);
        Ok(Arc::new(Self { driver, handle, origin, size, properties }))
    }

    /// Its bytes; of imported memory, as the importer was told.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// What it is.
    pub fn properties(&self) -> AllocationProperties {
        self.properties
    }
}

impl Drop for PhysicalMemory {
    fn drop(&mut self) {
        log!(Trace, "memory of {} bytes on {} released", self.size, self.properties.location);
        // SAFETY: held once by this value. Mappings and exported descriptors keep the memory itself.
        let answer = unsafe { self.driver.api.mem_release.call(self.handle) };
        if let Err(error) = self.driver.check(answer, format_args!("release {} bytes", self.size)) {
            log!(Error, "{error}");
        }
    }
}

/// A handle the driver has just given us, on its way to becoming a [`PhysicalMemory`]: released when it does not.
pub(super) struct OwnedHandle {
    pub(super) driver: &'static Driver,
    pub(super) handle: u64,
    pub(super) origin: HandleOrigin,
}

impl OwnedHandle {
    fn properties(&self) -> Result<AllocationProperties> {
        let mut raw = RawProperties::empty();
        // SAFETY: a live handle; the output lives through the call.
        let answer = unsafe { self.driver.api.mem_get_properties.call(&mut raw, self.handle) };
        self.driver.check(answer, "ask what the memory is")?;
        AllocationProperties::from_raw(&raw)
    }
}

impl Drop for OwnedHandle {
    fn drop(&mut self) {
        // SAFETY: held once by this value.
        let answer = unsafe { self.driver.api.mem_release.call(self.handle) };
        if let Err(error) = self.driver.check(answer, "release memory that is not used after all") {
            log!(Error, "{error}");
        }
    }
}

fn with_room(error: Error, location: Location, size: u64) -> Error {
    let Location::Device(ordinal) = location else { return error };
    match Device::get(ordinal) {
        Ok(device) => memory::with_room(error, device, size),
        Err(_) => error,
    }
}

fn check_size(size: u64, properties: &AllocationProperties) -> Result<()> {
    let granularity = properties.granularity(Granularity::Minimum)?;
    ensure!(size > 0, InvalidArgument, "there is no memory of 0 bytes");
    ensure!(
        size.is_multiple_of(granularity),
        InvalidArgument,
        "{size} bytes are no multiple of the granularity {granularity}"
    );
    Ok(())
}
