// SPDX-License-Identifier: Apache-2.0
//! Mappings of kvmem: anonymous memory of this process, or a memory file that other processes can map too.
#![allow(unsafe_code)]

use std::ffi::c_void;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::MemfdFlags;
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags, mmap, mmap_anonymous, munmap};

use crate::base::file_limit::FileSizeSignal;
use crate::base::{Error, Result, Status, ensure, error, log, retried};

/// How many places are tried for a mapping that is aligned to more than a page.
const PLACES: usize = 1000;

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Pages {
    Ordinary,
    /// Ordinary pages at an address aligned for huge pages.
    AlignedTo(usize),
    /// Reserved huge pages of this size, a power of two.
    Huge(usize),
}

impl Pages {
    pub fn unit(self) -> usize {
        match self {
            Self::Ordinary | Self::AlignedTo(_) => rustix::param::page_size(),
            Self::Huge(size) => size,
        }
    }

    fn alignment(self) -> usize {
        match self {
            Self::AlignedTo(alignment) => alignment,
            _ => self.unit(),
        }
    }

    pub fn round_up(self, size: usize) -> Result<usize> {
        size.checked_next_multiple_of(self.unit()).ok_or_else(too_large)
    }

    fn map_flags(self) -> MapFlags {
        match self {
            Self::Ordinary | Self::AlignedTo(_) => MapFlags::empty(),
            Self::Huge(size) => MapFlags::HUGETLB | MapFlags::from_bits_retain(encoded(size)),
        }
    }

    pub(super) fn memfd_flags(self) -> MemfdFlags {
        match self {
            Self::Ordinary | Self::AlignedTo(_) => MemfdFlags::empty(),
            Self::Huge(size) => MemfdFlags::HUGETLB | MemfdFlags::from_bits_retain(encoded(size)),
        }
    }
}

/// A size of huge pages, as mmap and memfd_create take it.
fn encoded(size: usize) -> u32 {
    size.trailing_zeros() << libc::MAP_HUGE_SHIFT
}

/// Sets the size of a new memory file. The limit on the size of files, which covers memory files too, is an error, not
/// a signal.
pub fn give_size(file: &OwnedFd, size: u64) -> rustix::io::Result<()> {
    let _limit_reports_itself = FileSizeSignal::block();
    retried::ftruncate(file, size)
}

/// A memory file, from some offset on.
#[derive(Clone, Copy)]
pub struct FilePart<'a> {
    pub file: BorrowedFd<'a>,
    /// Where the part starts: a multiple of the file's page size.
    pub offset: u64,
}

/// A mapping of kvmem. It is unmapped on drop.
pub struct Mapping {
    address: *mut c_void,
    size: usize,
    is_leaked: bool,
}

// SAFETY: a mapping belongs to the process, not to a thread.
unsafe impl Send for Mapping {}
// SAFETY: the value itself never changes; its users synchronise access to the bytes.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps memory of this process only.
    pub fn private(size: usize, pages: Pages) -> Result<Self> {
        Self::new(None, size, pages, 1, ProtFlags::READ | ProtFlags::WRITE)
    }

    /// Maps a memory file from its start.
    pub fn shared(file: &OwnedFd, size: usize, pages: Pages, writable: bool) -> Result<Self> {
        Self::from_part(FilePart { file: file.as_fd(), offset: 0 }, size, pages, 1, writable)
    }

    /// A part of a memory file, at a multiple of `alignment`, a power of two.
    pub fn from_part(
        part: FilePart<'_>,
        size: usize,
        pages: Pages,
        alignment: usize,
        writable: bool,
    ) -> Result<Self> {
        let write = if writable { ProtFlags::WRITE } else { ProtFlags::empty() };
        Self::new(Some(part), size, pages, alignment, ProtFlags::READ | write)
    }

    fn new(
        part: Option<FilePart<'_>>,
        size: usize,
        pages: Pages,
        alignment: usize,
        access: ProtFlags,
    ) -> Result<Self> {
        let size = pages.round_up(size)?;
        let alignment = pages.alignment().max(alignment);
        let flags = pages.map_flags();
        if alignment == pages.unit() {
            // SAFETY: a new mapping at an address that the kernel chooses; no existing mapping changes.
            let mapped = unsafe { map(part, std::ptr::null_mut(), size, flags, access) };
            return match mapped {
                Ok(address) => Ok(Self { address, size, is_leaked: false }),
                Err(errno) => Err(map_error(size, errno)),
            };
        }
        Self::aligned(size, alignment, |address| {
            // SAFETY: no existing mapping changes: without one there, or not at all.
            unsafe { map(part, address, size, flags | MapFlags::FIXED_NOREPLACE, access) }
        })
    }

    /// Maps by `map` at a multiple of `alignment`. Nothing is reserved there meanwhile: if the kernel fails to replace a
    /// mapping, it may have unmapped it, and then another thread may have mapped there.
    fn aligned(
        size: usize,
        alignment: usize,
        mut map: impl FnMut(*mut c_void) -> rustix::io::Result<*mut c_void>,
    ) -> Result<Self> {
        for _ in 0..PLACES {
            let place = free_place(size, alignment)?;
            match map(place) {
                Ok(address) => {
                    let mapping = Self { address, size, is_leaked: false };
                    // Kernels before 4.17 take the address for a hint.
                    if address == place {
                        return Ok(mapping);
                    }
                }
                // Another thread has mapped there meanwhile.
                Err(Errno::EXIST) => {}
                Err(errno) => return Err(map_error(size, errno)),
            }
        }
        Err(map_error(size, Errno::EXIST)
            .context(format!("other threads mapped at all {PLACES} addresses that were tried"))
            .with_status(Status::OutOfMemory))
    }

    /// Leaves the memory mapped until the process ends.
    pub fn leak(&mut self) {
        self.is_leaked = true;
    }

    /// Its first byte.
    pub fn address(&self) -> *mut c_void {
        self.address
    }

    /// Its size in bytes: whole pages.
    pub fn size(&self) -> usize {
        self.size
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        if self.is_leaked {
            return;
        }
        // SAFETY: created by this value; the region that held it has no holder left.
        if let Err(errno) = unsafe { munmap(self.address, self.size) } {
            log!(Error, "unmap {} bytes: {errno}", self.size);
        }
    }
}

