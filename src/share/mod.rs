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
use crate::log::log;
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

/// What a share keeps as it is.
struct Kept {
    region: SharedRegion,
    /// Extents of an elastic region.
    _extents: Option<ExtentHold>,
    /// What was found mapped under a region: it stays also when whoever has mapped it unmaps it.
    _mappings: Vec<Arc<Memory>>,
}

/// A region or a layout on its way to another process.
pub struct Share {
    manifest: Manifest,
    parcel: Arc<Parcel>,
    /// What it was made of, and how it was to be carried, if it was made here.
    source: Option<(Source, Way)>,
    /// What it shares stays, if it was made here.
    _kept: Vec<Kept>,
}

/// What a share was made of.
#[derive(Clone)]
enum Source {
    Region(Arc<Region>),
    Layout(Arc<Layout>),
}

impl std::fmt::Display for Source {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Region(region) => write!(f, "region {}", region.log_id()),
            Self::Layout(layout) => write!(f, "layout {}", layout.log_id()),
        }
    }
}

impl Share {
    /// Shares a region, or the part of one that a view is.
    pub fn of_region(region: &Arc<Region>, grant: Grant) -> Result<Self> {
        export::region(region, grant)
    }

    /// Shares a layout.
    pub fn of_layout(layout: &Arc<Layout>, grant: Grant) -> Result<Self> {
        export::layout(layout, grant)
    }

    /// What came from another process. Any bytes and file descriptors may come.
    pub fn received(bytes: Vec<u8>, fds: Vec<OwnedFd>) -> Result<Self> {
        let manifest = Manifest::read(&bytes, fds.len())?;
        Ok(Self { manifest, parcel: Arc::new(Parcel { bytes, fds }), source: None, _kept: Vec::new() })
    }

    /// What came over a socket.
    pub fn of_parcel(parcel: Parcel) -> Result<Self> {
        Self::received(parcel.bytes, parcel.fds)
    }

    /// The same memory shared anew in the same way, to be read only. What came from another process can't be narrowed
    /// here.
    pub fn read_only(&self) -> Result<Self> {
        let Some((source, way)) = &self.source else {
            fail!(Unsupported, "the share is another process's, which alone can share it to be read only");
        };
        let grant = Grant { access: Access::Read, way: *way };
        match source {
            Source::Region(region) => export::region(region, grant),
            Source::Layout(layout) => export::layout(layout, grant),
        }
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
                log!(Debug, "share opened as region {}: {} bytes", region.log_id(), region.size());
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
                log!(Debug, "share opened as layout {}, {:?}", layout.log_id(), layout.memory().locality());
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
