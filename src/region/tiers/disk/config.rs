// SPDX-License-Identifier: Apache-2.0
//! How a file is opened.

use std::path::PathBuf;

use super::direct_io::DirectIo;
use super::label::Label;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OpenMode {
    /// It is created, and must not exist.
    #[default]
    Create,
    /// It is opened, and must exist.
    Existing,
    /// It is opened if it exists, and created if not, or if it is empty.
    OpenOrCreate,
}

/// The file to open, and how.
#[derive(Clone, Debug, Default)]
pub struct DiskConfig {
    /// Bytes. 0 with `OpenMode::Existing`: the whole file.
    pub size: u64,
    /// The caller's file; `None` for a temporary one.
    pub path: Option<PathBuf>,
    /// The directory of a temporary file; `None` for `$TMPDIR`, or /tmp if that is not set.
    pub directory: Option<PathBuf>,
    /// Whether to bypass the page cache.
    pub direct_io: DirectIo,
    /// Whether the file at `path` is created or opened.
    pub opening: OpenMode,
    /// Open it to be read only.
    pub read_only: bool,
    /// Do not lock it against other writers.
    pub no_lock: bool,
    /// The label for a new file at `path`. The label of an existing file must be equal.
    pub label: Option<Label>,
}
