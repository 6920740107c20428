// SPDX-License-Identifier: Apache-2.0
//! The name of a file: whether it still names this file, and what remains if a later step of the creation fails.

use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::io::Errno;

use crate::base::{Error, Result, fail, log, retried};
use crate::region::FileId;

/// Fails if a path no longer names this file.
pub fn ensure_names(path: &Path, file: FileId) -> Result<()> {
    match retried::stat(path) {
        Ok(stat) if FileId::from(&stat) == file => Ok(()),
        Ok(_) => fail!(NotFound, "{} is another file now: this one was removed or renamed", path.display()),
        Err(errno @ Errno::NOENT) => Err(Error::errno(
            format!("the file at {} was removed or renamed after it was opened", path.display()),
            errno,
        )),
        Err(errno) => Err(Error::errno(format!("look for the file at {}", path.display()), errno)),
    }
}

/// A file that this call has created, or an empty one that it has filled. On drop the file is as it was before, unless it is
/// kept.
pub struct NewFile(Option<Before>);

/// What there was before.
enum Before {
    Nothing { path: PathBuf, file: FileId },
    Empty(OwnedFd),
}

impl NewFile {
    pub fn created(file: &OwnedFd, path: &Path) -> Result<Self> {
        match FileId::from_fd(file.as_fd()) {
            Ok(file) => Ok(Self(Some(Before::Nothing { path: path.to_path_buf(), file }))),
            Err(error) => {
                remove(path);
                Err(error)
            }
        }
    }

    /// An empty file that is about to be filled.
    pub fn filled(file: &OwnedFd) -> Result<Self> {
        let own = rustix::io::fcntl_dupfd_cloexec(file, 0)
            .map_err(|errno| Error::errno("duplicate a file descriptor", errno))?;
        Ok(Self(Some(Before::Empty(own))))
    }

    /// Keeps the file as it is.
    pub fn keep(mut self) {
        self.0 = None;
    }
}

impl Drop for NewFile {
    fn drop(&mut self) {
        match self.0.take() {
            // The path may name a file of another process by now.
            Some(Before::Nothing { path, file }) if ensure_names(&path, file).is_ok() => remove(&path),
            Some(Before::Empty(file)) => {
                if let Err(errno) = retried::ftruncate(&file, 0) {
                    log!(Warn, "make a file empty again: {errno}");
                }
            }
            _ => {}
        }
    }
}

fn remove(path: &Path) {
    if let Err(errno) = retried::unlink(path) {
        log!(Warn, "remove {}: {errno}", path.display());
    }
}
