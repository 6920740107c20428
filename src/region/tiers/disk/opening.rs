// SPDX-License-Identifier: Apache-2.0
//! Creating and opening files. After a failure the file is as it was before.

use std::ffi::OsStr;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::fs::{self, Mode, OFlags};
use rustix::io::Errno;

use super::config::{DiskConfig, OpenMode};
use super::direct_io::{DirectIo, open_direct};
use super::file::DiskFile;
use super::fill::fill;
use super::name::{NewFile, ensure_names};
use super::{label, writer_lock};
use crate::base::paths::{absolute, missing_directory};
use crate::base::{Error, Mutex, Result, Status, ensure, fail, log, random, retried};
use crate::region::FileId;
use crate::region::file_lock::FileLock;
use crate::region::mapping::host_size;

/// How often a file may appear and disappear while it is opened or created.
const MAX_ATTEMPTS: usize = 8;

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
        let name = retried::readlink(&own).map_err(refuse)?;
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
    let path = &absolute(path)?;
    match config.opening {
        OpenMode::Existing => existing(path, config),
        OpenMode::Create => create(path, config),
        OpenMode::OpenOrCreate => open_or_create(path, config),
    }
    .map_err(|error| name_the_remedy(path, error))
}

/// Adds advice if the file exists.
fn name_the_remedy(path: &Path, error: Error) -> Error {
    match error.status() {
        Status::AlreadyExists if path.is_dir() => {
            error.followed_by("it is a directory; append the name of a file to the path")
        }
        Status::AlreadyExists if path.is_symlink() && !path.exists() => error.followed_by(
            "it is a symbolic link to a file that does not exist; remove the link, or create the file that it names",
        ),
        Status::AlreadyExists => error.followed_by(
            "KVMEM_DISK_OPEN_EXISTING opens an existing file, KVMEM_DISK_OPEN_OR_CREATE opens or creates it",
        ),
        _ => error,
    }
}

