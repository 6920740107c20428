// SPDX-License-Identifier: Apache-2.0
//! The control block: a few words that a region's owner shares with every process that has the region open.
//!
//! It lies in a sealed memory file. The owner writes it; importers can only read it. Locks on the file say who lives:
//! the owner keeps byte 0 locked, each importer a byte of its own behind [`FIRST_IMPORTER`], and the kernel takes the
//! locks back when a process ends, however it ends. docs/share-manifest.md has it byte by byte.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use rustix::fs::{self, MemfdFlags, Mode, OFlags, SealFlags};

use super::file_lock::FileLock;
use super::mapping::{Mapping, Pages, give_size};
use super::memory_file::Inspected;
use super::open_file::{FileId, reopened};
use crate::error::{Error, Result, Status, ensure};
use crate::nixl::{Descriptor, MemoryType};
use crate::process::LocalFd;

const MAGIC: u64 = u64::from_le_bytes(*b"KVMEMCTL");
const VERSION: u32 = 1;
/// Words before the first extent's.
const HEAD: usize = size_of::<Head>();
/// The owner's lock.
const OWNER: u64 = 0;
/// Importers lock bytes from here on; a lock may lie past the end of its file.
const FIRST_IMPORTER: u64 = 1 << 20;
const LAST_IMPORTER: u64 = 1 << 62;
/// The most extents a region may have: 4 bytes each.
pub const MOST_EXTENTS: usize = 1 << 24;

/// The start of the block; a `u32` for each extent follows.
#[repr(C)]
struct Head {
    magic: u64,
    version: u32,
    extents: u32,
    /// 128 random bits: which region it is.
    id: [u8; 16],
    /// How often what lies behind an address has changed.
    generation: AtomicU64,
    /// Not 0 once the owner has let go of the region.
    closed: AtomicU64,
    reserved: [u64; 2],
}

/// A region's control block, its owner's or an importer's.
pub struct Control {
    memory: Mapping,
    size: usize,
    /// What importers are given: readable only.
    readable: OwnedFd,
    file_id: FileId,
    lock: FileLock,
    owned: bool,
}

