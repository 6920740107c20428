// SPDX-License-Identifier: Apache-2.0
//! An open file of fixed size.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{self, OFlags};

use super::direct_io;
use super::name::{self, NewFile};
use crate::base::file_systems::FileSystemId;
use crate::base::{Error, Mutex, Result, ensure, error, retried};
use crate::region::file_lock::FileLock;
use crate::region::{AddressSpace, Backing, Export, FileId, MemoryRange, Properties, Tier, reopened};

/// An open file of fixed size.
pub struct DiskFile {
    /// Declared before the lock: a discarded file is as it was before when another writer can open it.
    pub(super) new: Mutex<Option<NewFile>>,
    pub(super) _lock: Option<FileLock>,
    pub(super) fd: OwnedFd,
    pub(super) path: Option<PathBuf>,
    pub(super) id: FileId,
    pub(super) temporary: bool,
    pub(super) writable: bool,
    pub(super) size: u64,
    pub(super) direct: bool,
    pub(super) io_alignment: u64,
    pub(super) preallocated: bool,
}

impl DiskFile {
    /// Keeps the file when the value is dropped, because all steps that it was created for have succeeded.
    pub fn keep(&self) {
        if let Some(new) = self.new.lock().take() {
            new.keep();
        }
    }

    /// An open file that may be written and has no name.
    pub(super) fn from_fd(fd: OwnedFd, size: u64, direct: bool) -> Result<Self> {
        let io_alignment = if direct { direct_io::alignment(&fd) } else { 1 };
        let id = FileId::from_fd(fd.as_fd())?;
        Ok(Self {
            new: Mutex::default(),
            _lock: None,
            fd,
            path: None,
            id,
            temporary: false,
            writable: true,
            size,
            direct,
            io_alignment,
            preallocated: false,
        })
    }

    /// Uses a file that another process has opened and shared.
    ///
    /// If the file is on a file system that a process serves (FUSE), fstat and all I/O wait for that process, and no
    /// deadline can end such a wait: the kernel offers none. The caller holds no lock, so that only the thread that opens
    /// the share waits, as it would with any file of that file system; docs/share.md states it under "Trust".
    pub fn shared(fd: OwnedFd, size: u64, writable: bool) -> Result<Self> {
        let doing = |errno| Error::errno("open a shared file", errno);
        let stat = retried::fstat(&fd).map_err(doing)?;
        let flags = retried::fcntl_getfl(&fd).map_err(doing)?;
        let length = stat.st_size as u64;
        ensure!(
            fs::FileType::from_raw_mode(stat.st_mode) == fs::FileType::RegularFile && size <= length,
            Corrupt,
            "the shared fd is not a regular file of at least the {size} bytes in the share"
        );
        ensure!(
            !writable || flags.contains(OFlags::RDWR),
            PermissionDenied,
            "the file came open for reading only; open it without KVMEM_OPEN_READ_WRITE"
        );
        let file = Self::from_fd(fd, size, flags.contains(OFlags::DIRECT))?;
        Ok(Self { temporary: stat.st_nlink == 0, writable, ..file })
    }

    pub fn file_system(&self) -> FileSystemId {
        self.id.file_system()
    }

    /// An open of the file for another process.
    pub fn for_sharing(&self, writable: bool) -> Result<OwnedFd> {
        let direct = if self.direct { OFlags::DIRECT } else { OFlags::empty() };
        reopened(&self.fd, direct | if writable { OFlags::RDWR } else { OFlags::RDONLY })
    }

    pub fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// The absolute path that it was opened at. Fails if it has none, or if the path names no file or another file now.
    pub fn path(&self) -> Result<&Path> {
        let nameless = || error!(NotFound, "the file has no name in this process");
        let path = self.path.as_deref().ok_or_else(nameless)?;
        name::ensure_names(path, self.id)?;
        Ok(path)
    }

    /// Whether I/O bypasses the page cache.
    pub fn is_direct(&self) -> bool {
        self.direct
    }

    /// Flushes written data to the medium.
    pub fn sync(&self) -> Result<()> {
        retried::fdatasync(&self.fd).map_err(|errno| Error::errno("flush a file to the medium", errno))
    }
}

impl Backing for DiskFile {
    fn range(&self) -> MemoryRange {
        MemoryRange { tier: Tier::Disk, address: 0, size: self.size }
    }

    fn properties(&self) -> Properties {
        Properties {
            is_direct: self.direct,
            is_preallocated: self.preallocated,
            is_temporary: self.temporary,
            ..Properties::default()
        }
    }

    fn address_space(&self) -> AddressSpace {
        AddressSpace::File(self.id)
    }

    fn file_id(&self) -> Option<FileId> {
        Some(self.id)
    }

    fn export(&self) -> Result<Export<'_>> {
        Ok(Export::DiskFile)
    }

    fn device_id(&self) -> u64 {
        self.fd.as_raw_fd() as u64
    }

    fn read_only_because(&self) -> Option<&'static str> {
        (!self.writable).then_some("it was opened with KVMEM_DISK_READ_ONLY")
    }

    /// Offsets, sizes and memory addresses of I/O must be multiples of this.
    fn io_alignment(&self) -> u64 {
        self.io_alignment
    }
}
