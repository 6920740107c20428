// SPDX-License-Identifier: Apache-2.0
//! Elastic regions and layouts: growing and shrinking.

use crate::error::{Error, Status};
use crate::ffi::common::error::kvmem_error;
use crate::ffi::common::guard::call;
use crate::ffi::common::handle::{borrow, out};
use crate::ffi::common::status::kvmem_status;
use crate::ffi::layout::info::kvmem_layout;
use crate::ffi::region::info::kvmem_region;

/// What an elastic region has of its memory now.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct kvmem_elastic_info {
    /// Bytes of an extent.
    pub extent_size: u64,
    /// Extents there may be.
    pub num_extents: u64,
    /// Extents that have memory.
    pub num_committed: u64,
    /// How often what lies behind an address has changed.
    pub generation: u64,
}

/// Gives a part of an elastic region memory, in whole extents; what has some keeps it. Agents that know the region
/// learn of the new extents. Addresses stay what they are.
///
/// @param region an elastic region, not a view
/// @param offset bytes from its start
/// @param size bytes, at least 1; every extent that is touched gets memory
/// @param error gets the failure; may be NULL
/// @return KVMEM_STATUS_OK; KVMEM_STATUS_OUT_OF_RANGE past what was reserved; KVMEM_STATUS_OUT_OF_MEMORY with the bytes
///         asked, those of the GPU, and where the process has its primary context those free;
///         KVMEM_STATUS_INVALID_ARGUMENT for a region that is not elastic; KVMEM_STATUS_UNSUPPORTED for one that was
///         imported: it grows in its owner's process, and is shared again; KVMEM_STATUS_CUDA; KVMEM_STATUS_NIXL. A
///         failure changes nothing
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_region_commit(
    region: *mut kvmem_region,
    offset: u64,
    size: u64,
    error: *mut *mut kvmem_error,
) -> kvmem_status {
    // SAFETY: by contract.
    unsafe { call(error, |scope| borrow(scope, region)?.commit(offset, size)) }
}

/// Takes the memory of whole extents away, from agents that know them first. Nothing may use them any more; transfers
/// of kvmem's are seen to. Where NIXL fails to let go of an extent, the extent is gone from the region all the same, but
/// its memory stays mapped, and is that of the extent again when it is committed again.
///
/// @param region an elastic region, not a view
/// @param offset bytes from its start, a multiple of the extent
/// @param size bytes, a multiple of the extent
/// @param error gets the failure; may be NULL
/// @return KVMEM_STATUS_OK; KVMEM_STATUS_BUSY while a transfer or a share uses one, or while an agent lets go of a
///         registration that was given up: nothing waits for their end; KVMEM_STATUS_INVALID_STATE where one
///         has no memory; KVMEM_STATUS_INVALID_ARGUMENT; KVMEM_STATUS_OUT_OF_RANGE; KVMEM_STATUS_UNSUPPORTED for a
///         region that was imported: it shrinks in its owner's process; KVMEM_STATUS_NIXL when an agent did not let go:
///         then that memory is not given back to the GPU, and serves the extent when that is committed again
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_region_decommit(
    region: *mut kvmem_region,
    offset: u64,
    size: u64,
    error: *mut *mut kvmem_error,
) -> kvmem_status {
    // SAFETY: by contract.
    unsafe { call(error, |scope| borrow(scope, region)?.decommit(offset, size)) }
}

/// Tells what an elastic region has of its memory now.
///
/// @param region an elastic region, or a view of one
/// @param info gets the answer
/// @param error gets the failure; may be NULL
/// @return KVMEM_STATUS_OK; KVMEM_STATUS_INVALID_ARGUMENT for a region that is not elastic
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_region_get_elastic_info(
    region: *const kvmem_region,
    info: *mut kvmem_elastic_info,
    error: *mut *mut kvmem_error,
) -> kvmem_status {
    // SAFETY: by contract.
    unsafe {
        call(error, |scope| {
            let info = out(info, "info")?;
            let rigid = || Error::new(Status::InvalidArgument, "the region is not elastic");
            let memory = borrow(scope, region)?.elastic_memory().ok_or_else(rigid)?;
            info.write(kvmem_elastic_info {
                extent_size: memory.extent_size(),
                num_extents: memory.size() / memory.extent_size(),
                num_committed: memory.committed().len() as u64,
                generation: memory.generation(),
            });
            Ok(())
        })
    }
}

/// Gives the first blocks of a layout memory and takes it from the others, in whole extents. Addresses, strides and
/// block ids stay what they are.
///
/// @param layout a layout that was built with elastic options
/// @param num_blocks how many blocks are in use: 0 to the layout's num_blocks
/// @param error gets the failure; may be NULL
/// @return KVMEM_STATUS_OK; KVMEM_STATUS_OUT_OF_RANGE for more blocks than the layout was built for;
///         KVMEM_STATUS_INVALID_STATE for a layout on other memory; KVMEM_STATUS_BUSY while a transfer or a share uses
///         what is to go, or an agent lets go of a registration of the memory; KVMEM_STATUS_OUT_OF_MEMORY; KVMEM_STATUS_CUDA; KVMEM_STATUS_NIXL
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_layout_resize(
    layout: *mut kvmem_layout,
    num_blocks: u64,
    error: *mut *mut kvmem_error,
) -> kvmem_status {
    // SAFETY: by contract.
    unsafe { call(error, |scope| borrow(scope, layout)?.resize(num_blocks)) }
}
