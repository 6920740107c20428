// SPDX-License-Identifier: Apache-2.0
//! Creating a share: how the memory of each tier is exported.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use super::import::alignment_of_roots;
use super::manifest::{LayoutEntry, Manifest, Object, PartsEntry, RegionEntry, RegionPart, RemoteEntry};
use super::memory_handle::{Extent, FabricExtent, MemoryHandle, SharedHandle, SharedMapping};
use super::{Parcel, Retained, RetainedRoot, Share, ShareOptions, Transport};
use crate::base::{Count, Error, LogId, ProcessIdentity, Result, Status, ensure, error, fail, log};
use crate::cuda::vmm::{self, ExportedHandle, HandleType, RetainedRange};
use crate::cuda::{Device, ipc};
use crate::layout::{Epochs, Layout, LayoutPart, Memory};
use crate::nixl::{Agent, Command};
use crate::region::{
    Access, ElasticMemory, EpochTable, Export, ExtentHold, FutureWrites, HeldRegion, Region, Tier,
};

impl Share {
    /// Shares a region, or the part of one that a view is.
    pub fn from_region(region: &Arc<Region>, grant: ShareOptions) -> Result<Self> {
        pack_region(region, grant).inspect(|share| share.log_creation("region", region.log_id()))
    }

    pub fn from_layout(layout: &Arc<Layout>, grant: ShareOptions) -> Result<Self> {
        pack_layout(layout, grant).inspect(|share| share.log_creation("layout", layout.log_id()))
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
}

fn pack_region(region: &Arc<Region>, grant: ShareOptions) -> Result<Share> {
    ensure!(
        grant.way != Transport::Remote,
        InvalidArgument,
        "NIXL accesses a region only as a part of a layout; share the layout"
    );
    let mut packing = ShareBuilder::new(grant);
    let part = packing.add(region)?;
    packing.finish(Object::Region(part), None)
}

fn pack_layout(layout: &Arc<Layout>, grant: ShareOptions) -> Result<Share> {
    let Memory::Local(local) = layout.memory() else {
        fail!(Unsupported, "a remote layout can be shared only by the process that owns it");
    };
    let mut packing = ShareBuilder::new(grant);
    let carried = grant.way != Transport::Remote;
    let mut entries = Vec::new();
    for part in layout.parts() {
        let entry = packing.add_layout(&part, &local.regions, carried);
        let in_part = |error: Error| match part.name {
            "" => error,
            name => error.context(format!("part '{name}'")),
        };
        entries.push((part.name.to_string(), entry.map_err(in_part)?));
    }
    let remote = match (&local.agent, grant.access) {
        // A process that has the metadata may write.
        (Some(agent), Access::ReadWrite) if !local.tier.is_storage() => remote_entry(layout, agent, carried)?,
        _ => None,
    };
    if !carried && remote.is_none() {
        let reason = match &local.agent {
            None => "it was built without an agent; build it with one",
            Some(_) if local.tier.is_storage() => "it is storage; copy its blocks to a layout in memory",
            Some(_) => "it is shared with KVMEM_SHARE_READ_ONLY, and NIXL has no access for reading only",
        };
        fail!(InvalidState, "NIXL cannot access the layout: {reason}");
    }
    let epochs = packing.add_epochs(layout, carried)?;
    let object = match entries.pop() {
        Some((_, entry)) if layout.num_parts() == 0 => {
            Object::Layout(LayoutEntry { remote, epochs, ..entry })
        }
        last => {
            Object::Parts(PartsEntry { parts: entries.into_iter().chain(last).collect(), remote, epochs })
        }
    };
    packing.finish(object, Some(layout.clone()))
}

/// How NIXL reaches the layout. A share that carries the memory does without if the agent reaches no peer.
fn remote_entry(layout: &Layout, agent: &Agent, is_carried: bool) -> Result<Option<RemoteEntry>> {
    let reaches = agent.call(Command::Identity)?;
    match reaches {
        Err(error) if is_carried => {
            log!(Debug, "the share carries the memory of the layout, and nothing for NIXL: {error}");
            Ok(None)
        }
        reaches => {
            reaches.map_err(|error| error.context("share the layout by NIXL"))?;
            let metadata = agent.call(Command::LocalMetadata)?;
            Ok(Some(RemoteEntry { metadata, descriptor: layout.export()? }))
        }
    }
}

/// What messages call memory that may be in a memory file.
const HOST_MEMORY: &str = "host memory";

struct ShareBuilder {
    grant: ShareOptions,
    regions: Vec<RegionEntry>,
    fds: Vec<OwnedFd>,
    kept: Vec<RetainedRoot>,
}

impl ShareBuilder {
    fn new(grant: ShareOptions) -> Self {
        Self { grant, regions: Vec::new(), fds: Vec::new(), kept: Vec::new() }
    }

