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
/// Threads: all functions on one memory may run at once, except kvmem_vmm_memory_destroy.
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

/// What memory to create. The flags are fixed for the life of the memory.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct kvmem_vmm_options {
    /// sizeof(kvmem_vmm_options)
    pub struct_size: usize,
    /// KVMEM_VMM_* flags.
    pub flags: u64,
    /// Bytes, a multiple of the minimum granularity. Not read by kvmem_vmm_get_granularity.
    pub size: u64,
    /// KVMEM_VMM_DEVICE or KVMEM_VMM_HOST_NUMA; 0 for KVMEM_VMM_DEVICE.
    pub location: u32,
    /// The GPU, as CUDA_VISIBLE_DEVICES orders them, or the node.
    pub id: i32,
}
options!(kvmem_vmm_options);

/// Fills options with defaults.
///
/// @param options the caller's struct; NULL does nothing
/// @param struct_size sizeof(*options); no more is written
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_vmm_options_init(options: *mut kvmem_vmm_options, struct_size: usize) {
    // SAFETY: by contract.
    unsafe { init(options, struct_size) };
}

/// What sizes and offsets must be multiples of.
pub const KVMEM_GRANULARITY_MINIMUM: u32 = 0;
/// What they should be multiples of.
pub const KVMEM_GRANULARITY_RECOMMENDED: u32 = 1;

/// Tells what sizes and offsets of such memory must or should be multiples of.
///
/// @param options the memory
/// @param which a KVMEM_GRANULARITY_* value
/// @param granularity gets the bytes
/// @param error gets the failure; may be NULL
/// @return KVMEM_STATUS_OK; KVMEM_STATUS_UNAVAILABLE_CUDA; KVMEM_STATUS_OUT_OF_RANGE for a device that is not
///         there; KVMEM_STATUS_INVALID_ARGUMENT; KVMEM_STATUS_CUDA
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
/// @param memory gets the memory; the caller destroys it
/// @param error gets the failure; may be NULL
/// @return KVMEM_STATUS_OK; KVMEM_STATUS_UNAVAILABLE_CUDA; KVMEM_STATUS_OUT_OF_RANGE for a device that is not
///         there; KVMEM_STATUS_INVALID_ARGUMENT, also for a size that is no multiple of the granularity;
///         KVMEM_STATUS_OUT_OF_MEMORY, of a GPU with the bytes asked, those it has, and where the process has
///         its primary context those free; KVMEM_STATUS_CUDA, also for a handle type this machine does not
///         give
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

/// Destroys a memory handle. The memory is freed when it is mapped nowhere and no descriptor of it is open.
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
