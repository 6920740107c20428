// SPDX-License-Identifier: Apache-2.0
//! Paths of the caller that are used after the call, when the process may have another working directory.

use std::path::{Path, PathBuf};

use crate::base::error::{Result, ensure, error};

/// The same path from the root. Links in it are kept.
pub fn absolute(path: &Path) -> Result<PathBuf> {
    ensure!(!path.as_os_str().is_empty(), InvalidArgument, "the path is empty");
    std::path::absolute(path)
        .map_err(|error| error!(InvalidArgument, "the path {} has no absolute form: {error}", path.display()))
}

/// Advice for a call that failed because of a directory that does not exist.
pub fn missing_directory(directory: &Path) -> Option<String> {
    (!directory.as_os_str().is_empty() && !directory.exists())
        .then(|| format!("the directory {} does not exist; create it first", directory.display()))
}