    fn finish(self, object: Object, layout: Option<Arc<Layout>>) -> Result<Share> {
        let manifest = Manifest {
            process: ProcessIdentity::current()?,
            access: self.grant.access,
            fds: self.fds.len() as u32,
            regions: self.regions,
            object,
        };
        let parcel = Arc::new(Parcel { bytes: manifest.write()?, fds: self.fds });
        Ok(Share {
            log_id: LogId::next(),
            manifest,
            parcel,
            kept: Some(Retained { roots: self.kept, _layout: layout }),
        })
    }

    /// Adds the regions of a layout, or of a part of one, if the share contains its memory.
    fn add_layout(
        &mut self,
        part: &LayoutPart<'_>,
        regions: &[Arc<Region>],
        carried: bool,
    ) -> Result<LayoutEntry> {
        let geometry = part.placement.geometry();
        let mut parts = Vec::new();
        if carried {
            let own = regions.iter().skip(part.first_region as usize).take(geometry.num_regions());
            for region in own {
                parts.push(RegionPart { size: geometry.region_size(), ..self.add(region)? });
            }
            self.ensure_placeable(&parts, alignment_of_roots(geometry.dimensions().alignment))?;
        }
        let (dimensions, arrangement) = (geometry.dimensions().clone(), geometry.arrangement());
        Ok(LayoutEntry { dimensions, arrangement, parts, remote: None, epochs: None })
    }

    /// Adds the table of a layout's epochs, if it has some and the share contains its memory.
    fn add_epochs(&mut self, layout: &Layout, carried: bool) -> Result<Option<RegionPart>> {
        let (Some(Epochs::Mapped { table, .. }), true) = (layout.epochs(), carried) else { return Ok(None) };
        let part =
            self.add(table.region()).map_err(|error| error.context("share the epochs of the layout"))?;
        Ok(Some(RegionPart { size: EpochTable::size(table.words()), ..part }))
    }

    /// Adds the root of a view, unless it was added before. Returns the part of the root that the view covers.
    fn add(&mut self, region: &Arc<Region>) -> Result<RegionPart> {
        let (root, offset) = Region::root_of(region);
        let known = self.kept.iter().position(|kept| Arc::ptr_eq(&kept.region, root));
        let index = match known {
            Some(index) => index,
            None => {
                self.add_root(root)?;
                self.kept.len() - 1
            }
        };
        Ok(RegionPart { region: index as u32, offset, size: region.size() })
    }

    /// Fails for a layout that no importer could map: an importer maps the memory at another address, and every part must be
    /// aligned there too. The driver places memory that is opened by an IPC handle, in pages of 2 MiB as here.
    fn ensure_placeable(&self, parts: &[RegionPart], alignment: u64) -> Result<()> {
        for (index, part) in parts.iter().enumerate() {
            let is_by_driver = matches!(self.regions[part.region as usize].carried, MemoryHandle::Ipc { .. });
            ensure!(
                is_by_driver || part.offset.is_multiple_of(alignment),
                Unsupported,
                "region {index} of the layout starts at offset {} of its memory, which is not a multiple of the alignment \
                 {alignment}, so other processes can't map it aligned; build the layout at an offset that is a multiple \
                 of {alignment}",
                part.offset
            );
        }
        Ok(())
    }

