// SPDX-License-Identifier: Apache-2.0
//! Registrations.

use crate::base::ensure;
use crate::ffi::agent::{kvmem_agent, kvmem_registration, memory_type};
use crate::ffi::common::{
    blob, borrow, call, call_new, call_out, destroy, kvmem_blob, kvmem_error, kvmem_status,
};
use crate::ffi::region::kvmem_region;
use crate::region::Registration;

/// Registers a region with an agent: with all its backends that accept the type of the memory. Backends that
/// are created later do not get the region.
///
/// @return KVMEM_STATUS_OK: at least one backend accepts the region
///         KVMEM_STATUS_ALREADY_EXISTS: the region is registered with this agent
///         KVMEM_STATUS_UNSUPPORTED: a view of elastic memory, objects or block storage; or several mappings
///         KVMEM_STATUS_INVALID_STATE: the context of the GPU memory was reset or destroyed
///         KVMEM_STATUS_PERMISSION_DENIED: the memory is read-only, and NIXL would permit peers to write it
///         KVMEM_STATUS_NIXL: no backend accepts the region
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_region_register(
    region: *mut kvmem_region,
    agent: *mut kvmem_agent,
    registration: *mut *mut kvmem_registration,
    error: *mut *mut kvmem_error,
) -> kvmem_status {
    call_new(error, (registration, "registration"), |scope| {
        let (region, agent) = (borrow(scope, region)?, borrow(scope, agent)?);
        Registration::create(region, &agent.agent)
    })
}

/// Properties of a registration, as NIXL knows them.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct kvmem_registration_info {
    /// Address of the first byte, or its offset in the file or block device.
    pub address: u64,
    /// Size in bytes.
    pub size: u64,
    /// 0 for host memory, the ordinal of a GPU, the file descriptor of a file, the number of a block device,
    /// the device id of the first object; the others have the following ones.
    pub device_id: u64,
    /// KVMEM_MEMORY_* value.
    pub memory_type: u32,
    /// 1; 0 after kvmem_registration_deregister.
    pub registered: u32,
}

/// Returns the properties of a registration.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_registration_get_info(
    registration: *const kvmem_registration,
    info: *mut kvmem_registration_info,
    error: *mut *mut kvmem_error,
) -> kvmem_status {
    call_out(error, (info, "info"), |scope| {
        let registration = borrow(scope, registration)?;
        let descriptor = registration.region().descriptor();
        Ok(kvmem_registration_info {
            address: descriptor.address,
            size: descriptor.size,
            device_id: descriptor.device_id,
            memory_type: memory_type(descriptor.memory_type),
            registered: registration.is_registered().into(),
        })
    })
}

/// Returns the name of an agent that a region is registered with.
///
/// @param index less than registration_count of kvmem_region_info
/// @return KVMEM_STATUS_NOT_FOUND: the index is too large
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_region_get_agent(
    region: *const kvmem_region,
    index: usize,
    name: *mut *mut kvmem_blob,
    error: *mut *mut kvmem_error,
) -> kvmem_status {
    call_new(error, (name, "name"), |scope| {
        let mut agents = borrow(scope, region)?.agents();
        let count = agents.len();
        ensure!(index < count, NotFound, "index is {index}, and the region has {count} registrations");
        Ok(blob::value(agents.swap_remove(index).into_bytes()))
    })
}

/// Deregisters a region, and reports whether that failed. kvmem_registration_destroy reports nothing.
///
/// @param registration a registration; the handle stays valid and must be destroyed
/// @return KVMEM_STATUS_BUSY: layouts, transfers or requests use the registration
///         KVMEM_STATUS_INVALID_STATE: the region was already deregistered
///         KVMEM_STATUS_NIXL: NIXL failed; kvmem never frees the memory, because it may still be in use
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_registration_deregister(
    registration: *mut kvmem_registration,
    error: *mut *mut kvmem_error,
) -> kvmem_status {
    call(error, |scope| borrow(scope, registration)?.deregister())
}

/// Destroys a registration handle. The region is deregistered when no layout or transfer uses it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_registration_destroy(registration: *mut kvmem_registration) {
    destroy(registration);
}
