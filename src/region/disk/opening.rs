// SPDX-License-Identifier: Apache-2.0
//! Creating and opening files. A failure leaves no new file behind.

use std::ffi::OsStr;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::fs::{self, FallocateFlags, Mode, OFlags};
use rustix::io::Errno;

use super::config::{DiskConfig, OpenMode};
use super::direct_io::{DirectIo, open_direct};
use super::file::DiskFile;
use super::label::{self, Label};
use super::name::{NewName, ensure_names};
use super::writer_lock;
use crate::advice;
use crate::error::{Error, Result, Status, ensure, fail};
use crate::file_limit::FileSizeSignal;
use crate::log::log;
use crate::region::FileId;
use crate::region::file_lock::FileLock;
use crate::region::host_size::host_size;
use crate::sync::Mutex;

/// How often a file may appear and disappear while it is opened or created.
const MOST_ATTEMPTS: usize = 8;

impl DiskFile {
    /// Opens a file as configured, or leaves nothing behind. A file that was created is removed with the
    /// value, unless [`keep`](Self::keep) is called before.
    pub fn open(config: &DiskConfig) -> Result<Self> {
        open_or_make(config).inspect(log_opened)
    }

    /// Creates a temporary file on the same file system with the same flags, for trials that must not change this one.
    pub fn beside(&self, size: u64) -> Result<Self> {
        let refuse = |errno| Error::errno("create a temporary file beside an open one", errno);
        let own = format!("/proc/thread-self/fd/{}", self.fd.as_raw_fd());
        // For a file without a name the kernel returns the former one, or one in its directory.
        let name = fs::readlink(own, Vec::new()).map_err(refuse)?;
        let directory = Path::new(OsStr::from_bytes(name.to_bytes())).parent().map(Path::to_path_buf);
        let direct_io = if self.direct { DirectIo::Required } else { DirectIo::Off };
        let file = temporary(&DiskConfig { size, directory, direct_io, ..DiskConfig::default() })?;
        ensure!(
            file.file_system() == self.file_system(),
            Unsupported,
            "create a temporary file beside an open one: {} is on another file system now",
            name.to_string_lossy()
        );
        Ok(file)
    }
}

fn log_opened(file: &DiskFile) {
    log!(
        Debug,
        "file opened: {}, {} bytes, {}, {}, {}",
        file.path.as_deref().map_or("temporary".into(), Path::to_string_lossy),
        file.size,
        if file.writable { "read-write" } else { "read-only" },
        if file.direct {
            format!("direct I/O in units of {} bytes", file.io_alignment)
        } else {
            "buffered".into()
        },
        if file.preallocated { "space reserved" } else { "no space reserved" }
    );
}

fn open_or_make(config: &DiskConfig) -> Result<DiskFile> {
    let Some(path) = &config.path else { return temporary(config) };
    let path = &std::path::absolute(path).map_err(|error| {
        Error::new(
            Status::InvalidArgument,
            format!("the path {} has no absolute form: {error}", path.display()),
        )
    })?;
    match config.opening {
        OpenMode::Existing => existing(path, config),
        OpenMode::Create => create(path, config).map_err(|error| name_the_flags(path, error)),
        OpenMode::OpenOrCreate => open_or_create(path, config),
    }
}

/// Adds advice if the file exists.
fn name_the_flags(path: &Path, error: Error) -> Error {
    match error.status() {
        Status::AlreadyExists if path.is_dir() => {
            error.followed_by("it is a directory; append the name of a file to the path")
        }
        Status::AlreadyExists => error.followed_by(
            "KVMEM_DISK_OPEN_EXISTING opens an existing file, KVMEM_DISK_OPEN_OR_CREATE opens or creates it",
        ),
        _ => error,
    }
}

/// Another process may create or remove the file between the two attempts.
fn open_or_create(path: &Path, config: &DiskConfig) -> Result<DiskFile> {
    for _ in 1..MOST_ATTEMPTS {
        match create(path, config) {
            Err(error) if error.status() == Status::AlreadyExists => {}
            created => return created,
        }
        match existing(path, config) {
            Err(error) if error.status() == Status::NotFound => {}
            opened => return opened,
        }
    }
    create(path, config)
}

