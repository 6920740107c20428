// SPDX-License-Identifier: Apache-2.0
//! Adopted memory: the caller's own, used here and never freed here.

use super::host_size;
use super::release::{Release, ReleaseCallback};
use crate::error::{Result, ensure};

/// Host memory of the caller's.
pub struct AdoptedMemory {
    address: usize,
    size: usize,
    _release: Option<Release>,
}

impl AdoptedMemory {
    /// Adopts `size` bytes at `address`. `release` is called only if this succeeds.
    pub fn new(address: usize, size: u64, release: Option<ReleaseCallback>) -> Result<Self> {
        ensure!(address != 0, InvalidArgument, "the address to adopt is NULL");
        let size = host_size("an adopted region", size)?;
        ensure!(
            address.checked_add(size).is_some(),
            InvalidArgument,
            "{size} bytes at {address:#x} reach past the end of the address space"
        );
        ensure!(
            is_mapped(address, size),
            InvalidArgument,
            "{size} bytes at {address:#x} are not all mapped in this process"
        );
        Ok(Self { address, size, _release: release.map(Release::new).transpose()? })
    }

    /// Its first byte.
    pub fn address(&self) -> usize {
        self.address
    }

    /// Its bytes.
    pub fn size(&self) -> usize {
        self.size
    }
}

/// Whether every page of a range is mapped: the kernel refuses to sync one that is not.
fn is_mapped(address: usize, size: usize) -> bool {
    let page = rustix::param::page_size();
    let start = address & !(page - 1);
    // SAFETY: MS_ASYNC changes nothing; an address that is not mapped is answered with ENOMEM.
    unsafe { libc::msync(start as *mut libc::c_void, address + size - start, libc::MS_ASYNC) == 0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Status;

    #[test]
    fn what_is_not_mapped_is_refused() {
        for (address, size) in [(0, 16), (usize::MAX - 8, 16), (0x10, 16)] {
            let error = AdoptedMemory::new(address, size, None).err().unwrap();
            assert_eq!(error.status(), Status::InvalidArgument, "{error}");
        }
        let memory = [0u8; 16];
        assert!(AdoptedMemory::new(memory.as_ptr() as usize, 16, None).is_ok());
    }
}
