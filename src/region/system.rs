// SPDX-License-Identifier: Apache-2.0
//! System memory: an anonymous mapping, zeroed and page-aligned.

use std::ffi::c_void;

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

use super::{host_size, numa, pages, prefault};
use crate::error::{Error, Result, Status, ensure};
use crate::log::log;

/// Which pages to ask the kernel for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HugePages {
    /// The system's own.
    #[default]
    None,
    /// The system's own, also where the kernel makes huge ones unasked.
    Never,
    /// Ask the kernel to use huge pages where it can.
    Transparent,
    /// Pages of this size from the system's reserved pool.
    Reserved(u64),
}

/// What to map.
#[derive(Clone, Debug, Default)]
pub struct SystemConfig {
    /// Bytes; rounded up to whole pages inside.
    pub size: u64,
    /// Which pages to ask for.
    pub huge_pages: HugePages,
    /// Fail rather than take smaller pages than asked for.
    pub huge_pages_required: bool,
    /// The NUMA node the pages come from.
    pub numa: Option<numa::Placement>,
    /// How many threads touch every page before the call returns; 0: each page comes with its first use.
    pub prefault_threads: u32,
}

/// An anonymous private mapping.
pub struct SystemMemory {
    mapping: Mapping,
    size: usize,
    page_size: u64,
    fell_back: bool,
    numa: Option<numa::Placement>,
}

impl SystemMemory {
    /// Maps memory as configured, or changes nothing.
    pub fn allocate(config: &SystemConfig) -> Result<Self> {
        let size = host_size("a system region", config.size)?;
        let mapped = match config.huge_pages {
            HugePages::None => Mapping::ordinary(size).map(|mapping| (mapping, base_page(), false)),
            HugePages::Never => Self::without_huge(size),
            HugePages::Transparent => Self::transparent(size, config.huge_pages_required),
            HugePages::Reserved(page) => Self::reserved(size, page, config.huge_pages_required),
        };
        let (mapping, page_size, fell_back) =
            mapped.map_err(|error| error.context(format!("allocate {size} bytes of host memory")))?;
        let numa = match config.numa {
            Some(placement) => numa::place(mapping.address as usize, mapping.size, placement)?,
            None => None,
        };
        if config.prefault_threads > 0 {
            prefault::touch(mapping.address as usize, mapping.size, page_size, config.prefault_threads)?;
        }
        Ok(Self { mapping, size, page_size, fell_back, numa })
    }

    fn without_huge(size: usize) -> Result<(Mapping, u64, bool)> {
        let mapping = Mapping::ordinary(size)?;
        // SAFETY: advice about a mapping of our own. A kernel without huge pages refuses it, and need not know.
        let _ = unsafe { madvise(mapping.address, mapping.size, Advice::LinuxNoHugepage) };
        Ok((mapping, base_page(), false))
    }

    fn transparent(size: usize, required: bool) -> Result<(Mapping, u64, bool)> {
        let mapping = Mapping::aligned(size, pages::transparent_huge_page_size())?;
        // SAFETY: advice about a mapping of our own.
        let advised = unsafe { madvise(mapping.address, mapping.size, Advice::LinuxHugepage) };
        let offered = pages::transparent_huge_pages_offered() && advised.is_ok();
        ensure!(offered || !required, Unsupported, "this system offers no transparent huge pages");
        Ok((mapping, base_page(), !offered))
    }

    fn reserved(size: usize, page: u64, required: bool) -> Result<(Mapping, u64, bool)> {
        let error = match Mapping::huge(size, page) {
            Ok(mapping) => return Ok((mapping, page, false)),
            Err(error) if required => return Err(error),
            Err(error) => error,
        };
        log!(Warn, "{error}; ordinary pages, huge where the kernel can, are used instead");
        let (mapping, page_size, _) = Self::transparent(size, false)?;
        Ok((mapping, page_size, true))
    }

    /// Its first byte.
    pub fn address(&self) -> usize {
        self.mapping.address as usize
    }

    /// The bytes asked for.
    pub fn size(&self) -> usize {
        self.size
    }

    /// The size of the pages the mapping is made of.
    pub fn page_size(&self) -> u64 {
        self.page_size
    }

    /// Whether the pages are smaller than asked for.
    pub fn fell_back(&self) -> bool {
        self.fell_back
    }

    /// The NUMA node its pages come from.
    pub fn numa_node(&self) -> Option<u32> {
        self.numa.map(numa::Placement::node)
    }

    /// Touches every page of a part, with up to `threads` threads.
    pub fn prefault(&self, offset: usize, size: usize, threads: u32) -> Result<()> {
        prefault::touch(self.address() + offset, size, self.page_size, threads)
    }

    /// How many of its bytes lie on transparent huge pages now.
    pub fn transparent_huge_bytes(&self) -> u64 {
        pages::transparent_huge_bytes(self.address(), self.mapping.size)
    }

    /// Asks for ordinary pages from `offset` on.
    pub fn give_up_huge_pages(&self, offset: usize) {
        let rest = self.mapping.size - offset.min(self.mapping.size);
        // SAFETY: advice about a part of our own mapping.
        let advised =
            unsafe { madvise((self.address() + offset) as *mut c_void, rest, Advice::LinuxNoHugepage) };
        if let Err(errno) = advised {
            log!(Warn, "ask for ordinary pages: {errno}");
        }
    }
}

