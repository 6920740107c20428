// SPDX-License-Identifier: Apache-2.0
//! Regions: ranges of memory on one tier, and their registration with agents.

mod available_memory;
mod contexts;
mod control;
mod counts;
mod creation;
mod deferred_free;
mod equal_pieces;
mod extents;
pub mod file_lock;
mod host_size;
mod mapping;
mod memory_file;
mod numa;
mod open_file;
mod origin;
mod overlap;
mod pages;
mod prefault;
mod proc_maps;
mod registration;
mod release;
mod sharing;
mod tier;
mod tiers;

use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::path::Path;
use std::sync::Arc;

pub use contexts::Contexts;
pub use control::Control;
pub use equal_pieces::EqualPieces;
pub use extents::{ExtentHold, RegionExtents};
pub use mapping::FilePart;
pub use memory_file::{FutureWrites, ensure_write_allowed, seal_writes};
pub use numa::NumaPlacement;
pub use open_file::{FileId, reopened};
pub use origin::{Access, Origin};
pub use overlap::{Meeting, meetings, meetings_of_ranges, overlap};
pub use pages::Residency;
pub use registration::{Registration, RegistrationHold};
pub use release::ReleaseCallback;
pub use sharing::{HandledRegion, Holders, OpenRequirements, SharedRegion};
pub use tier::Tier;
pub use tiers::{
    AdoptedFile, AdoptedFileConfig, AdoptedMemory, BlockStorage, BlockStorageConfig, DeviceConfig,
    DeviceMemory, DeviceUsers, DirectIo, DiskConfig, DiskFile, ElasticConfig, ElasticMemory, ExportedExtent,
    HugePages, ImportedExtent, ImportedMapping, ImportedShape, IpcConfig, Label, MappedDevice, MappedPart,
    ObjectConfig, Objects, OpenDevices, OpenMode, PinnedConfig, PinnedMemory, Progress, SharedPart,
    SystemConfig, SystemMemory, extent_granularity,
};

pub use crate::base::random::random;

use counts::Counts;
use once_cell::sync::OnceCell;
use registration::Registrations;

use crate::base::error::{Error, Result, Status, fail};
use crate::base::log::log;
use crate::base::log_id::LogId;
use crate::cuda::ipc::DevicePair;
use crate::nixl::{Descriptor, Descriptors, HostPages, Span, SpanFailure};

/// The memory of a region.
pub enum Backing {
    /// Host memory that kvmem mapped.
    System(SystemMemory),
    /// A file that kvmem opened.
    Disk(DiskFile),
    /// Host memory of the caller.
    Adopted(AdoptedMemory),
    /// Page-locked memory.
    Pinned(PinnedMemory),
    /// Memory of a GPU.
    Device(Arc<DeviceMemory>),
    /// Memory of a GPU that grows and shrinks.
    Elastic(ElasticMemory),
    /// Objects of an object store.
    Objects(Objects),
    /// A part of a block device.
    Block(BlockStorage),
    /// A part of another region.
    View {
        /// The region it is a part of, never a view: a view of a view is a view of its root, so that views of any depth
        /// are dropped and resolved without recursion.
        root: Arc<Region>,
        /// Where in the root it starts.
        offset: u64,
        /// Its size in bytes.
        size: u64,
    },
}

impl Backing {
    /// Its name, for the log.
    fn name(&self) -> &'static str {
        match self {
            Self::System(_) => "system",
            Self::Disk(_) => "disk",
            Self::Adopted(_) => "adopted host",
            Self::Pinned(_) => "pinned",
            Self::Device(_) => "device",
            Self::Elastic(_) => "elastic",
            Self::Objects(_) => "object",
            Self::Block(_) => "block",
            Self::View { root, .. } => root.backing().name(),
        }
    }
}

/// A range of memory on one tier. It is freed with its last holder.
pub struct Region {
    log_id: LogId,
    backing: Backing,
    origin: Option<Origin>,
    control: OnceCell<Arc<Control>>,
    counts: Counts,
    registrations: Registrations,
}

impl Region {
    fn log_end(&self) {
        match &self.backing {
            Backing::View { .. } => log!(Trace, "region {} freed", self.log_id),
            _ => log!(Debug, "region {} freed", self.log_id),
        }
    }

    /// Its number in the log.
    pub fn log_id(&self) -> LogId {
        self.log_id
    }

    /// Its memory.
    pub fn backing(&self) -> &Backing {
        &self.backing
    }

    /// The memory of the region that it is a view of; its own memory if it is no view.
    pub fn root(&self) -> &Backing {
        match &self.backing {
            Backing::View { root, .. } => &root.backing,
            own => own,
        }
    }

    /// The region that it is a view of, and its offset there; itself if it is no view.
    pub fn root_of(region: &Arc<Self>) -> (&Arc<Self>, u64) {
        match &region.backing {
            Backing::View { root, offset, .. } => (root, *offset),
            _ => (region, 0),
        }
    }

