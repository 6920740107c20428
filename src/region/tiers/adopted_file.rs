// SPDX-License-Identifier: Apache-2.0
//! A part of a memory file of the caller's: checked, sealed and mapped, so that it can be adopted and shared.
//!
//! A memory file is what memfd_create returns, or a file on tmpfs or hugetlbfs. Other files are refused: the pages of a
//! file on disk belong to the page cache, and the pages of a device or a dma-buf to its driver.

use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use rustix::fs::{self, OFlags, SealFlags};

use super::system::aligned_for_all;
use crate::base::{Error, Result, Status, ensure, fail, log, retried};
use crate::cuda::vmm::describe;
use crate::region::mapping::{FilePart, Mapping, Pages, host_size};
use crate::region::memory_file::{Inspected, MemoryFile};
use crate::region::proc_maps::{self, MapsEntry};
use crate::region::{Access, FileId, reopened};

#[derive(Clone, Copy, Debug)]
pub struct AdoptedFileConfig<'a> {
    pub file: BorrowedFd<'a>,
    /// Where in it the memory starts.
    pub offset: u64,
    pub size: u64,
    /// Where the caller has mapped the memory; 0 to have it mapped here.
    pub address: usize,
    /// How it is used here, and the most that importers may be granted.
    pub access: Access,
    /// Does not add F_SEAL_SHRINK.
    pub keep_seals: bool,
}

pub struct AdoptedFile {
    file: MemoryFile,
    page_size: u64,
    /// `None` if the caller has mapped it.
    _mapping: Option<Mapping>,
}

impl AdoptedFile {
    /// Checks, seals and maps. Returns the address, too.
    pub fn new(config: &AdoptedFileConfig<'_>) -> Result<(Self, usize)> {
        let adopting =
            |error: Error| error.context(format!("adopt memory of fd {}", config.file.as_raw_fd()));
        Self::checked(config).map_err(adopting)
    }

    fn checked(config: &AdoptedFileConfig<'_>) -> Result<(Self, usize)> {
        let mode = ensure_readable(config.file)?;
        // Before the access: another kind of file would not suit with any.
        let inspected = inspect(config.file)?;
        ensure!(
            config.access == Access::Read || mode == OFlags::RDWR,
            InvalidArgument,
            "it is open for reading only; open the file with O_RDWR, or adopt it with KVMEM_ADOPT_READ_ONLY"
        );
        let size = host_size("an adopted region", config.size)?;
        ensure_within(config, &inspected)?;
        let file = own_open(config)?;
        let (mapping, address) = if config.address == 0 {
            let mapping = map(config, file.as_fd(), &inspected, size)?;
            let address = mapping.address() as usize;
            (Some(mapping), address)
        } else {
            ensure_mapped_at(config)?;
            (None, config.address)
        };
        let page_size = inspected.pages().unit() as u64;
        let file = MemoryFile::adopted(file, config.offset)?;
        Ok((Self { file, page_size, _mapping: mapping }, address))
    }

    /// Seals the file, unless the caller keeps the seals, when all else has succeeded: a seal cannot be taken away.
    pub fn seal(&self, config: &AdoptedFileConfig<'_>) -> Result<()> {
        if config.keep_seals {
            return Ok(());
        }
        let adopting =
            |error: Error| error.context(format!("adopt memory of fd {}", config.file.as_raw_fd()));
        // The size holds from the seal on, and may have changed before.
        let sealed = seal(config).and_then(|()| ensure_within(config, &inspect(config.file)?));
        sealed.map_err(adopting)
    }

    pub fn file(&self) -> &MemoryFile {
        &self.file
    }

    pub fn page_size(&self) -> u64 {
        self.page_size
    }
}

/// An open of its own: no importer gets a lease on the file while it is open, and its rights are those of the region. A
/// process that may not open the file again keeps the open that it has.
fn own_open(config: &AdoptedFileConfig<'_>) -> Result<OwnedFd> {
    let flags = if config.access == Access::Read { OFlags::RDONLY } else { OFlags::RDWR };
    match reopened(config.file, flags) {
        Err(error) if error.status() == Status::PermissionDenied => {
            rustix::io::fcntl_dupfd_cloexec(config.file, 0)
                .map_err(|errno| Error::errno("duplicate the file descriptor", errno))
        }
        opened => opened,
    }
}

fn ensure_readable(file: BorrowedFd<'_>) -> Result<OFlags> {
    let flags =
        retried::fcntl_getfl(file).map_err(|errno| Error::errno("get the flags of the open file", errno))?;
    let mode = flags & OFlags::ACCMODE;
    ensure!(
        mode != OFlags::WRONLY && !flags.contains(OFlags::PATH),
        InvalidArgument,
        "it is not open for reading; open the file with O_RDWR, or with O_RDONLY for KVMEM_ADOPT_READ_ONLY"
    );
    Ok(mode)
}

