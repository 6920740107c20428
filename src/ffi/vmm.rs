// SPDX-License-Identifier: Apache-2.0
//! The CUDA driver's virtual memory management, step by step, for engines that do it themselves.

use std::sync::Arc;

use super::error::kvmem_error;
use super::guard::call;
use super::handle::{Handle, Out, borrow, destroy, opaque, out};
use super::options::{check_flags, init, not_one_of, options, read};
use super::status::kvmem_status;
use crate::cuda::vmm::{
    AddressRange, AllocationProperties, DeviceAccess, DeviceMapping, Granularity, Location, PhysicalMemory,
};
use crate::error::{Result, ensure};

/// A range of device addresses with nothing behind them until something is mapped.
///
/// Threads: all functions on one range may run at once, except kvmem_vmm_range_destroy.
pub struct kvmem_vmm_range {
    handle: Handle<Arc<AddressRange>>,
}
opaque!(kvmem_vmm_range, Arc<AddressRange>, "range");

/// Memory without an address.
///
/// Threads: all functions on one memory may run at once, except kvmem_vmm_memory_destroy.
pub struct kvmem_vmm_memory {
    handle: Handle<Arc<PhysicalMemory>>,
}
opaque!(kvmem_vmm_memory, Arc<PhysicalMemory>, "memory");

/// Memory at an address. It holds its range and its memory, so the three may be destroyed in any order.
///
/// Threads: all functions on one mapping may run at once, except kvmem_vmm_mapping_destroy.
pub struct kvmem_vmm_mapping {
    handle: Handle<Arc<DeviceMapping>>,
}
opaque!(kvmem_vmm_mapping, Arc<DeviceMapping>, "mapping");

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

/// What sizes and offsets must be multiples of.
pub const KVMEM_GRANULARITY_MINIMUM: u32 = 0;
/// What they should be multiples of.
pub const KVMEM_GRANULARITY_RECOMMENDED: u32 = 1;

/// Nothing.
pub const KVMEM_ACCESS_NONE: u32 = 0;
/// Read.
pub const KVMEM_ACCESS_READ: u32 = 1;
/// Read and write.
pub const KVMEM_ACCESS_READ_WRITE: u32 = 3;

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

/// Tells what sizes and offsets of such memory must or should be multiples of.
///
/// @param options the memory
/// @param which a KVMEM_GRANULARITY_* value
/// @param granularity gets the bytes
/// @param error gets the failure; may be NULL
/// @return KVMEM_STATUS_OK; KVMEM_STATUS_UNAVAILABLE_CUDA; KVMEM_STATUS_OUT_OF_RANGE for a device that is not there;
///         KVMEM_STATUS_INVALID_ARGUMENT; KVMEM_STATUS_CUDA
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

/// Reserves device addresses. Takes no memory.
///
/// @param size bytes, a multiple of the page size; of the granularity to be mapped fully
/// @param alignment a power of two the first address is a multiple of; 0 for the driver's choice
/// @param range gets the range; the caller destroys it
/// @param error gets the failure; may be NULL
/// @return KVMEM_STATUS_OK; KVMEM_STATUS_UNAVAILABLE_CUDA; KVMEM_STATUS_INVALID_ARGUMENT;
///         KVMEM_STATUS_OUT_OF_MEMORY without addresses; KVMEM_STATUS_CUDA
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_vmm_range_create(
    size: u64,
    alignment: u64,
    range: *mut *mut kvmem_vmm_range,
    error: *mut *mut kvmem_error,
) -> kvmem_status {
    let body = |_: &_| {
        // SAFETY: by contract.
        let range = unsafe { Out::new(range) }?;
        range.set(AddressRange::reserve(size, alignment)?);
        Ok(())
    };
    // SAFETY: NULL or writable, by contract.
    unsafe { call(error, body) }
}

/// Where a range lies.
///
/// @param range a range
/// @param address gets its first address
/// @param size gets its bytes
/// @param error gets the failure; may be NULL
/// @return KVMEM_STATUS_OK; KVMEM_STATUS_INVALID_ARGUMENT for a NULL pointer
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_vmm_range_get_span(
    range: *const kvmem_vmm_range,
    address: *mut u64,
    size: *mut u64,
    error: *mut *mut kvmem_error,
) -> kvmem_status {
    // SAFETY: by contract.
    unsafe {
        call(error, |scope| {
            let (address, size) = (out(address, "address")?, out(size, "size")?);
            let range = borrow(scope, range)?;
            address.write(range.address());
            size.write(range.size());
            Ok(())
        })
    }
}

/// Destroys a range handle. The addresses are freed when nothing is mapped there.
///
/// @param range a range that no other call uses; NULL does nothing
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_vmm_range_destroy(range: *mut kvmem_vmm_range) {
    // SAFETY: by contract.
    unsafe { destroy(range) };
}

