// SPDX-License-Identifier: Apache-2.0
//! Disk regions: a file of fixed size.
//!
//! A file the caller names is the caller's: it is made if it was not there and never deleted, except when making it
//! fails half-way. A temporary one never gets a name, so no crash leaves it behind.

use std::ffi::OsStr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{self, AtFlags, FallocateFlags, Mode, OFlags, StatxFlags};
use rustix::io::Errno;

use super::control::reopened;
use super::host_size;
use crate::error::{Error, Result, Status, ensure, fail};
use crate::log::log;

/// Whether reads and writes bypass the page cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DirectIo {
    /// Where the file system takes it.
    #[default]
    Preferred,
    /// Or the region is not made.
    Required,
    /// Never.
    Off,
}

/// What to open.
#[derive(Clone, Debug, Default)]
pub struct DiskConfig {
    /// Bytes. 0 with `open_existing`: the whole file.
    pub size: u64,
    /// The caller's file; `None` for a temporary one.
    pub path: Option<PathBuf>,
    /// Where a temporary file lies; `None` for `$TMPDIR`, else /tmp.
    pub directory: Option<PathBuf>,
    /// Whether to bypass the page cache.
    pub direct_io: DirectIo,
    /// Use the file at `path` as it is, rather than make one.
    pub open_existing: bool,
}

/// An open file of fixed size.
pub struct DiskFile {
    fd: OwnedFd,
    path: Option<PathBuf>,
    temporary: bool,
    size: u64,
    direct: bool,
    io_alignment: u64,
    preallocated: bool,
}

impl DiskFile {
    /// Opens a file as configured, or leaves nothing behind.
    pub fn open(config: &DiskConfig) -> Result<Self> {
        match &config.path {
            Some(path) if config.open_existing => Self::existing(path, config),
            Some(path) => Self::named(path, config),
            None => Self::temporary(config),
        }
    }

    fn existing(path: &Path, config: &DiskConfig) -> Result<Self> {
        let what = format!("open {}", path.display());
        let (fd, direct) =
            open_direct(config.direct_io, |flags| fs::open(path, flags, Mode::empty()), &what)?;
        let stat = fs::fstat(&fd).map_err(|errno| Error::errno(&what, errno))?;
        ensure!(
            fs::FileType::from_raw_mode(stat.st_mode) == fs::FileType::RegularFile,
            InvalidArgument,
            "{what}: it is not a regular file"
        );
        let length = stat.st_size as u64;
        let size = if config.size == 0 { length } else { config.size };
        ensure!(size > 0, InvalidArgument, "{what}: the file is empty");
        ensure!(size <= length, OutOfRange, "{what}: the file has {length} bytes, the region needs {size}");
        Self::finish(fd, Some(path.to_path_buf()), size, direct, false)
    }

    fn named(path: &Path, config: &DiskConfig) -> Result<Self> {
        host_size("a disk region", config.size)?;
        let what = format!("make file {}", path.display());
        let create = OFlags::CREATE | OFlags::EXCL;
        let open = |flags| fs::open(path, flags | create, private());
        let (fd, direct) = open_direct(config.direct_io, open, &what)?;
        let made = Self::fill(fd, Some(path.to_path_buf()), config.size, direct)
            .map_err(|error| error.context(&what));
        if made.is_err()
            && let Err(errno) = fs::unlink(path)
        {
            log!(Warn, "remove {} after a failure: {errno}", path.display());
        }
        made
    }

    fn temporary(config: &DiskConfig) -> Result<Self> {
        ensure!(!config.open_existing, InvalidArgument, "to open an existing file its path is needed");
        host_size("a disk region", config.size)?;
        let directory = config.directory.clone().unwrap_or_else(std::env::temp_dir);
        let what = format!("make a temporary file in {}", directory.display());
        let open = |flags| nameless(&directory, flags);
        let (fd, direct) = open_direct(config.direct_io, open, &what)?;
        Self::fill(fd, None, config.size, direct).map_err(|error| error.context(&what))
    }

    /// Gives a new file its space.
    fn fill(fd: OwnedFd, path: Option<PathBuf>, size: u64, direct: bool) -> Result<Self> {
        let what = || format!("give a file its {size} bytes");
        let preallocated = match fs::fallocate(&fd, FallocateFlags::empty(), 0, size) {
            Ok(()) => true,
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => {
                fs::ftruncate(&fd, size).map_err(|errno| Error::errno(what(), errno))?;
                log!(Warn, "the file system can't reserve space; a write may find none");
                false
            }
            Err(errno) => return Err(out_of_space(&fd, size, Error::errno(what(), errno))),
        };
        Self::finish(fd, path, size, direct, preallocated)
    }

    fn finish(
        fd: OwnedFd,
        path: Option<PathBuf>,
        size: u64,
        direct: bool,
        preallocated: bool,
    ) -> Result<Self> {
        let io_alignment = if direct { direct_io_alignment(&fd) } else { 1 };
        let temporary = path.is_none();
        log!(
            Debug,
            "file opened: {}, {size} bytes, {}, {}",
            path.as_deref().map_or("temporary".into(), Path::to_string_lossy),
            if direct {
                format!("direct I/O in units of {io_alignment} bytes")
            } else {
                "buffered".to_string()
            },
            if preallocated { "space reserved" } else { "no space reserved" }
        );
        Ok(Self { fd, path, temporary, size, direct, io_alignment, preallocated })
    }

