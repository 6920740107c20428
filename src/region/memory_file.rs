// SPDX-License-Identifier: Apache-2.0
//! Memory files: creating those of this process, and checking those of other processes before they are mapped.
//!
//! A page of a mapped file must exist when it is accessed; otherwise the kernel ends the process. A process that may write
//! the file can harm the processes that have it mapped:
//!
//! - It truncates the file: accesses past the end raise SIGBUS. F_SEAL_SHRINK prevents that, and is required.
//! - It punches a hole. A new ordinary page is zeroed, and charged to the process that accesses it: that costs memory, and
//!   a writer can change the bytes anyway. A hole in reserved huge pages removes the reservation too: SIGBUS if the
//!   pool is empty by then. Only F_SEAL_WRITE and F_SEAL_FUTURE_WRITE forbid holes, and both forbid to share the file
//!   to be written. So reserved huge pages are mapped only if the caller trusts those who may write them.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::{self, MemfdFlags, Mode, OFlags, SealFlags};
use rustix::io::Errno;

use super::mapping::{FilePart, Pages, give_size};
use super::open_file::{FileId, reopened};
use super::origin::Access;
use super::pages::huge_page_size;
use super::place::{AddressSpace, Place};
use crate::base::{Error, Result, Status, advice, ensure, error, retried};

/// The unit of st_blocks.
const STAT_BLOCK: u64 = 512;

pub fn memory_file(size: usize, pages: Pages) -> Result<OwnedFd> {
    let doing = |errno| Error::errno(format!("create a memory file of {size} bytes"), errno);
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING | pages.memfd_flags();
    let file = fs::memfd_create("kvmem", flags).map_err(doing)?;
    // A process that has it for reading could otherwise open it again for writing, as any user.
    retried::fchmod(&file, Mode::RUSR | Mode::WUSR).map_err(doing)?;
    give_size(&file, pages.round_up(size)? as u64).map_err(doing)?;
    fs::fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW).map_err(doing)?;
    // The kernel does not count the open by memfd_create. While it counts another one to write, no importer is given a
    // lease, which later opens of the file would wait for.
    reopened(&file, OFlags::RDWR)
}

/// Which mappings of a memory file other processes may create.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FutureWrites {
    /// To read and to write.
    #[default]
    Allowed,
    /// Only to read, whatever rights they get: F_SEAL_FUTURE_WRITE. Mappings that exist can still be written.
    Sealed,
}

/// Sets the last seals of a memory file, before another process gets it: otherwise an importer could add
/// F_SEAL_FUTURE_WRITE, and no later importer could write. Fails if it has been decided otherwise before.
pub fn seal_writes(file: BorrowedFd<'_>, writes: FutureWrites) -> Result<()> {
    let seals = match writes {
        FutureWrites::Allowed => SealFlags::SEAL,
        FutureWrites::Sealed => SealFlags::FUTURE_WRITE | SealFlags::SEAL,
    };
    let failure = match fs::fcntl_add_seals(file, seals) {
        Ok(()) => return Ok(()),
        Err(errno) => errno,
    };
    // Sealed before, perhaps by another thread just now.
    if writes == FutureWrites::Allowed || Inspected::new(file)?.is_write_sealed() {
        return Ok(());
    }
    let what = "seal the memory file against writing (F_SEAL_FUTURE_WRITE)";
    Err(match failure {
        Errno::PERM => Error::errno(
            format!(
                "{what}: the memory was shared before, or its file cannot be sealed; seal it in its first share, or create \
                 it with KVMEM_SYSTEM_WRITE_SEALED or KVMEM_PINNED_WRITE_SEALED"
            ),
            failure,
        )
        .with_status(Status::InvalidState),
        Errno::INVAL => Error::errno(format!("{what}: it needs Linux 5.1"), failure)
            .with_status(Status::Unsupported),
        _ => Error::errno(what, failure),
    })
}

/// A part of a memory file, from an offset on.
pub struct MemoryFile {
    file: OwnedFd,
    offset: u64,
    id: FileId,
    /// The caller has created it, and decides on its seals unless a share is to be sealed.
    is_adopted: bool,
    /// A share has granted write access.
    is_written: AtomicBool,
}

impl MemoryFile {
    /// The part that starts at a multiple of the file's page size.
    pub fn new(file: OwnedFd, offset: u64) -> Result<Self> {
        let id = FileId::from_fd(file.as_fd())?;
        Ok(Self { file, offset, id, is_adopted: false, is_written: AtomicBool::new(false) })
    }

