// SPDX-License-Identifier: Apache-2.0
//! The CUDA driver.

use std::ffi::c_char;

use crate::cuda::driver;
use crate::cuda::{Device, DeviceProperties};
use crate::ffi::common::error::kvmem_error;
use crate::ffi::common::guard::call;
use crate::ffi::common::pointer::{null, out};
use crate::ffi::common::status::kvmem_status;

/// The CUDA driver of this machine.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct kvmem_cuda_info {
    /// The CUDA version it implements: 1000 × major + 10 × minor.
    pub driver_version: i32,
    /// Devices this process may use; at least 1.
    pub device_count: i32,
}

/// Finds and initialises the CUDA driver. No context is created.
///
/// @param info gets what was found
/// @param error gets the failure; may be NULL
/// @return KVMEM_STATUS_OK; KVMEM_STATUS_UNAVAILABLE_CUDA without a driver, with one too old, or without a
///         device (the message says which)
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_cuda_get_info(
    info: *mut kvmem_cuda_info,
    error: *mut *mut kvmem_error,
) -> kvmem_status {
    let body = |_: &_| {
        // SAFETY: NULL or writable, by contract.
        let info = unsafe { out(info, "info") }?;
        let driver = driver::get()?;
        info.write(kvmem_cuda_info { driver_version: driver.version(), device_count: driver.device_count() });
        Ok(())
    };
    // SAFETY: NULL or writable, by contract.
    unsafe { call(error, body) }
}

/// Memory can be reserved, created and mapped apart (the driver's virtual memory management).
pub const KVMEM_CUDA_VMM: u64 = 1;
/// Such memory can be exported as a file descriptor: shown by doing so.
pub const KVMEM_CUDA_POSIX_FD: u64 = 2;
/// Such memory can be exported as a fabric handle: shown by doing so, whatever the driver's attribute
/// promises.
pub const KVMEM_CUDA_FABRIC: u64 = 4;
/// Such memory can be registered for RDMA.
pub const KVMEM_CUDA_RDMA_WITH_VMM: u64 = 8;
/// Memory can be exported as a DMA-BUF.
pub const KVMEM_CUDA_DMA_BUF: u64 = 16;
/// Stream-ordered memory pools.
pub const KVMEM_CUDA_MEMORY_POOLS: u64 = 32;
/// Host memory of a NUMA node can be created and mapped apart.
pub const KVMEM_CUDA_HOST_NUMA_VMM: u64 = 64;
/// The driver takes many copies in one call.
pub const KVMEM_CUDA_BATCH_COPIES: u64 = 128;

/// What a GPU is and can do, as its driver says.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct kvmem_cuda_device_info {
    /// Its name, NUL-terminated.
    pub name: [c_char; 64],
    /// The same in every process, whatever the ordinals are there.
    pub uuid: [u8; 16],
    /// Bytes of memory.
    pub total_memory: u64,
    /// KVMEM_CUDA_* flags.
    pub capabilities: u64,
    /// Bytes that sizes and offsets of VMM memory must be multiples of; 0 without KVMEM_CUDA_VMM. For memory
    /// that stays in the process; kvmem_vmm_get_granularity answers for any other.
    pub minimum_granularity: u64,
    /// Bytes that they should be multiples of; 0 without KVMEM_CUDA_VMM.
    pub recommended_granularity: u64,
    /// GPUs whose memory this one can map, a bit for each: bit i is GPU i, its own is set. GPUs from 64 on
    /// have none; kvmem_cuda_can_access answers for them.
    pub can_access: u64,
    /// Its compute capability, the major number: 9 of 9.0.
    pub compute_capability_major: u32,
    /// The minor number.
    pub compute_capability_minor: u32,
    /// Multiprocessors it has.
    pub multiprocessors: u32,
    /// The NUMA node it hangs on; -1 where the driver does not know.
    pub numa_node: i32,
}

