// SPDX-License-Identifier: Apache-2.0
//! Disk regions: a file of fixed size.
//!
//! A file the caller names is the caller's: it is created if it did not exist, and never deleted, unless
//! what it was created for fails. A temporary one has no name, so no crash leaves it behind.

mod direct_io;
mod label;
mod name;
mod opening;
mod writer_lock;

use std::ffi::OsStr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{self, OFlags};

use super::file_lock::FileLock;
use super::open_file::{FileId, FileSystemId, reopened};
use crate::error::{Error, Result, Status, ensure};
use crate::sync::Mutex;

pub use direct_io::DirectIo;
pub use label::Label;

use name::NewName;

/// Whether a file is created or opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Opening {
    /// It is created, and must not exist.
    #[default]
    Create,
    /// It is opened, and must exist.
    Existing,
    /// It is opened if it exists, and created if not, or if it is empty.
    OpenOrCreate,
}

/// What to open.
#[derive(Clone, Debug, Default)]
pub struct DiskConfig {
    /// Bytes. 0 with `Opening::Existing`: the whole file.
    pub size: u64,
    /// The caller's file; `None` for a temporary one.
    pub path: Option<PathBuf>,
    /// The directory of a temporary file; `None` for `$TMPDIR`, or /tmp if that is not set.
    pub directory: Option<PathBuf>,
    /// Whether to bypass the page cache.
    pub direct_io: DirectIo,
    /// Whether the file at `path` is created or opened.
    pub opening: Opening,
    /// Open it to be read only.
    pub read_only: bool,
    /// Do not lock it against other writers.
    pub no_lock: bool,
    /// What to label a new file at `path` with, and to compare the label of an existing one with.
    pub label: Option<Label>,
}

/// An open file of fixed size.
pub struct DiskFile {
    /// Before the lock: the name of a file that is given up goes before another writer can open it.
    new_name: Mutex<Option<NewName>>,
    _lock: Option<FileLock>,
    fd: OwnedFd,
    path: Option<PathBuf>,
    id: FileId,
    temporary: bool,
    writable: bool,
    size: u64,
    direct: bool,
    io_alignment: u64,
    preallocated: bool,
}

impl DiskFile {
    /// Opens a file as configured, or leaves nothing behind. A file that was created is removed with the
    /// value, unless [`keep`](Self::keep) is called before.
    pub fn open(config: &DiskConfig) -> Result<Self> {
        opening::open(config)
    }

    /// The file stays when the value is dropped: all that it was created for has succeeded.
    pub fn keep(&self) {
        let mut new_name = self.new_name.lock();
        if let Some(name) = new_name.take() {
            name.keep();
        }
    }

