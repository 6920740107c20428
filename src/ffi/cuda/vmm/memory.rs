// SPDX-License-Identifier: Apache-2.0
//! Memory without an address.

use std::sync::Arc;

use crate::cuda::vmm::{AllocationProperties, Granularity, Location, PhysicalMemory};
use crate::error::{Result, ensure};
use crate::ffi::common::error::kvmem_error;
use crate::ffi::common::guard::call;
use crate::ffi::common::handle::{Handle, Out, destroy, opaque};
use crate::ffi::common::options::{check_flags, init, not_one_of, options, read};
use crate::ffi::common::pointer::out;
use crate::ffi::common::status::kvmem_status;

/// Memory without an address.
///
/// Threads: all functions may use one memory at the same time, except kvmem_vmm_memory_destroy.
pub struct kvmem_vmm_memory {
    handle: Handle<Arc<PhysicalMemory>>,
}
opaque!(kvmem_vmm_memory, Arc<PhysicalMemory>, "memory");

/// On a GPU.
pub const KVMEM_VMM_DEVICE: u32 = 1;
/// On a NUMA node of the host.
pub const KVMEM_VMM_HOST_NUMA: u32 = 2;

/// It can be exported as a file descriptor.
pub const KVMEM_VMM_POSIX_FD: u64 = 1;
/// It can be exported as a fabric handle.
pub const KVMEM_VMM_FABRIC: u64 = 2;
/// It can be registered for RDMA.
pub const KVMEM_VMM_RDMA: u64 = 4;

/// Options of kvmem_vmm_memory_create. The flags cannot be changed later.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct kvmem_vmm_options {
    /// sizeof(kvmem_vmm_options)
    pub struct_size: usize,
    /// KVMEM_VMM_POSIX_FD, KVMEM_VMM_FABRIC, KVMEM_VMM_RDMA.
    pub flags: u64,
    /// Bytes, a multiple of the minimum granularity. Ignored by kvmem_vmm_get_granularity.
    pub size: u64,
    /// KVMEM_VMM_DEVICE or KVMEM_VMM_HOST_NUMA; 0 for KVMEM_VMM_DEVICE.
    pub location: u32,
    /// GPU, in the order of CUDA_VISIBLE_DEVICES, or NUMA node.
    pub id: i32,
}
options!(kvmem_vmm_options);

/// Sets options to their defaults.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_vmm_options_init(options: *mut kvmem_vmm_options, struct_size: usize) {
    // SAFETY: by contract.
    unsafe { init(options, struct_size) };
}

/// Sizes and offsets must be multiples of it.
pub const KVMEM_GRANULARITY_MINIMUM: u32 = 0;
/// Sizes and offsets should be multiples of it.
pub const KVMEM_GRANULARITY_RECOMMENDED: u32 = 1;

/// Returns a granularity of memory.
///
/// @param options the memory
/// @param which a KVMEM_GRANULARITY_* value
/// @param granularity receives the bytes
/// @return KVMEM_STATUS_OK
///         KVMEM_STATUS_OUT_OF_RANGE: there is no such device or node
///         KVMEM_STATUS_UNAVAILABLE_CUDA, KVMEM_STATUS_CUDA
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_vmm_get_granularity(
    options: *const kvmem_vmm_options,
    which: u32,
    granularity: *mut u64,
    error: *mut *mut kvmem_error,
) -> kvmem_status {
    let body = |_: &_| {
        // SAFETY: by contract.
        let (granularity, options) = unsafe { (out(granularity, "granularity")?, read(options)?) };
        let which = match which {
            KVMEM_GRANULARITY_MINIMUM => Granularity::Minimum,
            KVMEM_GRANULARITY_RECOMMENDED => Granularity::Recommended,
            other => return Err(not_one_of("which", other, "KVMEM_GRANULARITY_*")),
        };
        granularity.write(properties(&options)?.granularity(which)?);
        Ok(())
    };
    // SAFETY: NULL or writable, by contract.
    unsafe { call(error, body) }
}

/// Creates memory.
///
/// @param options what to create
/// @param memory receives the memory; the caller destroys it
/// @return KVMEM_STATUS_OK
///         KVMEM_STATUS_INVALID_ARGUMENT: the size is not a multiple of the granularity
///         KVMEM_STATUS_OUT_OF_RANGE: there is no such device or node
///         KVMEM_STATUS_OUT_OF_MEMORY: for a GPU, the message has the bytes requested and in total, and the
///           free bytes if the process has its primary context
///         KVMEM_STATUS_CUDA: also if this machine does not support the handle type
///         KVMEM_STATUS_UNAVAILABLE_CUDA
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_vmm_memory_create(
    options: *const kvmem_vmm_options,
    memory: *mut *mut kvmem_vmm_memory,
    error: *mut *mut kvmem_error,
) -> kvmem_status {
    let body = |_: &_| {
        // SAFETY: by contract.
        let (memory, options) = unsafe { (Out::new(memory)?, read(options)?) };
        memory.set(PhysicalMemory::create(options.size, properties(&options)?)?);
        Ok(())
    };
    // SAFETY: NULL or writable, by contract.
    unsafe { call(error, body) }
}

/// Destroys a memory handle. The memory is freed when it is not mapped and no descriptor of it is open.
///
/// @param memory memory that no other call uses; NULL does nothing
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_vmm_memory_destroy(memory: *mut kvmem_vmm_memory) {
    // SAFETY: by contract.
    unsafe { destroy(memory) };
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
