// SPDX-License-Identifier: Apache-2.0
//! Regions: ranges of memory on one tier, and their registration with agents.

mod available_memory;
mod backing;
mod contexts;
mod control;
mod counts;
mod creation;
mod deferred_free;
mod epoch_table;
mod equal_pieces;
mod extents;
pub mod file_lock;
mod lease_locks;
mod lease_places;
mod mapping;
mod memory_file;
mod numa;
mod open_file;
mod origin;
mod overlap;
mod own_leases;
mod pages;
mod place;
pub mod pool;
mod prefault;
mod proc_maps;
mod registration;
mod release;
mod sharing;
pub mod statistics;
mod tier;
mod tiers;
mod watched_control;

use std::any::Any;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::path::Path;
use std::sync::Arc;

pub use backing::{Backing, Export, MemoryRange, PeerMemory, Properties, Source};
pub use contexts::Contexts;
pub use control::Control;
pub use epoch_table::{EpochTable, after_reading, fence_for_devices};
pub use equal_pieces::EqualPieces;
pub use extents::{ExtentHold, RegionExtents};
pub use file_lock::LockBudget;
pub use lease_locks::{FoundLease, LEASE_IS_OVER, LeaseEnd, Leased};
pub use lease_places::LeaseHolder;
pub use memory_file::FutureWrites;
pub use numa::NumaPlacement;
pub use open_file::{FileId, reopened};
pub use origin::{Access, OpenRequirements, Origin};
pub use overlap::{Meeting, Places, meetings, meetings_of_ranges, overlap};
pub use own_leases::{LeasedBytes, RegionLease};
pub use pages::Residency;
pub use place::{AddressSpace, Place};
use pool::blocks::Blocks;
pub use pool::ranges::Ranges;
pub use registration::{Registration, RegistrationHold};
pub use release::ReleaseCallback;
pub use sharing::HeldRegion;
pub use tier::Tier;
pub use tiers::{
    AdoptedDevice, AdoptedFileConfig, AdoptedMemory, BlockStorage, BlockStorageConfig, DeviceConfig,
    DeviceUsers, DirectIo, DiskConfig, DiskFile, ElasticConfig, ElasticMemory, ExportedExtent, HugePages,
    ImportedDevice, ImportedExtent, ImportedMapping, ImportedShape, IpcConfig, Label, MappedDevice,
    MappedPart, ObjectConfig, Objects, OpenMode, OwnedDevice, PinnedConfig, PinnedMemory, Progress,
    SharedPart, SystemConfig, SystemMemory, extent_granularity,
};

pub use crate::base::random::random;
pub use watched_control::WatchedControl;

use counts::Counts;
use once_cell::sync::OnceCell;
use registration::Registrations;

use crate::base::{Counted, Error, Gauge, LogId, Result, Status, fail};
use crate::cuda::DevicePair;
use crate::nixl::{Descriptor, Descriptors, HostPages, Span};

/// The part of another region that a region is.
struct View {
    /// Never a view: a view of a view is a view of its root, so that views of any depth are dropped and resolved without
    /// recursion.
    root: Arc<Region>,
    /// Where in the root it starts.
    offset: u64,
    size: u64,
    _counted: Arc<()>,
}

/// A range of memory on one tier. It is freed with its last holder.
pub struct Region {
    log_id: LogId,
    /// That of its root, if it is a view.
    memory: Arc<dyn Backing>,
    view: Option<View>,
    origin: Option<Origin>,
    control: OnceCell<Arc<Control>>,
    counts: Counts,
    registrations: Registrations,
    /// Its storage list, once a caller got it: the caller has pointers to its metadata.
    kept_list: OnceCell<Descriptors>,
    /// Its blocks, once it was a pool.
    blocks: OnceCell<Blocks>,
    /// `None` for a view.
    _counted: Option<Counted>,
    /// If it is memory of another process.
    _mapped: Option<Counted>,
    /// What it is counted as in addition.
    counted_in: OnceCell<Counted>,
}

impl Region {
    pub fn log_id(&self) -> LogId {
        self.log_id
    }

    /// Adds its bytes to another sum as long as it exists, once.
    pub fn count_in(&self, sum: &Gauge) {
        self.counted_in.get_or_init(|| sum.count(self.size()));
    }

    /// The region that it is a view of, or itself.
    fn root(&self) -> &Self {
        self.view.as_ref().map_or(self, |view| &view.root)
    }

    /// The region that it is a view of, and its offset there; itself if it is no view.
    pub fn root_of(region: &Arc<Self>) -> (&Arc<Self>, u64) {
        region.view.as_ref().map_or((region, 0), |view| (&view.root, view.offset))
    }

    /// Whether it is a part of another region.
    pub fn is_view(&self) -> bool {
        self.view.is_some()
    }

    fn offset_in_root(&self) -> u64 {
        self.view.as_ref().map_or(0, |view| view.offset)
    }

    pub fn tier(&self) -> Tier {
        self.memory.tier()
    }

    /// What a caller can learn of its memory.
    pub fn properties(&self) -> Properties {
        self.memory.properties()
    }

