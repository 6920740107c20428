// SPDX-License-Identifier: Apache-2.0
//! The CUDA driver.

use std::ffi::c_char;

use crate::cuda::deferred::Kept;
use crate::cuda::{Device, DeviceProperties, driver};
use crate::ffi::common::{call_out, kvmem_error, kvmem_status, null, text};

/// The CUDA driver of this machine.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct kvmem_cuda_info {
    /// The CUDA version that the driver implements: 1000 × major + 10 × minor.
    pub driver_version: i32,
    /// Number of GPUs that this process may use, at least 1.
    pub device_count: i32,
}

/// Finds and initialises the CUDA driver, and returns its version. Creates no context.
///
/// @return KVMEM_STATUS_UNAVAILABLE_CUDA: no driver, one that is too old, or no GPU; the message says which
///         KVMEM_STATUS_INVALID_STATE: CUDA was initialised before this process was forked
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_cuda_get_info(
    info: *mut kvmem_cuda_info,
    error: *mut *mut kvmem_error,
) -> kvmem_status {
    call_out(error, (info, "info"), |_| {
        let driver = driver::get()?;
        Ok(kvmem_cuda_info { driver_version: driver.version(), device_count: driver.device_count() })
    })
}

/// Virtual memory management: addresses are allocated apart from memory.
pub const KVMEM_CUDA_VMM: u64 = 1;
/// VMM memory can be exported as a file descriptor, verified by an export.
pub const KVMEM_CUDA_POSIX_FD: u64 = 2;
/// VMM memory can be exported as a fabric handle, verified by an export.
pub const KVMEM_CUDA_FABRIC: u64 = 4;
/// VMM memory can be registered for RDMA.
pub const KVMEM_CUDA_RDMA_WITH_VMM: u64 = 8;
/// Memory can be exported as a DMA-BUF.
pub const KVMEM_CUDA_DMA_BUF: u64 = 16;
/// Supports stream-ordered memory pools.
pub const KVMEM_CUDA_MEMORY_POOLS: u64 = 32;
/// VMM memory can be created on a NUMA node of the host.
pub const KVMEM_CUDA_HOST_NUMA_VMM: u64 = 64;
/// The driver accepts many copies in one call.
pub const KVMEM_CUDA_BATCH_COPIES: u64 = 128;

/// Properties of a GPU, as its driver reports them.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct kvmem_cuda_device_info {
    /// Name, NUL-terminated.
    pub name: [c_char; 64],
    /// UUID. Unlike the ordinal, it is the same in every process.
    pub uuid: [u8; 16],
    /// Size of its memory in bytes.
    pub total_memory: u64,
    /// Major number of the compute capability: 9 of 9.0.
    pub compute_capability_major: u32,
    /// Minor number of the compute capability: 0 of 9.0.
    pub compute_capability_minor: u32,
    /// Number of multiprocessors.
    pub multiprocessors: u32,
    /// NUMA node that the GPU is attached to; -1 if the driver does not report it.
    pub numa_node: i32,
    /// GPUs whose memory this one can map: bit i is GPU i. The bit of the GPU itself is set. GPUs from 64 on,
    /// more than a driver has, would have no bit.
    pub can_access: u64,
    /// KVMEM_CUDA_* flags.
    pub capabilities: u64,
    /// Sizes and offsets of VMM memory that stays in this process must be multiples of this, in bytes; 0
    /// without KVMEM_CUDA_VMM. For other memory, use kvmem_vmm_get_granularity.
    pub minimum_granularity: u64,
    /// Recommended multiple, in bytes; 0 without KVMEM_CUDA_VMM.
    pub recommended_granularity: u64,
    /// Objects that were destroyed, and are kept until the GPU has finished its work: freeing them would wait
    /// for it, and delay the engine's own calls. They are memory of kvmem_region_create_device, page locks,
    /// opened IPC handles, and kernels. A number that does not fall means work that does not end. Regions and
    /// staging memory of runs whose end can't be detected count, too, and are kept until the process ends.
    pub kept_objects: u64,
    /// Bytes of GPU memory and of page-locked host memory that they have.
    pub kept_bytes: u64,
}

/// Returns the properties of a GPU.
///
/// kvmem creates and exports a small amount of memory on the GPU to find out which handles work. If the GPU
/// has no free memory, it takes the driver's attributes for the handles.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_cuda_get_device_info(
    device: i32,
    info: *mut kvmem_cuda_device_info,
    error: *mut *mut kvmem_error,
) -> kvmem_status {
    call_out(error, (info, "info"), |_| {
        Ok(describe(&Device::get(device)?.properties()?, Kept::of_device(device)))
    })
}

/// Returns the ordinal of the GPU with a UUID.
///
/// @param uuid 16 bytes, as kvmem_cuda_get_device_info returns them
/// @return KVMEM_STATUS_NOT_FOUND: this process may not use the GPU
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_cuda_find_device(
    uuid: *const u8,
    device: *mut i32,
    error: *mut *mut kvmem_error,
) -> kvmem_status {
    call_out(error, (device, "device"), |_| {
        let uuid = uuid.cast::<[u8; 16]>().as_ref();
        Ok(Device::by_uuid(uuid.ok_or_else(|| null("uuid"))?)?.ordinal())
    })
}

fn describe(properties: &DeviceProperties, kept: Kept) -> kvmem_cuda_device_info {
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
        name: text::fixed(&properties.name),
        uuid: properties.uuid,
        total_memory: properties.total_memory,
        capabilities: capabilities.into_iter().filter(|(has, _)| *has).map(|(_, flag)| flag).sum(),
        minimum_granularity: properties.minimum_granularity,
        recommended_granularity: properties.recommended_granularity,
        kept_objects: kept.objects,
        kept_bytes: kept.bytes,
        can_access: properties.can_access,
        compute_capability_major,
        compute_capability_minor,
        multiprocessors: properties.multiprocessors,
        numa_node: properties.numa_node.map_or(-1, |node| node as i32),
    }
}
