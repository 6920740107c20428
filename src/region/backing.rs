// SPDX-License-Identifier: Apache-2.0
//! The memory of a region. `tiers/` has a file for each kind, which implements what differs from other kinds.

use std::any::Any;

use super::memory_file::MemoryFile;
use super::place::{AddressSpace, Place};
use super::registration::Registrations;
use super::{Contexts, DeviceUsers, FileId, OpenRequirements, Residency, Tier};
use crate::base::{Result, fail};
use crate::cuda::DevicePair;
use crate::cuda::vmm::RetainedRange;
use crate::nixl::{Descriptors, HostPages, Span};

#[derive(Clone, Copy, Debug)]
pub struct MemoryRange {
    pub tier: Tier,
    /// Of its first byte: on a host or a device, or an offset in storage.
    pub address: u64,
    pub size: u64,
}

pub trait Backing: Any + Send + Sync {
    fn range(&self) -> MemoryRange;

    fn tier(&self) -> Tier {
        self.range().tier
    }

    fn address(&self) -> u64 {
        self.range().address
    }

    fn size(&self) -> u64 {
        self.range().size
    }

    /// Its name, for the log.
    fn name(&self) -> &'static str {
        self.tier().name()
    }

    /// What a caller can learn of it.
    fn properties(&self) -> Properties {
        Properties::default()
    }

    /// Where its addresses count.
    fn address_space(&self) -> AddressSpace {
        AddressSpace::Process
    }

    /// The parts of files that are mapped there. Other memory can be parts of the same files.
    fn mapped_files(&self) -> Vec<Place> {
        Vec::new()
    }

    /// Its file, if it is a part of one whose file descriptor this process has.
    fn file_id(&self) -> Option<FileId> {
        None
    }

    /// How another process can get it. Fails if none can.
    fn export(&self) -> Result<Export<'_>> {
        fail!(
            Unsupported,
            "{} storage cannot be shared: this process has no file descriptor of it; name it in the other process, with an \
             agent of that process",
            self.tier().name()
        )
    }

    /// The GPU that it is located on, and the GPU that it is mapped for.
    fn devices(&self) -> Option<DevicePair> {
        None
    }

    /// How a kernel of another GPU can access it.
    fn peer_memory(&self) -> PeerMemory {
        PeerMemory::Unknown
    }

    /// Adds the contexts that device memory and page locks belong to.
    fn add_contexts(&self, _memory: &mut Contexts, _page_locks: &mut Contexts) {}

    /// Lets more devices use elastic memory, or VMM memory that another process shared. VMM memory that an engine has
    /// mapped stays as it is, and so does memory that is opened for one device at a time.
    fn open_for(&self, _users: DeviceUsers, _registrations: &Registrations) -> Result<()> {
        Ok(())
    }

    /// Whether memory of another process is open as required. The access, the control block and the file are compared before.
    fn satisfies(&self, wanted: &OpenRequirements) -> bool {
        self.address().is_multiple_of(wanted.alignment)
    }

    /// Whether it must not be freed while other processes have it open.
    fn waits_for_importers(&self) -> bool {
        false
    }

    /// What else the pages of its host memory contain.
    fn host_pages(&self) -> HostPages {
        HostPages::Own
    }

    /// The fd of a file, the ordinal of a GPU, the number of a block device or of the first object; 0 for host memory.
    fn device_id(&self) -> u64 {
        self.devices().map_or(0, |devices| devices.owner as u64)
    }

    /// Some of its bytes as NIXL addresses them; of objects, bytes of one.
    fn span(&self, address: u64, size: u64) -> Span {
        Span { address, size, device_id: self.device_id() }
    }

    /// Storage that is registered as a list, with what its backend needs to find it.
    fn storage_list(&self) -> Option<Result<Descriptors>> {
        None
    }

    /// Whether only all of it can be registered, not a view.
    fn is_registered_whole(&self) -> bool {
        false
    }

    /// Fails if NIXL cannot register it.
    fn ensure_registrable(&self) -> Result<()> {
        Ok(())
    }

    /// How much of its mapping is resident in memory.
    fn residency(&self) -> Result<Residency> {
        fail!(Unsupported, "a {} region is not in host memory", self.tier().name())
    }

    /// Why this process may not write it; `None` if it may.
    fn read_only_because(&self) -> Option<&'static str> {
        None
    }

    /// I/O on it must be aligned to this many bytes; 1 if there is no restriction.
    fn io_alignment(&self) -> u64 {
        1
    }

    /// Bytes from `address` that one copy of the driver or one NIXL descriptor may cover.
    fn bytes_in_piece(&self, _address: u64) -> u64 {
        u64::MAX
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Source {
    /// kvmem, in this process.
    #[default]
    Allocated,
    Adopted,
    /// Another process.
    Imported,
}

/// What a caller can learn of memory.
#[derive(Clone, Copy, Debug, Default)]
pub struct Properties {
    pub source: Source,
    /// The size of its pages, extents or objects; `None` for that of the system's pages.
    pub page_size: Option<u64>,
    pub numa_node: Option<u32>,
    pub page_locked_for: Option<i32>,
    /// It has smaller pages than requested.
    pub fell_back: bool,
    /// It is host memory that other processes can map.
    pub is_shareable: bool,
    /// I/O bypasses the page cache.
    pub is_direct: bool,
    /// Its space on disk is reserved.
    pub is_preallocated: bool,
    /// It is a file without a name.
    pub is_temporary: bool,
}

/// How another process can get memory.
pub enum Export<'a> {
    MemoryFile(&'a MemoryFile),
    DiskFile,
    Extents,
    /// By the VMM memories that are mapped there.
    Mappings(RetainedRange),
    /// By the driver's IPC handle.
    IpcHandle,
}

/// How a kernel of another device can access memory.
pub enum PeerMemory {
    /// VMM memory with the same access for all of it. Contains an address that is mapped.
    Vmm(u64),
    /// One allocation of this process.
    Plain,
    /// Another process's allocation, mapped for one device.
    Opened,
    /// Memory of an engine, of unknown kind: the driver is queried.
    Adopted,
    /// An elastic region without memory, or host memory.
    Unknown,
}
