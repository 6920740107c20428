// SPDX-License-Identifier: Apache-2.0
//! The ways by which memory goes from one process to another.

#![forbid(unsafe_code)]

use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;

use super::memory::PhysicalMemory;
use super::properties::{AllocationProperties, Location};
use crate::cuda::codes::{INVALID_VALUE, NOT_PERMITTED, NOT_SUPPORTED, has_code};
use crate::error::{Error, Result, Status, ensure};

/// A way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HandleType {
    /// A file descriptor.
    Fd,
    /// 64 bytes, which other machines of the fabric take too.
    Fabric,
}

/// Memory on its way out.
pub enum ExportedHandle {
    /// While it is open anywhere the memory stays.
    Fd(OwnedFd),
    /// It keeps nothing.
    Fabric([u8; 64]),
}

/// Memory on its way in.
#[derive(Clone, Copy)]
pub enum Shareable<'a> {
    /// It stays its owner's.
    Fd(BorrowedFd<'a>),
    /// The 64 bytes.
    Fabric(&'a [u8; 64]),
}

impl HandleType {
    /// What it is called.
    pub fn name(self) -> &'static str {
        match self {
            Self::Fd => "a file descriptor",
            Self::Fabric => "a fabric handle",
        }
    }
}

impl AllocationProperties {
    /// Whether memory of these properties goes this way.
    pub fn allow(&self, way: HandleType) -> bool {
        match way {
            HandleType::Fd => self.posix_fd,
            HandleType::Fabric => self.fabric,
        }
    }
}

impl PhysicalMemory {
    /// Exports it this way. UNSUPPORTED is memory that was not created for it, and what the driver won't give.
    pub fn export(&self, way: HandleType) -> Result<ExportedHandle> {
        ensure!(
            self.properties().allow(way),
            Unsupported,
            "the memory was not created to be exported as {}",
            way.name()
        );
        let exported = match way {
            HandleType::Fd => self.export_fd().map(ExportedHandle::Fd),
            HandleType::Fabric => self.export_fabric().map(ExportedHandle::Fabric),
        };
        exported.map_err(refused)
    }

    /// Imports what came. As large as `size` it turns out to be when it is mapped, or not.
    pub fn import(from: Shareable<'_>, size: u64, expected: Option<Location>) -> Result<Arc<Self>> {
        match from {
            Shareable::Fd(fd) => Self::import_fd(fd, size, expected),
            Shareable::Fabric(handle) => Self::import_fabric(handle, size, expected),
        }
    }
}

/// What the driver answers where it will never give a handle of the kind asked for.
pub(super) fn refused(error: Error) -> Error {
    let is_refusal = has_code(&error, &[NOT_PERMITTED, NOT_SUPPORTED, INVALID_VALUE]);
    if is_refusal { error.with_status(Status::Unsupported) } else { error }
}
