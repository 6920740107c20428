// SPDX-License-Identifier: Apache-2.0
//! Ranges of device addresses.

use std::sync::Arc;

use crate::cuda::vmm::AddressRange;
use crate::ffi::common::error::kvmem_error;
use crate::ffi::common::guard::call;
use crate::ffi::common::handle::{Handle, Out, borrow, destroy, opaque};
use crate::ffi::common::pointer::out;
use crate::ffi::common::status::kvmem_status;

/// A range of device addresses with nothing behind them until something is mapped.
///
/// Threads: all functions on one range may run at once, except kvmem_vmm_range_destroy.
pub struct kvmem_vmm_range {
    handle: Handle<Arc<AddressRange>>,
}
opaque!(kvmem_vmm_range, Arc<AddressRange>, "range");

/// Reserves device addresses. Takes no memory.
///
/// @param size bytes, a multiple of the page size; of the granularity to be mapped fully
/// @param alignment a power of two the first address is a multiple of; 0 for the driver's choice
/// @param range gets the range; the caller destroys it
/// @param error gets the failure; may be NULL
/// @return KVMEM_STATUS_OK; KVMEM_STATUS_UNAVAILABLE_CUDA; KVMEM_STATUS_INVALID_ARGUMENT;
///         KVMEM_STATUS_OUT_OF_MEMORY without addresses; KVMEM_STATUS_CUDA
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_vmm_range_create(
    size: u64,
    alignment: u64,
    range: *mut *mut kvmem_vmm_range,
    error: *mut *mut kvmem_error,
) -> kvmem_status {
    let body = |_: &_| {
        // SAFETY: by contract.
        let range = unsafe { Out::new(range) }?;
        range.set(AddressRange::reserve(size, alignment)?);
        Ok(())
    };
    // SAFETY: NULL or writable, by contract.
    unsafe { call(error, body) }
}

/// Where a range lies.
///
/// @param range a range
/// @param address gets its first address
/// @param size gets its bytes
/// @param error gets the failure; may be NULL
/// @return KVMEM_STATUS_OK; KVMEM_STATUS_INVALID_ARGUMENT for a NULL pointer
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_vmm_range_get_span(
    range: *const kvmem_vmm_range,
    address: *mut u64,
    size: *mut u64,
    error: *mut *mut kvmem_error,
) -> kvmem_status {
    // SAFETY: by contract.
    unsafe {
        call(error, |scope| {
            let (address, size) = (out(address, "address")?, out(size, "size")?);
            let range = borrow(scope, range)?;
            address.write(range.address());
            size.write(range.size());
            Ok(())
        })
    }
}

/// Destroys a range handle. The addresses are freed when nothing is mapped there.
///
/// @param range a range that no other call uses; NULL does nothing
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_vmm_range_destroy(range: *mut kvmem_vmm_range) {
    // SAFETY: by contract.
    unsafe { destroy(range) };
}
