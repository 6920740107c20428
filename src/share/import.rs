// SPDX-License-Identifier: Apache-2.0
//! Opening a share, completely or not at all. The claims of the manifest are checked against the memory.

use std::os::fd::BorrowedFd;
use std::sync::Arc;

use rustix::fs::{OFlags, SealFlags};

use super::manifest::{LayoutEntry, Manifest, Object, RegionEntry, RegionPart, SharedLayout};
use super::memory_handle::MemoryHandle;
use super::{OpenOptions, Reach, Share};
use crate::base::{Error, ProcessIdentity, Result, Status, ensure, fail, log, retried};
use crate::layout::{Epochs, Layout};
use crate::nixl::Command;
use crate::region::{Access, Control, EpochTable, FileId, OpenRequirements, Origin, Region};

impl Share {
    pub fn open_region(&self, opening: &OpenOptions) -> Result<Arc<Region>> {
        match &self.manifest.object {
            Object::Region(part) => self.open_part(part, opening).inspect(|region| {
                let (id, size) = (region.log_id(), region.size());
                log!(Debug, "share {} opened as region {id}: {size} bytes", self.log_id);
            }),
            Object::Layout(_) | Object::Parts(_) => {
                fail!(
                    InvalidArgument,
                    "the share is of a layout, not of a region; open it by kvmem_share_open_layout"
                )
            }
        }
    }

    pub fn open_layout(&self, opening: &OpenOptions) -> Result<Arc<Layout>> {
        let Some(layout) = self.manifest.object.layout() else {
            fail!(
                InvalidArgument,
                "the share is of a region, not of a layout; open it by kvmem_share_open_region"
            );
        };
        self.open_as_layout(&layout, opening).inspect(|layout| {
            let (id, locality) = (layout.log_id(), layout.memory().locality());
            log!(Debug, "share {} opened as layout {id}, {locality:?}", self.log_id);
        })
    }

    fn open_part(&self, part: &RegionPart, opening: &OpenOptions) -> Result<Arc<Region>> {
        self.ensure_granted(opening)?;
        let entry = &self.manifest.regions[part.region as usize];
        let root = self.open_root(entry, opening, 1)?;
        view(&root, part)
    }

    fn open_as_layout(&self, layout: &SharedLayout<'_>, opening: &OpenOptions) -> Result<Arc<Layout>> {
        self.ensure_granted(opening)?;
        match opening.reach {
            Reach::Mapped => self.open_mapped(layout, opening),
            Reach::Remote => open_by_nixl(layout, opening),
            Reach::Auto if !layout.is_carried() && can_go_by_nixl(layout, opening) => {
                log!(Info, "the share contains no memory handles; the layout is accessed by NIXL");
                open_by_nixl(layout, opening)
            }
            Reach::Auto => match self.open_mapped(layout, opening) {
                Err(error) if may_be_elsewhere(&error) && can_go_by_nixl(layout, opening) => {
                    log!(Info, "{error}; the layout is accessed by NIXL");
                    open_by_nixl(layout, opening)
                }
                mapped => mapped,
            },
        }
    }

    /// Fails if more access is requested than granted.
    fn ensure_granted(&self, opening: &OpenOptions) -> Result<()> {
        ensure!(
            opening.access.is_none_or(|wanted| wanted <= self.manifest.access),
            PermissionDenied,
            "the memory was shared with KVMEM_SHARE_READ_ONLY; open it without KVMEM_OPEN_READ_WRITE, or have its owner \
             share it without that flag"
        );
        Ok(())
    }

    fn open_mapped(&self, layout: &SharedLayout<'_>, opening: &OpenOptions) -> Result<Arc<Layout>> {
        ensure!(
            layout.is_carried(),
            Unsupported,
            "the share contains no memory handles; NIXL can access the layout, for reading and writing, so pass an agent"
        );
        let alignment = alignment_of_roots(layout.alignment());
        let roots = self.manifest.regions.iter().map(|entry| self.open_root(entry, opening, alignment));
        let roots = roots.collect::<Result<Vec<_>>>()?;
        let agent = opening.agent.as_ref().filter(|_| opening.register);
        let mapped = |entry: &LayoutEntry| {
            let regions = entry.parts.iter().map(|part| view(&roots[part.region as usize], part));
            let regions = regions.collect::<Result<Vec<_>>>()?;
            Layout::mapped(entry.dimensions.clone(), entry.arrangement, regions, agent.cloned())
        };
        let opened = match layout.parts[..] {
            [("", entry)] => mapped(entry)?,
            _ => {
                let parts = layout.parts.iter().map(|(name, entry)| Ok((name.to_string(), mapped(entry)?)));
                Layout::combine(parts.collect::<Result<_>>()?).map_err(not_as_described)?
            }
        };
        if let Some(part) = layout.epochs {
            let region = view(&roots[part.region as usize], part)?;
            let table = EpochTable::new(region, opened.geometry().dimensions().num_blocks);
            opened.set_epochs(Epochs::mapped(table.map_err(not_as_described)?))?;
        }
        Ok(opened)
    }

