// SPDX-License-Identifier: Apache-2.0
//! Export and import of VMM memory, for engines that transfer descriptors and handles themselves.

use std::os::fd::IntoRawFd;

use crate::base::{Result, ensure};
use crate::cuda::vmm::{Location, PhysicalMemory};
use crate::ffi::common::{borrow, call_new, call_out, kvmem_error, kvmem_status, null, open_fd};
use crate::ffi::cuda::vmm::memory::kvmem_vmm_memory;

/// VMM memory that other processes of the same fabric can import.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct kvmem_fabric_handle {
    /// The driver's handle.
    pub bytes: [u8; 64],
}

/// Exports memory as a close-on-exec file descriptor, which keeps the memory while it is open in any process.
///
/// @param fd receives the file descriptor; the caller closes it
/// @return KVMEM_STATUS_INVALID_STATE: the memory was created without KVMEM_VMM_POSIX_FD
///         KVMEM_STATUS_UNSUPPORTED: the memory was imported
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_vmm_memory_export_fd(
    memory: *const kvmem_vmm_memory,
    fd: *mut i32,
    error: *mut *mut kvmem_error,
) -> kvmem_status {
    call_out(error, (fd, "fd"), |scope| Ok(borrow(scope, memory)?.export_fd()?.into_raw_fd()))
}

/// Exports memory as a fabric handle, which processes on other machines of the fabric can import too. The
/// handle does not keep the memory allocated.
///
/// @return KVMEM_STATUS_INVALID_STATE: the memory was created without KVMEM_VMM_FABRIC
///         KVMEM_STATUS_UNSUPPORTED: the memory was imported
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_vmm_memory_export_fabric(
    memory: *const kvmem_vmm_memory,
    handle: *mut kvmem_fabric_handle,
    error: *mut *mut kvmem_error,
) -> kvmem_status {
    call_out(error, (handle, "handle"), |scope| {
        Ok(kvmem_fabric_handle { bytes: borrow(scope, memory)?.export_fabric()? })
    })
}

/// For the device of imported memory: accept any location.
pub const KVMEM_VMM_ANY_DEVICE: i32 = -1;

/// Imports memory from a file descriptor of another process. It can be mapped, but not exported again.
///
/// @param fd the file descriptor; the caller may close it after the call
/// @param size size of the whole memory in bytes, as its exporter reports it. The driver does not report it,
///        so a wrong size fails only in kvmem_vmm_mapping_create
/// @param device the GPU that the memory must be located on; KVMEM_VMM_ANY_DEVICE for any, or host memory
/// @return KVMEM_STATUS_INVALID_ARGUMENT: the file descriptor is not open, or not of VMM memory; the memory
///           is not located on `device`; or the size is 0 or not a multiple of the granularity
///         KVMEM_STATUS_NOT_FOUND: this process may not use the GPU of the memory
///         KVMEM_STATUS_UNSUPPORTED: the memory is located neither on a GPU nor on a NUMA node
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_vmm_memory_import_fd(
    fd: i32,
    size: u64,
    device: i32,
    memory: *mut *mut kvmem_vmm_memory,
    error: *mut *mut kvmem_error,
) -> kvmem_status {
    call_new(error, (memory, "memory"), |_| {
        let expected = expected(device)?;
        PhysicalMemory::import_fd(open_fd(fd)?, size, expected)
    })
}

/// Imports memory from a fabric handle of another process, otherwise as kvmem_vmm_memory_import_fd does.
///
/// @return KVMEM_STATUS_INVALID_ARGUMENT: the bytes are not a fabric handle, or its memory was freed; the
///           memory is not located on `device`; or the size is 0 or not a multiple of the granularity
///         KVMEM_STATUS_UNSUPPORTED: fabric handles do not work here, or the memory is located neither on a
///           GPU nor on a NUMA node
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_vmm_memory_import_fabric(
    handle: *const kvmem_fabric_handle,
    size: u64,
    device: i32,
    memory: *mut *mut kvmem_vmm_memory,
    error: *mut *mut kvmem_error,
) -> kvmem_status {
    call_new(error, (memory, "memory"), |_| {
        let handle = handle.as_ref();
        let handle = handle.ok_or_else(|| null("handle"))?;
        PhysicalMemory::import_fabric(&handle.bytes, size, expected(device)?)
    })
}

/// Retains memory that is mapped in this process, such as by an engine. The memory stays allocated when the
/// engine unmaps and releases it. It can be exported by the handle types that it was created with.
///
/// @param address any address in the mapping
/// @return KVMEM_STATUS_INVALID_ARGUMENT: no VMM memory is mapped at the address
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_vmm_memory_retain(
    address: u64,
    memory: *mut *mut kvmem_vmm_memory,
    error: *mut *mut kvmem_error,
) -> kvmem_status {
    call_new(error, (memory, "memory"), |_| PhysicalMemory::retain(address))
}

fn expected(device: i32) -> Result<Option<Location>> {
    ensure!(
        device >= KVMEM_VMM_ANY_DEVICE,
        InvalidArgument,
        "device is {device}; it must be an ordinal or KVMEM_VMM_ANY_DEVICE"
    );
    Ok((device != KVMEM_VMM_ANY_DEVICE).then_some(Location::Device(device)))
}
