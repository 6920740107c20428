// SPDX-License-Identifier: Apache-2.0
//! Making a share: how each tier leaves the process.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::fs::OFlags;

use super::manifest::{Carried, Extent, LayoutEntry, Manifest, Object, Part, RegionEntry, RemoteEntry};
use super::{Grant, Parcel, Share, Source, Way};
use crate::cuda::{Device, ipc};
use crate::error::{Error, Result, Status, ensure, fail};
use crate::layout::{Layout, Memory};
use crate::process::Identity;
use crate::region::{Access, Backing, ElasticMemory, ExtentHold, Region, SharedRegion, reopened};

pub fn region(region: &Arc<Region>, grant: Grant) -> Result<Share> {
    ensure!(
        grant.way != Way::Remote,
        InvalidArgument,
        "a region is reached by NIXL only as a part of a layout; share the layout"
    );
    let mut packing = Packing::new(grant);
    let part = packing.add(region)?;
    packing.finish(Object::Region(part), Source::Region(region.clone()))
}

pub fn layout(layout: &Arc<Layout>, grant: Grant) -> Result<Share> {
    let Memory::Local(local) = layout.memory() else {
        fail!(Unsupported, "a remote layout is its owner's to share");
    };
    let mut packing = Packing::new(grant);
    let mut parts = Vec::new();
    if grant.way != Way::Remote {
        let size = layout.geometry().region_size();
        for region in &local.regions {
            parts.push(Part { size, ..packing.add(region)? });
        }
    }
    let remote = match (&local.agent, grant.access) {
        // Who has the metadata may write.
        (Some(agent), Access::ReadWrite) if local.tier != crate::region::Tier::Disk => Some(RemoteEntry {
            metadata: agent.call(|driver| driver.local_metadata())?,
            descriptor: layout.export()?,
        }),
        _ => None,
    };
    ensure!(
        !parts.is_empty() || remote.is_some(),
        InvalidState,
        "the layout can't be reached by NIXL: it is of files, was built without an agent, or is shared to be read only"
    );
    let geometry = layout.geometry();
    let entry =
        LayoutEntry { dimensions: geometry.dimensions().clone(), kind: geometry.kind(), parts, remote };
    packing.finish(Object::Layout(entry), Source::Layout(layout.clone()))
}

/// A share in the making.
struct Packing {
    grant: Grant,
    regions: Vec<RegionEntry>,
    fds: Vec<OwnedFd>,
    held: Vec<(SharedRegion, Option<ExtentHold>)>,
}

impl Packing {
    fn new(grant: Grant) -> Self {
        Self { grant, regions: Vec::new(), fds: Vec::new(), held: Vec::new() }
    }

    fn finish(self, object: Object, source: Source) -> Result<Share> {
        let manifest = Manifest {
            process: Identity::current()?,
            access: self.grant.access,
            fds: self.fds.len() as u32,
            regions: self.regions,
            object,
        };
        let parcel = Arc::new(Parcel { bytes: manifest.write()?, fds: self.fds });
        Ok(Share { manifest, parcel, source: Some((source, self.grant.way)), _held: self.held })
    }

    /// Adds what a region is a part of, unless it was added, and answers which part it is.
    fn add(&mut self, region: &Arc<Region>) -> Result<Part> {
        let (root, offset) = Region::root_of(region);
        let known = self.held.iter().position(|(held, _)| Arc::ptr_eq(held, root));
        let index = match known {
            Some(index) => index,
            None => {
                self.add_root(root)?;
                self.held.len() - 1
            }
        };
        Ok(Part { region: index as u32, offset, size: region.size() })
    }

