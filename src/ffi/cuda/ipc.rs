// SPDX-License-Identifier: Apache-2.0
//! Legacy IPC: GPU memory of another process by a handle of 64 bytes, for engines that transfer such handles themselves.

use crate::base::{Result, ensure};
use crate::cuda::ipc;
use crate::ffi::common::{call, call_new, check_flags, kvmem_error, kvmem_status, options, out, read};
use crate::ffi::region::kvmem_region;
use crate::region::{ImportedDevice, IpcConfig, Region};

/// The data that another process needs to open GPU memory of this process.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct kvmem_ipc_handle {
    /// The driver's handle. It names the whole allocation: a process that has it can access all of it.
    pub handle: [u8; 64],
    /// UUID of the GPU. kvmem_cuda_find_device returns its ordinal in the other process.
    pub uuid: [u8; 16],
    /// First address of the allocation in this process.
    pub base: u64,
    /// Size of the allocation in bytes.
    pub base_size: u64,
    /// Offset of the exported address in the allocation, in bytes.
    pub offset: u64,
    /// The driver's number of the allocation in this process, never reused.
    pub buffer_id: u64,
}

/// Returns the handle with which another process opens GPU memory.
///
/// The handle does not keep the memory allocated: do not free it while another process has it open. The
/// handle does not synchronize: complete all writes before the other process reads.
///
/// @param address any address in memory of cuMemAlloc, such as a device region or a tensor
/// @return KVMEM_STATUS_INVALID_ARGUMENT: the address is in managed memory, or no GPU memory of this process
///         KVMEM_STATUS_UNSUPPORTED: the memory is VMM memory, of a memory pool, or of another process
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_ipc_export(
    address: u64,
    handle: *mut kvmem_ipc_handle,
    error: *mut *mut kvmem_error,
) -> kvmem_status {
    call(error, |_| {
        let handle = out(handle, "handle")?;
        let exported = ipc::export(address)?;
        handle.write(kvmem_ipc_handle {
            handle: exported.handle,
            uuid: exported.device.uuid()?,
            base: exported.base,
            base_size: exported.base_size,
            offset: exported.offset,
            buffer_id: exported.buffer_id,
        });
        Ok(())
    })
}

/// Open the memory for kernels of `for_device`, over NVLink or PCIe.
pub const KVMEM_IPC_FOR_DEVICE: u64 = 1;

/// GPU memory of another process, to be opened with kvmem_region_open_ipc.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct kvmem_ipc_options {
    /// sizeof(kvmem_ipc_options)
    pub struct_size: usize,
    /// The driver's handle.
    pub handle: [u8; 64],
    /// Size of the region in bytes, at least 1.
    pub size: u64,
    /// Offset of the region in the allocation, in bytes; 0 by default.
    pub offset: u64,
    /// The GPU that the memory is located on.
    pub device: i32,
    /// The GPU that will use the memory. Must be 0 without KVMEM_IPC_FOR_DEVICE.
    pub for_device: i32,
    /// KVMEM_IPC_FOR_DEVICE, or 0 (default): open it for the GPU that it is located on.
    pub flags: u64,
    /// Size of the allocation in bytes, as exported: detects a stale handle that now names another
    /// allocation. 0 (default): not compared.
    pub base_size: u64,
    /// Number of the allocation, as exported: detects a handle that is already open here and then named
    /// another allocation. 0 (default): not compared.
    pub buffer_id: u64,
}
options!(kvmem_ipc_options);

/// Opens GPU memory of another process as a region.
///
/// A handle that is already open is not opened again. All its regions for one GPU share one mapping, which is
/// closed with the last of them. The memory stays readable here when its process ends.
///
/// The driver reuses the bytes of a handle after the memory is freed. A stale handle therefore opens a later
/// allocation. kvmem compares sizes with what the driver has mapped; base_size and buffer_id detect more.
///
/// @return KVMEM_STATUS_OUT_OF_RANGE: the region ends past the allocation
///         KVMEM_STATUS_INVALID_ARGUMENT: the size is 0; or the handle names no memory that can be opened,
///           memory of this process, or memory of another GPU
///         KVMEM_STATUS_NOT_FOUND: this process may not use the GPU of the memory
///         KVMEM_STATUS_STALE: base_size or buffer_id is that of another allocation
///         KVMEM_STATUS_UNSUPPORTED: for_device cannot access the GPU of the memory; or the driver has mapped
///           the memory for another GPU of this process, and maps it only once
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_region_open_ipc(
    options: *const kvmem_ipc_options,
    region: *mut *mut kvmem_region,
    error: *mut *mut kvmem_error,
) -> kvmem_status {
    call_new(error, (region, "region"), |_| {
        let options = read(options)?;
        Ok(Region::new(ImportedDevice::open(&config(&options)?, None)?).into())
    })
}

fn config(options: &kvmem_ipc_options) -> Result<IpcConfig> {
    check_flags("kvmem_ipc_options", options.flags, KVMEM_IPC_FOR_DEVICE)?;
    let has_user = options.flags & KVMEM_IPC_FOR_DEVICE != 0;
    ensure!(
        options.for_device == 0 || has_user,
        InvalidArgument,
        "for_device is {}, and KVMEM_IPC_FOR_DEVICE is not set: set the flag, or set for_device to 0",
        options.for_device
    );
    let user = if has_user { options.for_device } else { options.device };
    let given = |value| (value != 0).then_some(value);
    Ok(IpcConfig {
        place: ipc::DevicePair { owner: options.device, user },
        handle: options.handle,
        offset: options.offset,
        size: options.size,
        base_size: given(options.base_size),
        buffer_id: given(options.buffer_id),
    })
}
