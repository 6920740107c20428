// SPDX-License-Identifier: Apache-2.0
//! VMM memory that leaves this process or comes into it, for engines that carry descriptors and handles themselves.

use std::os::fd::IntoRawFd;

use crate::cuda::vmm::{Location, PhysicalMemory};
use crate::error::{Result, ensure};
use crate::ffi::common::error::kvmem_error;
use crate::ffi::common::fd::open_fd;
use crate::ffi::common::guard::call;
use crate::ffi::common::handle::{Out, borrow};
use crate::ffi::common::pointer::{null, out};
use crate::ffi::common::status::kvmem_status;
use crate::ffi::cuda::vmm::memory::kvmem_vmm_memory;

/// What another process on the same fabric needs to import memory.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct kvmem_fabric_handle {
    /// The driver's handle.
    pub bytes: [u8; 64],
}

/// Exports memory as a file descriptor, which is close-on-exec. The memory stays allocated while the
/// descriptor is open in any process.
///
/// @param memory memory created with KVMEM_VMM_POSIX_FD
/// @param fd receives a descriptor, which the caller closes
/// @return KVMEM_STATUS_OK
///         KVMEM_STATUS_INVALID_STATE: the memory was created without the flag
///         KVMEM_STATUS_UNSUPPORTED: the memory was imported
///         KVMEM_STATUS_CUDA
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_vmm_memory_export_fd(
    memory: *const kvmem_vmm_memory,
    fd: *mut i32,
    error: *mut *mut kvmem_error,
) -> kvmem_status {
    // SAFETY: by contract.
    unsafe {
        call(error, |scope| {
            let fd = out(fd, "fd")?;
            fd.write(borrow(scope, memory)?.export_fd()?.into_raw_fd());
            Ok(())
        })
    }
}

/// Exports memory as a fabric handle, which processes on other machines of the fabric can import as well.
///
/// @param memory memory created with KVMEM_VMM_FABRIC
/// @param handle receives the handle
/// @return KVMEM_STATUS_OK
///         KVMEM_STATUS_INVALID_STATE: the memory was created without the flag
///         KVMEM_STATUS_UNSUPPORTED: the memory was imported
///         KVMEM_STATUS_CUDA
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_vmm_memory_export_fabric(
    memory: *const kvmem_vmm_memory,
    handle: *mut kvmem_fabric_handle,
    error: *mut *mut kvmem_error,
) -> kvmem_status {
    // SAFETY: by contract.
    unsafe {
        call(error, |scope| {
            let handle = out(handle, "handle")?;
            handle.write(kvmem_fabric_handle { bytes: borrow(scope, memory)?.export_fabric()? });
            Ok(())
        })
    }
}

/// Do not compare the device of imported memory.
pub const KVMEM_VMM_ANY_DEVICE: i32 = -1;

/// Imports memory from a file descriptor. It is mapped like memory that was created here, but cannot be
/// exported again.
///
/// @param fd the descriptor; the caller may close it after the call
/// @param size bytes of all of the memory, as its exporter states. The driver does not report it:
///         kvmem_vmm_mapping_create fails for a wrong size
/// @param device GPU that the memory is located on, in the order of CUDA_VISIBLE_DEVICES of this process;
///         compared with what the driver reports. KVMEM_VMM_ANY_DEVICE for any GPU, and for host memory
/// @param memory receives the memory; the caller destroys it
/// @return KVMEM_STATUS_OK
///         KVMEM_STATUS_INVALID_ARGUMENT: the descriptor is not open or not memory of the driver; it is
///           memory of another GPU; or the size is not a multiple of the granularity
///         KVMEM_STATUS_NOT_FOUND: this process cannot use the GPU
///         KVMEM_STATUS_UNAVAILABLE_CUDA, KVMEM_STATUS_CUDA
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_vmm_memory_import_fd(
    fd: i32,
    size: u64,
    device: i32,
    memory: *mut *mut kvmem_vmm_memory,
    error: *mut *mut kvmem_error,
) -> kvmem_status {
    let body = |_: &_| {
        // SAFETY: by contract.
        let memory = unsafe { Out::new(memory) }?;
        let expected = expected(device)?;
        // SAFETY: the descriptor stays open during the call, by contract.
        memory.set(PhysicalMemory::import_fd(unsafe { open_fd(fd) }?, size, expected)?);
        Ok(())
    };
    // SAFETY: NULL or writable, by contract.
    unsafe { call(error, body) }
}

/// Imports memory from a fabric handle. It is mapped like memory that was created here, but cannot be
/// exported again.
///
/// @param handle the handle
/// @param size bytes of all of the memory, as for kvmem_vmm_memory_import_fd
/// @param device GPU that the memory is located on, as for kvmem_vmm_memory_import_fd
/// @param memory receives the memory; the caller destroys it
/// @return KVMEM_STATUS_OK
///         KVMEM_STATUS_UNSUPPORTED: fabric handles do not work here
///         any other status of kvmem_vmm_memory_import_fd
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_vmm_memory_import_fabric(
    handle: *const kvmem_fabric_handle,
    size: u64,
    device: i32,
    memory: *mut *mut kvmem_vmm_memory,
    error: *mut *mut kvmem_error,
) -> kvmem_status {
    let body = |_: &_| {
        // SAFETY: by contract.
        let (memory, handle) = unsafe { (Out::new(memory)?, handle.as_ref()) };
        let handle = handle.ok_or_else(|| null("handle"))?;
        memory.set(PhysicalMemory::import_fabric(&handle.bytes, size, expected(device)?)?);
        Ok(())
    };
    // SAFETY: NULL or writable, by contract.
    unsafe { call(error, body) }
}

/// Returns memory that is mapped in this process, for example by an engine. It stays allocated if its owner
/// releases it, and can be exported as it was created.
///
/// @param address any byte of the mapping
/// @param memory receives the memory; the caller destroys it
/// @return KVMEM_STATUS_OK
///         KVMEM_STATUS_INVALID_ARGUMENT: no memory that was created and mapped by VMM is at the address
///         KVMEM_STATUS_UNAVAILABLE_CUDA, KVMEM_STATUS_CUDA
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_vmm_memory_retain(
    address: u64,
    memory: *mut *mut kvmem_vmm_memory,
    error: *mut *mut kvmem_error,
) -> kvmem_status {
    let body = |_: &_| {
        // SAFETY: by contract.
        let memory = unsafe { Out::new(memory) }?;
        memory.set(PhysicalMemory::retain(address)?);
        Ok(())
    };
    // SAFETY: NULL or writable, by contract.
    unsafe { call(error, body) }
}

fn expected(device: i32) -> Result<Option<Location>> {
    ensure!(
        device >= KVMEM_VMM_ANY_DEVICE,
        InvalidArgument,
        "device is {device}; it is an ordinal or KVMEM_VMM_ANY_DEVICE"
    );
    Ok((device != KVMEM_VMM_ANY_DEVICE).then_some(Location::Device(device)))
}
