// SPDX-License-Identifier: Apache-2.0
//! Ranges of device addresses.

use std::sync::Arc;

use crate::cuda::vmm::AddressRange;
use crate::ffi::common::{Handle, call_new, destroy, kvmem_error, kvmem_status, opaque};

/// A reserved range of device addresses. It has no memory until memory is mapped into it.
pub struct kvmem_vmm_range {
    handle: Handle<Arc<AddressRange>>,
}
opaque!(kvmem_vmm_range, Arc<AddressRange>, "range");

/// Device addresses of a range or of a mapping.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct kvmem_vmm_span {
    /// First address.
    pub address: u64,
    /// Bytes.
    pub size: u64,
}

/// Reserves a range of device addresses. Allocates no memory.
///
/// @param size bytes, a multiple of the page size; only multiples of the granularity can be mapped fully
/// @param alignment alignment of the first address in bytes, a power of two; 0: the driver's default
/// @param span receives the addresses; may be NULL
/// @return KVMEM_STATUS_INVALID_ARGUMENT: the size is 0 or not a multiple of the page size, or the alignment
///           is not a power of two
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_vmm_range_create(
    size: u64,
    alignment: u64,
    span: *mut kvmem_vmm_span,
    range: *mut *mut kvmem_vmm_range,
    error: *mut *mut kvmem_error,
) -> kvmem_status {
    call_new(error, (range, "range"), |_| {
        let reserved = AddressRange::reserve(size, alignment)?;
        if let Some(span) = span.as_mut() {
            *span = kvmem_vmm_span { address: reserved.address(), size: reserved.size() };
        }
        Ok(reserved)
    })
}

/// Destroys a range handle. The addresses are freed when nothing is mapped there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_vmm_range_destroy(range: *mut kvmem_vmm_range) {
    destroy(range);
}