    /// The region of an entry: the original in the process that created the share, a region that is already open, or a new
    /// one. A new one
    /// starts at a multiple of `alignment` unless the driver places it.
    fn open_root(&self, entry: &RegionEntry, opening: &OpenOptions, alignment: u64) -> Result<Arc<Region>> {
        let Manifest { process, access: granted, .. } = &self.manifest;
        let access = opening.access.unwrap_or(*granted);
        let current = ProcessIdentity::current()?;
        ensure!(
            process.boot_id == current.boot_id,
            Unsupported,
            "the memory is on another machine, or the share is older than the last boot of this one; only NIXL can access \
             memory of another machine"
        );
        let file = match &entry.carried {
            MemoryHandle::Memory { fd, .. } | MemoryHandle::Disk { fd } => Some(self.borrowed(*fd)?),
            _ => None,
        };
        // After the file was found to be that of the memory: of another file this says nothing.
        let ensure_allowed = || match file {
            Some(file) if access == Access::ReadWrite => ensure_grants_writing(file),
            _ => Ok(()),
        };
        let wanted = OpenRequirements {
            control: FileId::from_fd(self.borrowed(entry.control)?)?,
            file: file.map(FileId::from_fd).transpose()?,
            access,
            alignment,
            pin: opening.pin,
            users: opening.users,
            extents: seen(entry),
        };
        if let Some(known) = Region::known(&entry.id, &wanted) {
            ensure_allowed()?;
            known.open_for(opening.users)?;
            return Ok(known);
        }
        ensure!(
            *process != current,
            NotFound,
            "this process itself shared the region, and has freed it since"
        );
        let control = Arc::new(Control::open(self.fd(entry.control)?, entry.id)?);
        let backing = self.open_backing(entry, &wanted, opening, &control)?;
        ensure_allowed()?;
        let origin = Origin { process: process.clone(), access };
        let region = Region::imported(backing, origin, control, &wanted);
        // Another thread may have opened it meanwhile, for other devices.
        region.open_for(opening.users)?;
        Ok(region)
    }
}

/// The alignment of a layout's regions that every process needs, so that the blocks are aligned. An address within
/// a page is the same in all, so that a smaller alignment needs nothing.
pub(super) fn alignment_of_roots(alignment: u64) -> u64 {
    if alignment <= rustix::param::page_size() as u64 { 1 } else { alignment }
}

/// Fails unless the file descriptor of the memory lets its holder write. The bytes of a share prove nothing: a process that
/// received it for reading can change them, and pass it on to a process that may write the memory, such as its owner.
fn ensure_grants_writing(file: BorrowedFd<'_>) -> Result<()> {
    let flags = retried::fcntl_getfl(file)
        .map_err(|errno| Error::errno("get the flags of the memory's file descriptor", errno))?;
    // Only memory files have seals. A sealed one can be open for writing, and not be mapped so.
    let is_sealed = rustix::fs::fcntl_get_seals(file)
        .is_ok_and(|seals| seals.intersects(SealFlags::WRITE | SealFlags::FUTURE_WRITE));
    ensure!(
        flags & OFlags::ACCMODE == OFlags::RDWR && !is_sealed,
        PermissionDenied,
        "the share grants write access, and the file descriptor of its memory grants read access only"
    );
    Ok(())
}

/// The extents of a share, each with its word in the control block.
fn seen(entry: &RegionEntry) -> Vec<(usize, u32)> {
    match &entry.carried {
        MemoryHandle::Extents { extents, .. } => {
            extents.iter().map(|extent| (extent.index as usize, extent.changes)).collect()
        }
        MemoryHandle::Fabric { extents, .. } => {
            extents.iter().map(|extent| (extent.index as usize, extent.changes)).collect()
        }
        _ => Vec::new(),
    }
}

fn view(root: &Arc<Region>, part: &RegionPart) -> Result<Arc<Region>> {
    if part.offset == 0 && part.size == root.size() {
        return Ok(root.clone());
    }
    Region::view(root, part.offset, part.size).map_err(not_as_described)
}

/// Changes the status to CORRUPT if the driver or the kernel rejects a claim of the share: that is an error of the sender,
/// not of the caller.
pub(super) fn not_as_described(error: Error) -> Error {
    match error.status() {
        Status::InvalidArgument | Status::OutOfRange => {
            error.context("the memory does not match the share").with_status(Status::Corrupt)
        }
        _ => error,
    }
}

/// Whether NIXL may access memory that cannot be mapped here.
pub(super) fn may_be_elsewhere(error: &Error) -> bool {
    matches!(
        error.status(),
        Status::Unsupported | Status::NotFound | Status::UnavailableCuda | Status::Cuda | Status::OutOfMemory
    )
}

/// NIXL knows no right to read only.
fn can_go_by_nixl(layout: &SharedLayout<'_>, opening: &OpenOptions) -> bool {
    opening.agent.is_some() && layout.remote.is_some() && opening.access != Some(Access::Read)
}

fn open_by_nixl(layout: &SharedLayout<'_>, opening: &OpenOptions) -> Result<Arc<Layout>> {
    ensure!(
        opening.access != Some(Access::Read),
        Unsupported,
        "a layout that NIXL accesses cannot be opened with KVMEM_OPEN_READ_ONLY: NIXL has no read-only access"
    );
    let Some(agent) = &opening.agent else {
        fail!(InvalidArgument, "to reach a layout by NIXL an agent is needed");
    };
    let Some(remote) = layout.remote else {
        fail!(
            Unsupported,
            "the share contains no NIXL metadata of the layout: it was created without an agent, or read-only"
        );
    };
    let metadata = remote.metadata.clone();
    agent.call(|reply| Command::LoadRemote(metadata, reply))?;
    Layout::import(agent, &remote.descriptor)
}
