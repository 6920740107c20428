// SPDX-License-Identifier: Apache-2.0
//! Regions of GPU memory that grow and shrink.

use crate::error::{Error, Result, Status, ensure};
use crate::ffi::common::error::kvmem_error;
use crate::ffi::common::guard::call;
use crate::ffi::common::handle::{Out, borrow};
use crate::ffi::common::options::{check_flags, init, options, read};
use crate::ffi::common::pointer::out;
use crate::ffi::common::status::kvmem_status;
use crate::ffi::region::kvmem_region;
use crate::region::{ElasticConfig, Region};

/// Extents can be shared by fabric handle (KVMEM_SHARE_FABRIC), beside file descriptors. It can't be added
/// later.
pub const KVMEM_ELASTIC_FABRIC: u64 = 1;

/// How to reserve memory of a GPU that grows and shrinks.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct kvmem_elastic_options {
    /// sizeof(kvmem_elastic_options)
    pub struct_size: usize,
    /// KVMEM_ELASTIC_FABRIC, or 0: extents can be shared by file descriptor where the GPU has them.
    pub flags: u64,
    /// The most bytes there may be; rounded up to whole extents. In a layout's options 0: the layout says.
    pub size: u64,
    /// Bytes of an extent, a multiple of the recommended granularity; 0 for 64 MiB. Growth costs by the
    /// extent. In a layout's options 0: the layout says.
    pub extent_size: u64,
    /// The GPU, as CUDA_VISIBLE_DEVICES orders them.
    pub device: i32,
    /// Must be 0.
    pub reserved: u32,
}
options!(kvmem_elastic_options);

/// Fills options with defaults.
///
/// @param options the caller's struct; NULL does nothing
/// @param struct_size sizeof(*options); no more is written
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_elastic_options_init(options: *mut kvmem_elastic_options, struct_size: usize) {
    // SAFETY: by contract.
    unsafe { init(options, struct_size) };
}

/// Reserves addresses of a GPU for memory that grows and shrinks. Nothing has memory yet:
/// kvmem_region_commit gives it.
///
/// @param options what to reserve
/// @param region gets the region; the caller destroys it
/// @param error gets the failure; may be NULL
/// @return KVMEM_STATUS_OK; KVMEM_STATUS_UNAVAILABLE_CUDA; KVMEM_STATUS_OUT_OF_RANGE for a device that is
///         not there, and for more than 16,777,216 extents; KVMEM_STATUS_INVALID_ARGUMENT, also for an
///         extent that is no multiple of the granularity, and a size that no address space has;
///         KVMEM_STATUS_OUT_OF_MEMORY where as many addresses are not free, or the host has no memory or
///         file descriptor for the control block, of 64 bytes and 4 an extent; KVMEM_STATUS_UNSUPPORTED for
///         a GPU without virtual memory management, and for KVMEM_ELASTIC_FABRIC where the driver, asked to
///         create and export some memory so, does not; KVMEM_STATUS_CUDA
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_region_create_elastic(
    options: *const kvmem_elastic_options,
    region: *mut *mut kvmem_region,
    error: *mut *mut kvmem_error,
) -> kvmem_status {
    let body = |_: &_| {
        // SAFETY: by contract.
        let (region, options) = unsafe { (Out::new(region)?, read(options)?) };
        region.set(Region::elastic(&elastic_config(&options)?)?.into());
        Ok(())
    };
    // SAFETY: NULL or writable, by contract.
    unsafe { call(error, body) }
}

/// Gives a part of an elastic region memory, in whole extents; what has some keeps it. Agents that know the
/// region learn of the new extents. Addresses stay what they are.
///
/// @param region an elastic region, not a view
/// @param offset bytes from its start
/// @param size bytes, at least 1; every extent that is touched gets memory
/// @param error gets the failure; may be NULL
/// @return KVMEM_STATUS_OK; KVMEM_STATUS_OUT_OF_RANGE past what was reserved; KVMEM_STATUS_OUT_OF_MEMORY with
///         the bytes asked, those of the GPU, and where the process has its primary context those free;
///         KVMEM_STATUS_INVALID_ARGUMENT for a region that is not elastic; KVMEM_STATUS_UNSUPPORTED for one
///         that was imported: it grows in its owner's process, and is shared again; KVMEM_STATUS_CUDA;
///         KVMEM_STATUS_NIXL. A failure changes nothing
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

/// Takes the memory of whole extents away, from agents that know them first. Nothing may use them any more;
/// transfers of kvmem's are seen to. Where NIXL fails to let go of an extent, the extent is gone from the
/// region all the same, but its memory stays mapped, and is that of the extent again when it is committed
/// again.
///
/// @param region an elastic region, not a view
/// @param offset bytes from its start, a multiple of the extent
/// @param size bytes, a multiple of the extent
/// @param error gets the failure; may be NULL
/// @return KVMEM_STATUS_OK; KVMEM_STATUS_BUSY while a transfer or a share uses one, or while an agent lets go
///         of a registration that was given up: nothing waits for their end; KVMEM_STATUS_INVALID_STATE where
///         one has no memory; KVMEM_STATUS_INVALID_ARGUMENT; KVMEM_STATUS_OUT_OF_RANGE;
///         KVMEM_STATUS_UNSUPPORTED for a region that was imported: it shrinks in its owner's process;
///         KVMEM_STATUS_NIXL when an agent did not let go: then that memory is not given back to the GPU, and
///         serves the extent when that is committed again
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

/// Those of elastic memory.
pub(in crate::ffi) fn elastic_config(options: &kvmem_elastic_options) -> Result<ElasticConfig> {
    check_flags("kvmem_elastic_options", options.flags, KVMEM_ELASTIC_FABRIC)?;
    ensure!(options.reserved == 0, InvalidArgument, "reserved is {}, it must be 0", options.reserved);
    Ok(ElasticConfig {
        size: options.size,
        extent_size: options.extent_size,
        alignment: 0,
        ordinal: options.device,
        fabric: options.flags & KVMEM_ELASTIC_FABRIC != 0,
    })
}