fn create(path: &Path, config: &DiskConfig) -> Result<DiskFile> {
    ensure!(
        !config.read_only,
        InvalidArgument,
        "a file that is opened with KVMEM_DISK_READ_ONLY must exist; open it with KVMEM_DISK_OPEN_EXISTING"
    );
    let size = new_size(config)?;
    let what = format!("create {}", path.display());
    let flags = OFlags::CREATE | OFlags::EXCL | OFlags::RDWR | OFlags::CLOEXEC;
    let file = fs::open(path, flags, private()).map_err(|errno| create_error(path, &what, errno))?;
    let name = NewName::of(&file, path)?;
    let lock = match lock_writer(&file, path, config) {
        // Another writer opened it just now, and uses it.
        Err(error) if error.status() == Status::Busy => {
            name.keep();
            return Err(error);
        }
        lock => lock?,
    };
    // Dropped before the lock after a failure, so that no other writer opens a file that is about to be removed.
    let name = name;
    let label = config.label.as_ref();
    let preallocated = fill(&file, size, label).map_err(|error| error.context(&what))?;
    let (file, direct) = open_direct(file, OFlags::RDWR, config.direct_io, &what)?;
    let new = DiskFile::of(file, size, direct)?;
    Ok(DiskFile {
        _lock: lock,
        preallocated,
        path: Some(path.to_path_buf()),
        new_name: Mutex::new(Some(name)),
        ..new
    })
}

fn existing(path: &Path, config: &DiskConfig) -> Result<DiskFile> {
    let what = format!("open {}", path.display());
    let access = if config.read_only { OFlags::RDONLY } else { OFlags::RDWR };
    // A FIFO or a device must not block the call.
    let flags = access | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    let file = fs::open(path, flags, Mode::empty()).map_err(|errno| match errno {
        Errno::NOENT => open_error(&what, errno).followed_by("KVMEM_DISK_OPEN_OR_CREATE creates it"),
        _ => open_error(&what, errno),
    })?;
    ensure_regular(&file, &what)?;
    // io_uring would fail with EAGAIN where it has to wait.
    fs::fcntl_setfl(&file, access).map_err(|errno| Error::errno(&what, errno))?;
    let lock = lock_writer(&file, path, config)?;
    // The process that created it may have failed and removed it meanwhile.
    ensure_names(path, FileId::of(file.as_fd())?)?;
    // No other writer can change its size now.
    let length = length(&file, &what)?;
    let is_empty = length == 0 && config.opening == OpenMode::OpenOrCreate && !config.read_only;
    let (size, preallocated) = match is_empty {
        true => (config.size, fill_empty(&file, config, &what)?),
        false => (ensure_fits(&file, length, config, &what)?, false),
    };
    let (file, direct) = open_direct(file, access, config.direct_io, &what)?;
    let opened = DiskFile::of(file, size, direct)?;
    Ok(DiskFile {
        _lock: lock,
        preallocated,
        path: Some(path.to_path_buf()),
        writable: !config.read_only,
        ..opened
    })
}

/// The size of the region in an existing file, which must hold it, and must be labelled as this one is to be.
fn ensure_fits(file: &OwnedFd, length: u64, config: &DiskConfig, what: &str) -> Result<u64> {
    ensure!(
        length > 0,
        InvalidArgument,
        "{what}: the file is empty; KVMEM_DISK_OPEN_OR_CREATE treats it as new"
    );
    let size = if config.size == 0 { length } else { config.size };
    let mut needed = size;
    if let Some(label) = &config.label {
        (label.check)(&label::read(file, length)?, &label.bytes).map_err(|error| error.context(what))?;
        needed = label::offset(size)? + label::PAGE;
    }
    ensure!(needed <= length, OutOfRange, "{what}: the file has {length} bytes, the region needs {needed}");
    Ok(size)
}

/// An empty file is treated as a new one: a process may have ended while it created the file.
fn fill_empty(file: &OwnedFd, config: &DiskConfig, what: &str) -> Result<bool> {
    let filled = new_size(config).and_then(|size| fill(file, size, config.label.as_ref()));
    filled.map_err(|error| {
        if let Err(errno) = fs::ftruncate(file, 0) {
            log!(Warn, "{what}: make the file empty again: {errno}");
        }
        error.context(what)
    })
}

