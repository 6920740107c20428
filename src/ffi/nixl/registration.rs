// SPDX-License-Identifier: Apache-2.0
//! Registrations.

use std::ffi::c_char;

use crate::error::{Error, Status};
use crate::ffi::agent::{kvmem_agent, kvmem_registration, memory_type};
use crate::ffi::common::error::kvmem_error;
use crate::ffi::common::guard::call;
use crate::ffi::common::handle::{Out, borrow, destroy};
use crate::ffi::common::pointer::out;
use crate::ffi::common::status::kvmem_status;
use crate::ffi::common::text;
use crate::ffi::region::kvmem_region;
use crate::region::Registration;

/// Registers a region with the backends that the agent has now and that accept its type of memory. Backends
/// that are created later do not know the region.
///
/// @param region the region
/// @param agent the agent
/// @param registration gets the registration; the caller destroys it
/// @param error gets the failure; may be NULL
/// @return KVMEM_STATUS_OK: at least one backend accepts it.
///         KVMEM_STATUS_ALREADY_EXISTS: the region is registered with this agent.
///         KVMEM_STATUS_NIXL: no backend accepts it.
///         KVMEM_STATUS_UNSUPPORTED: a view of an elastic region, or memory of several mappings.
///         KVMEM_STATUS_INVALID_STATE: memory of a GPU whose context was destroyed.
///         KVMEM_STATUS_PERMISSION_DENIED: memory that may only be read, which NIXL would let peers write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_region_register(
    region: *mut kvmem_region,
    agent: *mut kvmem_agent,
    registration: *mut *mut kvmem_registration,
    error: *mut *mut kvmem_error,
) -> kvmem_status {
    // SAFETY: by contract.
    unsafe {
        call(error, |scope| {
            let registration = Out::new(registration)?;
            let (region, agent) = (borrow(scope, region)?, borrow(scope, agent)?);
            registration.set(Registration::create(region, &agent.agent)?);
            Ok(())
        })
    }
}

/// What NIXL knows a region as.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct kvmem_registration_info {
    /// The first byte: an address, or an offset in the file.
    pub address: u64,
    /// Bytes.
    pub size: u64,
    /// 0 for host memory, the ordinal of a GPU, the fd of a file.
    pub device_id: u64,
    /// A KVMEM_MEMORY_* value.
    pub memory_type: u32,
    /// 1 while it is registered, 0 after kvmem_registration_deregister.
    pub registered: u32,
}

/// Tells what NIXL knows the region as.
///
/// @param registration a registration
/// @param info gets the answer
/// @param error gets the failure; may be NULL
/// @return KVMEM_STATUS_OK; KVMEM_STATUS_INVALID_ARGUMENT for a NULL pointer
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_registration_get_info(
    registration: *const kvmem_registration,
    info: *mut kvmem_registration_info,
    error: *mut *mut kvmem_error,
) -> kvmem_status {
    // SAFETY: by contract.
    unsafe {
        call(error, |scope| {
            let info = out(info, "info")?;
            let registration = borrow(scope, registration)?;
            let descriptor = registration.region().descriptor();
            info.write(kvmem_registration_info {
                address: descriptor.address,
                size: descriptor.size,
                device_id: descriptor.device_id,
                memory_type: memory_type(descriptor.memory_type),
                registered: registration.is_registered().into(),
            });
            Ok(())
        })
    }
}

/// The name of an agent a region is registered with.
///
/// @param region a region
/// @param index which one, below the info's registration_count
/// @param buffer gets the name and its NUL; may be NULL with capacity 0, to ask the size alone
/// @param capacity bytes of the buffer
/// @param size gets the bytes the name needs with its NUL, also when the buffer is too small
/// @param error gets the failure; may be NULL
/// @return KVMEM_STATUS_OK; KVMEM_STATUS_NOT_FOUND past the last; KVMEM_STATUS_OUT_OF_RANGE when the buffer
///         is too small
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_region_get_agent(
    region: *const kvmem_region,
    index: usize,
    buffer: *mut c_char,
    capacity: usize,
    size: *mut usize,
    error: *mut *mut kvmem_error,
) -> kvmem_status {
    // SAFETY: by contract.
    unsafe {
        call(error, |scope| {
            let answer = text::Answer::new(buffer, capacity, size)?;
            let registrations = borrow(scope, region)?.registrations();
            let past = || {
                let message =
                    format!("there is no registration {index}, the region has {}", registrations.len());
                Error::new(Status::NotFound, message)
            };
            let registration = registrations.get(index).ok_or_else(past)?;
            answer.set(registration.agent().name().as_bytes())
        })
    }
}

/// Deregisters a region from the backends that it was registered with. kvmem_registration_destroy does so
/// too, but reports no failure.
///
/// @param registration a registration; the handle stays valid and must be destroyed
/// @param error gets the failure; may be NULL
/// @return KVMEM_STATUS_OK.
///         KVMEM_STATUS_BUSY: layouts or transfers hold the registration.
///         KVMEM_STATUS_INVALID_STATE: it was deregistered before.
///         KVMEM_STATUS_NIXL: NIXL failed. The memory may still be in use, so kvmem never frees it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_registration_deregister(
    registration: *mut kvmem_registration,
    error: *mut *mut kvmem_error,
) -> kvmem_status {
    // SAFETY: by contract.
    unsafe { call(error, |scope| borrow(scope, registration)?.deregister()) }
}

/// Destroys a registration handle. The region is deregistered when nothing holds the registration.
///
/// @param registration a registration that no other call uses; NULL does nothing
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_registration_destroy(registration: *mut kvmem_registration) {
    // SAFETY: by contract.
    unsafe { destroy(registration) };
}
