// SPDX-License-Identifier: Apache-2.0
//! Adopted memory: memory of the caller, which kvmem never frees.

#![forbid(unsafe_code)]

use std::ops::Range;

use super::adopted_file::{AdoptedFile, AdoptedFileConfig};
use crate::base::error::{Result, ensure};
use crate::region::host_size::host_size;
use crate::region::mapping::FilePart;
use crate::region::release::{Release, ReleaseCallback};
use crate::region::{Access, FileId, proc_maps};

/// Host memory of the caller.
pub struct AdoptedMemory {
    address: usize,
    size: usize,
    access: Access,
    /// The memory file that it is a part of, if the caller passed it: then it can be shared. Unmapped before the release.
    file: Option<AdoptedFile>,
    /// The file that the caller has mapped there, and the offset in it, if all of it is one part of one file.
    mapped: Option<(FileId, u64)>,
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

    /// Its first byte.
    pub fn address(&self) -> usize {
        self.address
    }

    /// Its size in bytes.
    pub fn size(&self) -> usize {
        self.size
    }

    /// The memory file that it is a part of, if the caller passed it.
    pub fn shared_file(&self) -> Option<&AdoptedFile> {
        self.file.as_ref()
    }

    /// The part of that file.
    pub(in crate::region) fn file(&self) -> Option<FilePart<'_>> {
        self.file.as_ref().map(AdoptedFile::part)
    }

    /// The file whose pages it is, and its offset in the file: the same pages may be mapped at other addresses. `None` for
    /// private memory, and for parts of several files or several parts of one.
    pub(in crate::region) fn mapped_file(&self) -> Option<(FileId, u64)> {
        self.mapped
    }

    /// Whether it may not be written.
    pub fn is_read_only(&self) -> bool {
        self.access == Access::Read
    }
}

/// Fails unless every page of a range is mapped with the protection that the access needs. Otherwise the first copy
/// would raise SIGSEGV. Returns the one part of a file that it is, if it is.
fn ensure_mapped(range: Range<u64>, access: Access) -> Result<Option<(FileId, u64)>> {
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
             PROT_WRITE; KVMEM_ADOPT_READ_ONLY adopts them as a source of transfers"
        );
        // Where the file's bytes for the first address of the range would be, so that neighbouring parts agree.
        parts.push(mapped.pages.as_ref().and_then(|pages| {
            let file = FileId::from_list_of_mappings(&pages.file)?;
            Some((file, pages.offset.wrapping_add(start).wrapping_sub(mapped.addresses.start)))
        }));
        next = mapped.addresses.end;
    }
    ensure!(
        next >= range.end,
        InvalidArgument,
        "{size} bytes at {start:#x} cannot be adopted: those from {next:#x} on are not mapped in this process"
    );
    let first = parts.first().copied().flatten();
    Ok(first.filter(|first| parts.iter().all(|part| part.as_ref() == Some(first))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::error::Status;

    #[test]
    fn adopting_unmapped_memory_fails() {
        for (address, size) in [(0, 16), (usize::MAX - 8, 16), (0x10, 16)] {
            let error = AdoptedMemory::new(address, size, Access::Read, None).err().unwrap();
            assert_eq!(error.status(), Status::InvalidArgument, "{error}");
        }
        let memory = [0u8; 16];
        assert!(AdoptedMemory::new(memory.as_ptr() as usize, 16, Access::ReadWrite, None).is_ok());
    }
}