/// A file without a name.
fn temporary(config: &DiskConfig) -> Result<DiskFile> {
    ensure!(
        config.opening == OpenMode::Create,
        InvalidArgument,
        "the path is missing: a temporary file is always a new one"
    );
    let size = new_size(config)?;
    let directory = config.directory.clone().unwrap_or_else(std::env::temp_dir);
    let what = format!("create a temporary file in {}", directory.display());
    let (file, name) = nameless(&directory).map_err(|errno| open_error(&what, errno))?;
    let preallocated = fill(&file, size, None).map_err(|error| error.context(&what))?;
    let (file, direct) = open_direct(file, OFlags::RDWR, config.direct_io, &what)?;
    drop(name);
    let new = DiskFile::of(file, size, direct)?;
    Ok(DiskFile { temporary: true, preallocated, ..new })
}

/// Creates a file without a name. If the file system does not support that, the name is removed when the second value is
/// dropped.
fn nameless(directory: &Path) -> std::result::Result<(OwnedFd, Option<NewName>), Errno> {
    let flags = OFlags::RDWR | OFlags::CLOEXEC;
    match fs::open(directory, flags | OFlags::TMPFILE, private()) {
        Err(Errno::OPNOTSUPP | Errno::ISDIR) => {
            let path = directory.join(format!(".kvmem-{}-{}", std::process::id(), unique()));
            let file = fs::open(&path, flags | OFlags::CREATE | OFlags::EXCL, private())?;
            let name = NewName::of(&file, &path).map_err(|_| Errno::IO)?;
            Ok((file, Some(name)))
        }
        result => result.map(|file| (file, None)),
    }
}

fn unique() -> u64 {
    static NEXT: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);
    NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed)
}

fn lock_writer(file: &OwnedFd, path: &Path, config: &DiskConfig) -> Result<Option<FileLock>> {
    let is_locked = !config.read_only && !config.no_lock;
    is_locked.then(|| writer_lock::lock(file, path)).transpose()
}

fn new_size(config: &DiskConfig) -> Result<u64> {
    ensure!(
        config.size > 0,
        InvalidArgument,
        "a new file needs a size; set size, or open all of an existing file with KVMEM_DISK_OPEN_EXISTING"
    );
    host_size("a disk region", config.size).map(|size| size as u64)
}

/// Allocates the space of a new file, and writes its label. Returns whether the space is reserved.
fn fill(file: &OwnedFd, size: u64, label: Option<&Label>) -> Result<bool> {
    let length = match label {
        Some(_) => label::offset(size)? + label::PAGE,
        None => size,
    };
    let _limit_reports_itself = FileSizeSignal::block();
    let what = || format!("allocate {length} bytes for a file");
    let preallocated = match fs::fallocate(file, FallocateFlags::empty(), 0, length) {
        Ok(()) => true,
        Err(Errno::OPNOTSUPP | Errno::NOSYS) => {
            fs::ftruncate(file, length).map_err(|errno| Error::errno(what(), errno))?;
            log!(Warn, "the file system cannot reserve space, so a later write may fail for lack of it");
            false
        }
        Err(errno) => {
            let advice = (errno == Errno::NOSPC).then(|| advice::free_space(file.as_fd())).flatten();
            return Err(Error::errno(what(), errno).with_advice(advice));
        }
    };
    if let Some(label) = label {
        label::write(file, size, label)?;
    }
    Ok(preallocated)
}

fn private() -> Mode {
    Mode::RUSR | Mode::WUSR
}

fn ensure_regular(file: &OwnedFd, what: &str) -> Result<()> {
    let stat = fs::fstat(file).map_err(|errno| Error::errno(what, errno))?;
    let is_regular = fs::FileType::from_raw_mode(stat.st_mode) == fs::FileType::RegularFile;
    ensure!(is_regular, InvalidArgument, "{what}: it is not a regular file");
    Ok(())
}

fn length(file: &OwnedFd, what: &str) -> Result<u64> {
    let stat = fs::fstat(file).map_err(|errno| Error::errno(what, errno))?;
    u64::try_from(stat.st_size).or_else(|_| fail!(Io, "{what}: its length is {}", stat.st_size))
}

/// A file can be created if its directory exists.
fn create_error(path: &Path, what: &str, errno: Errno) -> Error {
    let error = open_error(what, errno);
    match path.parent() {
        Some(directory) if errno == Errno::NOENT && !directory.exists() => error
            .followed_by(format!("the directory {} does not exist; create it first", directory.display())),
        _ => error,
    }
}

fn open_error(what: &str, errno: Errno) -> Error {
    let error = Error::errno(what, errno);
    match errno {
        Errno::ISDIR | Errno::NOTDIR => error.with_status(Status::InvalidArgument),
        _ => error,
    }
}
