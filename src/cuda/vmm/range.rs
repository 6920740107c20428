// SPDX-License-Identifier: Apache-2.0
//! Reserved addresses.
#![allow(unsafe_code)]

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::base::{Mutex, MutexGuard, Result, ensure, log};
use crate::cuda::driver::{self, Driver};
use crate::cuda::ending::released;

/// A range of reserved addresses. Accessing an address is invalid until memory is mapped there.
pub struct AddressRange {
    pub(super) driver: &'static Driver,
    pub(super) address: u64,
    pub(super) size: u64,
    /// Offset and size of each mapping.
    mapped: Mutex<BTreeMap<u64, u64>>,
}

impl AddressRange {
    /// Reserves addresses. With an `alignment` of 0 the driver chooses one.
    pub fn reserve(size: u64, alignment: u64) -> Result<Arc<Self>> {
        let driver = driver::get()?;
        ensure!(size > 0, InvalidArgument, "size is 0 bytes; it must be at least 1");
        ensure!(
            alignment == 0 || alignment.is_power_of_two(),
            InvalidArgument,
            "alignment is {alignment}, it must be a power of two"
        );
        let unit = rustix::param::page_size() as u64;
        ensure!(
            size.is_multiple_of(unit),
            InvalidArgument,
            "size is {size} bytes; it must be a multiple of the page size, {unit}"
        );
        let mut address = 0;
        // SAFETY: the output lives through the call; no memory of this process changes.
        let result = unsafe {
            driver.api.mem_address_reserve.call(&mut address, size as usize, alignment as usize, 0, 0)
        };
        driver.check(result, format_args!("reserve {size} bytes of addresses"))?;
        log!(Trace, "{size} bytes of addresses reserved at {address:#x}");
        Ok(Arc::new(Self { driver, address, size, mapped: Mutex::default() }))
    }

    /// Its first address.
    pub fn address(&self) -> u64 {
        self.address
    }

    pub fn size(&self) -> u64 {
        self.size
    }

    pub(super) fn mapped(&self) -> MutexGuard<'_, BTreeMap<u64, u64>> {
        self.mapped.lock()
    }
}

impl Drop for AddressRange {
    fn drop(&mut self) {
        log!(Trace, "{} bytes of addresses at {:#x} freed", self.size, self.address);
        // SAFETY: reserved by this value. Every mapping in it holds it, so no mapping is left.
        let result = unsafe { self.driver.api.mem_address_free.call(self.address, self.size as usize) };
        released(self.driver.check(result, format_args!("free {} bytes of addresses", self.size)));
    }
}