/// Creates memory.
///
/// @param options what to create
/// @param memory gets the memory; the caller destroys it
/// @param error gets the failure; may be NULL
/// @return KVMEM_STATUS_OK; KVMEM_STATUS_UNAVAILABLE_CUDA; KVMEM_STATUS_OUT_OF_RANGE for a device that is not there;
///         KVMEM_STATUS_INVALID_ARGUMENT, also for a size that is no multiple of the granularity;
///         KVMEM_STATUS_OUT_OF_MEMORY, of a GPU with the bytes asked, those it has, and where the process has its primary
///         context those free; KVMEM_STATUS_CUDA, also for a handle type this machine does not give
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

/// Maps all of a memory into a range. No GPU may touch it until kvmem_vmm_mapping_set_access says so.
///
/// @param range where
/// @param offset bytes from the start of the range, a multiple of the granularity
/// @param memory what
/// @param mapping gets the mapping; the caller destroys it
/// @param error gets the failure; may be NULL
/// @return KVMEM_STATUS_OK; KVMEM_STATUS_INVALID_ARGUMENT for an offset that is no multiple, and for memory that was
///         imported with another size than it has;
///         KVMEM_STATUS_OUT_OF_RANGE when it does not fit; KVMEM_STATUS_ALREADY_EXISTS where something is mapped;
///         KVMEM_STATUS_CUDA
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_vmm_mapping_create(
    range: *mut kvmem_vmm_range,
    offset: u64,
    memory: *mut kvmem_vmm_memory,
    mapping: *mut *mut kvmem_vmm_mapping,
    error: *mut *mut kvmem_error,
) -> kvmem_status {
    // SAFETY: by contract.
    unsafe {
        call(error, |scope| {
            let mapping = Out::new(mapping)?;
            mapping.set(DeviceMapping::create(borrow(scope, range)?, offset, borrow(scope, memory)?)?);
            Ok(())
        })
    }
}

/// Says what a GPU may do with a mapping.
///
/// @param mapping a mapping
/// @param device the GPU, as CUDA_VISIBLE_DEVICES orders them
/// @param access a KVMEM_ACCESS_* value
/// @param error gets the failure; may be NULL
/// @return KVMEM_STATUS_OK; KVMEM_STATUS_OUT_OF_RANGE for a device that is not there; KVMEM_STATUS_INVALID_ARGUMENT
///         for an access that is none; KVMEM_STATUS_UNSUPPORTED for a GPU that does not reach the memory;
///         KVMEM_STATUS_CUDA
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_vmm_mapping_set_access(
    mapping: *mut kvmem_vmm_mapping,
    device: i32,
    access: u32,
    error: *mut *mut kvmem_error,
) -> kvmem_status {
    // SAFETY: by contract.
    unsafe {
        call(error, |scope| {
            let access = match access {
                KVMEM_ACCESS_NONE => DeviceAccess::None,
                KVMEM_ACCESS_READ => DeviceAccess::Read,
                KVMEM_ACCESS_READ_WRITE => DeviceAccess::ReadWrite,
                other => return Err(not_one_of("access", other, "KVMEM_ACCESS_*")),
            };
            borrow(scope, mapping)?.set_access(device, access)
        })
    }
}

/// Tells what a GPU may do with a mapping.
///
/// @param mapping a mapping
/// @param device the GPU, as CUDA_VISIBLE_DEVICES orders them
/// @param access gets a KVMEM_ACCESS_* value
/// @param error gets the failure; may be NULL
/// @return KVMEM_STATUS_OK; KVMEM_STATUS_OUT_OF_RANGE for a device that is not there; KVMEM_STATUS_CUDA
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_vmm_mapping_get_access(
    mapping: *const kvmem_vmm_mapping,
    device: i32,
    access: *mut u32,
    error: *mut *mut kvmem_error,
) -> kvmem_status {
    // SAFETY: by contract.
    unsafe {
        call(error, |scope| {
            let access = out(access, "access")?;
            access.write(match borrow(scope, mapping)?.access(device)? {
                DeviceAccess::None => KVMEM_ACCESS_NONE,
                DeviceAccess::Read => KVMEM_ACCESS_READ,
                DeviceAccess::ReadWrite => KVMEM_ACCESS_READ_WRITE,
            });
            Ok(())
        })
    }
}

/// Where a mapping lies.
///
/// @param mapping a mapping
/// @param address gets its first address
/// @param size gets its bytes
/// @param error gets the failure; may be NULL
/// @return KVMEM_STATUS_OK; KVMEM_STATUS_INVALID_ARGUMENT for a NULL pointer
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_vmm_mapping_get_span(
    mapping: *const kvmem_vmm_mapping,
    address: *mut u64,
    size: *mut u64,
    error: *mut *mut kvmem_error,
) -> kvmem_status {
    // SAFETY: by contract.
    unsafe {
        call(error, |scope| {
            let (address, size) = (out(address, "address")?, out(size, "size")?);
            let mapping = borrow(scope, mapping)?;
            address.write(mapping.address());
            size.write(mapping.size());
            Ok(())
        })
    }
}

/// Unmaps: its addresses must not be used any more, by any GPU.
///
/// @param mapping a mapping that no other call uses; NULL does nothing
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_vmm_mapping_destroy(mapping: *mut kvmem_vmm_mapping) {
    // SAFETY: by contract.
    unsafe { destroy(mapping) };
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