/// Addresses that start at a multiple of `alignment`, and where nothing is mapped now.
fn free_place(size: usize, alignment: usize) -> Result<*mut c_void> {
    let wide = size.checked_add(alignment).ok_or_else(too_large)?;
    // SAFETY: a new mapping at an address that the kernel chooses; no existing mapping changes.
    let found = unsafe { map(None, std::ptr::null_mut(), wide, MapFlags::NORESERVE, ProtFlags::empty()) };
    let address = found.map_err(|errno| map_error(wide, errno))?;
    drop(Mapping { address, size: wide, is_leaked: false });
    Ok((address as usize).next_multiple_of(alignment) as *mut c_void)
}

/// # Safety
/// `flags` must not contain `FIXED`, which replaces mappings.
unsafe fn map(
    part: Option<FilePart<'_>>,
    address: *mut c_void,
    size: usize,
    flags: MapFlags,
    access: ProtFlags,
) -> rustix::io::Result<*mut c_void> {
    // SAFETY: without FIXED no existing mapping changes, by contract.
    unsafe {
        match part {
            Some(FilePart { file, offset }) => {
                mmap(address, size, access, MapFlags::SHARED | flags, file, offset)
            }
            None => mmap_anonymous(address, size, access, MapFlags::PRIVATE | flags),
        }
    }
}

fn map_error(size: usize, errno: Errno) -> Error {
    Error::errno(format!("map {size} bytes"), errno)
}

fn too_large() -> Error {
    error!(InvalidArgument, "the size exceeds the address space")
}

/// Converts a size in bytes to the type of this machine's sizes.
pub fn host_size(what: &str, size: u64) -> Result<usize> {
    ensure!(size > 0, InvalidArgument, "the size of {what} is 0 bytes; it must be at least 1");
    match usize::try_from(size) {
        Ok(size) if size <= isize::MAX as usize => Ok(size),
        _ => Err(error!(InvalidArgument, "{what} of {size} bytes exceeds the address space")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZE: usize = 64 << 10;
    const ALIGNMENT: usize = 2 << 20;

    /// Maps as another thread might.
    fn mapped_by_another(address: *mut c_void) -> Mapping {
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: replaces no mapping.
        let mapped = unsafe { map(None, address, SIZE, MapFlags::FIXED_NOREPLACE, access) };
        assert_eq!(mapped, Ok(address));
        Mapping { address, size: SIZE, is_leaked: false }
    }

    #[test]
    fn a_mapping_of_another_thread_outlives_a_failure_at_its_addresses() {
        let mut others = None;
        let failed = Mapping::aligned(SIZE, ALIGNMENT, |address| {
            others = Some(mapped_by_another(address));
            Err(Errno::NOMEM)
        });
        assert_eq!(failed.err().unwrap().status(), Status::OutOfMemory);
        // SAFETY: mapped, and used by this test only. Raises SIGSEGV if the failure has unmapped it.
        unsafe { others.unwrap().address().cast::<u8>().write(1) };
    }

    #[test]
    fn addresses_that_another_thread_took_are_not_used() {
        let mut others = Vec::new();
        let mapping = Mapping::aligned(SIZE, ALIGNMENT, |address| {
            if others.len() < 3 {
                others.push(mapped_by_another(address));
            }
            let access = ProtFlags::READ | ProtFlags::WRITE;
            // SAFETY: replaces no mapping.
            unsafe { map(None, address, SIZE, MapFlags::FIXED_NOREPLACE, access) }
        });
        let mapping = mapping.unwrap();
        assert!((mapping.address() as usize).is_multiple_of(ALIGNMENT));
        assert!(others.iter().all(|other| other.address() != mapping.address()));
        let always = Mapping::aligned(SIZE, ALIGNMENT, |_| Err(Errno::EXIST));
        assert_eq!(always.err().unwrap().status(), Status::OutOfMemory);
    }
}
