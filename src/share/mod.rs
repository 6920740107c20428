// SPDX-License-Identifier: Apache-2.0
//! Shares: a region or a layout on its way to another process, whatever its tier.
//!
//! A share is bytes, the manifest, and file descriptors. Whoever has both opens it, and gets a region or a layout like
//! any other. Opened where it was made, it gives the original memory.

mod backing;
pub mod broker;
mod carried;
pub mod client;
mod export;
pub mod frame;
mod import;
mod incoming;
mod manifest;
mod message;
mod narrowed;
mod outgoing;
mod parcel;
mod publication;
pub mod socket;

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

pub use import::{Opening, Reach};
pub use manifest::{Manifest, Object};
pub use parcel::Parcel;
pub use publication::Published;

use crate::cuda::vmm::Memory;
use crate::error::{Error, Result, Status, fail};
use crate::layout::Layout;
use crate::log::{Count, log};
use crate::log_id::LogId;
use crate::region::{Access, ExtentHold, Region, SharedRegion};

/// How memory is to be carried.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Way {
    /// As its tier allows.
    #[default]
    Auto,
    /// By file descriptors.
    Fd,
    /// By the driver's IPC handle.
    Ipc,
    /// By fabric handles.
    Fabric,
    /// Not at all: other processes reach it by NIXL.
    Remote,
}

/// What to grant, and how.
#[derive(Clone, Copy, Debug)]
pub struct Grant {
    /// What importers may do with the memory.
    pub access: Access,
    /// How it is to be carried.
    pub way: Way,
}

/// What a share keeps.
struct Kept {
    /// One for each entry of the manifest's regions.
    roots: Vec<KeptRoot>,
    /// A shared layout, with its registrations.
    _layout: Option<Arc<Layout>>,
}

/// What a share keeps of a region that it carries.
struct KeptRoot {
    region: SharedRegion,
    /// Extents of an elastic region.
    _extents: Option<ExtentHold>,
    /// The memory of mappings that were found under a region: it stays also if the engine that mapped it unmaps it.
    _mappings: Vec<Arc<Memory>>,
}

/// A region or a layout on its way to another process.
pub struct Share {
    log_id: LogId,
    manifest: Manifest,
    parcel: Arc<Parcel>,
    /// `None` if another process made the share.
    kept: Option<Kept>,
}

impl Share {
    /// Shares a region, or the part of one that a view is.
    pub fn of_region(region: &Arc<Region>, grant: Grant) -> Result<Self> {
        export::region(region, grant).inspect(|share| share.log_creation("region", region.log_id()))
    }

    /// Shares a layout.
    pub fn of_layout(layout: &Arc<Layout>, grant: Grant) -> Result<Self> {
        export::layout(layout, grant).inspect(|share| share.log_creation("layout", layout.log_id()))
    }

    fn log_creation(&self, what: &str, id: LogId) {
        log!(
            Debug,
            "share {} of {what} {id} created: {}, {:?}, {} and {}",
            self.log_id,
            Count(self.manifest.regions.len() as u64, "region"),
            self.manifest.access,
            Count(self.parcel.bytes.len() as u64, "byte"),
            Count(self.parcel.fds.len() as u64, "file descriptor")
        );
    }

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

    /// The shared region.
    pub fn open_region(&self, opening: &Opening) -> Result<Arc<Region>> {
        match &self.manifest.object {
            Object::Region(part) => self.open_part(part, opening).inspect(|region| {
                let (id, size) = (region.log_id(), region.size());
                log!(Debug, "share {} opened as region {id}: {size} bytes", self.log_id);
            }),
            Object::Layout(_) => {
                fail!(InvalidArgument, "the share is of a layout, not of a region")
            }
        }
    }

    /// The shared layout.
    pub fn open_layout(&self, opening: &Opening) -> Result<Arc<Layout>> {
        match &self.manifest.object {
            Object::Layout(layout) => self.open_as_layout(layout, opening).inspect(|layout| {
                let (id, locality) = (layout.log_id(), layout.memory().locality());
                log!(Debug, "share {} opened as layout {id}, {locality:?}", self.log_id);
            }),
            Object::Region(_) => {
                fail!(InvalidArgument, "the share is of a region, not of a layout")
            }
        }
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
