// SPDX-License-Identifier: Apache-2.0
//! Mappings of kvmem: anonymous memory of this process, or a memory file that other processes can map too.

use std::ffi::c_void;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{self, MemfdFlags};
use rustix::mm::{MapFlags, ProtFlags, mmap, mmap_anonymous, munmap};

use crate::error::{Error, Result, Status};
use crate::file_limit::FileSizeSignal;
use crate::log::log;

/// The pages of a mapping.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Pages {
    /// Ordinary pages.
    Ordinary,
    /// Ordinary pages at an address aligned for huge pages.
    AlignedTo(usize),
    /// Reserved huge pages of this size, a power of two.
    Huge(usize),
}

impl Pages {
    /// The size of a page.
    pub fn unit(self) -> usize {
        match self {
            Self::Ordinary | Self::AlignedTo(_) => rustix::param::page_size(),
            Self::Huge(size) => size,
        }
    }

    /// Alignment of their mappings.
    fn alignment(self) -> usize {
        match self {
            Self::AlignedTo(alignment) => alignment,
            _ => self.unit(),
        }
    }

    /// Rounds a size up to whole pages.
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
    fs::ftruncate(file, size)
}

/// A memory file, from some offset on.
#[derive(Clone, Copy)]
pub struct FilePart<'a> {
    /// The file.
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
        Self::of_part(FilePart { file: file.as_fd(), offset: 0 }, size, pages, 1, writable)
    }

    /// A part of a memory file, at a multiple of `alignment`, a power of two.
    pub fn of_part(
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
            return mapped.map(|address| Self { address, size, is_leaked: false });
        }
        let place = Self::reserve(size, alignment)?;
        // SAFETY: addresses that `place` has reserved, and where nothing points yet.
        unsafe { map(part, place.address, size, flags | MapFlags::FIXED, access) }.map(|_| place)
    }

    /// Reserves addresses that start at a multiple of `alignment`.
    fn reserve(size: usize, alignment: usize) -> Result<Self> {
        let wide = size.checked_add(alignment).ok_or_else(too_large)?;
        let flags = MapFlags::NORESERVE;
        // SAFETY: a new mapping at an address that the kernel chooses; no existing mapping changes.
        let address = unsafe { map(None, std::ptr::null_mut(), wide, flags, ProtFlags::empty()) }?;
        let mut place = Self { address, size: wide, is_leaked: false };
        place.trim((address as usize).next_multiple_of(alignment), size)?;
        Ok(place)
    }

    /// Keeps `size` bytes at `start`, and unmaps the rest.
    fn trim(&mut self, start: usize, size: usize) -> Result<()> {
        let (old_start, old_end) = (self.address as usize, self.address as usize + self.size);
        for (from, to) in [(old_start, start), (start + size, old_end)] {
            if to > from {
                // SAFETY: a part of this mapping that nothing refers to yet.
                unsafe { munmap(from as *mut c_void, to - from) }
                    .map_err(|errno| Error::errno("trim a mapping", errno))?;
            }
        }
        self.address = start as *mut c_void;
        self.size = size;
        Ok(())
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

/// # Safety
/// With `FIXED` in `flags`, `size` bytes at `address` must belong to the caller.
unsafe fn map(
    part: Option<FilePart<'_>>,
    address: *mut c_void,
    size: usize,
    flags: MapFlags,
    access: ProtFlags,
) -> Result<*mut c_void> {
    // SAFETY: the caller's promise; without FIXED no existing mapping changes.
    let mapped = unsafe {
        match part {
            Some(FilePart { file, offset }) => {
                mmap(address, size, access, MapFlags::SHARED | flags, file, offset)
            }
            None => mmap_anonymous(address, size, access, MapFlags::PRIVATE | flags),
        }
    };
    mapped.map_err(|errno| Error::errno(format!("map {size} bytes"), errno))
}

fn too_large() -> Error {
    Error::new(Status::InvalidArgument, "the size exceeds the address space")
}
