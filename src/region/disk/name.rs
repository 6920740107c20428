// SPDX-License-Identifier: Apache-2.0
//! The name of a file: whether it still names this file, and its removal if a later step of the creation fails.

use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use rustix::fs;
use rustix::io::Errno;

use crate::error::{Error, Result, fail};
use crate::log::log;
use crate::region::FileId;

/// Fails if a path no longer names this file.
pub fn ensure_names(path: &Path, file: FileId) -> Result<()> {
    match fs::stat(path) {
        Ok(stat) if FileId::from(&stat) == file => Ok(()),
        Ok(_) => fail!(NotFound, "{} is another file now: this one was removed or renamed", path.display()),
        Err(errno @ Errno::NOENT) => Err(Error::errno(
            format!("the file at {} was removed or renamed after it was opened", path.display()),
            errno,
        )),
        Err(errno) => Err(Error::errno(format!("look for the file at {}", path.display()), errno)),
    }
}

/// The name of a file that was created here. Removed on drop unless it is kept.
pub struct NewName {
    path: PathBuf,
    file: FileId,
    is_kept: bool,
}

impl NewName {
    /// The name that an open file was created with.
    pub fn of(file: impl AsFd, path: &Path) -> Result<Self> {
        match FileId::of(file.as_fd()) {
            Ok(file) => Ok(Self { path: path.to_path_buf(), file, is_kept: false }),
            Err(error) => {
                remove(path);
                Err(error)
            }
        }
    }

    /// Keeps the name.
    pub fn keep(mut self) {
        self.is_kept = true;
    }
}

impl Drop for NewName {
    fn drop(&mut self) {
        // The path may name a file of another process by now.
        if !self.is_kept && ensure_names(&self.path, self.file).is_ok() {
            remove(&self.path);
        }
    }
}

fn remove(path: &Path) {
    if let Err(errno) = fs::unlink(path) {
        log!(Warn, "remove {}: {errno}", path.display());
    }
}