fn inspect(file: BorrowedFd<'_>) -> Result<Inspected> {
    Inspected::new(file).map_err(|error| match error.status() {
        Status::Corrupt => error
            .context(format!(
                "it is {}; only a memory file can be adopted: one of memfd_create, or a file on tmpfs or hugetlbfs",
                describe(file).0
            ))
            .with_status(Status::InvalidArgument),
        _ => error,
    })
}

/// Adds F_SEAL_SHRINK, so that no process that has the memory can get SIGBUS because another one truncates the file.
fn seal(config: &AdoptedFileConfig<'_>) -> Result<()> {
    if !inspect(config.file)?.can_shrink() {
        return Ok(());
    }
    if let Err(errno) = fs::fcntl_add_seals(config.file, SealFlags::SHRINK) {
        log!(
            Info,
            "the memory file of fd {} cannot be sealed against truncation ({errno}), as without MFD_ALLOW_SEALING; \
             importers need KVMEM_OPEN_TRUST_OWNER",
            config.file.as_raw_fd()
        );
    }
    Ok(())
}

fn ensure_within(config: &AdoptedFileConfig<'_>, file: &Inspected) -> Result<()> {
    let page = file.pages().unit() as u64;
    ensure!(
        config.offset.is_multiple_of(page),
        InvalidArgument,
        "the offset {} is no multiple of the file's page size {page}",
        config.offset
    );
    let is_within = config.offset.checked_add(config.size).is_some_and(|end| end <= file.size);
    ensure!(
        is_within,
        OutOfRange,
        "{} bytes at offset {} were requested, the file has {}; set its size with ftruncate first",
        config.size,
        config.offset,
        file.size
    );
    Ok(())
}

/// Maps the part by the open of kvmem: before Linux 6.7, a file with F_SEAL_WRITE can be mapped with MAP_SHARED only by an
/// open for reading, and the caller's may be for writing.
fn map(
    config: &AdoptedFileConfig<'_>,
    file: BorrowedFd<'_>,
    inspected: &Inspected,
    size: usize,
) -> Result<Mapping> {
    let writable = config.access == Access::ReadWrite;
    ensure!(
        !writable || !inspected.is_write_sealed(),
        InvalidArgument,
        "the file is sealed against writing (F_SEAL_WRITE or F_SEAL_FUTURE_WRITE); adopt it with \
         KVMEM_ADOPT_READ_ONLY, or at an address where it was mapped before it was sealed"
    );
    let pages = inspected.huge_page.map_or(aligned_for_all(size), Pages::Huge);
    let part = FilePart { file, offset: config.offset };
    Mapping::from_part(part, size, pages, 1, writable).map_err(|error| inspected.explain(error))
}

/// Fails unless every page at the address shows the page of the file that it should: other processes map the file, and
/// would otherwise have other bytes.
fn ensure_mapped_at(config: &AdoptedFileConfig<'_>) -> Result<()> {
    let start = config.address as u64;
    let Some(end) = start.checked_add(config.size) else {
        fail!(InvalidArgument, "{} bytes at {start:#x} reach past the end of the address space", config.size);
    };
    let file = FileId::from_fd(config.file)?.in_list_of_mappings();
    let range = start..end;
    for mapped in proc_maps::within(std::slice::from_ref(&range))?.into_iter().flatten() {
        ensure_shows(&mapped, &range, &file, config.offset)?;
    }
    Ok(())
}

/// One mapping of the range. That the range has no gaps is checked for all adopted memory.
fn ensure_shows(mapped: &MapsEntry, range: &Range<u64>, file: &(String, u64), offset: u64) -> Result<()> {
    let at = range.start.max(mapped.addresses.start);
    let Some(pages) = &mapped.pages else {
        fail!(
            InvalidArgument,
            "{at:#x} is not mapped with MAP_SHARED from a memory file; map the fd with MAP_SHARED there, or set the \
             address to NULL to have kvmem map it"
        );
    };
    ensure!(
        pages.file == *file,
        InvalidArgument,
        "{at:#x} is mapped from another file (inode {}) than the fd is of (inode {})",
        pages.file.1,
        file.1
    );
    let (found, expected) = (pages.offset + (at - mapped.addresses.start), offset + (at - range.start));
    ensure!(
        found == expected,
        InvalidArgument,
        "{at:#x} is mapped from offset {found} of the file, not from {expected}"
    );
    Ok(())
}