fn base_page() -> u64 {
    rustix::param::page_size() as u64
}

/// A mapping of our own, unmapped on drop.
struct Mapping {
    address: *mut c_void,
    size: usize,
}

// SAFETY: a mapping belongs to the process, not to a thread.
unsafe impl Send for Mapping {}
// SAFETY: the value itself is never changed; its bytes are the users' to guard.
unsafe impl Sync for Mapping {}

impl Mapping {
    fn ordinary(size: usize) -> Result<Self> {
        Self::map(round_up(size, base_page() as usize)?, MapFlags::empty())
    }

    /// Begins at a multiple of `alignment`, so that huge pages fit from the first byte.
    fn aligned(size: usize, alignment: usize) -> Result<Self> {
        let size = round_up(size, base_page() as usize)?;
        let wide = size.checked_add(alignment).ok_or_else(too_large)?;
        let mut mapping = Self::map(wide, MapFlags::empty())?;
        let start = (mapping.address as usize).next_multiple_of(alignment);
        mapping.trim(start, size)?;
        Ok(mapping)
    }

    fn huge(size: usize, page: u64) -> Result<Self> {
        let flag = match page {
            0x20_0000 => MapFlags::HUGETLB | MapFlags::HUGE_2MB,
            0x4000_0000 => MapFlags::HUGETLB | MapFlags::HUGE_1GB,
            _ => {
                let message = format!("huge pages are of 2 MiB or 1 GiB, not of {page} bytes");
                return Err(Error::new(Status::InvalidArgument, message));
            }
        };
        Self::map(round_up(size, page as usize)?, flag)
            .map_err(|error| error.context(format!("huge pages of {page} bytes")))
    }

    fn map(size: usize, flags: MapFlags) -> Result<Self> {
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a fresh mapping where the kernel likes; no memory of anyone's changes.
        let address =
            unsafe { mmap_anonymous(std::ptr::null_mut(), size, protection, MapFlags::PRIVATE | flags) }
                .map_err(|errno| Error::errno(format!("map {size} bytes"), errno))?;
        Ok(Self { address, size })
    }

    /// Keeps `size` bytes at `start` and gives the rest back.
    fn trim(&mut self, start: usize, size: usize) -> Result<()> {
        let (old_start, old_end) = (self.address as usize, self.address as usize + self.size);
        for (from, to) in [(old_start, start), (start + size, old_end)] {
            if to > from {
                // SAFETY: a part of our own mapping that nothing points into yet.
                unsafe { munmap(from as *mut c_void, to - from) }
                    .map_err(|errno| Error::errno("trim a mapping", errno))?;
            }
        }
        self.address = start as *mut c_void;
        self.size = size;
        Ok(())
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: our own mapping; the region that held it has no holder left.
        if let Err(errno) = unsafe { munmap(self.address, self.size) } {
            log!(Error, "unmap {} bytes: {errno}", self.size);
        }
    }
}

fn round_up(size: usize, unit: usize) -> Result<usize> {
    size.checked_next_multiple_of(unit).ok_or_else(too_large)
}

fn too_large() -> Error {
    Error::new(Status::InvalidArgument, "the size is more than can be addressed")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(memory: &SystemMemory) -> &[u8] {
        // SAFETY: the memory's own span, alive as long as it.
        unsafe { std::slice::from_raw_parts(memory.address() as *const u8, memory.size()) }
    }

    #[test]
    fn memory_is_aligned_zeroed_and_exactly_as_large_as_asked() {
        let memory = SystemMemory::allocate(&SystemConfig { size: 10_001, ..Default::default() }).unwrap();
        assert_eq!((memory.size(), memory.address() % rustix::param::page_size()), (10_001, 0));
        assert!(bytes(&memory).iter().all(|byte| *byte == 0));
    }

    #[test]
    fn transparent_huge_pages_start_on_their_boundary() {
        let config = SystemConfig {
            size: 4 << 20,
            huge_pages: HugePages::Transparent,
            prefault_threads: 2,
            ..Default::default()
        };
        let memory = SystemMemory::allocate(&config).unwrap();
        assert_eq!(memory.address() % pages::transparent_huge_page_size(), 0);
        let offered = pages::transparent_huge_pages_offered();
        assert_eq!(memory.fell_back(), !offered);
        assert!(memory.transparent_huge_bytes() <= 4 << 20);
    }

    #[test]
    fn reserved_pages_fall_back_in_the_open_or_fail_when_required() {
        let size = 1 << 50; // No machine reserves a PiB.
        let config = SystemConfig {
            size,
            huge_pages: HugePages::Reserved(2 << 20),
            huge_pages_required: true,
            ..Default::default()
        };
        assert_eq!(SystemMemory::allocate(&config).err().unwrap().status(), Status::OutOfMemory);
        let odd = SystemConfig { size: 4096, huge_pages: HugePages::Reserved(12345), ..config };
        assert_eq!(SystemMemory::allocate(&odd).err().unwrap().status(), Status::InvalidArgument);
    }

    #[test]
    fn sizes_that_can_not_be_are_refused() {
        for size in [0, u64::MAX, 1 << 63] {
            let error = SystemMemory::allocate(&SystemConfig { size, ..Default::default() }).err().unwrap();
            assert_eq!(error.status(), Status::InvalidArgument, "{error}");
        }
    }
}