    /// An open file that may be written and has no name.
    fn of(fd: OwnedFd, size: u64, direct: bool) -> Result<Self> {
        let io_alignment = if direct { direct_io::alignment(&fd) } else { 1 };
        let id = FileId::of(fd.as_fd())?;
        Ok(Self {
            new_name: Mutex::default(),
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
    /// the share waits, as it would with any file of that file system; docs/share.md states it under "Whom you must trust".
    pub fn shared(fd: OwnedFd, size: u64, writable: bool) -> Result<Self> {
        let doing = |errno| Error::errno("open a shared file", errno);
        let stat = fs::fstat(&fd).map_err(doing)?;
        let flags = fs::fcntl_getfl(&fd).map_err(doing)?;
        let length = stat.st_size as u64;
        ensure!(
            fs::FileType::from_raw_mode(stat.st_mode) == fs::FileType::RegularFile && size <= length,
            Corrupt,
            "the shared fd is of no regular file with the {size} bytes it is said to have"
        );
        ensure!(
            !writable || flags.contains(OFlags::RDWR),
            PermissionDenied,
            "the file was shared to be read only, and is to be opened to be written"
        );
        let file = Self::of(fd, size, flags.contains(OFlags::DIRECT))?;
        Ok(Self { temporary: stat.st_nlink == 0, writable, ..file })
    }

    /// A temporary file in the same file system, open in the same way: for what may not be tried on this one.
    pub fn beside(&self, size: u64) -> Result<Self> {
        let refuse = |errno| Error::errno("make a temporary file beside an open one", errno);
        let own = format!("/proc/thread-self/fd/{}", self.fd.as_raw_fd());
        // Of a file without a name this is the one it had, or would have.
        let name = fs::readlink(own, Vec::new()).map_err(refuse)?;
        let directory = Path::new(OsStr::from_bytes(name.to_bytes())).parent().map(Path::to_path_buf);
        let direct_io = if self.direct { DirectIo::Required } else { DirectIo::Off };
        let file = opening::temporary(&DiskConfig { size, directory, direct_io, ..DiskConfig::default() })?;
        ensure!(
            file.file_system() == self.file_system(),
            Unsupported,
            "make a temporary file beside an open one: {} is on another file system now",
            name.to_string_lossy()
        );
        Ok(file)
    }

    /// The file system that it is on.
    pub fn file_system(&self) -> FileSystemId {
        self.id.file_system()
    }

    /// An open of the file for another process.
    pub fn for_sharing(&self, writable: bool) -> Result<OwnedFd> {
        ensure!(
            self.writable || !writable,
            PermissionDenied,
            "the file was opened to be read only; share it with KVMEM_SHARE_READ_ONLY"
        );
        let direct = if self.direct { OFlags::DIRECT } else { OFlags::empty() };
        reopened(&self.fd, direct | if writable { OFlags::RDWR } else { OFlags::RDONLY })
    }

    /// The open file.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// The absolute path that it was opened at. Fails if it has none, or if that names another file by now,
    /// or none.
    pub fn path(&self) -> Result<&Path> {
        let nameless = || Error::new(Status::NotFound, "the file has no name in this process");
        let path = self.path.as_deref().ok_or_else(nameless)?;
        name::ensure_names(path, self.id)?;
        Ok(path)
    }

    /// Which file of the machine it is, by whatever name or fd it was opened.
    pub fn id(&self) -> FileId {
        self.id
    }

    /// Whether it may be written.
    pub fn is_writable(&self) -> bool {
        self.writable
    }

    /// Whether it has no name anywhere, and goes with those who have it open.
    pub fn is_temporary(&self) -> bool {
        self.temporary
    }

    /// Bytes of the region.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Whether I/O bypasses the page cache.
    pub fn is_direct(&self) -> bool {
        self.direct
    }

    /// Whether its space is reserved.
    pub fn is_preallocated(&self) -> bool {
        self.preallocated
    }

    /// What offsets, sizes and memory addresses of I/O must be multiples of.
    pub fn io_alignment(&self) -> u64 {
        self.io_alignment
    }

    /// Puts what was written on the medium.
    pub fn sync(&self) -> Result<()> {
        fs::fdatasync(&self.fd).map_err(|errno| Error::errno("put a file's data on the medium", errno))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(size: u64, path: Option<PathBuf>) -> DiskConfig {
        DiskConfig { size, path, ..DiskConfig::default() }
    }

    fn scratch(name: &str) -> PathBuf {
        std::env::temp_dir().join(format!("kvmem-disk-test-{}-{name}", std::process::id()))
    }

    #[test]
    fn a_temporary_file_has_its_size_and_no_name() {
        let file = DiskFile::open(&config(1 << 20, None)).unwrap();
        let stat = fs::fstat(file.fd()).unwrap();
        assert_eq!((stat.st_size, stat.st_nlink), (1 << 20, 0));
        assert_eq!(file.path().err().unwrap().status(), Status::NotFound);
    }

    #[test]
    fn a_named_file_stays_and_is_not_made_twice() {
        let path = scratch("named");
        DiskFile::open(&config(4096, Some(path.clone()))).unwrap().keep();
        assert_eq!(std::fs::metadata(&path).unwrap().len(), 4096);
        let again = DiskFile::open(&config(4096, Some(path.clone()))).err().unwrap();
        assert_eq!(again.status(), Status::AlreadyExists);
        let open = DiskConfig { opening: Opening::Existing, ..config(0, Some(path.clone())) };
        assert_eq!(DiskFile::open(&open).unwrap().size(), 4096);
        let more = DiskConfig { size: 4097, ..open };
        assert_eq!(DiskFile::open(&more).err().unwrap().status(), Status::OutOfRange);
        std::fs::remove_file(path).unwrap();
    }

    #[test]
    fn a_file_there_is_no_space_for_is_not_left_behind() {
        let path = PathBuf::from(format!("/dev/shm/kvmem-disk-test-{}", std::process::id()));
        let error = DiskFile::open(&config(1 << 50, Some(path.clone()))).err().unwrap();
        assert_eq!(error.status(), Status::OutOfMemory, "{error}");
        assert!(!path.exists());
    }

    #[test]
    fn a_file_beside_another_has_its_file_system_and_no_name() {
        let path = scratch("beside");
        for path in [None, Some(path.clone())] {
            let file = DiskFile::open(&config(4096, path)).unwrap();
            file.keep();
            let beside = file.beside(8192).unwrap();
            assert_eq!(beside.file_system(), file.file_system());
            assert_eq!((beside.size(), beside.is_direct()), (8192, file.is_direct()));
            let stat = fs::fstat(beside.fd()).unwrap();
            assert_eq!(stat.st_nlink, 0);
            assert_ne!(stat.st_ino, fs::fstat(file.fd()).unwrap().st_ino);
        }
        std::fs::remove_file(path).unwrap();
    }

    #[test]
    fn a_file_whose_folder_is_gone_has_none_beside_it() {
        let folder = scratch("folder");
        std::fs::create_dir(&folder).unwrap();
        let file = DiskFile::open(&config(4096, Some(folder.join("file")))).unwrap();
        std::fs::remove_dir_all(&folder).unwrap();
        let error = file.beside(4096).err().unwrap();
        assert_eq!(error.status(), Status::NotFound, "{error}");
    }

    #[test]
    fn a_new_file_goes_with_what_it_was_created_for_unless_it_is_kept() {
        let path = scratch("given-up");
        drop(DiskFile::open(&config(4096, Some(path.clone()))).unwrap());
        assert!(!path.exists());
        // Another file at its place is left alone.
        let file = DiskFile::open(&config(4096, Some(path.clone()))).unwrap();
        std::fs::remove_file(&path).unwrap();
        std::fs::write(&path, "another").unwrap();
        drop(file);
        assert_eq!(std::fs::read(&path).unwrap(), b"another");
        // So is one that was there before.
        let open = DiskConfig { opening: Opening::OpenOrCreate, ..config(7, Some(path.clone())) };
        drop(DiskFile::open(&open).unwrap());
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    fn a_directory_is_not_a_file() {
        let invalid = Status::InvalidArgument;
        let expected = [
            (Opening::Create, Status::AlreadyExists),
            (Opening::Existing, invalid),
            (Opening::OpenOrCreate, invalid),
        ];
        for (opening, status) in expected {
            let config = DiskConfig { opening, ..config(4096, Some(std::env::temp_dir())) };
            let error = DiskFile::open(&config).err().unwrap();
            assert_eq!(error.status(), status, "{error}");
        }
    }
}