    /// The tier that it is located on.
    pub fn tier(&self) -> Tier {
        match self.root() {
            Backing::Disk(_) => Tier::Disk,
            Backing::Pinned(_) => Tier::Pinned,
            Backing::Device(_) => Tier::Device,
            Backing::Elastic(_) => Tier::Elastic,
            Backing::Objects(_) => Tier::Object,
            Backing::Block(_) => Tier::Block,
            Backing::System(_) | Backing::Adopted(_) | Backing::View { .. } => Tier::System,
        }
    }

    /// Its first byte: a host or device address, or an offset in storage. The objects of a region are one behind the other.
    pub fn address(&self) -> u64 {
        match &self.backing {
            Backing::System(memory) => memory.address() as u64,
            Backing::Adopted(memory) => memory.address() as u64,
            Backing::Pinned(memory) => memory.memory().address() as u64,
            Backing::Device(memory) => memory.address(),
            Backing::Elastic(memory) => memory.address(),
            Backing::Disk(_) | Backing::Objects(_) => 0,
            Backing::Block(storage) => storage.offset(),
            Backing::View { root, offset, .. } => root.address() + offset,
        }
    }

    /// Its size in bytes.
    pub fn size(&self) -> u64 {
        match &self.backing {
            Backing::System(memory) => memory.size() as u64,
            Backing::Adopted(memory) => memory.size() as u64,
            Backing::Pinned(memory) => memory.memory().size() as u64,
            Backing::Device(memory) => memory.size(),
            Backing::Elastic(memory) => memory.size(),
            Backing::Disk(file) => file.size(),
            Backing::Objects(objects) => objects.size(),
            Backing::Block(storage) => storage.size(),
            Backing::View { size, .. } => *size,
        }
    }

    /// The ordinal of the GPU that it is located on.
    pub fn ordinal(&self) -> Option<i32> {
        match self.root() {
            Backing::Device(memory) => Some(memory.ordinal()),
            Backing::Elastic(memory) => Some(memory.ordinal()),
            _ => None,
        }
    }

    /// The GPU that it is located on, and the GPU that it is mapped for.
    pub fn place(&self) -> Option<DevicePair> {
        match self.root() {
            Backing::Device(memory) => Some(DevicePair { owner: memory.ordinal(), user: memory.user() }),
            Backing::Elastic(memory) => Some(DevicePair::on(memory.ordinal())),
            _ => None,
        }
    }

    /// Lets more devices use elastic memory, or VMM memory that another process shared. VMM memory that an engine has
    /// mapped stays as it is, and so does memory that is opened for one device at a time.
    pub fn open_for(&self, users: DeviceUsers) -> Result<()> {
        match &self.backing {
            Backing::View { root, .. } => root.open_for(users),
            Backing::Elastic(memory) if memory.is_open_for(users)? => Ok(()),
            Backing::Elastic(memory) => {
                // An extent that another thread commits now gets either the old or the new devices.
                let _resizing = self.registrations.resize()?;
                memory.open_for(users)
            }
            Backing::Device(memory) => match &**memory {
                DeviceMemory::Mapped(memory) => memory.open_for(users),
                _ => Ok(()),
            },
            _ => Ok(()),
        }
    }

    /// The file of a disk region.
    pub fn file(&self) -> Option<&DiskFile> {
        match self.root() {
            Backing::Disk(file) => Some(file),
            _ => None,
        }
    }

    /// The objects that it consists of, or is a view of.
    pub fn objects(&self) -> Option<&Objects> {
        match self.root() {
            Backing::Objects(objects) => Some(objects),
            _ => None,
        }
    }

    /// The fd of the file of a disk region.
    pub fn fd(&self) -> Option<RawFd> {
        self.file().map(|file| BorrowedFd::as_raw_fd(&file.fd()))
    }

    /// The absolute path of its file. Fails if it has no file, or if the file has no name or another one now.
    pub fn path(&self) -> Result<&Path> {
        let no_file = || Error::new(Status::NotFound, format!("a {} region has no file", self.tier().name()));
        self.file().ok_or_else(no_file)?.path()
    }

    /// Its NIXL descriptor; of objects, which have one each, the first device id and the size of all.
    pub fn descriptor(&self) -> Descriptor {
        Descriptor {
            address: self.address(),
            size: self.size(),
            device_id: self.device_id(),
            memory_type: self.tier().memory_type(),
        }
    }

    /// What else the pages of its host memory contain.
    fn host_pages(&self) -> HostPages {
        match (self.root(), self.backing()) {
            (Backing::Pinned(_), _) => HostPages::Locked,
            (Backing::Adopted(_), _) | (_, Backing::View { .. }) => HostPages::Shared,
            _ => HostPages::Own,
        }
    }

