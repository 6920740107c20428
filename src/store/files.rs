// SPDX-License-Identifier: Apache-2.0
//! The files of a store: those of a folder, or what a test has instead of them.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use crate::base::file_limit::FileSizeSignal;
use crate::base::paths::missing_directory;
use crate::base::sorting::sort_few_by;
use crate::base::{Cause, Error, LocalFd, Mutex, Result, Status, ensure, error, fail, log, retried};
use crate::region::file_lock::{FileLock, is_locked};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum StoreFile {
    Header,
    /// The header while it is written.
    NewHeader,
    Journal,
    /// The next journal while its checkpoint is written.
    NewJournal,
    /// Names and quotas of namespaces; absent if there is none.
    Namespaces,
    /// The next list of them while it is written.
    NewNamespaces,
    /// The layout, whose blocks are the slots.
    Blocks,
    /// The process of the writer, and how far readers may read the journal.
    Writer,
}

impl StoreFile {
    pub fn name(self) -> &'static str {
        match self {
            Self::Header => "store",
            Self::NewHeader => "store.new",
            Self::Journal => "index.0",
            Self::NewJournal => "index.0.new",
            Self::Namespaces => "namespaces",
            Self::NewNamespaces => "namespaces.new",
            Self::Blocks => "blocks.0",
            Self::Writer => "writer",
        }
    }
}

/// What a store needs of a file system. Nothing is durable before a sync: of what was written since, any part may survive a loss of power, torn
/// at 512 bytes and in any order.
pub trait Files {
    /// The size of a file; `None` if it does not exist.
    fn size(&self, file: StoreFile) -> Result<Option<u64>>;
    /// Reads until the buffer is full. Fails at the end of the file.
    fn read(&self, file: StoreFile, offset: u64, into: &mut [u8]) -> Result<()>;
    /// Writes all bytes; creates the file if it does not exist.
    fn write(&self, file: StoreFile, offset: u64, bytes: &[u8]) -> Result<()>;
    fn set_size(&self, file: StoreFile, size: u64) -> Result<()>;
    /// Makes the bytes and the size of a file durable.
    fn sync(&self, file: StoreFile) -> Result<()>;
    /// Replaces a file by another one, at once.
    fn rename(&self, from: StoreFile, to: StoreFile) -> Result<()>;
    /// Makes the names of the files durable.
    fn sync_folder(&self) -> Result<()>;
    /// Has a file opened again by the next call: another process may have replaced it.
    fn reopen(&self, file: StoreFile);
    /// Whether a process has the store open for writing.
    fn has_writer(&self) -> Result<bool>;
}

/// The folder of a store. With the lock of its writer, no other process, nor another open in this one, has that meanwhile.
pub struct StoreFolder {
    path: PathBuf,
    folder: OwnedFd,
    /// Open as long as the store, because the kernel reports a failed write to files that were open when it failed.
    open: Mutex<Vec<(StoreFile, Arc<OwnedFd>)>>,
    /// `None` if it is only read.
    writer: Option<FileLock>,
}

/// The byte of [`StoreFile::Writer`] that the writer of a store locks.
const WRITER_BYTE: u64 = 0;
/// Bytes of the id of the writer's process, which that file begins with: text for messages, followed by spaces.
const PROCESS: usize = 16;
/// Bytes of that file.
pub const WRITER_SIZE: usize = 84;
const PERMISSIONS: Mode = Mode::from_raw_mode(0o666);

