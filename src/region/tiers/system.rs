// SPDX-License-Identifier: Apache-2.0
//! System memory: a mapping, zeroed and page-aligned. Shareable memory is a memory file.
#![allow(unsafe_code)]

use std::os::fd::{AsFd, OwnedFd};

use rustix::mm::Advice;

use crate::base::retried::madvise;
use crate::base::{Cause, Result, Status, advice, ensure, fail, log};
use crate::cuda::deferred;
use crate::region::available_memory::{ensure_available, ensure_fits, ensure_huge_pages_of};
use crate::region::mapping::{FilePart, Mapping, Pages, host_size};
use crate::region::memory_file::{FutureWrites, Inspected, MemoryFile, memory_file, seal_writes};
use crate::region::pages::Residency;
use crate::region::prefault::Prefault;
use crate::region::{
    Backing, Export, FileId, MemoryRange, OpenRequirements, Place, Properties, Tier, numa, pages,
};

/// Which pages to request from the kernel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HugePages {
    /// Transparent huge pages for regions of at least one, if the kernel has them.
    #[default]
    Default,
    /// Ordinary pages, even if the kernel uses huge pages by default.
    Never,
    /// Transparent huge pages. Without them, pages are smaller than requested.
    Transparent,
    /// Reserved huge pages of this size.
    Reserved(u64),
}

#[derive(Clone, Debug, Default)]
pub struct SystemConfig {
    /// Size in bytes; the mapping is rounded up to whole pages.
    pub size: u64,
    pub huge_pages: HugePages,
    /// Fail rather than use smaller pages than requested.
    pub huge_pages_required: bool,
    pub numa: Option<numa::NumaPlacement>,
    /// The number of threads that populate the pages before the call returns; 0 populates each page at its first access.
    pub prefault_threads: u32,
    /// It can be shared with other processes.
    pub shareable: bool,
    /// No other process can ever map it to be written. For shareable memory.
    pub write_sealed: bool,
}

/// The part of a memory file that another process has shared, and how to map it here.
#[derive(Clone, Copy, Debug)]
pub struct SharedPart {
    /// Where in the file it starts.
    pub offset: u64,
    pub size: u64,
    /// Alignment of its address, a power of two.
    pub alignment: u64,
    /// Maps it to be written, too.
    pub writable: bool,
    /// Maps it also if processes that may write the file can end this one with SIGBUS.
    pub trusts_owner: bool,
}

impl SharedPart {
    fn ensure_cannot_fault(&self, file: &Inspected) -> Result<()> {
        let reason = match file {
            _ if self.trusts_owner => return Ok(()),
            file if file.can_shrink() => "can be truncated",
            file if file.huge_page.is_some() => "has reserved huge pages, which can be removed",
            _ => return Ok(()),
        };
        fail!(
            Unsupported,
            "the memory file {reason} by any process that may write it, and this process would end with SIGBUS when it \
             touches the memory; open the share with KVMEM_OPEN_TRUST_OWNER if you trust all these processes"
        );
    }
}

pub struct SystemMemory {
    mapping: Mapping,
    size: usize,
    page_size: u64,
    fell_back: bool,
    numa: Option<numa::NumaPlacement>,
    /// Where it is stored, if it can be shared.
    file: Option<MemoryFile>,
}

impl SystemMemory {
    /// Maps memory as configured, or changes nothing.
    pub fn allocate(config: &SystemConfig) -> Result<Self> {
        deferred::allocate(None, || Self::allocate_now(config))
    }

    fn allocate_now(config: &SystemConfig) -> Result<Self> {
        let size = host_size("a system region", config.size)?;
        let mut memory = Self::map(size, config)
            .map_err(|error| error.context(format!("allocate {size} bytes of host memory")))?;
        if config.prefault_threads > 0 {
            // Reserved pages were reserved when they were mapped.
            if !memory.has_reserved_pages() {
                ensure_available(config.size, memory.numa)?;
            }
            memory.prefault(config)?;
        }
        Ok(memory)
    }

