// SPDX-License-Identifier: Apache-2.0
//! The files of a folder. A file that another process has put there is opened so that it cannot block, and read so that it
//! cannot grow beyond the limit.
//!
//! Nothing is locked to look at a file and then remove or replace it: a process that is stopped meanwhile would hold the lock. The file
//! is moved aside and looked at again there, where no process changes it, and moved back if it is another one. If this process ends in
//! between, the process of that entry writes it again.

use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::fs::{AtFlags, FileType, Mode, OFlags, RenameFlags};
use rustix::io::Errno;

use super::changes::Inotify;
use super::names::{file_name, is_unfinished, name_of, unfinished};
use super::opening::{self, Creation, identity};
use crate::base::{Error, LocalFd, Result, Status, ensure, fail, lists, log, process, retried};
use crate::directory::board::MAX_AGENTS;
use crate::directory::entry::{Entry, MAX_BYTES};
use crate::region::file_lock::{FileLock, is_locked};

/// The byte of an entry that its process locks.
const OWNER: u64 = 0;
/// How a file of another process is opened: a FIFO or a device there must not block, nor a link lead elsewhere.
const IN_FOLDER: OFlags = OFlags::RDONLY
    .union(OFlags::NOFOLLOW)
    .union(OFlags::NONBLOCK)
    .union(OFlags::NOCTTY)
    .union(OFlags::CLOEXEC);
/// The permissions of an entry, as far as the mask of this process permits them.
const READABLE: Mode = PRIVATE.union(Mode::RGRP).union(Mode::ROTH);
/// Those of an entry that is being written.
const PRIVATE: Mode = Mode::RUSR.union(Mode::WUSR);
/// An unfinished entry this old has no writer any more, unless it is locked.
const ABANDONED: Duration = Duration::from_secs(60);
/// How often an entry is written again while other processes change the file under its name.
const MAX_ATTEMPTS: usize = 8;

pub struct Folder {
    pub path: PathBuf,
    /// `None` only before the first opening: there was no folder, and nothing is published in it.
    folder: Option<OwnedFd>,
    /// `None` without a folder, or if the system has no more of them: the folder is then read again and again.
    pub inotify: Option<Inotify>,
}

/// What is stored under a name.
pub enum Found {
    Nothing,
    /// An entry whose process has ended.
    Ended,
    Entry(Box<Entry>),
    /// Not an entry, for this reason, or one that cannot be read.
    Invalid(Error),
}

enum Opened {
    Nothing,
    File(OwnedFd),
    /// Not that of an entry, for this reason.
    Invalid(Error),
}

/// An entry of this process.
pub struct OwnFile {
    pub bytes: Vec<u8>,
    inode: (u64, u64),
    /// Held while the entry is published.
    _lock: FileLock,
}

impl Folder {
    /// Opens a folder if it exists.
    pub fn open(path: &Path) -> Result<Self> {
        Self::open_or_create(path, None, Creation::Never)
    }

    /// Opens the folder that the path leads to now, and creates it for the users of the last one, if there was one.
    pub fn open_again(&mut self) -> Result<Self> {
        let creation = self.folder.as_ref().map_or(Creation::Never, Creation::Like);
        Self::open_or_create(&self.path, self.inotify.take(), creation)
    }

    /// Opens a folder that did not exist before, and creates it for this user if it still does not.
    pub fn create(&mut self) -> Result<()> {
        *self = Self::open_or_create(&self.path, None, Creation::Private)?;
        Ok(())
    }

    pub fn is_open(&self) -> bool {
        self.folder.is_some()
    }

    /// Fails as a folder does that was removed: no file is in it.
    fn fd(&self) -> std::result::Result<&OwnedFd, Errno> {
        self.folder.as_ref().ok_or(Errno::NOENT)
    }

    /// `inotify` is that of the folder that the path led to before.
    fn open_or_create(path: &Path, inotify: Option<Inotify>, creation: Creation<'_>) -> Result<Self> {
        let (folder, inotify) = opening::open(path, inotify, creation)?;
        let this = Self { path: path.to_path_buf(), folder, inotify };
        this.remove_abandoned();
        Ok(this)
    }

    /// Whether the path still leads to this folder, or to none if there was none; not if that cannot be found out.
    pub fn is_in_place(&self) -> bool {
        opening::leads_to(&self.path, self.folder.as_ref()).unwrap_or(false)
    }