impl StoreFolder {
    /// Opens a folder for writing. Creates it if it does not exist.
    pub fn open(path: &Path) -> Result<Self> {
        let doing = |errno| open_error(path, errno);
        match retried::mkdir(path, Mode::from_raw_mode(0o777)) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(errno) => return Err(doing(errno)),
        }
        let folder = open_folder(path)?;
        let lock = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
        let lock = LocalFd::open(|| retried::openat(&folder, StoreFile::Writer.name(), lock, PERMISSIONS))
            .map_err(|errno| open_error(&path.join(StoreFile::Writer.name()), errno))?;
        let writer = FileLock::exclusive(lock, WRITER_BYTE).map_err(|error| match error.cause() {
            Some(Cause::Errno(libc::EAGAIN | libc::EACCES)) => error!(
                Busy,
                "the store {} is open for writing in {}; destroy its handle and those of its namespaces there, and wait for their puts and gets; or open the store with KVMEM_DISK_READ_ONLY",
                path.display(),
                writer_in(&folder).unwrap_or_else(|| "another process".into())
            ),
            _ => error.context(format!("lock the store {}", path.display())),
        })?;
        // Readers wait until this writer has read the journal and says how far they may. On a full disk they go on as before.
        let mut noted = [0; WRITER_SIZE];
        noted[..PROCESS].copy_from_slice(&process_text(Some(std::process::id())));
        if let Err(errno) = note(writer.file(), &noted) {
            log!(Warn, "write the id of this process to the store {}: {errno}", path.display());
        }
        Ok(Self { path: path.into(), folder, open: Mutex::default(), writer: Some(writer) })
    }

    /// Opens a folder that exists, for reading its files.
    pub fn read_only(path: &Path) -> Result<Self> {
        Ok(Self { path: path.into(), folder: open_folder(path)?, open: Mutex::default(), writer: None })
    }

    /// The process that has the store open for writing; `None` if there is none.
    pub fn writer(&self) -> Result<Option<String>> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
        let file = match retried::openat(&self.folder, StoreFile::Writer.name(), flags, Mode::empty()) {
            Ok(file) => file,
            Err(Errno::NOENT) => return Ok(None),
            Err(errno) => return Err(self.failed("open", StoreFile::Writer, errno)),
        };
        let is_locked = is_locked(file.as_fd(), WRITER_BYTE)?;
        Ok(is_locked.then(|| writer_in(&self.folder).unwrap_or_else(|| "a process".into())))
    }

    /// When a file was changed last, in seconds since 1970; `None` if it does not exist.
    pub fn changed(&self, file: StoreFile) -> Result<Option<i64>> {
        let Some(opened) = self.opened(file, false)? else { return Ok(None) };
        let stat = retried::fstat(&*opened).map_err(|errno| self.failed("get the age of", file, errno))?;
        Ok(Some(stat.st_mtime as i64))
    }

    fn failed(&self, doing: &str, file: StoreFile, errno: Errno) -> Error {
        Error::errno(format!("{doing} {}", self.path.join(file.name()).display()), errno)
    }

    /// The open file; `None` if it does not exist, and is not to be created.
    fn opened(&self, file: StoreFile, create: bool) -> Result<Option<Arc<OwnedFd>>> {
        let mut open = self.open.lock();
        if let Some((_, opened)) = open.iter().find(|(name, _)| *name == file) {
            return Ok(Some(opened.clone()));
        }
        let access = if self.writer.is_some() { OFlags::RDWR } else { OFlags::RDONLY };
        let flags = access | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
        let flags = if create { flags | OFlags::CREATE } else { flags };
        match retried::openat(&self.folder, file.name(), flags, PERMISSIONS) {
            Ok(opened) => {
                let opened = Arc::new(opened);
                open.push((file, opened.clone()));
                Ok(Some(opened))
            }
            Err(Errno::NOENT) if !create => Ok(None),
            Err(errno) => Err(self.failed("open", file, errno)),
        }
    }

    fn existing(&self, file: StoreFile) -> Result<Arc<OwnedFd>> {
        let found = self.opened(file, false)?;
        found.ok_or_else(|| self.failed("open", file, Errno::NOENT))
    }
}

impl Drop for StoreFolder {
    fn drop(&mut self) {
        // A later message names no process that has left.
        if let Some(writer) = &self.writer
            && let Err(errno) = note(writer.file(), &process_text(None))
        {
            log!(Warn, "remove the id of this process from the store {}: {errno}", self.path.display());
        }
    }
}

fn open_error(path: &Path, errno: Errno) -> Error {
    let error = Error::errno(format!("open the store {}", path.display()), errno);
    match errno {
        Errno::NOENT => error.followed_by(
            path.parent().and_then(missing_directory).unwrap_or_else(|| "there is no such folder".into()),
        ),
        Errno::NOTDIR => error.with_status(Status::InvalidArgument).followed_by("give the path of a folder"),
        _ => error,
    }
}

fn open_folder(path: &Path) -> Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    retried::open(path, flags, Mode::empty()).map_err(|errno| open_error(path, errno))
}

