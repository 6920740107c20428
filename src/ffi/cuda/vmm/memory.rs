// SPDX-License-Identifier: Apache-2.0
//! Physical VMM memory, which has no address.

use std::sync::Arc;

use crate::base::{Result, ensure};
use crate::cuda::vmm::{AllocationProperties, Granularity, Location, PhysicalMemory};
use crate::ffi::common::{
    Handle, call_new, call_out, check_flags, destroy, kvmem_error, kvmem_status, not_one_of, opaque, options,
    read,
};

/// Physical memory without an address.
pub struct kvmem_vmm_memory {
    handle: Handle<Arc<PhysicalMemory>>,
}
opaque!(kvmem_vmm_memory, Arc<PhysicalMemory>, "memory");

/// Memory of a GPU.
pub const KVMEM_VMM_DEVICE: u32 = 1;
/// Memory of a NUMA node of the host.
pub const KVMEM_VMM_HOST_NUMA: u32 = 2;

/// The memory can be exported as a file descriptor.
pub const KVMEM_VMM_POSIX_FD: u64 = 1;
/// The memory can be exported as a fabric handle.
pub const KVMEM_VMM_FABRIC: u64 = 2;
/// The memory can be registered for RDMA.
pub const KVMEM_VMM_RDMA: u64 = 4;

/// Properties of VMM memory. They are fixed for the life of the memory.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct kvmem_vmm_options {
    /// sizeof(kvmem_vmm_options)
    pub struct_size: usize,
    /// Bytes, a multiple of the minimum granularity; kvmem_vmm_get_granularity ignores it.
    pub size: u64,
    /// KVMEM_VMM_DEVICE (0 selects it too) or KVMEM_VMM_HOST_NUMA.
    pub location: u32,
    /// The GPU, or the number of the NUMA node; 0 by default.
    pub id: i32,
    /// KVMEM_VMM_POSIX_FD, KVMEM_VMM_FABRIC and KVMEM_VMM_RDMA; 0 by default.
    pub flags: u64,
}
options!(kvmem_vmm_options);

/// The granularity that sizes and offsets must be multiples of.
pub const KVMEM_GRANULARITY_MINIMUM: u32 = 0;
/// The granularity that sizes and offsets should be multiples of.
pub const KVMEM_GRANULARITY_RECOMMENDED: u32 = 1;

/// Returns a granularity of VMM memory.
///
/// @param which KVMEM_GRANULARITY_MINIMUM or KVMEM_GRANULARITY_RECOMMENDED
/// @return KVMEM_STATUS_OUT_OF_RANGE: id is negative
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_vmm_get_granularity(
    options: *const kvmem_vmm_options,
    which: u32,
    granularity: *mut u64,
    error: *mut *mut kvmem_error,
) -> kvmem_status {
    call_out(error, (granularity, "granularity"), |_| {
        let options = read(options)?;
        let which = match which {
            KVMEM_GRANULARITY_MINIMUM => Granularity::Minimum,
            KVMEM_GRANULARITY_RECOMMENDED => Granularity::Recommended,
            other => return Err(not_one_of("which", other, "KVMEM_GRANULARITY_*")),
        };
        properties(&options)?.granularity(which)
    })
}

/// Creates VMM memory.
///
/// @return KVMEM_STATUS_INVALID_ARGUMENT: size is 0 or no multiple of the granularity, or a value is unknown
///         KVMEM_STATUS_OUT_OF_RANGE: id is negative
///         KVMEM_STATUS_OUT_OF_MEMORY: for a GPU, the message has the bytes requested and in total, and the
///           free bytes if the process has the primary context of the GPU
///         KVMEM_STATUS_CUDA: the driver does not support a handle type on this machine
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_vmm_memory_create(
    options: *const kvmem_vmm_options,
    memory: *mut *mut kvmem_vmm_memory,
    error: *mut *mut kvmem_error,
) -> kvmem_status {
    call_new(error, (memory, "memory"), |_| {
        let options = read(options)?;
        PhysicalMemory::create(options.size, properties(&options)?)
    })
}

/// Destroys a memory handle. The memory is freed when it has no mapping and no open file descriptor.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_vmm_memory_destroy(memory: *mut kvmem_vmm_memory) {
    destroy(memory);
}

fn properties(options: &kvmem_vmm_options) -> Result<AllocationProperties> {
    check_flags("kvmem_vmm_options", options.flags, KVMEM_VMM_POSIX_FD | KVMEM_VMM_FABRIC | KVMEM_VMM_RDMA)?;
    let has = |flag| options.flags & flag != 0;
    let location = match options.location {
        0 | KVMEM_VMM_DEVICE => Location::Device(options.id),
        KVMEM_VMM_HOST_NUMA => Location::HostNuma(options.id),
        other => return Err(not_one_of("location", other, "KVMEM_VMM_DEVICE or KVMEM_VMM_HOST_NUMA")),
    };
    ensure!(options.id >= 0, OutOfRange, "there is no {location}");
    Ok(AllocationProperties {
        location,
        posix_fd: has(KVMEM_VMM_POSIX_FD),
        fabric: has(KVMEM_VMM_FABRIC),
        rdma: has(KVMEM_VMM_RDMA),
    })
}