/// Another process may create or remove the file between the two attempts.
fn open_or_create(path: &Path, config: &DiskConfig) -> Result<DiskFile> {
    for _ in 1..MAX_ATTEMPTS {
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
    let file =
        retried::open(path, flags, private()).map_err(|errno| create_error(path.parent(), &what, errno))?;
    let new = NewFile::created(&file, path)?;
    let lock = lock_writer(&file, path, config);
    // Dropped before the lock after a failure.
    let new = new;
    // Until the file was locked, another writer could open it, treat the empty file as new, and fill it.
    let is_locked_by_other = lock.as_ref().is_err_and(|error| error.status() == Status::Busy);
    if is_locked_by_other || length(&file, &what)? > 0 {
        new.keep();
        lock?;
        fail!(AlreadyExists, "{what}: another writer has filled the new file");
    }
    filled(file, lock?, new, size, config, path)
}

/// The error for a file that does not exist.
fn no_file(path: &Path, config: &DiskConfig, what: &str) -> Error {
    let error = create_error(path.parent(), what, Errno::NOENT);
    let can_be_created = !config.read_only && path.parent().is_some_and(Path::is_dir);
    if can_be_created { error.followed_by("KVMEM_DISK_OPEN_OR_CREATE creates it") } else { error }
}

fn existing(path: &Path, config: &DiskConfig) -> Result<DiskFile> {
    let what = format!("open {}", path.display());
    let access = if config.read_only { OFlags::RDONLY } else { OFlags::RDWR };
    // A FIFO or a device must not block the call.
    let flags = access | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    let file = retried::open(path, flags, Mode::empty()).map_err(|errno| match errno {
        Errno::NOENT => no_file(path, config, &what),
        _ => open_error(&what, errno),
    })?;
    ensure_regular(&file, &what)?;
    // io_uring would fail with EAGAIN where it has to wait.
    retried::fcntl_setfl(&file, access).map_err(|errno| Error::errno(&what, errno))?;
    let lock = lock_writer(&file, path, config)?;
    // The process that created it may have failed and removed it meanwhile.
    ensure_names(path, FileId::from_fd(file.as_fd())?)?;
    // No other writer can change its size now.
    let length = length(&file, &what)?;
    // A process may have ended while it created the file.
    if length == 0 && config.opening == OpenMode::OpenOrCreate && !config.read_only {
        let size = new_size(config).map_err(|error| error.context(&what))?;
        let new = NewFile::filled(&file)?;
        return filled(file, lock, new, size, config, path);
    }
    let size = ensure_fits(&file, length, config, &what)?;
    let (file, direct) = open_direct(file, access, config.direct_io, &what)?;
    let opened = DiskFile::from_fd(file, size, direct)?;
    Ok(DiskFile { _lock: lock, path: Some(path.to_path_buf()), writable: !config.read_only, ..opened })
}

/// Fills a new file, which is locked. After a failure `new` is dropped before the lock is released.
fn filled(
    file: OwnedFd,
    lock: Option<FileLock>,
    new: NewFile,
    size: u64,
    config: &DiskConfig,
    path: &Path,
) -> Result<DiskFile> {
    let what = format!("create {}", path.display());
    let preallocated = fill(&file, size, config.label.as_ref()).map_err(|error| error.context(&what))?;
    let (file, direct) = open_direct(file, OFlags::RDWR, config.direct_io, &what)?;
    let opened = DiskFile::from_fd(file, size, direct)?;
    Ok(DiskFile {
        _lock: lock,
        preallocated,
        path: Some(path.to_path_buf()),
        new: Mutex::new(Some(new)),
        ..opened
    })
}

/// The size of the region in an existing file, which must hold it, and must be labelled as this one is to be.
fn ensure_fits(file: &OwnedFd, length: u64, config: &DiskConfig, what: &str) -> Result<u64> {
    let remedy = if config.read_only { "" } else { "; KVMEM_DISK_OPEN_OR_CREATE treats it as new" };
    ensure!(length > 0, InvalidArgument, "{what}: the file is empty{remedy}");
    let size = if config.size == 0 { length } else { config.size };
    let mut needed = size;
    if let Some(label) = &config.label {
        let found = label::read(file, length)?;
        let different = (label.differences)(&found, &label.bytes).map_err(|error| error.context(what))?;
        ensure!(
            different.is_empty(),
            InvalidArgument,
            "{what}: the file holds another layout: {}; build the layout with the values of the file, or use another file",
            different.join(", ")
        );
        needed = label::offset(size)? + label::PAGE;
    }
    ensure!(needed <= length, OutOfRange, "{what}: the file has {length} bytes, the region needs {needed}");
    Ok(size)
}

/// A file without a name.
fn temporary(config: &DiskConfig) -> Result<DiskFile> {
    ensure!(
        config.opening == OpenMode::Create,
        InvalidArgument,
        "path is NULL, which means a new temporary file, and a flag opens an existing one; set path"
    );
    let size = new_size(config)?;
    let directory = config.directory.clone().unwrap_or_else(std::env::temp_dir);
    let what = format!("create a temporary file in {}", directory.display());
    let file = nameless(&directory, &what)?;
    let preallocated = fill(&file, size, None).map_err(|error| error.context(&what))?;
    let (file, direct) = open_direct(file, OFlags::RDWR, config.direct_io, &what)?;
    let new = DiskFile::from_fd(file, size, direct)?;
    Ok(DiskFile { temporary: true, preallocated, ..new })
}

/// Creates a file without a name.
fn nameless(directory: &Path, what: &str) -> Result<OwnedFd> {
    let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::TMPFILE;
    match retried::open(directory, flags, private()) {
        Err(Errno::OPNOTSUPP | Errno::ISDIR) => removed_at_once(directory, what),
        opened => opened.map_err(|errno| create_error(Some(directory), what, errno)),
    }
}

/// The same where the file system does not support that. The name is random: a process that ends before it has removed the name
/// leaves an empty file, which no later call meets.
fn removed_at_once(directory: &Path, what: &str) -> Result<OwnedFd> {
    let path = &directory.join(format!(".kvmem-{:032x}", u128::from_ne_bytes(random()?)));
    let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::CREATE | OFlags::EXCL;
    let file = retried::open(path, flags, private()).map_err(|errno| open_error(what, errno))?;
    retried::unlink(path)
        .map_err(|errno| Error::errno(format!("{what}: remove the name {}", path.display()), errno))?;
    Ok(file)
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

fn private() -> Mode {
    Mode::RUSR | Mode::WUSR
}

fn ensure_regular(file: &OwnedFd, what: &str) -> Result<()> {
    let stat = retried::fstat(file).map_err(|errno| Error::errno(what, errno))?;
    let is_regular = fs::FileType::from_raw_mode(stat.st_mode) == fs::FileType::RegularFile;
    ensure!(is_regular, InvalidArgument, "{what}: it is not a regular file");
    Ok(())
}

fn length(file: &OwnedFd, what: &str) -> Result<u64> {
    let stat = retried::fstat(file).map_err(|errno| Error::errno(what, errno))?;
    u64::try_from(stat.st_size).or_else(|_| fail!(Io, "{what}: its length is {}", stat.st_size))
}

/// A file can be created if its directory exists.
fn create_error(directory: Option<&Path>, what: &str, errno: Errno) -> Error {
    let directory = directory.filter(|_| errno == Errno::NOENT);
    open_error(what, errno).with_advice(directory.and_then(missing_directory))
}

fn open_error(what: &str, errno: Errno) -> Error {
    let error = Error::errno(what, errno);
    match errno {
        Errno::ISDIR | Errno::NOTDIR => error.with_status(Status::InvalidArgument),
        _ => error,
    }
}
