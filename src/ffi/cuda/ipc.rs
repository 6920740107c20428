// SPDX-License-Identifier: Apache-2.0
//! Legacy IPC: GPU memory between processes by a handle of 64 bytes, for engines that carry such handles themselves.

use crate::cuda::ipc;
use crate::error::{Result, ensure};
use crate::ffi::common::error::kvmem_error;
use crate::ffi::common::guard::call;
use crate::ffi::common::handle::Out;
use crate::ffi::common::options::check_flags;
use crate::ffi::common::options::init;
use crate::ffi::common::options::options;
use crate::ffi::common::options::read;
use crate::ffi::common::pointer::out;
use crate::ffi::common::status::kvmem_status;
use crate::ffi::region::kvmem_region;
use crate::region::{DeviceMemory, IpcConfig, Region};

/// What another process needs to open GPU memory of this process.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct kvmem_ipc_handle {
    /// The driver's handle. It gives access to the whole allocation.
    pub handle: [u8; 64],
    /// UUID of the GPU; kvmem_cuda_find_device returns its ordinal in the other process.
    pub uuid: [u8; 16],
    /// Address of the allocation in this process.
    pub base: u64,
    /// Bytes of the allocation.
    pub base_size: u64,
    /// Bytes from the start of the allocation to the exported address.
    pub offset: u64,
    /// The driver's id of the allocation in this process, which is never reused.
    pub buffer_id: u64,
}

/// Exports GPU memory by the driver's IPC handle. The handle does not keep the memory allocated, and does not
/// order accesses: the memory must stay allocated while it is open elsewhere, and writes must have completed
/// before another process reads.
///
/// @param address any byte of memory that cuMemAlloc allocated, such as the address of a device region or of
///         a tensor
/// @param handle receives the handle
/// @return KVMEM_STATUS_OK
///         KVMEM_STATUS_INVALID_ARGUMENT: it is not GPU memory of this process
///         KVMEM_STATUS_UNSUPPORTED: the memory is mapped by VMM, from a memory pool, or of another process
///         KVMEM_STATUS_UNAVAILABLE_CUDA, KVMEM_STATUS_CUDA
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_ipc_export(
    address: u64,
    handle: *mut kvmem_ipc_handle,
    error: *mut *mut kvmem_error,
) -> kvmem_status {
    let body = |_: &_| {
        // SAFETY: NULL or writable, by contract.
        let handle = unsafe { out(handle, "handle") }?;
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
    };
    // SAFETY: NULL or writable, by contract.
    unsafe { call(error, body) }
}

/// Open the memory for the GPU `for_device`, whose kernels then access it over NVLink or PCIe.
pub const KVMEM_IPC_FOR_DEVICE: u64 = 1;

/// Options of kvmem_region_open_ipc.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct kvmem_ipc_options {
    /// sizeof(kvmem_ipc_options)
    pub struct_size: usize,
    /// KVMEM_IPC_FOR_DEVICE; 0: open the memory for the GPU that it is located on.
    pub flags: u64,
    /// The driver's handle.
    pub handle: [u8; 64],
    /// Bytes from the start of the allocation to the region.
    pub offset: u64,
    /// Bytes of the region, at least 1.
    pub size: u64,
    /// Bytes of the allocation in its process, to recognize a handle that now names another allocation; 0:
    /// not compared.
    pub base_size: u64,
    /// Id of the allocation in its process, to recognize a handle that is open here and named another
    /// allocation then; 0: not compared.
    pub buffer_id: u64,
    /// GPU that the memory is located on, in the order of CUDA_VISIBLE_DEVICES of this process.
    pub device: i32,
    /// GPU of KVMEM_IPC_FOR_DEVICE; 0 without that flag.
    pub for_device: i32,
}
options!(kvmem_ipc_options);

/// Sets options to their defaults.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_ipc_options_init(options: *mut kvmem_ipc_options, struct_size: usize) {
    // SAFETY: by contract.
    unsafe { init(options, struct_size) };
}

/// Opens GPU memory of another process as a region. It stays readable when that process ends.
///
/// A handle that is already open is not opened again: its regions share one mapping, which is closed with the
/// last of them. A handle that is opened for several GPUs is mapped once for each.
///
/// The driver reuses the bytes of a handle after the memory is freed: a stale handle opens whatever was
/// allocated after it. Sizes are compared with those of the driver; set base_size and buffer_id to recognize
/// more.
///
/// @param options what to open
/// @param region receives the region; the caller destroys it
/// @return KVMEM_STATUS_OK
///         KVMEM_STATUS_INVALID_ARGUMENT: the handle names nothing that can be opened, memory of this
///           process, or memory of another GPU
///         KVMEM_STATUS_OUT_OF_RANGE: there is no such device, or the range ends after the allocation
///         KVMEM_STATUS_NOT_FOUND: this process cannot use the GPU
///         KVMEM_STATUS_STALE: base_size or buffer_id differs
///         KVMEM_STATUS_UNSUPPORTED: the GPU cannot access the other one, or the driver maps the memory for
///           one GPU of a process only
///         KVMEM_STATUS_UNAVAILABLE_CUDA, KVMEM_STATUS_CUDA
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_region_open_ipc(
    options: *const kvmem_ipc_options,
    region: *mut *mut kvmem_region,
    error: *mut *mut kvmem_error,
) -> kvmem_status {
    let body = |_: &_| {
        // SAFETY: by contract.
        let (region, options) = unsafe { (Out::new(region)?, read(options)?) };
        region.set(Region::device(DeviceMemory::open(&config(&options)?)?).into());
        Ok(())
    };
    // SAFETY: NULL or writable, by contract.
    unsafe { call(error, body) }
}

fn config(options: &kvmem_ipc_options) -> Result<IpcConfig> {
    check_flags("kvmem_ipc_options", options.flags, KVMEM_IPC_FOR_DEVICE)?;
    let has_user = options.flags & KVMEM_IPC_FOR_DEVICE != 0;
    ensure!(
        options.for_device == 0 || has_user,
        InvalidArgument,
        "for_device is {}, which means nothing without KVMEM_IPC_FOR_DEVICE",
        options.for_device
    );
    let user = if has_user { options.for_device } else { options.device };
    let told = |value| (value != 0).then_some(value);
    Ok(IpcConfig {
        place: ipc::DevicePair { owner: options.device, user },
        handle: options.handle,
        offset: options.offset,
        size: options.size,
        base_size: told(options.base_size),
        buffer_id: told(options.buffer_id),
    })
}
