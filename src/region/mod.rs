// SPDX-License-Identifier: Apache-2.0
//! Regions: spans of memory on one tier, and what makes them known to agents.

mod adopted;
mod adopted_file;
mod available_memory;
mod control;
mod counts;
mod creation;
mod deferred_free;
mod device;
mod disk;
mod elastic;
mod equal_pieces;
mod extent_properties;
mod extents;
mod file_lock;
mod host_size;
mod mapped_device;
mod mapping;
mod memory_file;
mod numa;
mod open_devices;
mod open_file;
mod origin;
mod overlap;
mod pages;
mod pinned;
mod prefault;
mod proc_maps;
mod registration;
mod registrations;
mod release;
mod sharing;
mod span_registrar;
mod system;
mod tier;

use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::path::Path;
use std::sync::Arc;

pub use adopted::AdoptedMemory;
pub use adopted_file::{AdoptedFile, AdoptedFileConfig};
pub use control::Control;
pub use device::{DeviceConfig, DeviceMemory, IpcConfig};
pub use disk::{DirectIo, DiskConfig, DiskFile, Label, OpenMode};
pub use elastic::{ElasticConfig, ElasticMemory, ExportedExtent, ImportedExtent, ImportedShape};
pub use equal_pieces::EqualPieces;
pub use extent_properties::granularity as extent_granularity;
pub use extents::ExtentHold;
pub use mapped_device::{ImportedMapping, MappedDevice, MappedPart};
pub use mapping::FilePart;
pub use numa::NumaPlacement;
pub use open_devices::{DeviceUsers, OpenDevices};
pub use open_file::{FileId, FileSystemId, reopened};
pub use origin::{Access, Origin};
pub use overlap::overlap;
pub use pages::Residency;
pub use pinned::{PinnedConfig, PinnedMemory, Progress};
pub use registration::{Registration, RegistrationHold};
pub use release::ReleaseCallback;
pub use sharing::{HandledRegion, Holders, OpenRequirements, SharedRegion};
pub use system::{HugePages, SharedPart, SystemConfig, SystemMemory};
pub use tier::Tier;

use counts::Counts;
use once_cell::sync::OnceCell;
use registrations::Registrations;
use span_registrar::SpanFailure;

use crate::cuda::ipc::DevicePair;
use crate::error::{Error, Result, Status, fail};
use crate::log::log;
use crate::log_id::LogId;
use crate::nixl::Descriptor;
use crate::sync::Mutex;

/// What a region is made of.
pub enum Backing {
    /// Memory this library mapped.
    System(SystemMemory),
    /// A file this library opened.
    Disk(DiskFile),
    /// Host memory of the caller's.
    Adopted(AdoptedMemory),
    /// Page-locked memory.
    Pinned(PinnedMemory),
    /// Memory of a GPU.
    Device(Arc<DeviceMemory>),
    /// Memory of a GPU that grows and shrinks.
    Elastic(ElasticMemory),
    /// A part of another region.
    View {
        /// The region it is a part of.
        parent: Arc<Region>,
        /// Where in the parent it starts.
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
            Self::View { parent, .. } => parent.backing().name(),
        }
    }
}

/// A span of memory on one tier. Freed when its last holder goes.
pub struct Region {
    log_id: LogId,
    backing: Backing,
    origin: Option<Origin>,
    control: OnceCell<Arc<Control>>,
    counts: Counts,
    registrations: Registrations,
    resizing: Mutex<()>,
}

impl Region {
    fn log_end(&self) {
        match &self.backing {
            Backing::View { .. } => log!(Trace, "region {} freed", self.log_id),
            _ => log!(Debug, "region {} freed", self.log_id),
        }
    }

    /// The number that the log names it by.
    pub fn log_id(&self) -> LogId {
        self.log_id
    }

    /// What stands behind it.
    pub fn backing(&self) -> &Backing {
        &self.backing
    }

    /// What stands behind it in the end: never a view.
    pub fn root(&self) -> &Backing {
        match &self.backing {
            Backing::View { parent, .. } => parent.root(),
            root => root,
        }
    }

    /// The region that is no view and that it is a part of, and where in that it begins.
    pub fn root_of(region: &Arc<Self>) -> (&Arc<Self>, u64) {
        match &region.backing {
            Backing::View { parent, offset, .. } => {
                let (root, before) = Self::root_of(parent);
                (root, before + offset)
            }
            _ => (region, 0),
        }
    }

    /// Where it lies.
    pub fn tier(&self) -> Tier {
        match self.root() {
            Backing::Disk(_) => Tier::Disk,
            Backing::Pinned(_) => Tier::Pinned,
            Backing::Device(_) => Tier::Device,
            Backing::Elastic(_) => Tier::Elastic,
            Backing::System(_) | Backing::Adopted(_) | Backing::View { .. } => Tier::System,
        }
    }

    /// Its first byte: a host address, or an offset in the file.
    pub fn address(&self) -> u64 {
        match &self.backing {
            Backing::System(memory) => memory.address() as u64,
            Backing::Adopted(memory) => memory.address() as u64,
            Backing::Pinned(memory) => memory.memory().address() as u64,
            Backing::Device(memory) => memory.address(),
            Backing::Elastic(memory) => memory.address(),
            Backing::Disk(_) => 0,
            Backing::View { parent, offset, .. } => parent.address() + offset,
        }
    }

