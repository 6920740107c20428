// SPDX-License-Identifier: Apache-2.0
//! Views: a part of a region as a separate region.

use crate::ffi::common::{borrow, call_new, kvmem_error, kvmem_status};
use crate::ffi::region::kvmem_region;
use crate::region::Region;

/// Creates a region that is a part of another one. It keeps that memory. A view of a view is a view of it.
///
/// @param offset bytes from the start of the parent
/// @param size bytes, at least 1
/// @return KVMEM_STATUS_OUT_OF_RANGE: the range ends after the parent
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_region_create_view(
    region: *const kvmem_region,
    offset: u64,
    size: u64,
    view: *mut *mut kvmem_region,
    error: *mut *mut kvmem_error,
) -> kvmem_status {
    call_new(error, (view, "view"), |scope| Ok(Region::view(borrow(scope, region)?, offset, size)?.into()))
}
