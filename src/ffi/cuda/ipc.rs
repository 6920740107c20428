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

/// What another process must be told to open memory of this one's.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct kvmem_ipc_handle {
    /// The driver's handle. It names the whole allocation, and whoever has it reaches all of that.
    pub handle: [u8; 64],
    /// The GPU's UUID: kvmem_cuda_find_device tells its ordinal in the other process.
    pub uuid: [u8; 16],
    /// Where the allocation begins in this process.
    pub base: u64,
    /// Bytes of the allocation.
    pub base_size: u64,
    /// Where in the allocation the address lies that was exported.
    pub offset: u64,
    /// The driver's number for the allocation in this process, which it never uses again.
    pub buffer_id: u64,
}

/// Gets the handle by which another process opens memory of a GPU. The memory must stay allocated as long as
/// it is open there, and what is written must be done before it is read there: a handle carries neither.
///
/// @param address any byte of memory that cuMemAlloc gave, such as the address of a device region or of a
///         tensor
/// @param handle gets the handle
/// @param error gets the failure; may be NULL
/// @return KVMEM_STATUS_OK; KVMEM_STATUS_UNAVAILABLE_CUDA; KVMEM_STATUS_INVALID_ARGUMENT for what is no GPU
///         memory of this process; KVMEM_STATUS_UNSUPPORTED for memory that was mapped apart, of a pool, or
///         of another process; KVMEM_STATUS_CUDA
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

/// Open the memory for the GPU `for_device`, whose kernels then reach it, over NVLink or PCIe.
pub const KVMEM_IPC_FOR_DEVICE: u64 = 1;

/// Memory of another process's to open.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct kvmem_ipc_options {
    /// sizeof(kvmem_ipc_options)
    pub struct_size: usize,
    /// KVMEM_IPC_FOR_DEVICE, or 0: it is opened for the GPU it lies on.
    pub flags: u64,
    /// The driver's handle.
    pub handle: [u8; 64],
    /// Where in the allocation the region begins.
    pub offset: u64,
    /// Bytes of the region, at least 1.
    pub size: u64,
    /// Bytes of the allocation as its process has them, to notice a handle that names another one by now; 0:
    /// not compared.
    pub base_size: u64,
    /// The number of the allocation in its process, to notice a handle that is open here and named another
    /// one then; 0: not compared.
    pub buffer_id: u64,
    /// The GPU the memory lies on, as CUDA_VISIBLE_DEVICES orders them here.
    pub device: i32,
    /// The GPU that will use it, counted likewise; 0 without KVMEM_IPC_FOR_DEVICE.
    pub for_device: i32,
}
options!(kvmem_ipc_options);

/// Fills options with defaults.
///
/// @param options the caller's struct; NULL does nothing
/// @param struct_size sizeof(*options); no more is written
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_ipc_options_init(options: *mut kvmem_ipc_options, struct_size: usize) {
    // SAFETY: by contract.
    unsafe { init(options, struct_size) };
}

/// Opens GPU memory of another process's as a region. A handle that is open already is not opened again: the
/// regions share one mapping, which is closed with the last of them; opened for several GPUs, it is mapped
/// for each. The memory stays readable here when its process ends.
///
/// The driver uses a handle's bytes again once the memory is freed: a stale handle opens whatever came after
/// it. Sizes are checked against what the driver has mapped; base_size and buffer_id notice more.
///
/// @param options what to open
/// @param region gets the region; the caller destroys it
/// @param error gets the failure; may be NULL
/// @return KVMEM_STATUS_OK; KVMEM_STATUS_UNAVAILABLE_CUDA; KVMEM_STATUS_OUT_OF_RANGE for a device that is not
///         there, and for a part that ends past the allocation; KVMEM_STATUS_INVALID_ARGUMENT for a handle
///         that names nothing that can be opened, that is of this very process, or of memory of another GPU;
///         KVMEM_STATUS_NOT_FOUND for memory of a GPU that this process may not use; KVMEM_STATUS_STALE when
///         base_size or buffer_id says so; KVMEM_STATUS_UNSUPPORTED for a GPU that does not reach the one it
///         lies on, or where the driver maps it for one GPU of a process only; KVMEM_STATUS_CUDA
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
