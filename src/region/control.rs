// SPDX-License-Identifier: Apache-2.0
//! The control block: a few words that a region's owner shares with every process that has the region open.
//!
//! It is a sealed memory file. The owner writes it; importers can only read it. Locks on the file show which processes are
//! alive: the owner keeps byte 0 locked, each importer a byte of its own after [`FIRST_IMPORTER`], and the kernel releases
//! the locks when a process ends in any way. docs/share-manifest.md has it byte by byte.
#![allow(unsafe_code)]

use std::cell::UnsafeCell;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use once_cell::sync::OnceCell;
use rustix::fs::{self, MemfdFlags, Mode, OFlags, SealFlags};

use super::file_lock::{FileLock, LockBudget};
use super::lease_locks::LeaseLocks;
use super::mapping::{Mapping, Pages, give_size};
use super::memory_file::Inspected;
use super::open_file::{FileId, reopened};
use super::own_leases::OwnLeases;
use crate::base::{Error, LocalFd, Result, Status, ensure, random, retried};
use crate::nixl::{Descriptor, MemoryType};

const MAGIC: u64 = u64::from_le_bytes(*b"KVMEMCTL");
const VERSION: u32 = 1;
/// Bytes before the word of the first extent.
const HEAD: usize = size_of::<Head>();
const OWNER: u64 = 0;
/// The first byte that importers lock. A lock may be past the end of its file.
const FIRST_IMPORTER: u64 = 1 << 20;
const LAST_IMPORTER: u64 = 1 << 62;
const IMPORTERS: Range<u64> = FIRST_IMPORTER..LAST_IMPORTER;
/// The maximum number of extents of a region: 4 bytes each.
pub const MAX_EXTENTS: usize = 1 << 24;

/// The part of the block that does not change.
#[repr(C)]
#[derive(Clone, Copy)]
struct Identity {
    magic: u64,
    version: u32,
    extents: u32,
    /// 128 random bits that identify the region.
    id: [u8; 16],
}

/// The start of the block; a `u32` for each extent follows.
#[repr(C)]
struct Head {
    /// Read once, when the block is opened: its owner, which may be malicious, can write it at any time.
    identity: UnsafeCell<Identity>,
    /// How often the memory behind an address has changed.
    generation: AtomicU64,
    /// Not 0 once the owner has destroyed the region.
    closed: AtomicU64,
    reserved: [u64; 2],
}

/// A region's control block, in the owner or in an importer.
pub struct Control {
    id: [u8; 16],
    memory: Mapping,
    size: usize,
    /// The read-only open that importers receive.
    readable: OwnedFd,
    file_id: FileId,
    lock: FileLock,
    /// Those that this process has taken, once it has taken one.
    leases: OnceCell<Arc<OwnLeases>>,
    owned: bool,
}

