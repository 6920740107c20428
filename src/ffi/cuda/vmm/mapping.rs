// SPDX-License-Identifier: Apache-2.0
//! VMM memory that is mapped at an address.

use std::sync::Arc;

use crate::cuda::vmm::{DeviceAccess, DeviceMapping};
use crate::ffi::common::{
    Handle, borrow, call, call_new, call_out, destroy, kvmem_error, kvmem_status, not_one_of, opaque,
};
use crate::ffi::cuda::vmm::memory::kvmem_vmm_memory;
use crate::ffi::cuda::vmm::range::{kvmem_vmm_range, kvmem_vmm_span};

/// VMM memory that is mapped into a range. The mapping holds its range and its memory.
pub struct kvmem_vmm_mapping {
    handle: Handle<Arc<DeviceMapping>>,
}
opaque!(kvmem_vmm_mapping, Arc<DeviceMapping>, "mapping");

/// No access.
pub const KVMEM_ACCESS_NONE: u32 = 0;
/// Read access.
pub const KVMEM_ACCESS_READ: u32 = 1;
/// Read and write access.
pub const KVMEM_ACCESS_READ_WRITE: u32 = 3;

/// Maps memory into a range, as a whole. No GPU has access until kvmem_vmm_mapping_set_access grants it.
///
/// @param offset offset in the range in bytes; the address there must be a multiple of the granularity
/// @param span receives the addresses; its size is that of the memory. May be NULL
/// @return KVMEM_STATUS_INVALID_ARGUMENT: the address is not such a multiple, or the memory was imported with
///           a wrong size
///         KVMEM_STATUS_OUT_OF_RANGE: the memory does not fit into the range at this offset
///         KVMEM_STATUS_ALREADY_EXISTS: other memory is mapped there
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_vmm_mapping_create(
    range: *mut kvmem_vmm_range,
    offset: u64,
    memory: *mut kvmem_vmm_memory,
    span: *mut kvmem_vmm_span,
    mapping: *mut *mut kvmem_vmm_mapping,
    error: *mut *mut kvmem_error,
) -> kvmem_status {
    call_new(error, (mapping, "mapping"), |scope| {
        let mapped = DeviceMapping::create(borrow(scope, range)?, offset, borrow(scope, memory)?)?;
        if let Some(span) = span.as_mut() {
            *span = kvmem_vmm_span { address: mapped.address(), size: mapped.size() };
        }
        Ok(mapped)
    })
}

/// Sets the access of a GPU to a mapping.
///
/// @return KVMEM_STATUS_UNSUPPORTED: the GPU cannot access the GPU of the memory
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_vmm_mapping_set_access(
    mapping: *mut kvmem_vmm_mapping,
    device: i32,
    access: u32,
    error: *mut *mut kvmem_error,
) -> kvmem_status {
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

/// Returns the access of a GPU to a mapping.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_vmm_mapping_get_access(
    mapping: *const kvmem_vmm_mapping,
    device: i32,
    access: *mut u32,
    error: *mut *mut kvmem_error,
) -> kvmem_status {
    call_out(error, (access, "access"), |scope| {
        Ok(match borrow(scope, mapping)?.access(device)? {
            DeviceAccess::None => KVMEM_ACCESS_NONE,
            DeviceAccess::Read => KVMEM_ACCESS_READ,
            DeviceAccess::ReadWrite => KVMEM_ACCESS_READ_WRITE,
        })
    })
}

/// Destroys a mapping: unmaps the memory. No GPU may use its addresses any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_vmm_mapping_destroy(mapping: *mut kvmem_vmm_mapping) {
    destroy(mapping);
}
