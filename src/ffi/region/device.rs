// SPDX-License-Identifier: Apache-2.0
//! Regions of GPU memory.

use crate::error::{Result, ensure};
use crate::ffi::common::error::kvmem_error;
use crate::ffi::common::guard::call;
use crate::ffi::common::handle::Out;
use crate::ffi::common::options::{check_flags, init, options, read};
use crate::ffi::common::status::kvmem_status;
use crate::ffi::region::kvmem_region;
use crate::region::{DeviceConfig, DeviceMemory, Region};

/// How to allocate memory of a GPU.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct kvmem_device_options {
    /// sizeof(kvmem_device_options)
    pub struct_size: usize,
    /// Must be 0.
    pub flags: u64,
    /// Bytes, at least 1. In a layout's options 0: the layout says.
    pub size: u64,
    /// The GPU, as CUDA_VISIBLE_DEVICES orders them.
    pub device: i32,
    /// Must be 0.
    pub reserved: u32,
}
options!(kvmem_device_options);

/// Fills options with defaults.
///
/// @param options the caller's struct; NULL does nothing
/// @param struct_size sizeof(*options); no more is written
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_device_options_init(options: *mut kvmem_device_options, struct_size: usize) {
    // SAFETY: by contract.
    unsafe { init(options, struct_size) };
}

/// Allocates memory of a GPU. Its content is undefined.
///
/// @param options what to allocate
/// @param region gets the region; the caller destroys it
/// @param error gets the failure; may be NULL
/// @return KVMEM_STATUS_OK; KVMEM_STATUS_UNAVAILABLE_CUDA; KVMEM_STATUS_OUT_OF_RANGE for a device that is
///         not there; KVMEM_STATUS_OUT_OF_MEMORY with the bytes asked, free and of the GPU;
///         KVMEM_STATUS_INVALID_ARGUMENT; KVMEM_STATUS_CUDA
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_region_create_device(
    options: *const kvmem_device_options,
    region: *mut *mut kvmem_region,
    error: *mut *mut kvmem_error,
) -> kvmem_status {
    let body = |_: &_| {
        // SAFETY: by contract.
        let (region, options) = unsafe { (Out::new(region)?, read(options)?) };
        region.set(Region::device(DeviceMemory::allocate(&device_config(&options)?)?).into());
        Ok(())
    };
    // SAFETY: NULL or writable, by contract.
    unsafe { call(error, body) }
}

/// Those of a GPU's memory.
pub(in crate::ffi) fn device_config(options: &kvmem_device_options) -> Result<DeviceConfig> {
    check_flags("kvmem_device_options", options.flags, 0)?;
    ensure!(options.reserved == 0, InvalidArgument, "reserved is {}, it must be 0", options.reserved);
    Ok(DeviceConfig { size: options.size, ordinal: options.device })
}