impl Control {
    /// Creates the block of a region of this process, with a word for each of `extents`.
    pub fn create(extents: usize) -> Result<Self> {
        ensure!(
            extents <= MAX_EXTENTS,
            OutOfRange,
            "a region of {extents} extents exceeds the maximum of {MAX_EXTENTS}; use larger extents"
        );
        let doing = |errno| Error::errno("create a control block", errno);
        let size = HEAD + extents * size_of::<u32>();
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let file = fs::memfd_create("kvmem-control", flags).map_err(doing)?;
        give_size(&file, size as u64).map_err(doing)?;
        fs::fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW).map_err(doing)?;
        let memory = Mapping::shared(&file, size, Pages::Ordinary, true)?;
        let lock = FileLock::exclusive(LocalFd::open(|| reopened(&file, OFlags::RDWR))?, OWNER)?;
        let readable = reopened(&file, OFlags::RDONLY)?;
        seal_for_readers(&file).map_err(doing)?;
        retried::fchmod(&file, Mode::RUSR | Mode::RGRP | Mode::ROTH).map_err(doing)?;
        let id = random()?;
        let head = Head {
            identity: Identity { magic: MAGIC, version: VERSION, extents: extents as u32, id }.into(),
            generation: AtomicU64::new(0),
            closed: AtomicU64::new(0),
            reserved: [0; 2],
        };
        // SAFETY: a new mapping of at least this size, page-aligned, and not in use yet.
        unsafe { memory.address().cast::<Head>().write(head) };
        let file_id = FileId::from_fd(readable.as_fd())?;
        Ok(Self { id, memory, size, readable, file_id, lock, leases: OnceCell::new(), owned: true })
    }

    /// Opens the block of a region of another process, which may be malicious: fails for a file that could make a reader
    /// fault or wait.
    pub fn open(file: OwnedFd, id: [u8; 16]) -> Result<Self> {
        let size = ensure_safe(file.as_fd()).map_err(|error| error.context("open a control block"))?;
        let free = FIRST_IMPORTER + u64::from_le_bytes(random()?) % (LAST_IMPORTER - FIRST_IMPORTER);
        let own =
            LocalFd::open(|| reopened(&file, OFlags::RDONLY)).map_err(|error| match error.status() {
                // Only its sender can have the lease.
                Status::Busy => error.with_status(Status::Corrupt),
                _ => error,
            })?;
        let lock = FileLock::shared(own, free)?;
        let memory = Mapping::shared(&file, size, Pages::Ordinary, false)
            .map_err(|error| error.context("open a control block"))?;
        let file_id = FileId::from_fd(file.as_fd())?;
        let leases = OnceCell::new();
        let this = Self { id, memory, size, readable: file, file_id, lock, leases, owned: false };
        // SAFETY: mapped, aligned, and valid for any bytes. Another process may write it, so it is read once.
        let found = unsafe { this.head().identity.get().read_volatile() };
        let whole = Self::extents_of_size(size as u64) == Some(found.extents as usize);
        ensure!(found.magic == MAGIC && whole, Corrupt, "the memory file is not a control block");
        ensure!(
            found.version == VERSION,
            VersionMismatch,
            "the control block is of version {}, this library reads version {VERSION}",
            found.version
        );
        ensure!(found.id == id, Corrupt, "the control block belongs to another region");
        Ok(this)
    }

    pub fn id(&self) -> [u8; 16] {
        self.id
    }

    /// The file, for importers: they can only read it.
    pub fn readable(&self) -> BorrowedFd<'_> {
        self.readable.as_fd()
    }

    pub fn file_id(&self) -> FileId {
        self.file_id
    }

    pub fn descriptor(&self) -> Descriptor {
        Descriptor {
            address: self.memory.address() as u64,
            size: self.size as u64,
            device_id: 0,
            memory_type: MemoryType::Dram,
        }
    }

    /// How often the memory behind an address has changed.
    pub fn generation(&self) -> u64 {
        self.head().generation.load(Ordering::Acquire)
    }

    /// How often an extent was committed or decommitted.
    pub fn extent(&self, index: usize) -> u32 {
        self.extents().get(index).map_or(0, |extent| extent.load(Ordering::Acquire))
    }

    /// The number of extents that it has a word for.
    pub fn extent_count(&self) -> usize {
        self.extents().len()
    }

    /// The number of extents of a block of this size; `None` if no block has this size.
    pub fn extents_of_size(size: u64) -> Option<usize> {
        let words = usize::try_from(size).ok()?.checked_sub(HEAD)?;
        let whole = words.is_multiple_of(size_of::<u32>()) && words / size_of::<u32>() <= MAX_EXTENTS;
        whole.then_some(words / size_of::<u32>())
    }

    /// The number of changes of an extent, from a copy of a block; `None` if it is not a copy of one, or has no such extent.
    ///
    /// # Safety
    /// `size` bytes at `address` must be readable, and aligned as a block is.
    pub unsafe fn changes_in_copy(address: u64, size: u64, index: usize) -> Option<u32> {
        if index >= Self::extents_of_size(size)? {
            return None;
        }
        // SAFETY: the caller's promise. Another process may write the words, so each is read on its own.
        unsafe {
            let head = address as *const u64;
            let words = (address as usize + HEAD) as *const u32;
            (head.read_volatile() == MAGIC).then(|| words.add(index).read_volatile())
        }
    }

    /// Makes a copy of a block none, until it is copied again.
    ///
    /// # Safety
    /// `address` must be that of memory of at least the size of a block, writable, and aligned as a block is.
    pub unsafe fn forget_copy(address: u64) {
        // SAFETY: the caller's promise.
        unsafe { (address as *mut u64).write_volatile(!MAGIC) };
    }

    /// Counts a change of some extents.
    pub fn changed(&self, extents: &[usize]) {
        if extents.is_empty() || !self.owned {
            return;
        }
        for index in extents {
            self.extents()[*index].fetch_add(1, Ordering::AcqRel);
        }
        self.head().generation.fetch_add(1, Ordering::AcqRel);
    }

    /// Stores that the owner has destroyed the region. An importer locks its byte before it reads this flag, and the owner
    /// sets the flag before it reads the locks, so at least one of them sees the other.
    pub fn close(&self) {
        if self.owned {
            self.head().closed.store(1, Ordering::SeqCst);
        }
    }

    /// How often other processes have the region open; no more than [`MAX_COUNTED`](super::file_lock::MAX_COUNTED).
    pub fn importers(&self) -> Result<u64> {
        self.lock.others(IMPORTERS)
    }

    /// Whether other processes may have the region open. True if that cannot be determined.
    pub fn may_have_importers(&self) -> bool {
        self.lock.has_others(IMPORTERS).unwrap_or(true)
    }

    /// Whether the owner has freed the region, or has ended.
    pub fn owner_is_gone(&self) -> bool {
        let closed = self.head().closed.load(Ordering::SeqCst) != 0;
        !self.owned && (closed || self.lock.is_free(OWNER).unwrap_or(false))
    }

    /// The leases that all processes have on bytes of the region.
    pub fn leases<'a>(&'a self, budget: &'a LockBudget) -> Result<LeaseLocks<'a>> {
        LeaseLocks::new(&self.lock, budget)
    }

    /// Where this process takes leases: by an open of the file that is used for nothing else.
    pub fn own_leases(&self) -> Result<&Arc<OwnLeases>> {
        self.leases.get_or_try_init(|| {
            Ok(OwnLeases::new(LocalFd::open(|| reopened(&self.readable, OFlags::RDONLY))?).into())
        })
    }

    fn head(&self) -> &Head {
        // SAFETY: at least this many bytes are mapped, page-aligned, and remain mapped; all fields are atomic, or in a cell.
        unsafe { &*self.memory.address().cast::<Head>() }
    }

    fn extents(&self) -> &[AtomicU32] {
        let count = (self.size - HEAD) / size_of::<u32>();
        // SAFETY: that many words follow the head; see above.
        unsafe { std::slice::from_raw_parts(self.memory.address().byte_add(HEAD).cast::<AtomicU32>(), count) }
    }
}

/// Forbids later writable mappings, and later seals: otherwise an importer could add a seal that prevents later steps. Kernels before 5.1 have no F_SEAL_FUTURE_WRITE.
fn seal_for_readers(file: &OwnedFd) -> rustix::io::Result<()> {
    match fs::fcntl_add_seals(file, SealFlags::FUTURE_WRITE | SealFlags::SEAL) {
        Err(rustix::io::Errno::INVAL) => fs::fcntl_add_seals(file, SealFlags::SEAL),
        result => result,
    }
}

/// The size of a control block of another process, if it is safe to map.
fn ensure_safe(file: BorrowedFd<'_>) -> Result<usize> {
    let inspected = Inspected::new(file)?;
    inspected.ensure_sealed()?;
    let size = usize::try_from(inspected.size).unwrap_or(usize::MAX);
    ensure!(size >= HEAD, Corrupt, "a control block has at least {HEAD} bytes, this one has {size}");
    ensure!(
        inspected.huge_page.is_none(),
        Corrupt,
        "its memory file has reserved huge pages, which its writers can remove while they are read"
    );
    Ok(size)
}