    /// The same of a file that the caller has created.
    pub fn adopted(file: OwnedFd, offset: u64) -> Result<Self> {
        Ok(Self { is_adopted: true, ..Self::new(file, offset)? })
    }

    pub fn part(&self) -> FilePart<'_> {
        FilePart { file: self.file.as_fd(), offset: self.offset }
    }

    pub fn id(&self) -> FileId {
        self.id
    }

    /// The place of `size` bytes.
    pub fn place(&self, size: u64) -> Place {
        Place::new(AddressSpace::File(self.id), self.offset, size)
    }

    /// An open of the file for importers. A separate one: through a common one an importer could take a lease, and later opens
    /// would fail. Sealed against writing since, the file can only be shared to be read.
    pub fn for_sharing(&self, access: Access, writes: FutureWrites) -> Result<OwnedFd> {
        self.seal(writes)?;
        if access == Access::Read {
            return reopened(&self.file, OFlags::RDONLY);
        }
        // Before the look: a seal that is added after it finds this.
        self.is_written.store(true, Ordering::SeqCst);
        ensure!(
            !Inspected::new(self.file.as_fd())?.is_write_sealed(),
            PermissionDenied,
            "the memory file is sealed against writing (F_SEAL_WRITE or F_SEAL_FUTURE_WRITE), so that no importer can map it \
             to be written; share it with KVMEM_SHARE_READ_ONLY"
        );
        reopened(&self.file, OFlags::RDWR)
    }

    /// Fails for a seal if a share has granted write access: its importers can go on.
    fn seal(&self, writes: FutureWrites) -> Result<()> {
        if self.is_adopted && writes == FutureWrites::Allowed {
            return Ok(());
        }
        let ensure_unwritten = || {
            ensure!(
                !self.is_adopted || !self.is_written.load(Ordering::SeqCst),
                InvalidState,
                "the memory was shared before to be written, and what importers have mapped stays writable; seal it in a share \
                 before that one, or share it without KVMEM_SHARE_WRITE_SEALED"
            );
            Ok(())
        };
        ensure_unwritten()?;
        seal_writes(self.file.as_fd(), writes)?;
        ensure_unwritten()
    }
}

/// The properties that determine how a memory file can be mapped, and whether that is safe.
#[derive(Clone, Copy, Debug)]
pub struct Inspected {
    pub size: u64,
    /// The size of its pages, if they are of the reserved pool.
    pub huge_page: Option<usize>,
    seals: SealFlags,
}

impl Inspected {
    /// Fails if the file is no memory file. Asks nothing of a file system that another process serves: only memory files
    /// have seals, and those are the kernel's.
    pub fn new(file: BorrowedFd<'_>) -> Result<Self> {
        let foreign = |errno| Error::errno("the fd is not a memory file", errno).with_status(Status::Corrupt);
        let seals = fs::fcntl_get_seals(file).map_err(foreign)?;
        let stat = retried::fstat(file).map_err(foreign)?;
        let size = u64::try_from(stat.st_size).map_err(|_| error!(Corrupt, "the memory file has no size"))?;
        Ok(Self { size, huge_page: huge_page_size(file)?, seals })
    }

    /// Its pages, for a mapping.
    pub fn pages(&self) -> Pages {
        self.huge_page.map_or(Pages::Ordinary, Pages::Huge)
    }

    /// Whether a process that may write the file can truncate it: then accessing a page past its end raises SIGBUS.
    pub fn can_shrink(&self) -> bool {
        !self.seals.contains(SealFlags::SHRINK)
    }

    /// Whether no further mapping can write to it.
    pub fn is_write_sealed(&self) -> bool {
        self.seals.intersects(SealFlags::WRITE | SealFlags::FUTURE_WRITE)
    }

    /// The bytes that mappings show: of a file of ordinary pages the last one whole.
    pub fn mappable(&self) -> u64 {
        let page = self.pages().unit() as u64;
        self.size.checked_next_multiple_of(page).unwrap_or(self.size)
    }

    /// A failure to map the file, with how many huge pages there are if the lack of them is its cause.
    pub fn explain(&self, error: Error) -> Error {
        let page = self.huge_page.filter(|_| error.status() == Status::OutOfMemory);
        error.with_advice(page.and_then(|page| advice::huge_pages(page as u64)))
    }

    /// Refuses a file that can shrink.
    pub fn ensure_sealed(&self) -> Result<()> {
        ensure!(
            !self.can_shrink(),
            Corrupt,
            "the memory file can shrink under its readers; it must be sealed against that"
        );
        Ok(())
    }
}

