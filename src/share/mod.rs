// SPDX-License-Identifier: Apache-2.0
//! Shares: passing a region or a layout of any tier to another process.
//!
//! A share consists of bytes, the manifest, and file descriptors. A process that has both can open it as a region or layout.
//! The process that created the share gets the original memory.

mod backing;
pub mod broker;
mod memory_handle;
pub mod offer;
pub mod client;
mod export;
pub mod frame;
mod share_options;
mod import;
mod incoming;
mod manifest;
mod message;
mod narrowed;
mod outgoing;
pub mod report_socket;
pub mod socket;
mod user;

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

pub use frame::Parcel;
pub use manifest::{Manifest, Object};
pub use offer::Published;
pub use share_options::{OpenOptions, Reach, ShareOptions, Transport};

use crate::base::{Error, LogId, Result, error, log};
use crate::cuda::vmm::PhysicalMemory;
use crate::layout::Layout;
use crate::region::{ExtentHold, HeldRegion};

/// The objects that a share keeps alive.
struct Retained {
    /// One per region of the manifest.
    roots: Vec<RetainedRoot>,
    /// The shared layout, with its registrations.
    _layout: Option<Arc<Layout>>,
}

/// The objects that a share keeps alive for one region.
struct RetainedRoot {
    region: HeldRegion,
    _extents: Option<ExtentHold>,
    /// The physical memory of mappings of an engine. It remains allocated if the engine unmaps it.
    _mappings: Vec<Arc<PhysicalMemory>>,
}

/// A region or a layout that is passed to another process.
pub struct Share {
    log_id: LogId,
    manifest: Manifest,
    parcel: Arc<Parcel>,
    /// `None` if another process created the share.
    kept: Option<Retained>,
}

impl Share {
    /// A share from another process. The bytes and file descriptors may be anything.
    pub fn received(bytes: Vec<u8>, fds: Vec<OwnedFd>) -> Result<Self> {
        let manifest = Manifest::read(&bytes, fds.len())?;
        let log_id = LogId::next();
        log!(Debug, "share {log_id} created from what process {} has shared", manifest.process.pid);
        Ok(Self { log_id, manifest, parcel: Arc::new(Parcel { bytes, fds }), kept: None })
    }

    /// A share that was received from a socket.
    pub fn from_parcel(parcel: Parcel) -> Result<Self> {
        Self::received(parcel.bytes, parcel.fds)
    }

    /// Its bytes and file descriptors.
    pub fn parcel(&self) -> &Arc<Parcel> {
        &self.parcel
    }

    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    pub fn bytes(&self) -> &[u8] {
        &self.parcel.bytes
    }

    /// Its file descriptors, which the share owns: send duplicates.
    pub fn fds(&self) -> &[OwnedFd] {
        &self.parcel.fds
    }

    /// Duplicates a file descriptor for an open region.
    fn fd(&self, index: u32) -> Result<OwnedFd> {
        rustix::io::fcntl_dupfd_cloexec(self.borrowed(index)?, 0)
            .map_err(|errno| Error::errno("duplicate a file descriptor of a share", errno))
    }

    fn borrowed(&self, index: u32) -> Result<BorrowedFd<'_>> {
        let missing = || error!(Corrupt, "the share has no file descriptor {index}");
        self.parcel.fds.get(index as usize).map(OwnedFd::as_fd).ok_or_else(missing)
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        log!(Debug, "share {} destroyed", self.log_id);
    }
}