    /// Maps memory that another process has shared. The file must have the size in the share, and be unable to shrink.
    pub fn open(file: OwnedFd, shared: &SharedPart) -> Result<Self> {
        let SharedPart { offset, size, alignment, writable, .. } = *shared;
        let inspected = Inspected::new(file.as_fd())?;
        shared.ensure_cannot_fault(&inspected)?;
        let size = host_size("a system region", size)?;
        let pages = inspected.huge_page.map_or(aligned_for_all(size), Pages::Huge);
        // A mapping has whole pages: accessing one past the end of the file raises SIGBUS.
        let end = pages.round_up(size).ok().and_then(|size| offset.checked_add(size as u64));
        ensure!(
            end.is_some_and(|end| end <= inspected.mappable()) && offset.is_multiple_of(pages.unit() as u64),
            Corrupt,
            "the shared memory is said to have {size} bytes at offset {offset}; its file has {} bytes, on pages of {}",
            inspected.size,
            pages.unit()
        );
        let alignment = host_size("an alignment", alignment)?;
        let part = FilePart { file: file.as_fd(), offset };
        let mapping = Mapping::from_part(part, size, pages, alignment, writable)
            .map_err(|error| inspected.explain(error))
            .map_err(|error| error.context(format!("open {size} bytes of shared memory")))?;
        let file = Some(MemoryFile::new(file, offset)?);
        Ok(Self { file, ..Self::from_mapping(mapping, size, pages.unit() as u64) })
    }

    fn from_mapping(mapping: Mapping, size: usize, page_size: u64) -> Self {
        Self { mapping, size, page_size, fell_back: false, numa: None, file: None }
    }

    fn map(size: usize, config: &SystemConfig) -> Result<Self> {
        match config.huge_pages {
            HugePages::Default => Self::by_default(size, config),
            HugePages::Never => Self::without_huge(size, config),
            HugePages::Transparent => Self::transparent(size, config, config.huge_pages_required),
            HugePages::Reserved(page) => Self::reserved(size, page, config),
        }
    }

    /// Maps memory, and sets its NUMA node before it is populated.
    fn with_pages(size: usize, pages: Pages, config: &SystemConfig) -> Result<Self> {
        if !matches!(pages, Pages::Huge(_)) {
            ensure_fits(size as u64, config.numa)?;
        }
        let mut memory = Self::unplaced(size, pages, config)?;
        if let Some(placement) = config.numa {
            memory.numa = numa::place(memory.address(), memory.mapping.size(), placement)?;
        }
        if let (Pages::Huge(page), Some(numa::NumaPlacement::Bind(node))) = (pages, memory.numa) {
            memory.take_huge_pages_of(node, page, config.prefault_threads)?;
        }
        Ok(memory)
    }

    /// The kernel has reserved enough huge pages, but on no particular node. If this node has none left, the first access
    /// would raise SIGBUS, so all pages are populated now by a call that can fail.
    fn take_huge_pages_of(&self, node: u32, page: usize, threads: u32) -> Result<()> {
        ensure_huge_pages_of(node, self.mapping.size() as u64, page as u64)?;
        self.population(threads)
            .populate(0, self.mapping.size())
            .map(drop)
            .map_err(|error| error.context(format!("allocate them on NUMA node {node}")))
    }

    fn unplaced(size: usize, pages: Pages, config: &SystemConfig) -> Result<Self> {
        let page_size = pages.unit() as u64;
        if !config.shareable {
            return Ok(Self::from_mapping(Mapping::private(size, pages)?, size, page_size));
        }
        let file = memory_file(size, pages)?;
        let place = match pages {
            Pages::Ordinary | Pages::AlignedTo(_) => aligned_for_all(size),
            huge => huge,
        };
        let mapping = Mapping::shared(&file, size, place, true)?;
        if config.write_sealed {
            seal_writes(file.as_fd(), FutureWrites::Sealed)?;
        }
        let file = Some(MemoryFile::new(file, 0)?);
        Ok(Self { file, ..Self::from_mapping(mapping, size, page_size) })
    }