    /// Its bytes.
    pub fn size(&self) -> u64 {
        match &self.backing {
            Backing::System(memory) => memory.size() as u64,
            Backing::Adopted(memory) => memory.size() as u64,
            Backing::Pinned(memory) => memory.memory().size() as u64,
            Backing::Device(memory) => memory.size(),
            Backing::Elastic(memory) => memory.size(),
            Backing::Disk(file) => file.size(),
            Backing::View { size, .. } => *size,
        }
    }

    /// The ordinal of the GPU it lies on.
    pub fn ordinal(&self) -> Option<i32> {
        match self.root() {
            Backing::Device(memory) => Some(memory.ordinal()),
            Backing::Elastic(memory) => Some(memory.ordinal()),
            _ => None,
        }
    }

    /// The GPU it lies on, and the one whose kernels it is mapped for.
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
            Backing::View { parent, .. } => parent.open_for(users),
            Backing::Elastic(memory) if memory.is_open_for(users)? => Ok(()),
            Backing::Elastic(memory) => {
                // An extent that another thread commits now gets either the old or the new devices.
                let _resizing = self.resizing();
                memory.open_for(users)
            }
            Backing::Device(memory) => match &**memory {
                DeviceMemory::Mapped(memory) => memory.open_for(users),
                _ => Ok(()),
            },
            _ => Ok(()),
        }
    }

    /// The file behind it, for a disk region.
    pub fn file(&self) -> Option<&DiskFile> {
        match self.root() {
            Backing::Disk(file) => Some(file),
            _ => None,
        }
    }

    /// The fd of the file behind it.
    pub fn fd(&self) -> Option<RawFd> {
        self.file().map(|file| BorrowedFd::as_raw_fd(&file.fd()))
    }

    /// The absolute path of its file. Fails if there is no file, if that has no name, or not this one any more.
    pub fn path(&self) -> Result<&Path> {
        let no_file = || Error::new(Status::NotFound, format!("a {} region has no file", self.tier().name()));
        self.file().ok_or_else(no_file)?.path()
    }

    /// What NIXL knows it as. A file is addressed by offset, and its device id is its fd; a GPU's is its ordinal.
    pub fn descriptor(&self) -> Descriptor {
        Descriptor {
            address: self.address(),
            size: self.size(),
            device_id: self.fd().or(self.ordinal()).map_or(0, |id| id as u64),
            memory_type: self.tier().memory_type(),
        }
    }

    /// How much of the mapping that it is a part of is in memory now.
    pub fn residency(&self) -> Result<Residency> {
        match self.root() {
            Backing::System(memory) => memory.residency(),
            Backing::Pinned(memory) => memory.memory().residency(),
            Backing::Adopted(_) => {
                fail!(
                    Unsupported,
                    "the residency of adopted memory is not known: its mappings are the caller's"
                )
            }
            _ => fail!(Unsupported, "a {} region is not in host memory", self.tier().name()),
        }
    }

    /// Why it may only be read here; `None` if it may be written too.
    pub fn read_only_because(&self) -> Option<&'static str> {
        match self.root() {
            _ if self.origin().is_some_and(|origin| origin.access == Access::Read) => {
                Some("it was shared to be read only")
            }
            Backing::Adopted(memory) if memory.is_read_only() => {
                Some("it was adopted with KVMEM_ADOPT_READ_ONLY")
            }
            Backing::Disk(file) if !file.is_writable() => Some("it was opened with KVMEM_DISK_READ_ONLY"),
            _ => None,
        }
    }

    /// Fails for a region that may only be read here.
    pub fn ensure_writable(&self) -> Result<()> {
        match self.read_only_because() {
            Some(reason) => {
                fail!(PermissionDenied, "the {} region cannot be written: {reason}", self.tier().name())
            }
            None => Ok(()),
        }
    }

    /// What I/O on it must be a multiple of; 1 where anything goes.
    pub fn io_alignment(&self) -> u64 {
        self.file().map_or(1, DiskFile::io_alignment)
    }

    /// Bytes from `address` that the driver and NIXL see as one piece: to the end of an extent, of a page lock of the
    /// library's, or of an adopted allocation of a device. No bound where the memory is one piece, nor for host memory that
    /// its owner may have page-locked in pieces, of which only the driver knows.
    pub fn bytes_in_piece(&self, address: u64) -> u64 {
        let (start, size) = match self.root() {
            Backing::Elastic(memory) => (memory.address(), memory.extent_size()),
            Backing::Pinned(memory) => (memory.memory().address() as u64, memory.chunk_size()),
            Backing::Device(memory) => return memory.bytes_in_piece(address),
            _ => return u64::MAX,
        };
        EqualPieces { start, size }.left(address)
    }

    /// Puts what was written on the medium; memory has nothing to do.
    pub fn sync(&self) -> Result<()> {
        self.file().map_or(Ok(()), DiskFile::sync)
    }

    /// The registrations that hold it now.
    pub fn registrations(&self) -> Vec<Arc<Registration>> {
        let held = self.registrations.held();
        held.into_iter().filter(|registration| registration.is_registered()).collect()
    }

    /// NIXL may still use memory that it failed to let go of: the region is never freed then, and of elastic memory
    /// nothing there is unmapped. Answers what failed.
    fn keep(self: &Arc<Self>, failure: SpanFailure) -> Error {
        if !failure.stuck.is_empty() {
            std::mem::forget(self.clone());
        }
        if let Some(memory) = self.elastic_memory() {
            memory.keep(&memory.mappings(), &failure.stuck);
        }
        failure.error
    }
}