    /// What is stored under a name. Removes the file of an entry whose process has ended. Fails if this process lacks the file
    /// descriptors or the memory to find out.
    pub fn find(&self, name: &str) -> Result<Found> {
        let (found, file) = self.look_at(&file_name(name), name)?;
        if let (Found::Ended, Some(file)) = (&found, file) {
            self.remove_ended(name, &file);
        }
        Ok(found)
    }

    /// What is stored in a file that is the entry of a name, and that file.
    fn look_at(&self, path: &str, name: &str) -> Result<(Found, Option<OwnedFd>)> {
        let file = match self.open_entry(path)? {
            Opened::File(file) => file,
            Opened::Nothing => return Ok((Found::Nothing, None)),
            Opened::Invalid(reason) => return Ok((Found::Invalid(reason), None)),
        };
        // Before the bytes are read: an entry that is unlocked now never comes alive again.
        let found = is_locked(file.as_fd(), OWNER).and_then(|is_alive| {
            let entry = read(&file).and_then(|bytes| Entry::read(name, &bytes))?;
            Ok(if is_alive { Found::Entry(Box::new(entry)) } else { Found::Ended })
        });
        match found {
            Err(error) if error.status() == Status::OutOfMemory => Err(error),
            found => Ok((found.unwrap_or_else(Found::Invalid), Some(file))),
        }
    }

    /// Whether the process of an entry is alive.
    pub fn is_alive(&self, name: &str) -> bool {
        let Ok(Opened::File(file)) = self.open_entry(&file_name(name)) else { return false };
        is_locked(file.as_fd(), OWNER).unwrap_or(false)
    }

