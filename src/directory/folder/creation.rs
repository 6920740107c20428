// SPDX-License-Identifier: Apache-2.0
//! The users of a folder that is created: this user alone, or, if it replaces one that was removed or renamed, the users of that folder.

use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::{AtFlags, CWD, Gid, Mode, OFlags, RenameFlags, Stat, Uid};
use rustix::io::Errno;

use super::names::unfinished;
use crate::base::paths::missing_directory;
use crate::base::{Error, Result, retried};

#[derive(Clone, Copy)]
pub enum Creation<'a> {
    /// For this user alone.
    Private,
    /// With owner, group and permissions of the folder that it replaces.
    Like(&'a OwnedFd),
}

impl Creation<'_> {
    /// Creates a folder, unless it exists.
    pub fn create(self, path: &Path) -> Result<()> {
        let created = match self {
            Self::Private => retried::mkdir(path, Mode::RWXU),
            // Under another name, so that no process finds it before it has its permissions.
            Self::Like(replaced) => create_like(path, &path.with_file_name(unfinished()?), replaced),
        };
        match created {
            // A rename finds one that exists and has entries to be no empty one.
            Ok(()) | Err(Errno::EXIST | Errno::NOTEMPTY) => Ok(()),
            Err(errno) => {
                let error = Error::errno(format!("create folder {}", path.display()), errno);
                let missing = path.parent().and_then(missing_directory);
                Err(missing.into_iter().fold(error, Error::followed_by))
            }
        }
    }
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
