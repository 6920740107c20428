// SPDX-License-Identifier: Apache-2.0
//! VMM memory that leaves this process or comes into it, for engines that carry descriptors and handles themselves.

use std::os::fd::{BorrowedFd, IntoRawFd};

use crate::cuda::vmm::{Location, PhysicalMemory};
use crate::error::{Result, ensure};
use crate::ffi::common::error::kvmem_error;
use crate::ffi::common::guard::call;
use crate::ffi::common::handle::{Out, borrow};
use crate::ffi::common::pointer::{null, out};
use crate::ffi::common::status::kvmem_status;
use crate::ffi::cuda::vmm::memory::kvmem_vmm_memory;

/// What another process on the same fabric imports.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct kvmem_fabric_handle {
    /// The driver's handle.
    pub bytes: [u8; 64],
}

/// Exports memory as a file descriptor, close-on-exec. While one is open anywhere the memory stays.
///
/// @param memory memory created with KVMEM_VMM_POSIX_FD
/// @param fd gets a descriptor the caller closes
/// @param error gets the failure; may be NULL
/// @return KVMEM_STATUS_OK; KVMEM_STATUS_INVALID_STATE for memory created without the flag;
///         KVMEM_STATUS_UNSUPPORTED for memory that was imported; KVMEM_STATUS_CUDA
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

/// Exports memory as a fabric handle, which processes on other machines of the fabric can import too.
///
/// @param memory memory created with KVMEM_VMM_FABRIC
/// @param handle gets the handle
/// @param error gets the failure; may be NULL
/// @return KVMEM_STATUS_OK; KVMEM_STATUS_INVALID_STATE for memory created without the flag;
///         KVMEM_STATUS_UNSUPPORTED for memory that was imported; KVMEM_STATUS_CUDA
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

/// A device of imported memory that is not compared.
pub const KVMEM_VMM_ANY_DEVICE: i32 = -1;

/// Imports memory from a file descriptor that somebody exported. It is mapped like memory created here, but
/// can't be exported again.
///
/// @param fd the descriptor; it stays the caller's, who may close it once this returns
/// @param size bytes of all of the memory, as its exporter says. The driver does not tell: a wrong size is
///             refused by kvmem_vmm_mapping_create
/// @param device the GPU the memory lies on, as CUDA_VISIBLE_DEVICES orders them here: compared with what the
///               driver says; KVMEM_VMM_ANY_DEVICE for any, and for memory of the host
/// @param memory gets the memory; the caller destroys it
/// @param error gets the failure; may be NULL
/// @return KVMEM_STATUS_OK; KVMEM_STATUS_UNAVAILABLE_CUDA; KVMEM_STATUS_INVALID_ARGUMENT for a descriptor
///         that is not open or no memory of the driver's, for memory of another GPU, and for a size that is
///         no multiple of the granularity; KVMEM_STATUS_NOT_FOUND for memory of a GPU that this process may
///         not use; KVMEM_STATUS_CUDA
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

/// Imports memory from a fabric handle that somebody exported. It is mapped like memory created here, but
/// can't be exported again.
///
/// @param handle the handle
/// @param size bytes of all of the memory, as for kvmem_vmm_memory_import_fd
/// @param device the GPU the memory lies on, as for kvmem_vmm_memory_import_fd
/// @param memory gets the memory; the caller destroys it
/// @param error gets the failure; may be NULL
/// @return KVMEM_STATUS_OK; KVMEM_STATUS_UNAVAILABLE_CUDA; KVMEM_STATUS_UNSUPPORTED where fabric handles
///         don't work; KVMEM_STATUS_INVALID_ARGUMENT as for kvmem_vmm_memory_import_fd; KVMEM_STATUS_CUDA
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

/// Takes hold of memory that somebody else in this process has mapped, such as an engine: it stays when they
/// let go, and is exported as it was created.
///
/// @param address any byte of the mapping
/// @param memory gets the memory; the caller destroys it
/// @param error gets the failure; may be NULL
/// @return KVMEM_STATUS_OK; KVMEM_STATUS_UNAVAILABLE_CUDA; KVMEM_STATUS_INVALID_ARGUMENT where no memory that
///         was created and mapped apart lies; KVMEM_STATUS_CUDA
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

/// A descriptor of the caller's, if it is open.
///
/// # Safety
/// The caller must keep it open as long as the result is used.
unsafe fn open_fd<'a>(fd: i32) -> Result<BorrowedFd<'a>> {
    // SAFETY: asks for a flag; a descriptor that is not open is answered with EBADF.
    let is_open = unsafe { libc::fcntl(fd, libc::F_GETFD) } >= 0;
    ensure!(is_open, InvalidArgument, "fd {fd} is not open in this process");
    // SAFETY: open, so not -1; it stays so by promise.
    Ok(unsafe { BorrowedFd::borrow_raw(fd) })
}
