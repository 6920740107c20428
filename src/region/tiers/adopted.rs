// SPDX-License-Identifier: Apache-2.0
//! Adopted memory: memory of the caller, which kvmem never frees.

use std::ops::Range;

use super::adopted_file::{AdoptedFile, AdoptedFileConfig};
use crate::base::{Result, ensure, fail};
use crate::nixl::HostPages;
use crate::region::mapping::host_size;
use crate::region::release::{Release, ReleaseCallback};
use crate::region::{
    Access, AddressSpace, Backing, Export, FileId, MemoryRange, Place, Properties, Residency, Source, Tier,
    proc_maps,
};

/// Host memory of the caller.
pub struct AdoptedMemory {
    address: usize,
    size: usize,
    access: Access,
    /// The memory file that it is a part of, if the caller passed it: then it can be shared. Unmapped before the release.
    file: Option<AdoptedFile>,
    /// The parts of files that the caller has mapped there: the same pages may be mapped at other addresses.
    mapped: Vec<Place>,
    release: Option<Release>,
}

impl AdoptedMemory {
    /// Adopts `size` bytes at `address`. All must be mapped with the protection that `access` needs, and remain mapped.
    /// `release` is called only if this succeeds.
    pub fn new(address: usize, size: u64, access: Access, release: Option<ReleaseCallback>) -> Result<Self> {
        ensure!(address != 0, InvalidArgument, "the address to adopt is NULL");
        let size = host_size("an adopted region", size)?;
        ensure!(
            address.checked_add(size).is_some(),
            InvalidArgument,
            "{size} bytes at {address:#x} exceed the address space"
        );
        let mapped = ensure_mapped(address as u64..(address + size) as u64, access)?;
        let release = release.map(|release| Release::new(release, address as u64, size as u64));
        Ok(Self { address, size, access, file: None, mapped, release: release.transpose()? })
    }

    /// Adopts a part of a memory file. `release` is called only if this succeeds.
    pub fn from_file(config: &AdoptedFileConfig<'_>, release: Option<ReleaseCallback>) -> Result<Self> {
        let (file, address) = AdoptedFile::new(config)?;
        let mut memory = Self::new(address, config.size, config.access, release)?;
        if let Err(error) = file.seal(config) {
            memory.release.iter_mut().for_each(Release::withdraw);
            return Err(error);
        }
        Ok(Self { file: Some(file), ..memory })
    }
}

impl Backing for AdoptedMemory {
    fn range(&self) -> MemoryRange {
        MemoryRange { tier: Tier::System, address: self.address as u64, size: self.size as u64 }
    }

    fn name(&self) -> &'static str {
        "adopted host"
    }

    fn properties(&self) -> Properties {
        let page_size = self.file.as_ref().map(AdoptedFile::page_size);
        Properties {
            source: Source::Adopted,
            page_size,
            is_shareable: page_size.is_some(),
            ..Properties::default()
        }
    }

    fn mapped_files(&self) -> Vec<Place> {
        match &self.file {
            Some(file) => vec![file.file().place(self.size as u64)],
            None => self.mapped.clone(),
        }
    }

    fn file_id(&self) -> Option<FileId> {
        self.file.as_ref().map(|file| file.file().id())
    }

    fn export(&self) -> Result<Export<'_>> {
        let Some(file) = &self.file else {
            fail!(
                Unsupported,
                "memory adopted by its address alone has no file that another process could map; adopt it with \
                 kvmem_region_adopt_memfd, or have kvmem allocate it, shareable"
            );
        };
        Ok(Export::MemoryFile(file.file()))
    }

    fn host_pages(&self) -> HostPages {
        HostPages::Shared
    }

    fn residency(&self) -> Result<Residency> {
        fail!(
            Unsupported,
            "the residency of adopted memory is not known, because the caller manages its mappings"
        )
    }

    fn read_only_because(&self) -> Option<&'static str> {
        (self.access == Access::Read).then_some(ADOPTED_READ_ONLY)
    }
}

/// Why memory is read-only.
pub(super) const ADOPTED_READ_ONLY: &str = "it was adopted with KVMEM_ADOPT_READ_ONLY";

/// Fails unless every page of a range is mapped with the protection that the access needs. Otherwise the first copy
/// would raise SIGSEGV. Returns the parts of files that it consists of, without private memory.
fn ensure_mapped(range: Range<u64>, access: Access) -> Result<Vec<Place>> {
    let (start, size) = (range.start, range.end - range.start);
    let (mut next, mut parts) = (start, Vec::new());
    for mapped in proc_maps::within(std::slice::from_ref(&range))?.into_iter().flatten() {
        if mapped.addresses.start > next {
            break;
        }
        let at = next.max(mapped.addresses.start);
        ensure!(
            mapped.readable,
            InvalidArgument,
            "{size} bytes at {start:#x} cannot be adopted: those from {at:#x} on are mapped without PROT_READ"
        );
        ensure!(
            mapped.writable || access == Access::Read,
            InvalidArgument,
            "{size} bytes at {start:#x} cannot be adopted to be written: those from {at:#x} on are mapped without \
             PROT_WRITE; check the address and the size, or set KVMEM_ADOPT_READ_ONLY, which adopts a source of transfers"
        );
        if let Some(pages) = &mapped.pages
            && let Some(file) = FileId::from_list_of_mappings(&pages.file)
        {
            let first = pages.offset.saturating_add(at - mapped.addresses.start);
            let place = Place::new(AddressSpace::File(file), first, mapped.addresses.end.min(range.end) - at);
            parts.push(Place { offset: at - start, ..place });
        }
        next = mapped.addresses.end;
    }
    ensure!(
        next >= range.end,
        InvalidArgument,
        "{size} bytes at {start:#x} cannot be adopted: those from {next:#x} on are not mapped in this process; check the address \
         and the size, and adopt memory of a GPU by kvmem_region_adopt_device"
    );
    Ok(parts)
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use super::*;
    use crate::base::Status;
    use crate::region::mapping::{Mapping, Pages};
    use crate::region::memory_file::memory_file;

    #[test]
    fn adopting_unmapped_memory_fails() {
        for (address, size) in [(0, 16), (usize::MAX - 8, 16), (0x10, 16)] {
            let error = AdoptedMemory::new(address, size, Access::Read, None).err().unwrap();
            assert_eq!(error.status(), Status::InvalidArgument, "{error}");
        }
        let memory = [0u8; 16];
        assert!(AdoptedMemory::new(memory.as_ptr() as usize, 16, Access::ReadWrite, None).is_ok());
    }

    #[test]
    fn each_part_of_a_file_is_a_place() {
        let page = rustix::param::page_size();
        let size = 2 * page;
        let file = memory_file(size, Pages::Ordinary).unwrap();
        let mapping = Mapping::shared(&file, size, Pages::Ordinary, true).unwrap();
        let memory =
            AdoptedMemory::new(mapping.address() as usize + 16, 100, Access::ReadWrite, None).unwrap();
        let id = FileId::from_fd(file.as_fd()).unwrap();
        assert_eq!(memory.mapped_files(), [Place::new(AddressSpace::File(id), 16, 100)]);
    }
}
