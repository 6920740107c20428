// SPDX-License-Identifier: Apache-2.0
//! The CUDA driver.

use super::error::kvmem_error;
use super::guard::call;
use super::handle::out;
use super::status::kvmem_status;
use crate::cuda::driver;

/// The CUDA driver of this machine.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct kvmem_cuda_info {
    /// The CUDA version it implements: 1000 × major + 10 × minor.
    pub driver_version: i32,
    /// Devices this process may use; at least 1.
    pub device_count: i32,
}

/// Finds and initialises the CUDA driver. No context is created.
///
/// @param info gets what was found
/// @param error gets the failure; may be NULL
/// @return KVMEM_STATUS_OK; KVMEM_STATUS_UNAVAILABLE_CUDA without a driver, with one too old, or without a device
///         (the message says which)
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_cuda_get_info(
    info: *mut kvmem_cuda_info,
    error: *mut *mut kvmem_error,
) -> kvmem_status {
    let body = |_: &_| {
        // SAFETY: NULL or writable, by contract.
        let info = unsafe { out(info, "info") }?;
        let driver = driver::get()?;
        info.write(kvmem_cuda_info { driver_version: driver.version(), device_count: driver.device_count() });
        Ok(())
    };
    // SAFETY: NULL or writable, by contract.
    unsafe { call(error, body) }
}
