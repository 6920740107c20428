// SPDX-License-Identifier: Apache-2.0
//! Exporting physical memory, and importing it: as a file descriptor, as a fabric handle, or by an address at which other
//! code has mapped it.
#![allow(unsafe_code)]

use std::ffi::c_void;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::Arc;

use rustix::io::FdFlags;

use super::foreign;
use super::memory::{HandleOrigin, OwnedHandle, PhysicalMemory};
use super::properties::{AllocationProperties, Granularity, HANDLE_FABRIC, HANDLE_POSIX_FD, Location};
use super::shareable::{HandleType, refused};
use crate::base::{Error, Result, Status, ensure};
use crate::cuda::codes::{INVALID_HANDLE, INVALID_VALUE, NOT_PERMITTED, NOT_SUPPORTED, has_code};
use crate::cuda::driver;
use crate::cuda::memory as pointers;

/// Creates memory with these properties, and exports it as every type of handle that they request. A device attribute is
/// no guarantee, because the fabric and permissions matter too. Fails with UNSUPPORTED if the driver refuses.
pub fn try_export(properties: AllocationProperties) -> Result<()> {
    let size = properties.granularity(Granularity::Minimum)?;
    let memory = PhysicalMemory::create(size, properties).map_err(refused)?;
    let types = [HandleType::Fd, HandleType::Fabric].into_iter();
    types.filter(|kind| properties.allow(*kind)).try_for_each(|kind| memory.export(kind).map(drop))
}

/// Whether memory with these properties can be created and exported. True if the device is full, because then it is
/// unknown.
pub fn can_export(properties: AllocationProperties) -> bool {
    try_export(properties).map_or_else(|error| error.status() == Status::OutOfMemory, |()| true)
}

impl PhysicalMemory {
    pub fn export_fabric(&self) -> Result<[u8; 64]> {
        self.check_export(self.properties().fabric, "a fabric handle", "KVMEM_VMM_FABRIC")?;
        let mut handle = [0u8; 64];
        // SAFETY: for this handle type the driver writes 64 bytes.
        let result = unsafe {
            self.driver.api.mem_export.call(
                handle.as_mut_ptr().cast::<c_void>(),
                self.handle,
                HANDLE_FABRIC,
                0,
            )
        };
        self.driver.check(result, format_args!("export {} bytes as a fabric handle", self.size()))?;
        Ok(handle)
    }

    /// Exports it as a file descriptor, close-on-exec. An open descriptor in any process keeps the memory.
    pub fn export_fd(&self) -> Result<OwnedFd> {
        self.check_export(self.properties().posix_fd, "a file descriptor", "KVMEM_VMM_POSIX_FD")?;
        let mut fd = -1i32;
        // SAFETY: for this handle type the driver writes an int.
        let result = unsafe {
            self.driver.api.mem_export.call((&raw mut fd).cast::<c_void>(), self.handle, HANDLE_POSIX_FD, 0)
        };
        self.driver.check(result, format_args!("export {} bytes as a file descriptor", self.size()))?;
        // SAFETY: the driver has just created it for this call.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        rustix::io::fcntl_setfd(&fd, FdFlags::CLOEXEC)
            .map_err(|errno| Error::errno(format!("close fd {} on exec", fd.as_raw_fd()), errno))?;
        Ok(fd)
    }

    /// Imports memory from a file descriptor. The caller owns the descriptor, and may close it after this.
    ///
    /// The driver reports the location, which is compared with `expected`. It reports no size: a wrong `size` fails when the
    /// memory is mapped.
    pub fn import_fd(fd: BorrowedFd<'_>, size: u64, expected: Option<Location>) -> Result<Arc<Self>> {
        let held = import(fd.as_raw_fd() as usize as *mut c_void, HANDLE_POSIX_FD, "a file descriptor")
            .map_err(|error| foreign::explain(fd, error))?;
        Self::from_handle(held, size, expected)
    }

    /// Imports memory from a fabric handle of this machine or of another machine of its fabric.
    pub fn import_fabric(handle: &[u8; 64], size: u64, expected: Option<Location>) -> Result<Arc<Self>> {
        let held = import(handle.as_ptr().cast_mut().cast::<c_void>(), HANDLE_FABRIC, "a fabric handle")
            .map_err(explain_fabric)?;
        Self::from_handle(held, size, expected)
    }

    /// Retains the memory that other code of this process has mapped at `address`, also after it is unmapped.
    pub fn retain(address: u64) -> Result<Arc<Self>> {
        let driver = driver::get()?;
        let mut handle = 0;
        // SAFETY: the output lives through the call; for an address without a mapping the driver returns an error.
        let result = unsafe { driver.api.mem_retain.call(&mut handle, address as usize as *mut c_void) };
        driver.check(result, format_args!("find the memory mapped at {address:#x}")).map_err(|error| {
            if !has_code(&error, &[INVALID_VALUE]) {
                return error;
            }
            error
                .context(format!(
                    "{address:#x} is not VMM memory, which cuMemCreate creates and cuMemMap maps"
                ))
                .with_status(Status::InvalidArgument)
        })?;
        let held = OwnedHandle { driver, handle, origin: HandleOrigin::Retained };
        // A mapping is of a whole memory, so both have the same size.
        let (_, size) = pointers::range_of(&pointers::owner_of(address)?, address)?;
        Self::from_handle(held, size, None)
    }

    fn check_export(&self, is_offered: bool, what: &str, flag: &str) -> Result<()> {
        ensure!(
            self.origin != HandleOrigin::Imported,
            Unsupported,
            "imported memory cannot be exported again: have the process that created it export {what}"
        );
        ensure!(
            is_offered,
            InvalidState,
            "the memory was not created to be exported as {what}; create it with {flag}"
        );
        Ok(())
    }
}

fn import(shareable: *mut c_void, kind: u32, what: &str) -> Result<OwnedHandle> {
    let driver = driver::get()?;
    let mut handle = 0;
    // SAFETY: a descriptor by value, or 64 readable bytes, according to the kind; the output lives through the call.
    let result = unsafe { driver.api.mem_import.call(&mut handle, shareable, kind) };
    driver.check(result, format_args!("import memory from {what}"))?;
    Ok(OwnedHandle { driver, handle, origin: HandleOrigin::Imported })
}

fn explain_fabric(error: Error) -> Error {
    if has_code(&error, &[NOT_PERMITTED, NOT_SUPPORTED]) {
        let message =
            "fabric handles are not available here; use file descriptors between processes of one machine";
        return error.context(message).with_status(Status::Unsupported);
    }
    if has_code(&error, &[INVALID_VALUE, INVALID_HANDLE]) {
        let message = "the 64 bytes are not a fabric handle, or its memory was freed";
        return error.context(message).with_status(Status::InvalidArgument);
    }
    error
}
