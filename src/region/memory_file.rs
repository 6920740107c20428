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

#![cfg_attr(not(test), forbid(unsafe_code))]

use std::os::fd::{BorrowedFd, OwnedFd};

use rustix::fs::{self, MemfdFlags, Mode, OFlags, SealFlags};

use super::mapping::{Pages, give_size};
use super::open_file::reopened;
use super::pages::huge_page_size;
use crate::error::{Error, Result, Status, ensure};

/// The unit of st_blocks.
const STAT_BLOCK: u64 = 512;

/// A memory file of a fixed size.
pub fn memory_file(size: usize, pages: Pages) -> Result<OwnedFd> {
    let doing = |errno| Error::errno(format!("create a memory file of {size} bytes"), errno);
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING | pages.memfd_flags();
    let file = fs::memfd_create("kvmem", flags).map_err(doing)?;
    // A process that has it for reading could otherwise open it again for writing, as any user.
    fs::fchmod(&file, Mode::RUSR | Mode::WUSR).map_err(doing)?;
    give_size(&file, pages.round_up(size)? as u64).map_err(doing)?;
    // The last one: an importer that may write could otherwise add F_SEAL_FUTURE_WRITE, and no later importer could.
    fs::fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL).map_err(doing)?;
    // The kernel does not count the open by memfd_create. While it counts another one to write, no importer is given a
    // lease, which later opens of the file would wait for.
    reopened(&file, OFlags::RDWR)
}

/// The size of a memory file that cannot shrink under its mappings. Makes no request to a file system that another process
/// serves: only memory files, which the kernel serves, have seals.
pub fn sealed_size(file: BorrowedFd<'_>) -> Result<usize> {
    let foreign = |errno| Error::errno("the fd is not a memory file", errno).with_status(Status::Corrupt);
    let seals = fs::fcntl_get_seals(file).map_err(foreign)?;
    ensure!(
        seals.contains(SealFlags::SHRINK),
        Corrupt,
        "the memory file can shrink under its readers; it must be sealed against that"
    );
    let stat = fs::fstat(file).map_err(foreign)?;
    usize::try_from(stat.st_size).map_err(|_| Error::new(Status::Corrupt, "the memory file has no size"))
}

/// Whether a memory file has reserved huge pages, holes in which can end a process that has the file mapped.
pub fn has_reserved_pages(file: BorrowedFd<'_>) -> Result<bool> {
    sealed_size(file)?;
    huge_page_size(file).map(|size| size.is_some())
}

/// How many of the first `size` bytes of a memory file have no page yet. Accessing them allocates that much memory.
pub fn missing_bytes(file: BorrowedFd<'_>, size: u64) -> Result<u64> {
    let stat = fs::fstat(file).map_err(|errno| Error::errno("examine a memory file", errno))?;
    let there = u64::try_from(stat.st_blocks).unwrap_or(0).saturating_mul(STAT_BLOCK);
    Ok(size.saturating_sub(there))
}

#[cfg(test)]
mod tests {
    use std::os::fd::{AsFd, AsRawFd};

    use rustix::io::Errno;

    use super::*;

    #[test]
    fn nobody_adds_a_seal_later() {
        let file = memory_file(8192, Pages::Ordinary).unwrap();
        for seal in [SealFlags::FUTURE_WRITE, SealFlags::WRITE] {
            assert_eq!(fs::fcntl_add_seals(&file, seal), Err(Errno::PERM));
        }
        assert_eq!(sealed_size(file.as_fd()).unwrap(), 8192);
    }

    #[test]
    fn no_importer_is_given_a_lease() {
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
    fn pages_are_missing_until_they_are_written() {
        let file = memory_file(1 << 20, Pages::Ordinary).unwrap();
        assert_eq!(missing_bytes(file.as_fd(), 1 << 20).unwrap(), 1 << 20);
        rustix::io::pwrite(&file, &[1; 65536], 0).unwrap();
        assert_eq!(missing_bytes(file.as_fd(), 1 << 20).unwrap(), (1 << 20) - 65536);
        assert_eq!(missing_bytes(file.as_fd(), 4096).unwrap(), 0);
    }

    #[test]
    fn reserved_pages_are_recognised_before_any_is_mapped() {
        // Needs no page of the pool: what is not mapped takes none.
        let reserved = memory_file(2 << 20, Pages::Huge(2 << 20)).unwrap();
        assert!(has_reserved_pages(reserved.as_fd()).unwrap());
        let ordinary = memory_file(2 << 20, Pages::Ordinary).unwrap();
        assert!(!has_reserved_pages(ordinary.as_fd()).unwrap());
    }

    #[test]
    fn what_can_shrink_or_is_no_memory_file_is_refused() {
        let unsealed = fs::memfd_create("unsealed", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
        let (pipe, _other) = std::io::pipe().unwrap();
        for file in [unsealed.as_fd(), pipe.as_fd()] {
            assert_eq!(sealed_size(file).err().unwrap().status(), Status::Corrupt);
            assert_eq!(has_reserved_pages(file).err().unwrap().status(), Status::Corrupt);
        }
    }
}
