// SPDX-License-Identifier: Apache-2.0
//! Regions of block storage.

use std::ffi::c_void;

use crate::base::{ensure, lists};
use crate::ffi::common::{
    call_new, check_flags, ensure_given, kvmem_error, kvmem_status, options, read, text,
};
use crate::ffi::region::kvmem_region;
use crate::region::{BlockStorageConfig, Region};

/// Options of kvmem_region_create_block.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct kvmem_block_options {
    /// sizeof(kvmem_block_options)
    pub struct_size: usize,
    /// Number of the device in the backend's configuration. The plugin GUSLI needs 0.
    pub device_id: u64,
    /// Bytes from the start of the device.
    pub offset: u64,
    /// Bytes, at least 1.
    pub size: u64,
    /// Alignment of I/O (offsets, sizes, host addresses): a power of two, usually a device block; 0 for 1.
    pub alignment: u64,
    /// Bytes that the backend needs to register it; NULL for none; copied.
    pub metadata: *const c_void,
    /// Number of bytes of metadata.
    pub metadata_size: usize,
    /// Must be 0.
    pub flags: u64,
}
options!(kvmem_block_options);

/// Creates a region of block storage: a part of a device that a backend of NIXL accesses, such as one of the
/// plugin GUSLI. The call only names it: nothing is opened, and kvmem does not lock it against other users.
///
/// Transfers need a layout over the region that was built with an agent. The agent has a backend that accepts
/// KVMEM_MEMORY_BLOCK. The method is KVMEM_METHOD_NIXL. The other layout is in memory that the backend
/// accepts (GUSLI: host memory), and was built with the same agent.
///
/// This process has no addresses of it: it cannot be shared, exported, or mapped.
///
/// @return KVMEM_STATUS_INVALID_ARGUMENT: size is 0; the part ends after 2^63 - 1 bytes; alignment is not a
///           power of two, or offset and size are not multiples of it
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_region_create_block(
    options: *const kvmem_block_options,
    region: *mut *mut kvmem_region,
    error: *mut *mut kvmem_error,
) -> kvmem_status {
    call_new(error, (region, "region"), |_| {
        let options = read(options)?;
        check_flags("kvmem_block_options", options.flags, 0)?;
        ensure_given("kvmem_block_options", &[("size", options.size != 0)])?;
        ensure!(
            options.metadata.is_null() || options.metadata_size > 0,
            InvalidArgument,
            "metadata is given, and metadata_size is 0"
        );
        let metadata = text::bytes(options.metadata, options.metadata_size, "metadata")?;
        let config = BlockStorageConfig {
            device_id: options.device_id,
            offset: options.offset,
            size: options.size,
            alignment: options.alignment.max(1),
            metadata: lists::copied(metadata)?,
        };
        Ok(Region::block_storage(config)?.into())
    })
}
