// SPDX-License-Identifier: Apache-2.0
//! Devices and their attributes. Nothing here creates a context.
#![allow(unsafe_code)]

use std::ffi::c_int;

use cudarc::driver::sys::{CUdevice, CUuuid};

use super::driver::{self, Driver};
use crate::base::{Result, ensure, fail};

/// Attributes, by their numbers in the driver's ABI.
const MULTIPROCESSOR_COUNT: c_int = 16;
const L2_CACHE_SIZE: c_int = 38;
const VIRTUAL_MEMORY_MANAGEMENT: c_int = 102;
const HANDLE_TYPE_POSIX_FD: c_int = 103;
const GPU_DIRECT_RDMA_WITH_VMM: c_int = 110;
const READ_ONLY_HOST_REGISTER: c_int = 113;
const HOST_NUMA_ID: c_int = 134;

/// A device this process may use.
#[derive(Clone, Copy)]
pub struct Device {
    driver: &'static Driver,
    ordinal: i32,
    raw: CUdevice,
}

/// A device's UUID. Tools and CUDA_VISIBLE_DEVICES write it with a prefix: GPU- or, for a MIG instance, MIG-. The UUID does not
/// show which of them, so this writes none.
pub struct UuidText<'a>(pub &'a [u8; 16]);

impl std::fmt::Display for UuidText<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("UUID ")?;
        for (index, byte) in self.0.iter().enumerate() {
            let dash = if matches!(index, 4 | 6 | 8 | 10) { "-" } else { "" };
            write!(f, "{dash}{byte:02x}")?;
        }
        Ok(())
    }
}

impl Device {
    /// The device with an ordinal, in the order of CUDA_VISIBLE_DEVICES.
    pub fn get(ordinal: i32) -> Result<Self> {
        let driver = driver::get()?;
        ensure!(
            (0..driver.device_count()).contains(&ordinal),
            OutOfRange,
            "there is no device {ordinal}; this process may use {} devices, numbered from 0",
            driver.device_count()
        );
        let mut raw = 0;
        // SAFETY: the output lives through the call.
        let result = unsafe { driver.api.device_get.call(&mut raw, ordinal) };
        driver.check(result, format_args!("get device {ordinal}"))?;
        Ok(Self { driver, ordinal, raw })
    }

    pub fn by_uuid(uuid: &[u8; 16]) -> Result<Self> {
        let count = driver::get()?.device_count();
        for ordinal in 0..count {
            let device = Self::get(ordinal)?;
            if device.uuid()? == *uuid {
                return Ok(device);
            }
        }
        fail!(
            NotFound,
            "none of the {count} GPUs that this process may use has the {}: it is on another machine, or hidden by \
             CUDA_VISIBLE_DEVICES or the container",
            UuidText(uuid)
        )
    }

    pub fn ordinal(&self) -> i32 {
        self.ordinal
    }

    pub fn driver(&self) -> &'static Driver {
        self.driver
    }

    pub(super) fn raw(&self) -> CUdevice {
        self.raw
    }

    /// The NUMA node it is attached to, if the driver knows it.
    pub fn numa_node(&self) -> Option<u32> {
        self.attribute(HOST_NUMA_ID).and_then(|node| u32::try_from(node).ok())
    }

    /// Bytes of its level 2 cache; 0 if the driver does not know it.
    pub fn cache_size(&self) -> u64 {
        self.count(L2_CACHE_SIZE).into()
    }

    /// Whether it supports virtual memory management, according to its attribute.
    pub fn has_vmm(&self) -> bool {
        self.has(VIRTUAL_MEMORY_MANAGEMENT)
    }

    /// Whether its VMM memory can be exported as a file descriptor, according to its attribute.
    pub fn exports_posix_fd(&self) -> bool {
        self.has(HANDLE_TYPE_POSIX_FD)
    }

    /// Whether read-only host memory can be page-locked for it, according to its attribute.
    pub fn locks_read_only(&self) -> bool {
        self.has(READ_ONLY_HOST_REGISTER)
    }

    /// Whether its VMM memory can be registered for RDMA, according to its attribute.
    pub fn registers_vmm(&self) -> bool {
        self.has(GPU_DIRECT_RDMA_WITH_VMM)
    }

    pub fn multiprocessors(&self) -> u32 {
        self.count(MULTIPROCESSOR_COUNT).max(1)
    }

    /// Whether this device can map memory of another device.
    pub fn can_access(&self, other: &Self) -> Result<bool> {
        if self.raw == other.raw {
            return Ok(true);
        }
        let mut can = 0;
        // SAFETY: valid devices; the output lives through the call.
        let result = unsafe { self.driver.api.device_can_access_peer.call(&mut can, self.raw, other.raw) };
        let (from, to) = (self.ordinal, other.ordinal);
        self.driver.check(result, format_args!("get whether device {from} can access device {to}"))?;
        Ok(can != 0)
    }

    /// The devices whose memory it can map: one bit per ordinal below 64.
    pub(super) fn accessible(&self) -> Result<u64> {
        (0..self.driver.device_count().min(64)).try_fold(0, |reached, ordinal| {
            let bit = u64::from(self.can_access(&Self::get(ordinal)?)?) << ordinal;
            Ok(reached | bit)
        })
    }

    pub(super) fn name(&self) -> Result<String> {
        let mut text = [0u8; 256];
        // SAFETY: a valid device; 255 bytes leave a NUL at the end.
        let result = unsafe { self.driver.api.device_get_name.call(text.as_mut_ptr().cast(), 255, self.raw) };
        self.driver.check(result, format_args!("get the name of device {}", self.ordinal))?;
        let length = text.iter().position(|byte| *byte == 0).unwrap_or(text.len());
        Ok(String::from_utf8_lossy(&text[..length]).into_owned())
    }

    /// Its UUID, which is identical in every process.
    pub fn uuid(&self) -> Result<[u8; 16]> {
        let mut uuid = CUuuid { bytes: [0; 16] };
        // SAFETY: a valid device; the output lives through the call.
        let result = unsafe { self.driver.api.device_get_uuid.call(&mut uuid, self.raw) };
        self.driver.check(result, format_args!("get the UUID of device {}", self.ordinal))?;
        Ok(uuid.bytes.map(|byte| byte as u8))
    }

    /// Its memory in bytes. Needs no context.
    pub(super) fn total_memory(&self) -> Result<u64> {
        let mut bytes = 0;
        // SAFETY: a valid device; the output lives through the call.
        let result = unsafe { self.driver.api.device_total_mem.call(&mut bytes, self.raw) };
        self.driver.check(result, format_args!("get the memory size of device {}", self.ordinal))?;
        Ok(bytes as u64)
    }

    pub(super) fn count(&self, attribute: c_int) -> u32 {
        self.attribute(attribute).and_then(|value| u32::try_from(value).ok()).unwrap_or(0)
    }

    pub(super) fn has(&self, attribute: c_int) -> bool {
        self.attribute(attribute).is_some_and(|value| value != 0)
    }

    /// An attribute; `None` if the driver is too old to know it.
    pub(super) fn attribute(&self, attribute: c_int) -> Option<c_int> {
        let mut value = 0;
        // SAFETY: a valid device; the output lives through the call.
        let result = unsafe { self.driver.api.device_get_attribute.call(&mut value, attribute, self.raw) };
        result.is_success().then_some(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_uuid_has_the_format_of_nvidia_smi() {
        let uuid = std::array::from_fn(|index| index as u8 * 17);
        assert_eq!(UuidText(&uuid).to_string(), "UUID 00112233-4455-6677-8899-aabbccddeeff");
    }
}