    fn add_root(&mut self, root: &Arc<Region>) -> Result<()> {
        ensure!(
            root.origin().is_none(),
            Unsupported,
            "the {} region belongs to another process; only that process can share it",
            root.tier().name()
        );
        let shared = HeldRegion::shared(root)?;
        let control = root.control()?;
        let control_fd = self.keep(control.readable())?;
        let PackedRegion { carried, extents, mappings } = self.carry(root)?;
        let (id, tier, size) = (control.id(), root.tier(), root.size());
        self.regions.push(RegionEntry { id, control: control_fd, tier, size, carried });
        self.kept.push(RetainedRoot { region: shared, _extents: extents, _mappings: mappings });
        Ok(())
    }

    fn carry(&mut self, root: &Arc<Region>) -> Result<PackedRegion> {
        let writable = self.grant.access == Access::ReadWrite;
        if let Some(reason) = root.read_only_because().filter(|_| writable) {
            fail!(
                PermissionDenied,
                "the memory cannot be written: {reason}; share it with KVMEM_SHARE_READ_ONLY"
            );
        }
        if matches!(root.tier(), Tier::System | Tier::Pinned) {
            self.allow(&[Transport::Fd], HOST_MEMORY)?;
        }
        match root.export()? {
            Export::MemoryFile(file) => {
                let fd = self.push(file.for_sharing(self.grant.access, self.grant.writes)?);
                Ok(MemoryHandle::Memory { fd, offset: file.part().offset }.into())
            }
            Export::DiskFile => {
                self.allow(&[Transport::Fd], "a file")?;
                let file = root.file().ok_or_else(|| missing("file"))?;
                let fd = self.push(file.for_sharing(writable)?);
                Ok(MemoryHandle::Disk { fd }.into())
            }
            Export::Mappings(retained) => self.mappings(uuid(root)?, retained),
            Export::IpcHandle => {
                self.allow(&[Transport::Ipc], "plain device memory")?;
                ipc_handle(root).map(PackedRegion::from)
            }
            Export::Extents => {
                self.allow(&[Transport::Fd, Transport::Fabric], "elastic memory")?;
                self.extents(root, root.elastic_memory().ok_or_else(|| missing("extents"))?)
            }
        }
    }

    fn allow(&self, ways: &[Transport], what: &str) -> Result<()> {
        let way = self.grant.way;
        ensure!(
            self.grant.writes == FutureWrites::Allowed || what == HOST_MEMORY,
            Unsupported,
            "{what} cannot be sealed against writing, only host memory in a memory file; share it without \
             KVMEM_SHARE_WRITE_SEALED"
        );
        ensure!(
            way == Transport::Auto || ways.contains(&way),
            Unsupported,
            "{what} cannot be shared by {}",
            match way {
                Transport::Ipc => "the driver's IPC handle",
                Transport::Fabric => "fabric handles",
                _ => "file descriptors",
            }
        );
        Ok(())
    }

    /// The type of handle for VMM memory. Within a machine a file descriptor is preferred over a fabric handle, because it
    /// keeps the memory while it is in flight.
    fn handle_type(&self, allows: impl Fn(HandleType) -> bool) -> HandleType {
        match self.grant.way {
            Transport::Fabric => HandleType::Fabric,
            Transport::Auto if !allows(HandleType::Fd) && allows(HandleType::Fabric) => HandleType::Fabric,
            _ => HandleType::Fd,
        }
    }