    /// Its first byte: a host or device address, or an offset in storage. The objects of a region are one behind the other.
    pub fn address(&self) -> u64 {
        self.memory.address() + self.offset_in_root()
    }

    pub fn size(&self) -> u64 {
        self.view.as_ref().map_or_else(|| self.memory.size(), |view| view.size)
    }

    /// The address of its memory, and the bytes of that: of an elastic region, also of a view, those of all extents.
    pub fn committed(&self) -> (u64, u64) {
        let own = || (self.address(), self.size());
        self.elastic_memory().map_or_else(own, |memory| (memory.span(0).0, memory.committed_size()))
    }

    /// The ordinal of the GPU that it is located on.
    pub fn ordinal(&self) -> Option<i32> {
        self.devices().map(|devices| devices.owner)
    }

    /// The GPU that it is located on, and the GPU that it is mapped for.
    pub fn devices(&self) -> Option<DevicePair> {
        self.memory.devices()
    }

    /// How a kernel of another GPU can access it.
    pub fn peer_memory(&self) -> PeerMemory {
        self.memory.peer_memory()
    }

    /// Lets more devices use it, if that is possible after its creation.
    pub fn open_for(&self, users: DeviceUsers) -> Result<()> {
        self.memory.open_for(users, &self.root().registrations)
    }

    fn memory_of_kind<T: Backing>(&self) -> Option<&T> {
        let memory: &dyn Any = &*self.memory;
        memory.downcast_ref()
    }

    pub fn file(&self) -> Option<&DiskFile> {
        self.memory_of_kind()
    }

    /// The objects that it consists of, or is a view of.
    pub fn objects(&self) -> Option<&Objects> {
        self.memory_of_kind()
    }

    /// Its elastic memory, if it is an elastic region or a view of one.
    pub fn elastic_memory(&self) -> Option<&ElasticMemory> {
        self.memory_of_kind()
    }

    /// The blocks that an allocator of tensors has of it. The first call makes it a pool, on the device that it is located on.
    pub fn pool_blocks(&self, ordinal: i32) -> Result<&Blocks> {
        self.blocks.get_or_try_init(|| Blocks::new(ordinal, self.size()))
    }

    /// The same. Fails if it never was a pool.
    pub fn ensure_pool(&self) -> Result<&Blocks> {
        self.blocks.get().ok_or_else(|| {
            Error::new(Status::InvalidState, "the region is no pool: call kvmem_pool_set_current first")
        })
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
            device_id: self.memory.device_id(),
            memory_type: self.tier().memory_type(),
        }
    }

    /// What else the pages of its host memory contain.
    fn host_pages(&self) -> HostPages {
        match self.memory.host_pages() {
            HostPages::Own if self.is_view() => HostPages::Shared,
            pages => pages,
        }
    }

    /// Storage that is registered as a list, with what its backend needs to find it.
    pub fn storage_list(&self) -> Option<Result<Descriptors>> {
        self.memory.storage_list()
    }

    /// Its storage list, which stays as long as the region, or as its root.
    pub fn kept_storage_list(&self) -> Option<Result<&Descriptors>> {
        let kept = &self.root().kept_list;
        kept.get().map(Ok).or_else(|| {
            let list = self.memory.storage_list()?;
            Some(kept.get_or_try_init(|| list))
        })
    }

    /// Whether only all of it can be registered, not a view.
    pub fn is_registered_whole(&self) -> bool {
        self.memory.is_registered_whole()
    }

    /// Some of its bytes as NIXL addresses them; of objects, bytes of one.
    pub fn span(&self, address: u64, size: u64) -> Span {
        self.memory.span(address, size)
    }

    /// How much of its mapping is resident in memory.
    pub fn residency(&self) -> Result<Residency> {
        self.memory.residency()
    }

    /// Why it is read-only here; `None` if it is writable.
    pub fn read_only_because(&self) -> Option<&'static str> {
        if self.origin().is_some_and(|origin| origin.access == Access::Read) {
            return Some("it was shared read-only");
        }
        self.memory.read_only_because()
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
        self.memory.io_alignment()
    }

    /// Bytes from `address` that one copy of the driver or one NIXL descriptor may cover: up to the end of an extent, of an
    /// object, of a page lock of kvmem, or of an adopted allocation of a device. Unlimited if the memory is one allocation, and for host
    /// memory that its owner page-locked, because only the driver knows the bounds of those locks.
    pub fn bytes_in_piece(&self, address: u64) -> u64 {
        self.memory.bytes_in_piece(address)
    }

    /// How another process can get its memory. Fails if none can.
    pub fn export(&self) -> Result<Export<'_>> {
        self.memory.export()
    }

    /// Flushes a disk region to its medium; does nothing for memory.
    pub fn sync(&self) -> Result<()> {
        self.file().map_or(Ok(()), DiskFile::sync)
    }

    /// The names of the agents that it is registered with.
    pub fn agents(&self) -> Vec<String> {
        self.registrations.agents()
    }

    pub fn registration_count(&self) -> usize {
        self.registrations.count()
    }
}
