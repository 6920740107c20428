// SPDX-License-Identifier: Apache-2.0
//! Regions of GPU memory that grow and shrink.

use crate::base::Result;
use crate::ffi::common::{
    borrow, call, call_new, check_flags, check_reserved, kvmem_error, kvmem_status, options, read,
};
use crate::ffi::region::kvmem_region;
use crate::region::{ElasticConfig, Region};

/// Extents can be shared by fabric handle (KVMEM_SHARE_FABRIC), too. This cannot be enabled later.
pub const KVMEM_ELASTIC_FABRIC: u64 = 1;

/// Options of kvmem_region_create_elastic.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct kvmem_elastic_options {
    /// sizeof(kvmem_elastic_options)
    pub struct_size: usize,
    /// Maximum size in bytes, rounded up to whole extents.
    pub size: u64,
    /// GPU.
    pub device: i32,
    /// Must be 0.
    pub reserved: u32,
    /// Bytes per extent, a multiple of the recommended granularity; 0 for 64 MiB. Each extent delays growth.
    pub extent_size: u64,
    /// KVMEM_ELASTIC_* flags; 0: extents are shared by file descriptor if the GPU can.
    pub flags: u64,
}
options!(kvmem_elastic_options);

/// Reserves GPU addresses for memory that grows and shrinks. kvmem_region_commit allocates the memory.
///
/// @return KVMEM_STATUS_INVALID_ARGUMENT: the extent is no multiple of the granularity, or the size too large
///         KVMEM_STATUS_OUT_OF_RANGE: there are more than 16,777,216 extents
///         KVMEM_STATUS_OUT_OF_MEMORY: too few free addresses, or no host memory or file descriptor for the
///           control block, in which other processes see changes (64 bytes, and 4 per extent)
///         KVMEM_STATUS_UNSUPPORTED: the GPU has no virtual memory management, or cannot export memory by
///           fabric handle, which is tried for KVMEM_ELASTIC_FABRIC
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_region_create_elastic(
    options: *const kvmem_elastic_options,
    region: *mut *mut kvmem_region,
    error: *mut *mut kvmem_error,
) -> kvmem_status {
    call_new(error, (region, "region"), |_| {
        let options = read(options)?;
        Ok(Region::elastic(&elastic_config(&options)?)?.into())
    })
}

/// Allocates memory for a part of an elastic region, in whole extents. Extents that have memory keep it.
/// Addresses do not change. Agents that it is registered with can use them. A failure changes nothing.
///
/// @param region an elastic region, not a view
/// @param offset bytes from the start of the region
/// @param size bytes, at least 1; every extent that overlaps the range gets memory
/// @return KVMEM_STATUS_INVALID_ARGUMENT: the region is not elastic
///         KVMEM_STATUS_OUT_OF_RANGE: the range ends after the reserved addresses
///         KVMEM_STATUS_OUT_OF_MEMORY: the message has the bytes requested and in total, and the free bytes
///           if the process has the primary context of the GPU
///         KVMEM_STATUS_UNSUPPORTED: the region was imported: its owner can commit and share it again
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_region_commit(
    region: *mut kvmem_region,
    offset: u64,
    size: u64,
    error: *mut *mut kvmem_error,
) -> kvmem_status {
    call(error, |scope| borrow(scope, region)?.commit(offset, size))
}

/// Frees the memory of whole extents, after it was deregistered from agents. The caller ensures that no
/// kernel or copy of its own uses the extents any more. Transfers of kvmem are checked.
///
/// @param region an elastic region, not a view
/// @param offset bytes from the start of the region, a multiple of the extent size
/// @param size bytes, a multiple of the extent size
/// @return KVMEM_STATUS_INVALID_ARGUMENT: the region is not elastic, or the range not of whole extents
///         KVMEM_STATUS_OUT_OF_RANGE: the range ends after the reserved addresses
///         KVMEM_STATUS_INVALID_STATE: an extent has no memory
///         KVMEM_STATUS_BUSY: a transfer, request or share uses an extent, or an agent is still deregistering
///           memory of a destroyed registration. The call does not wait for either
///         KVMEM_STATUS_UNSUPPORTED: the region was imported; decommit in the process of its owner
///         KVMEM_STATUS_NIXL: an agent could not deregister an extent. The extent is decommitted, but its
///           memory stays mapped, and is used again if the extent is committed again
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_region_decommit(
    region: *mut kvmem_region,
    offset: u64,
    size: u64,
    error: *mut *mut kvmem_error,
) -> kvmem_status {
    call(error, |scope| borrow(scope, region)?.decommit(offset, size))
}

/// The options of elastic memory as core types.
pub(in crate::ffi) fn elastic_config(options: &kvmem_elastic_options) -> Result<ElasticConfig> {
    check_flags("kvmem_elastic_options", options.flags, KVMEM_ELASTIC_FABRIC)?;
    check_reserved("kvmem_elastic_options", options.reserved)?;
    Ok(ElasticConfig {
        size: options.size,
        extent_size: options.extent_size,
        alignment: 0,
        ordinal: options.device,
        fabric: options.flags & KVMEM_ELASTIC_FABRIC != 0,
    })
}
