// SPDX-License-Identifier: Apache-2.0
//! The name of a file: whether it still is this file's, and its removal if what the file was created for
//! fails.

use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use rustix::fs;
use rustix::io::Errno;

use crate::error::{Error, Result, fail};
use crate::log::log;
use crate::region::FileId;

/// Fails if a path does not name this file any more.
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

    /// The name stays.
    pub fn keep(mut self) {
        self.is_kept = true;
    }
}

impl Drop for NewName {
    fn drop(&mut self) {
        // Another process may have put a file of its own there.
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
