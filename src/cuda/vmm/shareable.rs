// SPDX-License-Identifier: Apache-2.0
//! Types of handles by which memory is exported and imported.

use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;

use super::memory::PhysicalMemory;
use super::properties::{AllocationProperties, Location};
use crate::base::{Error, Result, Status, ensure};
use crate::cuda::codes::{INVALID_VALUE, NOT_PERMITTED, NOT_SUPPORTED, has_code};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HandleType {
    Fd,
    /// 64 bytes, which other machines of the fabric can import too.
    Fabric,
}

pub enum ExportedHandle {
    /// It keeps the memory while any process has it open.
    Fd(OwnedFd),
    /// It does not keep the memory.
    Fabric([u8; 64]),
}

/// A handle to import memory from.
#[derive(Clone, Copy)]
pub enum Shareable<'a> {
    /// Borrowed: importing does not close it.
    Fd(BorrowedFd<'a>),
    Fabric(&'a [u8; 64]),
}

impl HandleType {
    /// Its name, for messages.
    pub fn name(self) -> &'static str {
        match self {
            Self::Fd => "a file descriptor",
            Self::Fabric => "a fabric handle",
        }
    }
}

impl AllocationProperties {
    /// Whether memory with these properties can be exported as this type.
    pub fn allow(&self, kind: HandleType) -> bool {
        match kind {
            HandleType::Fd => self.posix_fd,
            HandleType::Fabric => self.fabric,
        }
    }
}

impl PhysicalMemory {
    /// Exports it. Fails with UNSUPPORTED if it was not created for this type, or if the driver refuses.
    pub fn export(&self, kind: HandleType) -> Result<ExportedHandle> {
        ensure!(
            self.properties().allow(kind),
            Unsupported,
            "the memory was not created to be exported as {}",
            kind.name()
        );
        let exported = match kind {
            HandleType::Fd => self.export_fd().map(ExportedHandle::Fd),
            HandleType::Fabric => self.export_fabric().map(ExportedHandle::Fabric),
        };
        exported.map_err(refused)
    }

    /// Imports memory. A wrong `size` fails when the memory is mapped.
    pub fn import(from: Shareable<'_>, size: u64, expected: Option<Location>) -> Result<Arc<Self>> {
        match from {
            Shareable::Fd(fd) => Self::import_fd(fd, size, expected),
            Shareable::Fabric(handle) => Self::import_fabric(handle, size, expected),
        }
    }
}

/// Changes the status to UNSUPPORTED if the driver never exports this type of handle.
pub(super) fn refused(error: Error) -> Error {
    let is_refusal = has_code(&error, &[NOT_PERMITTED, NOT_SUPPORTED, INVALID_VALUE]);
    if is_refusal { error.with_status(Status::Unsupported) } else { error }
}