/// Tells what a GPU is and can do. Small memory is created and exported for a moment to see which handles
/// work.
///
/// @param device the GPU, as CUDA_VISIBLE_DEVICES orders them
/// @param info gets the answer
/// @param error gets the failure; may be NULL
/// @return KVMEM_STATUS_OK; KVMEM_STATUS_UNAVAILABLE_CUDA; KVMEM_STATUS_OUT_OF_RANGE for a device that is not
///         there
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_cuda_get_device_info(
    device: i32,
    info: *mut kvmem_cuda_device_info,
    error: *mut *mut kvmem_error,
) -> kvmem_status {
    let body = |_: &_| {
        // SAFETY: NULL or writable, by contract.
        let info = unsafe { out(info, "info") }?;
        info.write(describe(&Device::get(device)?.properties()?));
        Ok(())
    };
    // SAFETY: NULL or writable, by contract.
    unsafe { call(error, body) }
}

/// Finds a GPU by its UUID: ordinals differ between processes, as CUDA_VISIBLE_DEVICES orders them in each.
///
/// @param uuid 16 bytes, as kvmem_cuda_get_device_info gives them
/// @param device gets its ordinal here
/// @param error gets the failure; may be NULL
/// @return KVMEM_STATUS_OK; KVMEM_STATUS_UNAVAILABLE_CUDA; KVMEM_STATUS_NOT_FOUND for a GPU that this process
///         may not use; KVMEM_STATUS_INVALID_ARGUMENT for a NULL pointer; KVMEM_STATUS_CUDA
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_cuda_find_device(
    uuid: *const u8,
    device: *mut i32,
    error: *mut *mut kvmem_error,
) -> kvmem_status {
    let body = |_: &_| {
        // SAFETY: NULL, or writable and 16 readable bytes, by contract.
        let (device, uuid) = unsafe { (out(device, "device")?, uuid.cast::<[u8; 16]>().as_ref()) };
        device.write(Device::by_uuid(uuid.ok_or_else(|| null("uuid"))?)?.ordinal());
        Ok(())
    };
    // SAFETY: NULL or writable, by contract.
    unsafe { call(error, body) }
}

/// Tells whether one GPU can map memory of another.
///
/// @param device the GPU that would map it
/// @param owner the GPU it lies on
/// @param can_access gets the answer; a GPU reaches its own memory
/// @param error gets the failure; may be NULL
/// @return KVMEM_STATUS_OK; KVMEM_STATUS_UNAVAILABLE_CUDA; KVMEM_STATUS_OUT_OF_RANGE for a device that is not
///         there
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_cuda_can_access(
    device: i32,
    owner: i32,
    can_access: *mut bool,
    error: *mut *mut kvmem_error,
) -> kvmem_status {
    let body = |_: &_| {
        // SAFETY: NULL or writable, by contract.
        let can_access = unsafe { out(can_access, "can_access") }?;
        can_access.write(Device::get(device)?.can_access(&Device::get(owner)?)?);
        Ok(())
    };
    // SAFETY: NULL or writable, by contract.
    unsafe { call(error, body) }
}

fn describe(properties: &DeviceProperties) -> kvmem_cuda_device_info {
    let mut name = [0; 64];
    for (to, from) in name.iter_mut().take(63).zip(properties.name.bytes()) {
        *to = from as c_char;
    }
    let capabilities = [
        (properties.vmm, KVMEM_CUDA_VMM),
        (properties.posix_fd, KVMEM_CUDA_POSIX_FD),
        (properties.fabric, KVMEM_CUDA_FABRIC),
        (properties.rdma_with_vmm, KVMEM_CUDA_RDMA_WITH_VMM),
        (properties.dma_buf, KVMEM_CUDA_DMA_BUF),
        (properties.memory_pools, KVMEM_CUDA_MEMORY_POOLS),
        (properties.host_numa_vmm, KVMEM_CUDA_HOST_NUMA_VMM),
        (properties.batch_copies, KVMEM_CUDA_BATCH_COPIES),
    ];
    let (compute_capability_major, compute_capability_minor) = properties.compute_capability;
    kvmem_cuda_device_info {
        name,
        uuid: properties.uuid,
        total_memory: properties.total_memory,
        capabilities: capabilities.into_iter().filter(|(has, _)| *has).map(|(_, flag)| flag).sum(),
        minimum_granularity: properties.minimum_granularity,
        recommended_granularity: properties.recommended_granularity,
        can_access: properties.can_access,
        compute_capability_major,
        compute_capability_minor,
        multiprocessors: properties.multiprocessors,
        numa_node: properties.numa_node.map_or(-1, |node| node as i32),
    }
}