    /// Opens the file of an entry. Fails as [`Self::find`] does.
    fn open_entry(&self, path: &str) -> Result<Opened> {
        let file = match self.fd().and_then(|folder| retried::openat(folder, path, IN_FOLDER, Mode::empty()))
        {
            Ok(file) => file,
            Err(Errno::NOENT) => return Ok(Opened::Nothing),
            Err(Errno::LOOP) => {
                return Ok(Opened::Invalid(foreign("its file is a symbolic link".to_string())));
            }
            Err(Errno::NXIO) => {
                return Ok(Opened::Invalid(foreign("its file is a socket".to_string())));
            }
            Err(errno) => {
                let error = Error::errno("open its file", errno);
                let is_local = matches!(errno, Errno::MFILE | Errno::NFILE | Errno::NOMEM);
                return if is_local { Err(error) } else { Ok(Opened::Invalid(error)) };
            }
        };
        let stat = retried::fstat(&file).map_err(|errno| Error::errno("get the size of its file", errno))?;
        Ok(match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => Opened::File(file),
            other => Opened::Invalid(foreign(format!("its file is not a regular file but a {other:?}"))),
        })
    }

    /// Removes the file of an entry whose process has ended.
    fn remove_ended(&self, name: &str, file: &OwnedFd) {
        let Ok(ended) = retried::fstat(file).map(identity) else { return };
        match self.remove_inode(name, ended) {
            Ok(true) => log!(Debug, "the process of agent '{name}' has ended; its entry is removed"),
            Ok(false) => {}
            Err(error) => log!(Debug, "the process of agent '{name}' has ended: {error}"),
        }
    }

    /// Removes the file under a name, unless it is another one. Returns whether it is not there any more.
    fn remove_inode(&self, name: &str, inode: (u64, u64)) -> Result<bool> {
        let there = self.inode(&file_name(name))?;
        if there != Some(inode) {
            return Ok(there.is_none());
        }
        let Some(aside) = self.take_aside(name)? else { return Ok(true) };
        let is_it = self.inode(&aside).map(|there| there == Some(inode));
        if !matches!(is_it, Ok(true)) {
            self.put_back(&aside, name);
            return is_it;
        }
        self.unlink(&aside).map(|()| true)
    }

    /// The inode of a file, if there is one.
    fn inode(&self, path: &str) -> Result<Option<(u64, u64)>> {
        match self.fd().and_then(|folder| retried::statat(folder, path, AtFlags::SYMLINK_NOFOLLOW)) {
            Err(Errno::NOENT) => Ok(None),
            stat => {
                stat.map(|stat| Some(identity(stat))).map_err(|errno| Error::errno("examine its file", errno))
            }
        }
    }

    fn unlink(&self, path: &str) -> Result<()> {
        match self.fd().and_then(|folder| retried::unlinkat(folder, path, AtFlags::empty())) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(errno) => Err(Error::errno("remove its file", errno)),
        }
    }

    /// Moves the file under a name to a name that no other process uses. Returns that, unless there is no file.
    fn take_aside(&self, name: &str) -> Result<Option<String>> {
        let aside = unfinished()?;
        match self.fd().and_then(|folder| retried::renameat(folder, &file_name(name), folder, &aside)) {
            Ok(()) => Ok(Some(aside)),
            Err(Errno::NOENT) => Ok(None),
            Err(errno) => Err(Error::errno("move its file aside", errno)),
        }
    }

    /// Moves a file back, unless there is a newer one.
    fn put_back(&self, aside: &str, name: &str) {
        let replaced = match self.place(aside, name) {
            Ok(true) => return,
            Ok(false) => self.unlink(aside),
            Err(errno) => Err(Error::errno("move its file back", errno)),
        };
        if let Err(error) = replaced {
            log!(Warn, "the entry of agent '{name}': {error}; its process writes it again");
        }
    }

    /// Gives a file the name of an entry. Returns whether it did, because the name has no file.
    fn place(&self, path: &str, name: &str) -> std::result::Result<bool, Errno> {
        let (folder, to) = (self.fd()?, file_name(name));
        match retried::renameat_with(folder, path, folder, &to, RenameFlags::NOREPLACE) {
            Err(Errno::EXIST) => Ok(false),
            // The file system has no such call. The process of an entry that is replaced writes it again.
            Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => {
                retried::renameat(folder, path, folder, &to).map(|()| true)
            }
            placed => placed.map(|()| true),
        }
    }

    pub fn names(&self) -> Result<Vec<String>> {
        let failed = |errno| Error::errno(format!("read folder {}", self.path.display()), errno);
        let mut names = Vec::new();
        let Some(folder) = &self.folder else { return Ok(names) };
        for (count, item) in retried::read_folder(folder).map_err(failed)?.enumerate() {
            if count > 2 * MAX_AGENTS {
                log!(
                    Warn,
                    "folder {} has more than {count} files; the rest is not read",
                    self.path.display()
                );
                break;
            }
            names.extend(name_of(item.map_err(failed)?.file_name().to_bytes()));
        }
        Ok(names)
    }

    /// Writes an entry, and replaces the one under its name.
    pub fn write(&self, name: &str, bytes: Vec<u8>) -> Result<OwnFile> {
        let replaced = self.write_by(name, bytes, |unfinished| {
            let folder = self.fd()?;
            retried::renameat(folder, unfinished, folder, &file_name(name)).map(|()| true)
        })?;
        replaced.map_err(|_| Error::errno(format!("rename a file to {}", file_name(name)), Errno::EXIST))
    }

    /// Writes an entry again whose file is missing or damaged. Returns `None` if another process has published the name since.
    pub fn write_again(&self, name: &str, mut bytes: Vec<u8>, incarnation: u64) -> Result<Option<OwnFile>> {
        for _ in 0..MAX_ATTEMPTS {
            if let Some(aside) = self.take_aside(name)? {
                let found = self.look_at(&aside, name);
                let is_other = |entry: &Entry| entry.presence.incarnation != incarnation;
                match found {
                    Ok((Found::Entry(entry), _)) if is_other(&entry) => {
                        self.put_back(&aside, name);
                        return Ok(None);
                    }
                    Ok(_) => self.unlink(&aside)?,
                    Err(error) => {
                        self.put_back(&aside, name);
                        return Err(error);
                    }
                }
            }
            match self.write_by(name, bytes, |unfinished| self.place(unfinished, name))? {
                Ok(own) => return Ok(Some(own)),
                Err(not_written) => bytes = not_written,
            }
        }
        fail!(Busy, "other processes replace the file again and again")
    }

    /// Writes an entry under another name, which `place` changes. If it does not, returns the bytes.
    fn write_by(
        &self,
        name: &str,
        bytes: Vec<u8>,
        place: impl FnOnce(&str) -> std::result::Result<bool, Errno>,
    ) -> Result<std::result::Result<OwnFile, Vec<u8>>> {
        let unfinished = unfinished()?;
        let placed = self.write_aside(&unfinished, bytes).and_then(|own| {
            let failed = |errno| Error::errno(format!("rename a file to {}", file_name(name)), errno);
            Ok(if place(&unfinished).map_err(failed)? { Ok(own) } else { Err(own.bytes) })
        });
        if !matches!(placed, Ok(Ok(_))) {
            let _ = self.unlink(&unfinished);
        }
        placed
    }

    fn write_aside(&self, unfinished: &str, bytes: Vec<u8>) -> Result<OwnFile> {
        let lock = self.create_locked(unfinished)?;
        let file = lock.file();
        let mut left = bytes.as_slice();
        while !left.is_empty() {
            let written = retried::write(file, left)
                .map_err(|errno| Error::errno(format!("write {} bytes of an entry", bytes.len()), errno))?;
            left = &left[written..];
        }
        let stat = retried::fstat(file).map_err(|errno| Error::errno("get the inode of an entry", errno))?;
        let readable = READABLE & !process::file_mode_mask();
        if !Mode::from_raw_mode(stat.st_mode).contains(readable) {
            retried::fchmod(file, readable)
                .map_err(|errno| Error::errno("set the permissions of an entry", errno))?;
        }
        Ok(OwnFile { bytes, inode: identity(stat), _lock: lock })
    }

    /// Creates a file, and locks it. No other user can open it: a shared lock of theirs would prevent this one. If the process ends
    /// before its entry is complete, the file remains so; see [`Self::remove_abandoned`].
    fn create_locked(&self, unfinished: &str) -> Result<FileLock> {
        let create = OFlags::CREATE | OFlags::EXCL;
        let mut flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::CLOEXEC | create;
        let file = LocalFd::open(|| {
            let opened = retried::openat(self.fd()?, unfinished, flags, PRIVATE);
            // A second call opens the file of the first one.
            flags -= create;
            opened
        })
        .map_err(|errno| Error::errno(format!("create a file in {}", self.path.display()), errno))?;
        FileLock::exclusive(file, OWNER)
    }

    /// Whether the name still leads to this file, with these bytes. Fails as [`Self::find`] does.
    pub fn is_own(&self, name: &str, own: &OwnFile) -> Result<bool> {
        let Opened::File(file) = self.open_entry(&file_name(name))? else { return Ok(false) };
        let stat = retried::fstat(&file).map_err(|errno| Error::errno("examine its file", errno))?;
        Ok(identity(stat) == own.inode && read(&file)? == own.bytes)
    }

    /// Removes the file of an entry of this process. Fails if the name leads to another file.
    pub fn remove(&self, name: &str, own: &OwnFile) -> Result<()> {
        let is_removed = self.remove_inode(name, own.inode)?;
        ensure!(is_removed, Stale, "another process has published an agent of that name since");
        Ok(())
    }

    /// Removes what processes of this user that ended while they wrote an entry have left.
    fn remove_abandoned(&self) {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let Ok(folder) = self.fd() else { return };
        let Ok(items) = retried::read_folder(folder) else { return };
        for item in items.flatten().take(2 * MAX_AGENTS) {
            let name = item.file_name();
            if !is_unfinished(name.to_bytes()) {
                continue;
            }
            // A writer locks its file at once. The age is for the instant before, and the lock for clocks that jump.
            let Ok(file) = retried::openat(folder, name, IN_FOLDER, Mode::empty()) else { continue };
            let age = retried::fstat(&file).map(|stat| now.as_secs().saturating_sub(stat.st_mtime as u64));
            if age.is_ok_and(|age| age > ABANDONED.as_secs())
                && is_locked(file.as_fd(), OWNER).is_ok_and(|is_locked| !is_locked)
            {
                let _ = retried::unlinkat(folder, name, AtFlags::empty());
            }
        }
    }
}

/// The reason why a file is not that of an entry.
fn foreign(reason: String) -> Error {
    Error::new(Status::Corrupt, reason)
}

/// Reads a file, up to one byte more than an entry may have.
fn read(file: &OwnedFd) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    lists::reserve(&mut bytes, MAX_BYTES + 1)?;
    bytes.resize(MAX_BYTES + 1, 0);
    let mut length = 0;
    while length < bytes.len() {
        match retried::pread(file, &mut bytes[length..], length as u64) {
            Ok(0) => break,
            Ok(count) => length += count,
            Err(errno) => return Err(Error::errno("read its file", errno)),
        }
    }
    bytes.truncate(length);
    Ok(bytes)
}

#[cfg(test)]
mod tests;
