// SPDX-License-Identifier: Apache-2.0
//! Memory at an address.

use std::sync::Arc;

use crate::cuda::vmm::{DeviceAccess, DeviceMapping};
use crate::ffi::common::error::kvmem_error;
use crate::ffi::common::guard::call;
use crate::ffi::common::handle::{Handle, Out, borrow, destroy, opaque};
use crate::ffi::common::options::not_one_of;
use crate::ffi::common::pointer::out;
use crate::ffi::common::status::kvmem_status;
use crate::ffi::cuda::vmm::memory::kvmem_vmm_memory;
use crate::ffi::cuda::vmm::range::kvmem_vmm_range;

/// Memory at an address. It holds its range and its memory, so the three may be destroyed in any order.
///
/// Threads: all functions on one mapping may run at once, except kvmem_vmm_mapping_destroy.
pub struct kvmem_vmm_mapping {
    handle: Handle<Arc<DeviceMapping>>,
}
opaque!(kvmem_vmm_mapping, Arc<DeviceMapping>, "mapping");

/// Nothing.
pub const KVMEM_ACCESS_NONE: u32 = 0;
/// Read.
pub const KVMEM_ACCESS_READ: u32 = 1;
/// Read and write.
pub const KVMEM_ACCESS_READ_WRITE: u32 = 3;

/// Maps all of a memory into a range. No GPU may touch it until kvmem_vmm_mapping_set_access says so.
///
/// @param range where
/// @param offset bytes from the start of the range, a multiple of the granularity
/// @param memory what
/// @param mapping gets the mapping; the caller destroys it
/// @param error gets the failure; may be NULL
/// @return KVMEM_STATUS_OK; KVMEM_STATUS_INVALID_ARGUMENT for an offset that is no multiple, and for memory
///         that was imported with another size than it has;
///         KVMEM_STATUS_OUT_OF_RANGE when it does not fit; KVMEM_STATUS_ALREADY_EXISTS where something is
///         mapped; KVMEM_STATUS_CUDA
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_vmm_mapping_create(
    range: *mut kvmem_vmm_range,
    offset: u64,
    memory: *mut kvmem_vmm_memory,
    mapping: *mut *mut kvmem_vmm_mapping,
    error: *mut *mut kvmem_error,
) -> kvmem_status {
    // SAFETY: by contract.
    unsafe {
        call(error, |scope| {
            let mapping = Out::new(mapping)?;
            mapping.set(DeviceMapping::create(borrow(scope, range)?, offset, borrow(scope, memory)?)?);
            Ok(())
        })
    }
}

/// Says what a GPU may do with a mapping.
///
/// @param mapping a mapping
/// @param device the GPU, as CUDA_VISIBLE_DEVICES orders them
/// @param access a KVMEM_ACCESS_* value
/// @param error gets the failure; may be NULL
/// @return KVMEM_STATUS_OK; KVMEM_STATUS_OUT_OF_RANGE for a device that is not there;
///         KVMEM_STATUS_INVALID_ARGUMENT for an access that is none; KVMEM_STATUS_UNSUPPORTED for a GPU that
///         does not reach the memory; KVMEM_STATUS_CUDA
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_vmm_mapping_set_access(
    mapping: *mut kvmem_vmm_mapping,
    device: i32,
    access: u32,
    error: *mut *mut kvmem_error,
) -> kvmem_status {
    // SAFETY: by contract.
    unsafe {
        call(error, |scope| {
            let access = match access {
                KVMEM_ACCESS_NONE => DeviceAccess::None,
                KVMEM_ACCESS_READ => DeviceAccess::Read,
                KVMEM_ACCESS_READ_WRITE => DeviceAccess::ReadWrite,
                other => return Err(not_one_of("access", other, "KVMEM_ACCESS_*")),
            };
            borrow(scope, mapping)?.set_access(device, access)
        })
    }
}

/// Tells what a GPU may do with a mapping.
///
/// @param mapping a mapping
/// @param device the GPU, as CUDA_VISIBLE_DEVICES orders them
/// @param access gets a KVMEM_ACCESS_* value
/// @param error gets the failure; may be NULL
/// @return KVMEM_STATUS_OK; KVMEM_STATUS_OUT_OF_RANGE for a device that is not there; KVMEM_STATUS_CUDA
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_vmm_mapping_get_access(
    mapping: *const kvmem_vmm_mapping,
    device: i32,
    access: *mut u32,
    error: *mut *mut kvmem_error,
) -> kvmem_status {
    // SAFETY: by contract.
    unsafe {
        call(error, |scope| {
            let access = out(access, "access")?;
            access.write(match borrow(scope, mapping)?.access(device)? {
                DeviceAccess::None => KVMEM_ACCESS_NONE,
                DeviceAccess::Read => KVMEM_ACCESS_READ,
                DeviceAccess::ReadWrite => KVMEM_ACCESS_READ_WRITE,
            });
            Ok(())
        })
    }
}

/// Where a mapping lies.
///
/// @param mapping a mapping
/// @param address gets its first address
/// @param size gets its bytes
/// @param error gets the failure; may be NULL
/// @return KVMEM_STATUS_OK; KVMEM_STATUS_INVALID_ARGUMENT for a NULL pointer
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_vmm_mapping_get_span(
    mapping: *const kvmem_vmm_mapping,
    address: *mut u64,
    size: *mut u64,
    error: *mut *mut kvmem_error,
) -> kvmem_status {
    // SAFETY: by contract.
    unsafe {
        call(error, |scope| {
            let (address, size) = (out(address, "address")?, out(size, "size")?);
            let mapping = borrow(scope, mapping)?;
            address.write(mapping.address());
            size.write(mapping.size());
            Ok(())
        })
    }
}

/// Unmaps: its addresses must not be used any more, by any GPU.
///
/// @param mapping a mapping that no other call uses; NULL does nothing
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_vmm_mapping_destroy(mapping: *mut kvmem_vmm_mapping) {
    // SAFETY: by contract.
    unsafe { destroy(mapping) };
}