    /// Uses a file that another process has opened and shared.
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
        let file = Self::finish(fd, None, size, flags.contains(OFlags::DIRECT), false)?;
        Ok(Self { temporary: stat.st_nlink == 0, ..file })
    }

    /// A temporary file in the same file system, open in the same way: for what may not be tried on this one.
    pub fn beside(&self, size: u64) -> Result<Self> {
        let refuse = |errno| Error::errno("make a temporary file beside an open one", errno);
        let own = format!("/proc/self/fd/{}", self.fd.as_raw_fd());
        // Of a file without a name this is the one it had, or would have.
        let name = fs::readlink(own, Vec::new()).map_err(refuse)?;
        let directory = Path::new(OsStr::from_bytes(name.to_bytes())).parent().map(Path::to_path_buf);
        let direct_io = if self.direct { DirectIo::Required } else { DirectIo::Off };
        let file = Self::temporary(&DiskConfig { size, directory, direct_io, ..DiskConfig::default() })?;
        ensure!(
            file.file_system()? == self.file_system()?,
            Unsupported,
            "make a temporary file beside an open one: {} is on another file system now",
            name.to_string_lossy()
        );
        Ok(file)
    }

    /// The device number of its file system.
    pub fn file_system(&self) -> Result<u64> {
        let stat =
            fs::fstat(&self.fd).map_err(|errno| Error::errno("ask for a file's file system", errno))?;
        Ok(stat.st_dev)
    }

    /// An open of the file for another process.
    pub fn for_sharing(&self, writable: bool) -> Result<OwnedFd> {
        let direct = if self.direct { OFlags::DIRECT } else { OFlags::empty() };
        reopened(&self.fd, direct | if writable { OFlags::RDWR } else { OFlags::RDONLY })
    }

    /// The open file.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// Its name, if it has one.
    pub fn path(&self) -> Option<&Path> {
        self.path.as_deref()
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

fn private() -> Mode {
    Mode::RUSR | Mode::WUSR
}

/// A file without a name. Where the file system has no such thing, one whose name is gone before this returns.
fn nameless(directory: &Path, flags: OFlags) -> std::result::Result<OwnedFd, Errno> {
    match fs::open(directory, flags | OFlags::TMPFILE, private()) {
        Err(Errno::OPNOTSUPP | Errno::ISDIR) => {
            let path = directory.join(format!(".kvmem-{}-{}", std::process::id(), unique()));
            let fd = fs::open(&path, flags | OFlags::CREATE | OFlags::EXCL, private())?;
            fs::unlink(&path)?;
            Ok(fd)
        }
        result => result,
    }
}

fn unique() -> u64 {
    static NEXT: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);
    NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed)
}

/// Opens with O_DIRECT if wanted, without it where the file system refuses and that is allowed.
fn open_direct(
    wanted: DirectIo,
    open: impl Fn(OFlags) -> std::result::Result<OwnedFd, Errno>,
    what: &str,
) -> Result<(OwnedFd, bool)> {
    let flags = OFlags::RDWR | OFlags::CLOEXEC;
    if wanted != DirectIo::Off {
        match open(flags | OFlags::DIRECT) {
            Ok(fd) => return Ok((fd, true)),
            // The file system has no O_DIRECT.
            Err(Errno::INVAL) if wanted == DirectIo::Preferred => {
                log!(Warn, "{what}: no O_DIRECT here, buffered")
            }
            Err(Errno::INVAL) => fail!(Unsupported, "{what}: the file system has no O_DIRECT"),
            Err(errno) => return Err(open_error(what, errno)),
        }
    }
    open(flags).map(|fd| (fd, false)).map_err(|errno| open_error(what, errno))
}

fn open_error(what: &str, errno: Errno) -> Error {
    let error = Error::errno(what, errno);
    match errno {
        Errno::ISDIR | Errno::NOTDIR => error.with_status(Status::InvalidArgument),
        _ => error,
    }
}

fn out_of_space(fd: &OwnedFd, size: u64, error: Error) -> Error {
    let is_space = error.status() == Status::OutOfMemory;
    match fs::fstatvfs(fd) {
        Ok(stat) if is_space => {
            error.context(format!("{size} bytes asked, {} free", stat.f_bavail * stat.f_frsize))
        }
        _ => error,
    }
}

/// What the kernel says direct I/O on this file needs; older kernels do not say, and a page suits them all.
fn direct_io_alignment(fd: &OwnedFd) -> u64 {
    let page = rustix::param::page_size() as u64;
    match fs::statx(fd, c"", AtFlags::EMPTY_PATH, StatxFlags::DIOALIGN) {
        Ok(statx) if statx.stx_dio_offset_align > 0 => {
            u64::from(statx.stx_dio_offset_align.max(statx.stx_dio_mem_align))
        }
        _ => page,
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
        assert_eq!(file.path(), None);
    }

    #[test]
    fn a_named_file_stays_and_is_not_made_twice() {
        let path = scratch("named");
        drop(DiskFile::open(&config(4096, Some(path.clone()))).unwrap());
        assert_eq!(std::fs::metadata(&path).unwrap().len(), 4096);
        let again = DiskFile::open(&config(4096, Some(path.clone()))).err().unwrap();
        assert_eq!(again.status(), Status::AlreadyExists);
        let open = DiskConfig { open_existing: true, ..config(0, Some(path.clone())) };
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
            let beside = file.beside(8192).unwrap();
            assert_eq!(beside.file_system().unwrap(), file.file_system().unwrap());
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
    fn a_directory_is_not_a_file() {
        for open_existing in [false, true] {
            let config = DiskConfig { open_existing, ..config(4096, Some(std::env::temp_dir())) };
            let error = DiskFile::open(&config).err().unwrap();
            let expected = if open_existing { Status::InvalidArgument } else { Status::AlreadyExists };
            assert_eq!(error.status(), expected, "{error}");
        }
    }
}