    /// Storage that is registered as a list, with what its backend needs to find it.
    pub fn storage_list(&self) -> Option<Result<Descriptors>> {
        match self.root() {
            Backing::Objects(objects) => Some(objects.descriptors()),
            Backing::Block(storage) => Some(storage.descriptors()),
            _ => None,
        }
    }

    /// Whether only all of it can be registered, not a view.
    pub fn is_registered_whole(&self) -> bool {
        matches!(self.root(), Backing::Elastic(_) | Backing::Objects(_) | Backing::Block(_))
    }

    /// Some of its bytes as NIXL addresses them; of objects, bytes of one.
    pub fn span(&self, address: u64, size: u64) -> Span {
        match self.root() {
            Backing::Objects(objects) => objects.span(address, size),
            _ => Span { address, size, device_id: self.device_id() },
        }
    }

    /// The fd of a file, the ordinal of a GPU, the number of a block device or of the first object; 0 for host memory.
    fn device_id(&self) -> u64 {
        match self.root() {
            Backing::Objects(objects) => objects.first_id(),
            Backing::Block(storage) => storage.device_id(),
            _ => self.fd().or(self.ordinal()).map_or(0, |id| id as u64),
        }
    }

    /// How much of its mapping is resident in memory.
    pub fn residency(&self) -> Result<Residency> {
        match self.root() {
            Backing::System(memory) => memory.residency(),
            Backing::Pinned(memory) => memory.memory().residency(),
            Backing::Adopted(_) => {
                fail!(
                    Unsupported,
                    "the residency of adopted memory is not known, because the caller manages its mappings"
                )
            }
            _ => fail!(Unsupported, "a {} region is not in host memory", self.tier().name()),
        }
    }

    /// Why it is read-only here; `None` if it is writable.
    pub fn read_only_because(&self) -> Option<&'static str> {
        match self.root() {
            _ if self.origin().is_some_and(|origin| origin.access == Access::Read) => {
                Some("it was shared read-only")
            }
            Backing::Adopted(memory) if memory.is_read_only() => {
                Some("it was adopted with KVMEM_ADOPT_READ_ONLY")
            }
            Backing::Device(memory) if memory.is_read_only() => {
                Some("it was adopted with KVMEM_ADOPT_READ_ONLY")
            }
            Backing::Disk(file) if !file.is_writable() => Some("it was opened with KVMEM_DISK_READ_ONLY"),
            _ => None,
        }
    }

    /// Fails if it is read-only here.
    pub fn ensure_writable(&self) -> Result<()> {
        match self.read_only_because() {
            Some(reason) => {
                fail!(PermissionDenied, "the {} region cannot be written: {reason}", self.tier().name())
            }
            None => Ok(()),
        }
    }

    /// I/O on it must be aligned to this many bytes; 1 if there is no restriction.
    pub fn io_alignment(&self) -> u64 {
        match self.root() {
            Backing::Disk(file) => file.io_alignment(),
            Backing::Block(storage) => storage.alignment(),
            _ => 1,
        }
    }

    /// Bytes from `address` that one copy of the driver or one NIXL descriptor may cover: up to the end of an extent, of an
    /// object, of a page lock of kvmem, or of an adopted allocation of a device. Unlimited if the memory is one allocation, and for host
    /// memory that its owner page-locked, because only the driver knows the bounds of those locks.
    pub fn bytes_in_piece(&self, address: u64) -> u64 {
        let (start, size) = match self.root() {
            Backing::Elastic(memory) => (memory.address(), memory.extent_size()),
            Backing::Pinned(memory) => (memory.memory().address() as u64, memory.chunk_size()),
            Backing::Device(memory) => return memory.bytes_in_piece(address),
            Backing::Objects(objects) => return objects.left(address),
            _ => return u64::MAX,
        };
        EqualPieces { start, size }.left(address)
    }

    /// Flushes a disk region to its medium; does nothing for memory.
    pub fn sync(&self) -> Result<()> {
        self.file().map_or(Ok(()), DiskFile::sync)
    }

    /// The names of the agents that it is registered with.
    pub fn agents(&self) -> Vec<String> {
        self.registrations.agents()
    }

    /// The number of these agents.
    pub fn registration_count(&self) -> usize {
        self.registrations.count()
    }

    /// Leaks the region if NIXL may still use its memory after a failed deregistration. Extents that NIXL may use are not
    /// unmapped. Returns the error.
    fn leak_stuck(self: &Arc<Self>, failure: SpanFailure) -> Error {
        if !failure.stuck.is_empty() {
            std::mem::forget(self.clone());
        }
        if let Some(memory) = self.elastic_memory() {
            memory.retain_stuck(&memory.mappings(), &failure.stuck);
        }
        failure.error
    }
}