    /// Huge pages are an advantage here, and not promised: addresses that are aligned for them may be scarce (RLIMIT_AS), and
    /// the kernel may ignore the advice. It follows the advice later too, when the system's setting changes.
    fn by_default(size: usize, config: &SystemConfig) -> Result<Self> {
        let huge_page = pages::transparent_huge_page_size();
        if size < huge_page {
            return Self::with_pages(size, Pages::Ordinary, config);
        }
        let memory = Self::with_pages(size, Pages::AlignedTo(huge_page), config)
            .or_else(|_| Self::with_pages(size, Pages::Ordinary, config))?;
        // A kernel without huge pages fails.
        let _ = memory.advise(Advice::LinuxHugepage);
        Ok(memory)
    }

    fn without_huge(size: usize, config: &SystemConfig) -> Result<Self> {
        let memory = Self::with_pages(size, Pages::Ordinary, config)?;
        // A kernel without huge pages fails, and needs no advice.
        let _ = memory.advise(Advice::LinuxNoHugepage);
        Ok(memory)
    }

    fn transparent(size: usize, config: &SystemConfig, required: bool) -> Result<Self> {
        let pages = Pages::AlignedTo(pages::transparent_huge_page_size());
        let memory = Self::with_pages(size, pages, config)?;
        let offered = pages::transparent_huge_pages_offered(config.shareable)
            && memory.advise(Advice::LinuxHugepage).is_ok();
        ensure!(offered || !required, Unsupported, "this system offers no transparent huge pages");
        Ok(Self { fell_back: !offered, ..memory })
    }

    fn reserved(size: usize, page: u64, config: &SystemConfig) -> Result<Self> {
        ensure!(
            page.is_power_of_two() && page > base_page(),
            InvalidArgument,
            "huge_page_size is {page} bytes; it must be a power of two above the page size of {} bytes",
            base_page()
        );
        let made = Self::with_pages(size, Pages::Huge(page as usize), config).map_err(|error| {
            let is_missing = matches!(error.cause(), Some(Cause::Errno(libc::EINVAL | libc::ENODEV)));
            let is_lack = is_missing || error.status() == Status::OutOfMemory;
            let advice = is_lack.then(|| advice::huge_pages(page)).flatten();
            let error = if is_missing { error.with_status(Status::Unsupported) } else { error };
            error.with_advice(advice).context(format!("huge pages of {page} bytes"))
        });
        let error = match made {
            Err(error) if !config.huge_pages_required => error,
            made => return made,
        };
        log!(Warn, "{error}; ordinary pages, huge where the kernel can, are used instead");
        let memory = Self::transparent(size, config, false)?;
        Ok(Self { fell_back: true, ..memory })
    }

    /// The memory file that it is a part of, if it can be shared.
    pub fn file(&self) -> Option<&MemoryFile> {
        self.file.as_ref()
    }

    /// Its first byte.
    pub fn address(&self) -> usize {
        self.mapping.address() as usize
    }

    pub fn size(&self) -> usize {
        self.size
    }

    pub fn page_size(&self) -> u64 {
        self.page_size
    }

    /// Populates its pages with up to `threads` threads.
    pub fn population(&self, threads: u32) -> Prefault {
        Prefault::new(self.address(), self.mapping.size(), self.page_size, threads)
    }

    /// Leaves the memory mapped until the process ends.
    pub fn leak(&mut self) {
        self.mapping.leak();
    }

    fn has_reserved_pages(&self) -> bool {
        self.page_size != base_page()
    }

    /// Populates all its pages. Huge ones that are not required may not take too long.
    fn prefault(&mut self, config: &SystemConfig) -> Result<()> {
        let mut population = self.population(config.prefault_threads);
        let may_be_small = !self.has_reserved_pages() && !config.huge_pages_required;
        if may_be_small && config.huge_pages != HugePages::Never {
            population = population.with_fallback();
        }
        let gave_up = population.populate(0, self.mapping.size())?;
        self.fell_back |= gave_up && config.huge_pages != HugePages::Default;
        Ok(())
    }