/// The most of `size` bytes of a memory file that can have no page yet. Touching them allocates as much. The kernel says
/// how many pages the whole file has, not where.
pub fn missing_bytes(file: BorrowedFd<'_>, size: u64) -> Result<u64> {
    let stat = retried::fstat(file).map_err(|errno| Error::errno("get the pages of a memory file", errno))?;
    let allocated = u64::try_from(stat.st_blocks).unwrap_or(0).saturating_mul(STAT_BLOCK);
    let whole = u64::try_from(stat.st_size).unwrap_or(0).max(size);
    Ok(whole.saturating_sub(allocated).min(size))
}

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "tests need no repetition")]
#[allow(unsafe_code)]
mod tests {
    use std::os::fd::{AsFd, AsRawFd};

    use super::*;

    #[test]
    fn no_seal_can_be_added_later() {
        let size = 2 * rustix::param::page_size();
        let file = memory_file(size, Pages::Ordinary).unwrap();
        seal_writes(file.as_fd(), FutureWrites::Allowed).unwrap();
        seal_writes(file.as_fd(), FutureWrites::Allowed).unwrap();
        seal_writes(file.as_fd(), FutureWrites::Sealed).unwrap_err().assert_is(Status::InvalidState, "");
        for seal in [SealFlags::FUTURE_WRITE, SealFlags::WRITE] {
            assert_eq!(fs::fcntl_add_seals(&file, seal), Err(Errno::PERM));
        }
        let inspected = Inspected::new(file.as_fd()).unwrap();
        inspected.ensure_sealed().unwrap();
        assert_eq!((inspected.size, inspected.is_write_sealed()), (size as u64, false));
    }

    #[test]
    fn a_file_that_is_sealed_against_writes_remains_so() {
        let file = memory_file(8192, Pages::Ordinary).unwrap();
        seal_writes(file.as_fd(), FutureWrites::Sealed).unwrap();
        seal_writes(file.as_fd(), FutureWrites::Sealed).unwrap();
        seal_writes(file.as_fd(), FutureWrites::Allowed).unwrap();
        assert!(Inspected::new(file.as_fd()).unwrap().is_write_sealed());
        assert_eq!(rustix::io::pwrite(&file, &[1], 0), Err(Errno::PERM));
    }

    #[test]
    fn importers_cannot_take_a_lease() {
        let file = memory_file(8192, Pages::Ordinary).unwrap();
        for (flags, lease) in
            [(OFlags::RDWR, libc::F_WRLCK), (OFlags::RDONLY, libc::F_WRLCK), (OFlags::RDONLY, libc::F_RDLCK)]
        {
            let importers = reopened(&file, flags).unwrap();
            // SAFETY: a live fd and an integer.
            let leased = unsafe { libc::fcntl(importers.as_raw_fd(), libc::F_SETLEASE, lease) };
            assert_eq!(leased, -1, "{flags:?} {lease}");
            assert_eq!(std::io::Error::last_os_error().raw_os_error(), Some(libc::EAGAIN));
        }
    }

    #[test]
    fn pages_are_not_present_before_the_first_write() {
        let file = memory_file(1 << 20, Pages::Ordinary).unwrap();
        assert_eq!(missing_bytes(file.as_fd(), 1 << 20).unwrap(), 1 << 20);
        rustix::io::pwrite(&file, &[1; 65536], 0).unwrap();
        assert_eq!(missing_bytes(file.as_fd(), 1 << 20).unwrap(), (1 << 20) - 65536);
        // They may be the others.
        assert_eq!(missing_bytes(file.as_fd(), 4096).unwrap(), 4096);
    }

    #[test]
    fn reserved_pages_are_detected_before_any_is_mapped() {
        // Needs no page of the pool: only mapped pages are reserved.
        let reserved = memory_file(2 << 20, Pages::Huge(2 << 20)).unwrap();
        assert_eq!(Inspected::new(reserved.as_fd()).unwrap().huge_page, Some(2 << 20));
        let ordinary = memory_file(2 << 20, Pages::Ordinary).unwrap();
        assert_eq!(Inspected::new(ordinary.as_fd()).unwrap().huge_page, None);
    }

    #[test]
    fn files_that_can_shrink_and_other_files_fail() {
        let unsealed = fs::memfd_create("unsealed", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
        let inspected = Inspected::new(unsealed.as_fd()).unwrap();
        assert_eq!(inspected.ensure_sealed().err().unwrap().status(), Status::Corrupt);
        let (pipe, _other) = std::io::pipe().unwrap();
        assert_eq!(Inspected::new(pipe.as_fd()).err().unwrap().status(), Status::Corrupt);
    }
}
