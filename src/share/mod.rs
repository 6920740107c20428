// SPDX-License-Identifier: Apache-2.0
//! Shares: a region or a layout on its way to another process, whatever its tier.
//!
//! A share is bytes, the manifest, and file descriptors. Whoever has both opens it, and gets a region or a layout like
//! any other. Opened where it was made, it gives the original memory.

mod backing;
pub mod broker;
mod memory_handle;
pub mod client;
mod export;
pub mod frame;
mod share_options;
mod import;
mod incoming;
mod manifest;
mod message;
mod narrowed;
mod open_options;
mod outgoing;
mod parcel;
mod publication;
pub mod socket;

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

pub use manifest::{Manifest, Object};
pub use open_options::{OpenOptions, Reach};
pub use parcel::Parcel;
pub use publication::Published;
pub use share_options::{ShareOptions, Transport};

use crate::cuda::vmm::PhysicalMemory;
use crate::error::{Error, Result, Status};
use crate::layout::Layout;
use crate::log::log;
use crate::log_id::LogId;
use crate::region::{ExtentHold, SharedRegion};

/// What a share keeps.
struct Retained {
    /// One for each entry of the manifest's regions.
    roots: Vec<RetainedRoot>,
    /// A shared layout, with its registrations.
    _layout: Option<Arc<Layout>>,
}

/// What a share keeps of a region that it carries.
struct RetainedRoot {
    region: SharedRegion,
    /// Extents of an elastic region.
    _extents: Option<ExtentHold>,
    /// The memory of mappings that were found under a region: it stays also if the engine that mapped it unmaps it.
    _mappings: Vec<Arc<PhysicalMemory>>,
}

/// A region or a layout on its way to another process.
pub struct Share {
    log_id: LogId,
    manifest: Manifest,
    parcel: Arc<Parcel>,
    /// `None` if another process made the share.
    kept: Option<Retained>,
}

impl Share {
    /// What came from another process. Any bytes and file descriptors may come.
    pub fn received(bytes: Vec<u8>, fds: Vec<OwnedFd>) -> Result<Self> {
        let manifest = Manifest::read(&bytes, fds.len())?;
        let log_id = LogId::next();
        log!(Debug, "share {log_id} created from what process {} has shared", manifest.process.pid);
        Ok(Self { log_id, manifest, parcel: Arc::new(Parcel { bytes, fds }), kept: None })
    }

    /// What came over a socket.
    pub fn of_parcel(parcel: Parcel) -> Result<Self> {
        Self::received(parcel.bytes, parcel.fds)
    }

    /// As it is handed over.
    pub fn parcel(&self) -> &Arc<Parcel> {
        &self.parcel
    }

    /// What it says.
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// Its bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.parcel.bytes
    }

    /// Its file descriptors; sending one does not give it away.
    pub fn fds(&self) -> &[OwnedFd] {
        &self.parcel.fds
    }

    /// A file descriptor of its own for whoever opens.
    fn fd(&self, index: u32) -> Result<OwnedFd> {
        rustix::io::fcntl_dupfd_cloexec(self.borrowed(index)?, 0)
            .map_err(|errno| Error::errno("keep a file descriptor of a share", errno))
    }

    fn borrowed(&self, index: u32) -> Result<BorrowedFd<'_>> {
        let missing = || Error::new(Status::Corrupt, format!("the share has no file descriptor {index}"));
        self.parcel.fds.get(index as usize).map(OwnedFd::as_fd).ok_or_else(missing)
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        log!(Debug, "share {} destroyed", self.log_id);
    }
}
