// SPDX-License-Identifier: Apache-2.0
//! The files of a folder. A file that another process has put there is opened so that it cannot block, and read so that it
//! cannot grow beyond the limit.

use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::fs::inotify::{self, CreateFlags, WatchFlags};
use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;

use crate::base::folder_lock::FolderLock;
use crate::base::paths::missing_directory;
use crate::base::{Error, LocalFd, Result, Status, ensure, lists, log, process, random, retried};
use crate::directory::board::MAX_AGENTS;
use crate::directory::entry::{Entry, MAX_BYTES, decode, encode};
use crate::region::file_lock::{FileLock, is_locked};

/// The end of the file name of an entry.
const SUFFIX: &str = ".agent";
/// The end of the file name of an entry that is being written.
const UNFINISHED: &str = ".new";
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

/// How long a change waits for those of other processes, which take less than a millisecond unless the process is stopped.
const TURN_LIMIT: Duration = Duration::from_millis(100);

/// The right to look at an entry and to remove or replace it then: other processes do so before or after.
pub struct Turn {
    /// `None` if another process has not ended its turn in time, or if the file system has no locks. An entry that is removed
    /// nevertheless although it is new is written again by its process.
    _lock: Option<FolderLock>,
}

pub struct Folder {
    pub path: PathBuf,
    folder: OwnedFd,
    /// `None` if the system has no more of them: the folder is then read again and again.
    pub inotify: Option<OwnedFd>,
}

/// What is stored under a name.
pub enum Found {
    Nothing,
    /// An entry whose process has ended.
    Ended,
    Entry(Box<Entry>),
    /// Not an entry, for this reason.
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
    /// Opens a folder, and creates it if it does not exist.
    pub fn open(path: &Path) -> Result<Self> {
        match retried::mkdir(path, Mode::RWXU) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(errno) => {
                let error = Error::errno(format!("create folder {}", path.display()), errno);
                let missing = path.parent().and_then(missing_directory);
                return Err(missing.into_iter().fold(error, Error::followed_by));
            }
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let folder = retried::open(path, flags, Mode::empty())
            .map_err(|errno| Error::errno(format!("open folder {}", path.display()), errno))?;
        let this = Self { path: path.to_path_buf(), folder, inotify: watch(path) };
        this.remove_abandoned();
        Ok(this)
    }

    /// Whether the path still leads to this folder.
    pub fn is_in_place(&self) -> bool {
        let own = retried::fstat(&self.folder).map(identity);
        let there = retried::stat(&self.path).map(identity);
        matches!((own, there), (Ok(own), Ok(there)) if own == there)
    }

    /// What is stored under a name. Removes the file of an entry whose process has ended. Fails if this process lacks the file
    /// descriptors or the memory to find out.
    pub fn find(&self, name: &str) -> Result<Found> {
        let file = match self.open_entry(name)? {
            Opened::File(file) => file,
            Opened::Nothing => return Ok(Found::Nothing),
            Opened::Invalid(reason) => return Ok(Found::Invalid(reason)),
        };
        // Before the bytes are read: an entry that is unlocked now never comes alive again.
        let is_alive = match is_locked(file.as_fd(), OWNER) {
            Ok(is_alive) => is_alive,
            Err(error) => return Ok(Found::Invalid(error)),
        };
        let entry = read(&file).and_then(|bytes| Entry::read(name, &bytes));
        Ok(match entry {
            Ok(entry) if is_alive => Found::Entry(Box::new(entry)),
            Ok(_) => {
                self.remove_ended(name, &file);
                Found::Ended
            }
            Err(error) => Found::Invalid(error),
        })
    }

    /// Whether the process of an entry is alive.
    pub fn is_alive(&self, name: &str) -> bool {
        let Ok(Opened::File(file)) = self.open_entry(name) else { return false };
        is_locked(file.as_fd(), OWNER).unwrap_or(false)
    }

