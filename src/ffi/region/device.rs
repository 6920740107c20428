// SPDX-License-Identifier: Apache-2.0
//! Regions of GPU memory.

use crate::base::Result;
use crate::ffi::common::{call_new, check_flags, check_reserved, kvmem_error, kvmem_status, options, read};
use crate::ffi::region::kvmem_region;
use crate::region::{DeviceConfig, OwnedDevice, Region};

/// Options of kvmem_region_create_device.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct kvmem_device_options {
    /// sizeof(kvmem_device_options)
    pub struct_size: usize,
    /// Bytes, at least 1.
    pub size: u64,
    /// GPU.
    pub device: i32,
    /// Must be 0.
    pub reserved: u32,
    /// Must be 0.
    pub flags: u64,
}
options!(kvmem_device_options);

/// Allocates GPU memory. Its content is undefined.
///
/// @return KVMEM_STATUS_OUT_OF_MEMORY: the GPU has less free memory. The message has the bytes requested,
///           free and in total
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_region_create_device(
    options: *const kvmem_device_options,
    region: *mut *mut kvmem_region,
    error: *mut *mut kvmem_error,
) -> kvmem_status {
    call_new(error, (region, "region"), |_| {
        let options = read(options)?;
        Ok(Region::new(OwnedDevice::allocate(&device_config(&options)?)?).into())
    })
}

/// The options of GPU memory as core types.
pub(in crate::ffi) fn device_config(options: &kvmem_device_options) -> Result<DeviceConfig> {
    check_flags("kvmem_device_options", options.flags, 0)?;
    check_reserved("kvmem_device_options", options.reserved)?;
    Ok(DeviceConfig { size: options.size, ordinal: options.device })
}