impl Control {
    /// The block of a region of this process, with a word for each of `extents`.
    pub fn create(extents: usize) -> Result<Self> {
        ensure!(extents <= MOST_EXTENTS, OutOfRange, "{extents} extents are more than {MOST_EXTENTS}");
        let doing = |errno| Error::errno("make a control block", errno);
        let size = HEAD + extents * size_of::<u32>();
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let file = fs::memfd_create("kvmem-control", flags).map_err(doing)?;
        give_size(&file, size as u64).map_err(doing)?;
        fs::fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW).map_err(doing)?;
        let memory = Mapping::shared(&file, size, Pages::Ordinary, true)?;
        let lock = FileLock::exclusive(LocalFd::open(|| reopened(&file, OFlags::RDWR))?, OWNER)?;
        let readable = reopened(&file, OFlags::RDONLY)?;
        seal_for_readers(&file).map_err(doing)?;
        fs::fchmod(&file, Mode::RUSR | Mode::RGRP | Mode::ROTH).map_err(doing)?;
        let head = Head {
            magic: MAGIC,
            version: VERSION,
            extents: extents as u32,
            id: random()?,
            generation: AtomicU64::new(0),
            closed: AtomicU64::new(0),
            reserved: [0; 2],
        };
        // SAFETY: a fresh mapping of at least this size, page-aligned, that nothing else uses yet.
        unsafe { memory.address().cast::<Head>().write(head) };
        let file_id = FileId::of(readable.as_fd())?;
        Ok(Self { memory, size, readable, file_id, lock, owned: true })
    }

    /// The block of a region of another process. Its owner need not be honest: what could make a reader fault or wait
    /// is refused.
    pub fn open(file: OwnedFd, id: [u8; 16]) -> Result<Self> {
        let size = ensure_safe(file.as_fd()).map_err(|error| error.context("open a control block"))?;
        let free = FIRST_IMPORTER + u64::from_le_bytes(random()?) % (LAST_IMPORTER - FIRST_IMPORTER);
        let own =
            LocalFd::open(|| reopened(&file, OFlags::RDONLY)).map_err(|error| match error.status() {
                // Only its sender has had it.
                Status::Busy => error.with_status(Status::Corrupt),
                _ => error,
            })?;
        let lock = FileLock::shared(own, free)?;
        let memory = Mapping::shared(&file, size, Pages::Ordinary, false)
            .map_err(|error| error.context("open a control block"))?;
        let file_id = FileId::of(file.as_fd())?;
        let this = Self { memory, size, readable: file, file_id, lock, owned: false };
        let head = this.head();
        let whole = Self::extents_of_size(size as u64) == Some(head.extents as usize);
        ensure!(head.magic == MAGIC && whole, Corrupt, "the memory file is no control block");
        ensure!(
            head.version == VERSION,
            VersionMismatch,
            "the control block is of version {}, this library reads version {VERSION}",
            head.version
        );
        ensure!(head.id == id, Corrupt, "the control block is another region's");
        Ok(this)
    }

    /// Which region it is.
    pub fn id(&self) -> [u8; 16] {
        self.head().id
    }

    /// The file, for importers: they can only read it.
    pub fn readable(&self) -> BorrowedFd<'_> {
        self.readable.as_fd()
    }

    /// Which file it is.
    pub fn file_id(&self) -> FileId {
        self.file_id
    }

    /// What NIXL knows it as.
    pub fn descriptor(&self) -> Descriptor {
        Descriptor {
            address: self.memory.address() as u64,
            size: self.size as u64,
            device_id: 0,
            memory_type: MemoryType::Dram,
        }
    }

    /// How often what lies behind an address has changed.
    pub fn generation(&self) -> u64 {
        self.head().generation.load(Ordering::Acquire)
    }

    /// How often an extent was given or lost memory.
    pub fn extent(&self, index: usize) -> u32 {
        self.extents().get(index).map_or(0, |extent| extent.load(Ordering::Acquire))
    }

    /// How many extents it tells of.
    pub fn extent_count(&self) -> usize {
        self.extents().len()
    }

    /// How many extents a block of so many bytes tells of; `None` where no block has that size.
    pub fn extents_of_size(size: u64) -> Option<usize> {
        let words = usize::try_from(size).ok()?.checked_sub(HEAD)?;
        let whole = words.is_multiple_of(size_of::<u32>()) && words / size_of::<u32>() <= MOST_EXTENTS;
        whole.then_some(words / size_of::<u32>())
    }

    /// What a copy of a block says of an extent; `None` where it is no copy of one, or has no such extent.
    ///
    /// # Safety
    /// `size` bytes at `address` must be readable, and aligned as a block is.
    pub unsafe fn changes_in_copy(address: u64, size: u64, index: usize) -> Option<u32> {
        if index >= Self::extents_of_size(size)? {
            return None;
        }
        // SAFETY: the caller's promise. What another process writes there is read word by word.
        unsafe {
            let head = address as *const u64;
            let words = (address as usize + HEAD) as *const u32;
            (head.read_volatile() == MAGIC).then(|| words.add(index).read_volatile())
        }
    }

    /// Says that extents were given or lost memory.
    pub fn changed(&self, extents: &[usize]) {
        if extents.is_empty() || !self.owned {
            return;
        }
        for index in extents {
            self.extents()[*index].fetch_add(1, Ordering::AcqRel);
        }
        self.head().generation.fetch_add(1, Ordering::AcqRel);
    }

    /// Says that the owner lets go of the region. An importer takes its lock before it looks for this, and the owner
    /// says this before it looks for locks: one of the two sees the other.
    pub fn close(&self) {
        if self.owned {
            self.head().closed.store(1, Ordering::SeqCst);
        }
    }

    /// How often other processes have the region open; no more than [`MOST_COUNTED`](super::file_lock::MOST_COUNTED).
    pub fn importers(&self) -> Result<u64> {
        self.lock.others(FIRST_IMPORTER)
    }

    /// Whether other processes may have the region open. True if the kernel does not tell.
    pub fn may_have_importers(&self) -> bool {
        self.lock.has_others(FIRST_IMPORTER).unwrap_or(true)
    }

    /// Whether the owner has freed the region, or has ended.
    pub fn owner_is_gone(&self) -> bool {
        let closed = self.head().closed.load(Ordering::SeqCst) != 0;
        !self.owned && (closed || self.lock.is_free(OWNER).unwrap_or(false))
    }

    fn head(&self) -> &Head {
        // SAFETY: at least this many bytes are mapped, page-aligned, and stay so; what changes in them is atomic.
        unsafe { &*self.memory.address().cast::<Head>() }
    }

    fn extents(&self) -> &[AtomicU32] {
        let count = (self.size - HEAD) / size_of::<u32>();
        // SAFETY: that many words follow the head; see above.
        unsafe { std::slice::from_raw_parts(self.memory.address().byte_add(HEAD).cast::<AtomicU32>(), count) }
    }
}

/// Forbids every further mapping that could write, and every further seal: an importer could otherwise forbid what is
/// still to come. Kernels before 5.1 have no F_SEAL_FUTURE_WRITE.
fn seal_for_readers(file: &OwnedFd) -> rustix::io::Result<()> {
    match fs::fcntl_add_seals(file, SealFlags::FUTURE_WRITE | SealFlags::SEAL) {
        Err(rustix::io::Errno::INVAL) => fs::fcntl_add_seals(file, SealFlags::SEAL),
        result => result,
    }
}

/// The size of what another process sent as a control block, if it can be mapped without danger.
fn ensure_safe(file: BorrowedFd<'_>) -> Result<usize> {
    let inspected = Inspected::new(file)?;
    inspected.ensure_sealed()?;
    let size = usize::try_from(inspected.size).unwrap_or(usize::MAX);
    ensure!(size >= HEAD, Corrupt, "a control block has at least {HEAD} bytes, this one has {size}");
    ensure!(
        inspected.huge_page.is_none(),
        Corrupt,
        "its memory file has reserved huge pages, which can be taken away while they are read"
    );
    Ok(size)
}

/// Bytes of the kernel's random number generator.
pub fn random<const N: usize>() -> Result<[u8; N]> {
    let mut bytes = [0u8; N];
    let mut filled = 0;
    while filled < N {
        filled += rustix::rand::getrandom(&mut bytes[filled..], rustix::rand::GetRandomFlags::empty())
            .map_err(|errno| Error::errno("get random bytes", errno))?;
    }
    Ok(bytes)
}