    fn add_root(&mut self, root: &Arc<Region>) -> Result<()> {
        ensure!(
            root.origin().is_none(),
            Unsupported,
            "the {} region is another process's; only that process can share it",
            root.tier().name()
        );
        let shared = SharedRegion::new(root)?;
        let control = root.control()?;
        let control_fd = self.keep(control.readable())?;
        let (carried, hold) = self.carry(root)?;
        let (id, tier, size) = (control.id(), root.tier(), root.size());
        self.regions.push(RegionEntry { id, control: control_fd, tier, size, carried });
        self.held.push((shared, hold));
        Ok(())
    }

    fn carry(&mut self, root: &Arc<Region>) -> Result<(Carried, Option<ExtentHold>)> {
        let writable = self.grant.access == Access::ReadWrite;
        match root.backing() {
            Backing::System(memory) => self.memory_file(memory.file()).map(|carried| (carried, None)),
            Backing::Pinned(memory) => {
                self.memory_file(memory.memory().file()).map(|carried| (carried, None))
            }
            Backing::Disk(file) => {
                self.allow(&[Way::Fd], "a file")?;
                let fd = self.push(file.for_sharing(writable)?);
                Ok((Carried::Disk { fd }, None))
            }
            Backing::Device(memory) => {
                self.allow(&[Way::Ipc], "plain device memory")?;
                ipc_handle(memory.address(), memory.ordinal()).map(|carried| (carried, None))
            }
            Backing::Elastic(memory) => {
                self.allow(&[Way::Fd], "elastic memory")?;
                self.extents(root, memory)
            }
            Backing::Adopted(_) => Err(Error::new(
                Status::Unsupported,
                "adopted host memory has no file that another process could map; have kvmem allocate it, shareable",
            )),
            Backing::View { .. } => Err(Error::new(Status::Panic, "a view is never a root")),
        }
    }

    fn allow(&self, ways: &[Way], what: &str) -> Result<()> {
        let way = self.grant.way;
        ensure!(
            way == Way::Auto || ways.contains(&way),
            Unsupported,
            "{what} is not carried by {}",
            match way {
                Way::Ipc => "the driver's IPC handle",
                _ => "file descriptors",
            }
        );
        Ok(())
    }

    fn memory_file(&mut self, file: Option<BorrowedFd<'_>>) -> Result<Carried> {
        self.allow(&[Way::Fd], "host memory")?;
        let Some(file) = file else {
            fail!(Unsupported, "the region was not made shareable, so no file is behind it");
        };
        let fd = match self.grant.access {
            Access::ReadWrite => self.keep(file)?,
            Access::Read => self.push(reopened(file, OFlags::RDONLY)?),
        };
        Ok(Carried::Memory { fd })
    }

    fn extents(
        &mut self,
        root: &Arc<Region>,
        memory: &ElasticMemory,
    ) -> Result<(Carried, Option<ExtentHold>)> {
        let device = Device::get(memory.ordinal())?.uuid()?;
        let (exported, hold) = root.export_extents()?;
        let mut extents = Vec::with_capacity(exported.len());
        for each in exported {
            extents.push(Extent { index: each.index as u64, fd: self.push(each.fd), changes: each.changes });
        }
        Ok((Carried::Extents { device, extent_size: memory.extent_size(), extents }, Some(hold)))
    }

    fn keep(&mut self, fd: BorrowedFd<'_>) -> Result<u32> {
        let fd = rustix::io::fcntl_dupfd_cloexec(fd.as_fd(), 0)
            .map_err(|errno| Error::errno("keep a file descriptor for a share", errno))?;
        Ok(self.push(fd))
    }

    fn push(&mut self, fd: OwnedFd) -> u32 {
        self.fds.push(fd);
        self.fds.len() as u32 - 1
    }
}

fn ipc_handle(address: u64, ordinal: i32) -> Result<Carried> {
    let exported = ipc::export(address)?;
    Ok(Carried::Ipc {
        device: Device::get(ordinal)?.uuid()?,
        handle: exported.handle,
        base_size: exported.base_size,
        offset: exported.offset,
        buffer_id: exported.buffer_id,
    })
}