    fn extents(&mut self, root: &Arc<Region>, memory: &ElasticMemory) -> Result<PackedRegion> {
        let way = self.handle_type(|way| memory.allows(way));
        ensure!(
            memory.allows(way),
            Unsupported,
            "its extents were not created to be exported as {}: create the region with KVMEM_ELASTIC_FABRIC for fabric \
             handles, on a device that supports them",
            way.name()
        );
        let (device, extent_size) = (uuid(root)?, memory.extent_size());
        let (exported, hold) = root.export_extents(way)?;
        let (mut by_fd, mut by_fabric) = (Vec::new(), Vec::new());
        for each in exported {
            let (index, changes) = (each.index as u64, each.changes);
            match each.memory {
                ExportedHandle::Fd(fd) => by_fd.push(Extent { index, fd: self.push(fd), changes }),
                ExportedHandle::Fabric(handle) => by_fabric.push(FabricExtent { index, handle, changes }),
            }
        }
        let carried = match way {
            HandleType::Fd => MemoryHandle::Extents { device, extent_size, extents: by_fd },
            HandleType::Fabric => MemoryHandle::Fabric { device, extent_size, extents: by_fabric },
        };
        Ok(PackedRegion { extents: Some(hold), ..carried.into() })
    }

    /// VMM memory of an engine that kvmem adopted.
    fn mappings(&mut self, device: [u8; 16], retained: RetainedRange) -> Result<PackedRegion> {
        self.allow(&[Transport::Fd, Transport::Fabric], "VMM memory")?;
        let allows = |way| retained.memories.iter().all(|memory| memory.properties().allow(way));
        let way = self.handle_type(allows);
        let count = retained.memories.len();
        let mut mappings = Vec::with_capacity(count);
        for (index, memory) in retained.memories.iter().enumerate() {
            let exported = memory.export(way).map_err(|error| not_exportable(error, index, count))?;
            let handle = match exported {
                ExportedHandle::Fd(fd) => SharedHandle::Fd(self.push(fd)),
                ExportedHandle::Fabric(handle) => SharedHandle::Fabric(handle),
            };
            mappings.push(SharedMapping { size: memory.size(), handle });
        }
        let carried = MemoryHandle::Mappings { device, offset: retained.offset, mappings };
        Ok(PackedRegion { mappings: retained.memories, ..carried.into() })
    }

    fn keep(&mut self, fd: BorrowedFd<'_>) -> Result<u32> {
        let fd = rustix::io::fcntl_dupfd_cloexec(fd.as_fd(), 0)
            .map_err(|errno| Error::errno("duplicate a file descriptor for a share", errno))?;
        Ok(self.push(fd))
    }

    fn push(&mut self, fd: OwnedFd) -> u32 {
        self.fds.push(fd);
        self.fds.len() as u32 - 1
    }
}

/// The handle of a region, and the objects that the share keeps alive for it.
struct PackedRegion {
    carried: MemoryHandle,
    extents: Option<ExtentHold>,
    mappings: Vec<Arc<vmm::PhysicalMemory>>,
}

impl From<MemoryHandle> for PackedRegion {
    fn from(carried: MemoryHandle) -> Self {
        Self { carried, extents: None, mappings: Vec::new() }
    }
}

/// Adds the cause: the engine created the memory without a handle type for export.
fn not_exportable(error: Error, index: usize, count: usize) -> Error {
    if error.status() != Status::Unsupported {
        return error;
    }
    error.context(format!(
        "mapping {index} of the {count} mappings of the region cannot be shared: have the engine create its memory with \
         requestedHandleTypes, or share memory that kvmem allocates"
    ))
}

fn missing(what: &str) -> Error {
    error!(Panic, "the memory of a share has no {what}")
}

/// Identifies the device that memory is located on.
fn uuid(root: &Region) -> Result<[u8; 16]> {
    Device::get(root.ordinal().unwrap_or_default())?.uuid()
}

fn ipc_handle(root: &Region) -> Result<MemoryHandle> {
    let exported = ipc::export(root.address())?;
    ensure!(
        exported.offset + root.size() <= exported.base_size,
        Unsupported,
        "the region consists of several allocations, and an IPC handle identifies one: adopt each allocation as a region"
    );
    Ok(MemoryHandle::Ipc {
        device: uuid(root)?,
        handle: exported.handle,
        base_size: exported.base_size,
        offset: exported.offset,
        buffer_id: exported.buffer_id,
    })
}