    fn advise(&self, advice: Advice) -> rustix::io::Result<()> {
        // SAFETY: advice for this mapping that does not change its bytes.
        unsafe { madvise(self.mapping.address(), self.mapping.size(), advice) }
    }
}

impl Backing for SystemMemory {
    fn range(&self) -> MemoryRange {
        MemoryRange { tier: Tier::System, address: self.mapping.address() as u64, size: self.size as u64 }
    }

    fn properties(&self) -> Properties {
        Properties {
            page_size: Some(self.page_size),
            numa_node: self.numa.map(numa::NumaPlacement::node),
            fell_back: self.fell_back,
            is_shareable: self.file.is_some(),
            ..Properties::default()
        }
    }

    fn mapped_files(&self) -> Vec<Place> {
        self.file.iter().map(|file| file.place(self.size as u64)).collect()
    }

    fn file_id(&self) -> Option<FileId> {
        self.file.as_ref().map(MemoryFile::id)
    }

    fn export(&self) -> Result<Export<'_>> {
        let Some(file) = &self.file else {
            fail!(
                Unsupported,
                "the region was not allocated in a memory file that another process could map; create it with \
                 KVMEM_SYSTEM_SHAREABLE or KVMEM_PINNED_SHAREABLE"
            );
        };
        Ok(Export::MemoryFile(file))
    }

    fn satisfies(&self, wanted: &OpenRequirements) -> bool {
        wanted.pin.is_none() && self.address().is_multiple_of(wanted.alignment as usize)
    }

    fn residency(&self) -> Result<Residency> {
        pages::residency(self.address(), self.mapping.size())
    }
}

/// Shared memory starts at a multiple of this in every process, so that an offset has the same alignment in all of them.
const LARGEST_ALIGNMENT: usize = 1 << 30;

/// The pages of a mapping that several processes have.
pub fn aligned_for_all(size: usize) -> Pages {
    let whole = size.checked_next_power_of_two().unwrap_or(LARGEST_ALIGNMENT).min(LARGEST_ALIGNMENT);
    Pages::AlignedTo(whole.max(pages::transparent_huge_page_size()))
}

fn base_page() -> u64 {
    rustix::param::page_size() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(memory: &SystemMemory) -> &[u8] {
        // SAFETY: the memory's own span, alive as long as it.
        unsafe { std::slice::from_raw_parts(memory.address() as *const u8, memory.size()) }
    }

    #[test]
    fn memory_is_aligned_zeroed_and_of_the_requested_size() {
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
        let offered = pages::transparent_huge_pages_offered(false);
        assert_eq!(memory.fell_back, !offered);
        let residency = memory.residency().unwrap();
        assert_eq!(residency.resident, 4 << 20);
        assert!(residency.transparent_huge <= 4 << 20);
    }

    #[test]
    fn missing_reserved_pages_are_reported_or_fail_if_required() {
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
    fn reserved_pages_may_have_any_size_and_a_system_without_it_falls_back_or_names_its_sizes() {
        for shareable in [false, true] {
            let config = SystemConfig {
                size: 4096,
                huge_pages: HugePages::Reserved(1 << 40), // No processor has such pages.
                shareable,
                ..Default::default()
            };
            assert!(SystemMemory::allocate(&config).unwrap().fell_back);
            let required = SystemConfig { huge_pages_required: true, ..config };
            let error = SystemMemory::allocate(&required).err().unwrap();
            assert_eq!(error.status(), Status::Unsupported, "{error}");
            assert!(error.message().contains("/sys/kernel/mm/hugepages"), "{error}");
        }
    }

    #[test]
    fn invalid_sizes_fail() {
        for size in [0, u64::MAX, 1 << 63] {
            let error = SystemMemory::allocate(&SystemConfig { size, ..Default::default() }).err().unwrap();
            assert_eq!(error.status(), Status::InvalidArgument, "{error}");
        }
    }
}