/// The names of folders in a folder that have stores, of at most so many.
pub fn stores_in(folder: &Path, count: usize) -> Vec<String> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let stores = entries.filter(|entry| entry.path().join(StoreFile::Header.name()).is_file());
    let mut names: Vec<_> =
        stores.take(count).map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    sort_few_by(&mut names, String::cmp);
    names
}

fn process_text(id: Option<u32>) -> [u8; PROCESS] {
    let mut text = [b' '; PROCESS];
    let id = id.map_or(String::new(), |id| id.to_string());
    text[..id.len()].copy_from_slice(id.as_bytes());
    text
}

/// Writes the first bytes of the locked file.
fn note(file: BorrowedFd<'_>, mut bytes: &[u8]) -> std::result::Result<(), Errno> {
    let (_limit_reports_itself, mut offset) = (FileSizeSignal::block(), 0);
    while !bytes.is_empty() {
        let written = retried::pwrite(file, bytes, offset)?;
        if written == 0 {
            return Err(Errno::IO);
        }
        bytes = &bytes[written..];
        offset += written as u64;
    }
    Ok(())
}

/// The process that the locked file names.
fn writer_in(folder: &OwnedFd) -> Option<String> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let file = retried::openat(folder, StoreFile::Writer.name(), flags, Mode::empty()).ok()?;
    let mut text = [0; PROCESS];
    let size = retried::pread(&file, &mut text, 0).ok()?;
    let id: u32 = str::from_utf8(&text[..size]).ok()?.trim_end().parse().ok()?;
    Some(match id == std::process::id() {
        true => "this process".to_string(),
        false => format!("process {id}"),
    })
}

impl Files for StoreFolder {
    fn size(&self, file: StoreFile) -> Result<Option<u64>> {
        let Some(opened) = self.opened(file, false)? else { return Ok(None) };
        let stat = retried::fstat(&*opened).map_err(|errno| self.failed("get the size of", file, errno))?;
        Ok(Some(stat.st_size as u64))
    }

    fn read(&self, file: StoreFile, offset: u64, into: &mut [u8]) -> Result<()> {
        let (opened, mut done) = (self.existing(file)?, 0);
        while done < into.len() {
            match retried::pread(&*opened, &mut into[done..], offset + done as u64) {
                Ok(0) => fail!(Io, "read {}: the file was truncated", self.path.join(file.name()).display()),
                Ok(got) => done += got,
                Err(errno) => return Err(self.failed("read", file, errno)),
            }
        }
        Ok(())
    }

    fn write(&self, file: StoreFile, offset: u64, bytes: &[u8]) -> Result<()> {
        let Some(opened) = self.opened(file, true)? else {
            return Err(self.failed("create", file, Errno::NOENT));
        };
        let (_limit_reports_itself, mut done) = (FileSizeSignal::block(), 0);
        while done < bytes.len() {
            let written = retried::pwrite(&*opened, &bytes[done..], offset + done as u64)
                .map_err(|errno| self.failed("write", file, errno))?;
            ensure!(written > 0, Io, "write {}: the kernel wrote 0 bytes", file.name());
            done += written;
        }
        Ok(())
    }

    fn set_size(&self, file: StoreFile, size: u64) -> Result<()> {
        let opened = self.existing(file)?;
        let _limit_reports_itself = FileSizeSignal::block();
        retried::ftruncate(&*opened, size).map_err(|errno| self.failed("set the size of", file, errno))
    }

    fn sync(&self, file: StoreFile) -> Result<()> {
        retried::fdatasync(&*self.existing(file)?).map_err(|errno| self.failed("sync", file, errno))
    }

    fn rename(&self, from: StoreFile, to: StoreFile) -> Result<()> {
        retried::renameat(&self.folder, from.name(), &self.folder, to.name())
            .map_err(|errno| self.failed("rename", from, errno))?;
        let mut open = self.open.lock();
        open.retain(|(name, _)| *name != to);
        open.iter_mut().filter(|(name, _)| *name == from).for_each(|(name, _)| *name = to);
        Ok(())
    }

    fn sync_folder(&self) -> Result<()> {
        retried::fsync(&self.folder)
            .map_err(|errno| Error::errno(format!("sync the folder {}", self.path.display()), errno))
    }

    fn reopen(&self, file: StoreFile) {
        self.open.lock().retain(|(name, _)| *name != file);
    }

    fn has_writer(&self) -> Result<bool> {
        self.writer().map(|writer| writer.is_some())
    }
}
