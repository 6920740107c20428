// SPDX-License-Identifier: Apache-2.0
//! How a folder is opened and created. The first publication creates it, for its user alone. If it was removed or renamed, each process that
//! has it open creates it again, for the users that it had.

use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::{AtFlags, CWD, Gid, Mode, OFlags, RenameFlags, Stat, Uid};
use rustix::io::Errno;

use super::changes::Inotify;
use super::names::unfinished;
use crate::base::paths::missing_directory;
use crate::base::{Error, Result, log, retried};

/// How often a folder is opened again that other processes move or remove meanwhile. The least one takes is a few microseconds.
pub const MAX_OPENINGS: usize = 64;

#[derive(Clone, Copy)]
pub enum Creation<'a> {
    /// Not at all: a process that looks up does not choose which users can publish.
    Never,
    /// For this user alone.
    Private,
    /// With owner, group and permissions of the folder that it replaces.
    Like(&'a OwnedFd),
}

impl Creation<'_> {
    /// Creates a folder, unless it exists. Fails without its parent, also if nothing is to be created.
    pub fn create(self, path: &Path) -> Result<()> {
        let created = match self {
            Self::Never => find_parent(path),
            Self::Private => retried::mkdir(path, Mode::RWXU),
            // Under another name, so that no process finds it before it has its permissions.
            Self::Like(replaced) => create_like(path, &path.with_file_name(unfinished()?), replaced),
        };
        match created {
            // A rename finds one that exists and has entries to be no empty one.
            Ok(()) | Err(Errno::EXIST | Errno::NOTEMPTY) => Ok(()),
            Err(errno) => {
                let doing = if matches!(self, Self::Never) { "open" } else { "create" };
                let error = Error::errno(format!("{doing} folder {}", path.display()), errno);
                let missing = path.parent().and_then(missing_directory);
                Err(missing.into_iter().fold(error, Error::followed_by))
            }
        }
    }
}

/// Opens a folder, and begins to watch it. `None` if it does not exist and is never created. `inotify` is that of the folder that the path
/// led to before.
pub fn open(
    path: &Path,
    mut inotify: Option<Inotify>,
    creation: Creation<'_>,
) -> Result<(Option<OwnedFd>, Option<Inotify>)> {
    let failed = |doing, errno| Error::errno(format!("{doing} folder {}", path.display()), errno);
    let mut left = MAX_OPENINGS;
    loop {
        left -= 1;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let mut opened = retried::open(path, flags, Mode::empty());
        if matches!(opened, Err(Errno::NOENT)) {
            creation.create(path)?;
            opened = retried::open(path, flags, Mode::empty());
        }
        let folder = match opened {
            Err(Errno::NOENT) if matches!(creation, Creation::Never) => return Ok((None, None)),
            Err(Errno::NOENT) if left > 0 => continue,
            opened => opened.map_err(|errno| failed("open", errno))?,
        };
        let watched = Inotify::watch(&mut inotify, path);
        let is_here = leads_to(path, Some(&folder)).map_err(|errno| failed("examine", errno))?;
        // Else it was moved or removed, and another folder may be watched. The last one is opened again when that is noticed.
        if is_here || left == 0 {
            let watched = if is_here { watched } else { Err(Errno::STALE) };
            if let Err(errno) = watched {
                inotify = None;
                log!(
                    Warn,
                    "no inotify for folder {}: {errno}; it is read once a second instead; see \
                     /proc/sys/fs/inotify/max_user_instances",
                    path.display()
                );
            }
            return Ok((Some(folder), inotify));
        }
    }
}

/// Whether a path leads to a folder, or without one to none.
pub fn leads_to(path: &Path, folder: Option<&OwnedFd>) -> rustix::io::Result<bool> {
    let there = match retried::stat(path) {
        Err(Errno::NOENT) => None,
        there => Some(identity(there?)),
    };
    match folder {
        Some(folder) => Ok(there == Some(identity(retried::fstat(folder)?))),
        None => find_parent(path).map(|()| there.is_none()),
    }
}

/// Without its parent, the folder may exist, with agents that live: the parent was renamed.
fn find_parent(path: &Path) -> rustix::io::Result<()> {
    retried::stat(path.parent().unwrap_or(path)).map(drop)
}

pub fn identity(stat: Stat) -> (u64, u64) {
    (stat.st_dev, stat.st_ino)
}

fn create_like(path: &Path, aside: &Path, replaced: &OwnedFd) -> rustix::io::Result<()> {
    let like = retried::fstat(replaced)?;
    retried::mkdir(aside, Mode::RWXU)?;
    let placed = set_users(aside, &like).and_then(|()| {
        match retried::renameat_with(CWD, aside, CWD, path, RenameFlags::NOREPLACE) {
            // The file system has no such call. Of folders, only an empty one is replaced.
            Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => retried::renameat(CWD, aside, CWD, path),
            placed => placed,
        }
    });
    if placed.is_err() {
        let _ = retried::unlinkat(CWD, aside, AtFlags::REMOVEDIR);
    }
    placed
}

/// Gives a folder owner, group and permissions. Fails if a process of this user would exclude users who had access before.
fn set_users(path: &Path, like: &Stat) -> rustix::io::Result<()> {
    let folder = retried::open(path, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    let (owner, group) = (Uid::from_raw(like.st_uid), Gid::from_raw(like.st_gid));
    let mode = Mode::from_raw_mode(like.st_mode);
    // Only root gives a folder to another user, or to a group of others. A group with the rights of the owner includes that one, and rights
    // of all users include the group. INVAL is for a user or a group that this user namespace does not have.
    match retried::fchown(&folder, Some(owner), Some(group)) {
        Err(Errno::PERM | Errno::INVAL) if mode.contains(Mode::RWXG) => {
            match retried::fchown(&folder, None, Some(group)) {
                Err(Errno::PERM | Errno::INVAL) if mode.contains(Mode::RWXO) => {}
                given => given?,
            }
        }
        given => given?,
    }
    // After that: a change of the group resets some of them.
    retried::fchmod(&folder, mode)
}
