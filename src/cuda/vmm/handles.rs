// SPDX-License-Identifier: Apache-2.0
//! Memory that leaves this process or comes into it: as a file descriptor, as a fabric handle, or by an address where
//! somebody else has mapped it.

use std::ffi::c_void;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::Arc;

use rustix::io::FdFlags;

use super::foreign;
use super::memory::{HandleOrigin, OwnedHandle, PhysicalMemory};
use super::properties::{AllocationProperties, Granularity, HANDLE_FABRIC, HANDLE_POSIX_FD, Location};
use super::shareable::{HandleType, refused};
use crate::cuda::codes::{INVALID_HANDLE, INVALID_VALUE, NOT_PERMITTED, NOT_SUPPORTED, has_code};
use crate::cuda::driver;
use crate::cuda::memory as pointers;
use crate::error::{Error, Result, Status, ensure};

/// Creates and exports memory of these properties, in every way that they ask for: an attribute of the device promises
/// more than the driver, its fabric and its permissions keep. UNSUPPORTED is what the driver won't give.
pub fn try_export(properties: AllocationProperties) -> Result<()> {
    let size = properties.granularity(Granularity::Minimum)?;
    let memory = PhysicalMemory::create(size, properties).map_err(refused)?;
    let mut ways = [HandleType::Fd, HandleType::Fabric].into_iter().filter(|way| properties.allow(*way));
    ways.try_for_each(|way| memory.export(way).map(drop))
}

/// Whether memory of these properties can really be created and exported here. A full device says nothing about
/// handles.
pub fn can_export(properties: AllocationProperties) -> bool {
    try_export(properties).map_or_else(|error| error.status() == Status::OutOfMemory, |()| true)
}

impl PhysicalMemory {
    /// A fabric handle for it.
    pub fn export_fabric(&self) -> Result<[u8; 64]> {
        self.check_export(self.properties().fabric, "a fabric handle")?;
        let mut handle = [0u8; 64];
        // SAFETY: for this handle type the driver writes 64 bytes.
        let answer = unsafe {
            self.driver.api.mem_export.call(
                handle.as_mut_ptr().cast::<c_void>(),
                self.handle,
                HANDLE_FABRIC,
                0,
            )
        };
        self.driver.check(answer, format_args!("export {} bytes as a fabric handle", self.size()))?;
        Ok(handle)
    }

    /// A file descriptor for it, close-on-exec. While one is open anywhere the memory stays.
    pub fn export_fd(&self) -> Result<OwnedFd> {
        self.check_export(self.properties().posix_fd, "a file descriptor")?;
        let mut fd = -1i32;
        // SAFETY: for this handle type the driver writes an int.
        let answer = unsafe {
            self.driver.api.mem_export.call((&raw mut fd).cast::<c_void>(), self.handle, HANDLE_POSIX_FD, 0)
        };
        self.driver.check(answer, format_args!("export {} bytes as a file descriptor", self.size()))?;
        // SAFETY: made for us just now.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        rustix::io::fcntl_setfd(&fd, FdFlags::CLOEXEC)
            .map_err(|errno| Error::errno(format!("close fd {} on exec", fd.as_raw_fd()), errno))?;
        Ok(fd)
    }

    /// Memory of a descriptor that somebody exported. The descriptor stays the caller's, and may be closed at once.
    ///
    /// What the memory is, the driver says, and `expected` is compared with it. How large it is nobody says: a wrong
    /// `size` is refused when it is mapped.
    pub fn import_fd(fd: BorrowedFd<'_>, size: u64, expected: Option<Location>) -> Result<Arc<Self>> {
        let held = import(fd.as_raw_fd() as usize as *mut c_void, HANDLE_POSIX_FD, "a file descriptor")
            .map_err(|error| foreign::explain(fd, error))?;
        Self::of_handle(held, size, expected)
    }

    /// Memory of a fabric handle that somebody exported, on this machine or on another of its fabric.
    pub fn import_fabric(handle: &[u8; 64], size: u64, expected: Option<Location>) -> Result<Arc<Self>> {
        let held = import(handle.as_ptr().cast_mut().cast::<c_void>(), HANDLE_FABRIC, "a fabric handle")
            .map_err(explain_fabric)?;
        Self::of_handle(held, size, expected)
    }

    /// Memory that somebody else in this process has mapped at `address`: it stays when they unmap it.
    pub fn retain(address: u64) -> Result<Arc<Self>> {
        let driver = driver::get()?;
        let mut handle = 0;
        // SAFETY: the output lives through the call; an address where nothing is mapped is answered with an error.
        let answer = unsafe { driver.api.mem_retain.call(&mut handle, address as usize as *mut c_void) };
        driver.check(answer, format_args!("find the memory mapped at {address:#x}")).map_err(|error| {
            if !has_code(&error, &[INVALID_VALUE]) {
                return error;
            }
            error
                .context("it is no memory that was created and mapped apart, as cuMemCreate and cuMemMap do")
                .with_status(Status::InvalidArgument)
        })?;
        let held = OwnedHandle { driver, handle, origin: HandleOrigin::Retained };
        // A mapping is of a whole memory: where the one ends the other does.
        let (_, size) = pointers::range_of(&pointers::owner_of(address)?, address)?;
        Self::of_handle(held, size, None)
    }

    fn check_export(&self, is_offered: bool, what: &str) -> Result<()> {
        ensure!(
            self.origin != HandleOrigin::Imported,
            Unsupported,
            "memory that was imported can't be exported again: ask the process that created it for {what}"
        );
        ensure!(is_offered, InvalidState, "the memory was not created to be exported as {what}");
        Ok(())
    }
}

fn import(shareable: *mut c_void, kind: u32, what: &str) -> Result<OwnedHandle> {
    let driver = driver::get()?;
    let mut handle = 0;
    // SAFETY: a descriptor by value, or 64 readable bytes, as the kind says; the output lives through the call.
    let answer = unsafe { driver.api.mem_import.call(&mut handle, shareable, kind) };
    driver.check(answer, format_args!("import memory from {what}"))?;
    Ok(OwnedHandle { driver, handle, origin: HandleOrigin::Imported })
}

fn explain_fabric(error: Error) -> Error {
    if has_code(&error, &[NOT_PERMITTED, NOT_SUPPORTED]) {
        let message = "fabric handles don't work here; use file descriptors between processes of one machine";
        return error.context(message).with_status(Status::Unsupported);
    }
    if has_code(&error, &[INVALID_VALUE, INVALID_HANDLE]) {
        let message = "the 64 bytes are no fabric handle, or one of memory that is gone";
        return error.context(message).with_status(Status::InvalidArgument);
    }
    error
}