    /// Opens the file of an entry. Fails as [`Self::find`] does.
    fn open_entry(&self, name: &str) -> Result<Opened> {
        let file = match retried::openat(&self.folder, &file_name(name), IN_FOLDER, Mode::empty()) {
            Ok(file) => file,
            Err(Errno::NOENT) => return Ok(Opened::Nothing),
            Err(Errno::LOOP) => {
                return Ok(Opened::Invalid(foreign("its file is a symbolic link".to_string())));
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

    /// Waits until no other process changes entries.
    pub fn turn(&self) -> Turn {
        let lock = FolderLock::take(&self.folder, TURN_LIMIT);
        let lock = lock.inspect_err(|errno| {
            log!(Debug, "folder {} is not locked, and is changed nevertheless: {errno}", self.path.display());
        });
        Turn { _lock: lock.ok() }
    }

    /// Removes the file of an entry whose process has ended, unless another process changes entries just now: it may publish
    /// the name. Then a later look removes the file.
    fn remove_ended(&self, name: &str, file: &OwnedFd) {
        let _turn = match FolderLock::take(&self.folder, Duration::ZERO) {
            Err(Errno::WOULDBLOCK) => return,
            lock => Turn { _lock: lock.ok() },
        };
        let Ok(ended) = retried::fstat(file).map(identity) else { return };
        match self.remove_inode(name, ended) {
            Ok(true) => log!(Debug, "the process of agent '{name}' has ended; its entry is removed"),
            Ok(false) => {}
            Err(error) => log!(Debug, "the process of agent '{name}' has ended: {error}"),
        }
    }

    /// Removes the file under a name, unless it is another one. The caller has a turn. Returns whether it is not there any more.
    fn remove_inode(&self, name: &str, inode: (u64, u64)) -> Result<bool> {
        let path = file_name(name);
        let there = match retried::statat(&self.folder, &path, AtFlags::SYMLINK_NOFOLLOW) {
            Err(Errno::NOENT) => return Ok(true),
            stat => stat.map(identity).map_err(|errno| Error::errno("examine its file", errno))?,
        };
        if there != inode {
            return Ok(false);
        }
        match retried::unlinkat(&self.folder, &path, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => Ok(true),
            Err(errno) => Err(Error::errno("remove its file", errno)),
        }
    }

    pub fn names(&self) -> Result<Vec<String>> {
        let failed = |errno| Error::errno(format!("read folder {}", self.path.display()), errno);
        let mut names = Vec::new();
        for (count, item) in Dir::read_from(&self.folder).map_err(failed)?.enumerate() {
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
    pub fn write(&self, _turn: &Turn, name: &str, bytes: Vec<u8>) -> Result<OwnFile> {
        let unfinished = format!(".{:016x}{UNFINISHED}", u64::from_ne_bytes(random()?));
        let result = self.write_aside(&unfinished, bytes).and_then(|own| {
            retried::renameat(&self.folder, &unfinished, &self.folder, &file_name(name))
                .map_err(|errno| Error::errno(format!("rename a file to {}", file_name(name)), errno))?;
            Ok(own)
        });
        if result.is_err() {
            let _ = retried::unlinkat(&self.folder, &unfinished, AtFlags::empty());
        }
        result
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
            let opened = retried::openat(&self.folder, unfinished, flags, PRIVATE);
            // A second call opens the file of the first one.
            flags -= create;
            opened
        })
        .map_err(|errno| Error::errno(format!("create a file in {}", self.path.display()), errno))?;
        FileLock::exclusive(file, OWNER)
    }

    /// Whether the name still leads to this file, with these bytes. Fails as [`Self::find`] does.
    pub fn is_own(&self, name: &str, own: &OwnFile) -> Result<bool> {
        let Opened::File(file) = self.open_entry(name)? else { return Ok(false) };
        let inode = retried::fstat(&file).map(identity);
        Ok(inode == Ok(own.inode) && read(&file).is_ok_and(|bytes| bytes == own.bytes))
    }

    /// Removes the file of an entry of this process. Fails if the name leads to another file.
    pub fn remove(&self, name: &str, own: &OwnFile) -> Result<()> {
        let _turn = self.turn();
        let is_removed = self.remove_inode(name, own.inode)?;
        ensure!(is_removed, Stale, "another process has published an agent of that name since");
        Ok(())
    }

    /// Removes what processes of this user that ended while they wrote an entry have left.
    fn remove_abandoned(&self) {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let Ok(items) = Dir::read_from(&self.folder) else { return };
        for item in items.flatten().take(2 * MAX_AGENTS) {
            let name = item.file_name();
            if !is_unfinished(name.to_bytes()) {
                continue;
            }
            // A writer locks its file at once. The age is for the instant before, and the lock for clocks that jump.
            let Ok(file) = retried::openat(&self.folder, name, IN_FOLDER, Mode::empty()) else { continue };
            let age = retried::fstat(&file).map(|stat| now.as_secs().saturating_sub(stat.st_mtime as u64));
            if age.is_ok_and(|age| age > ABANDONED.as_secs())
                && is_locked(file.as_fd(), OWNER).is_ok_and(|is_locked| !is_locked)
            {
                let _ = retried::unlinkat(&self.folder, name, AtFlags::empty());
            }
        }
    }
}

/// The reason why a file is not that of an entry.
fn foreign(reason: String) -> Error {
    Error::new(Status::Corrupt, reason)
}

fn identity(stat: Stat) -> (u64, u64) {
    (stat.st_dev, stat.st_ino)
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

fn watch(path: &Path) -> Option<OwnedFd> {
    let flags = WatchFlags::MOVED_TO
        | WatchFlags::MOVED_FROM
        | WatchFlags::DELETE
        | WatchFlags::CREATE
        | WatchFlags::CLOSE_WRITE
        | WatchFlags::DELETE_SELF
        | WatchFlags::MOVE_SELF
        | WatchFlags::ONLYDIR;
    let inotify = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK);
    match inotify.and_then(|fd| inotify::add_watch(&fd, path, flags).map(|_| fd)) {
        Ok(fd) => Some(fd),
        Err(errno) => {
            log!(
                Warn,
                "no inotify for folder {}: {errno}; it is read once a second instead; see \
                 /proc/sys/fs/inotify/max_user_instances",
                path.display()
            );
            None
        }
    }
}

fn file_name(name: &str) -> String {
    format!("{}{SUFFIX}", encode(name))
}

/// The name of the entry in a file; `None` for any other file.
pub fn name_of(file_name: &[u8]) -> Option<String> {
    decode(std::str::from_utf8(file_name).ok()?.strip_suffix(SUFFIX)?)
}

fn is_unfinished(name: &[u8]) -> bool {
    let hex = name.strip_prefix(b".").and_then(|name| name.strip_suffix(UNFINISHED.as_bytes()));
    hex.is_some_and(|hex| hex.len() == 16 && hex.iter().all(u8::is_ascii_hexdigit))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use serde_bytes::ByteBuf;

    use super::*;
    use crate::directory::entry::Presence;

    fn mode_of(path: &Path) -> u32 {
        std::fs::metadata(path).unwrap().permissions().mode() & 0o777
    }

    #[test]
    fn other_users_can_read_an_entry_only_once_it_is_locked() {
        let path = std::env::temp_dir().join(format!("kvmem-files-{}", std::process::id()));
        let folder = Folder::open(&path).unwrap();
        let lock = folder.create_locked(".new").unwrap();
        assert_eq!(mode_of(&path.join(".new")), 0o600);
        assert!(is_locked(lock.file(), OWNER).is_ok(), "its own lock does not count");
        let read = std::fs::File::open(path.join(".new")).unwrap();
        assert!(is_locked(read.as_fd(), OWNER).unwrap());
        // The entry has the permissions that an ordinary file gets.
        let own = folder.write(&folder.turn(), "a", vec![7]).unwrap();
        std::fs::write(path.join("ordinary"), []).unwrap();
        assert_eq!(mode_of(&path.join("a.agent")), mode_of(&path.join("ordinary")) & 0o644);
        folder.remove("a", &own).unwrap();
        std::fs::remove_dir_all(&path).unwrap();
    }

    #[test]
    fn an_ended_entry_is_removed_when_no_other_process_changes_entries() {
        let path = std::env::temp_dir().join(format!("kvmem-files-turn-{}", std::process::id()));
        let folder = Folder::open(&path).unwrap();
        let presence = Presence { name: "a".to_string(), incarnation: 1, version: 1 };
        let bytes = Entry { presence, metadata: ByteBuf::new(), layouts: Vec::new() }.write().unwrap();
        let own = folder.write(&folder.turn(), "a", bytes).unwrap();
        assert!(matches!(folder.find("a").unwrap(), Found::Entry(_)));
        drop(own);
        // A process that has found the ended entry, too, or is about to publish the name.
        let turn = folder.turn();
        assert!(matches!(folder.find("a").unwrap(), Found::Ended));
        assert!(path.join("a.agent").exists());
        drop(turn);
        assert!(matches!(folder.find("a").unwrap(), Found::Ended));
        assert!(matches!(folder.find("a").unwrap(), Found::Nothing));
        std::fs::remove_dir_all(&path).unwrap();
    }
}
