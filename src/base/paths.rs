// SPDX-License-Identifier: Apache-2.0
//! Paths of the caller that are used after the call, when the process may have another working directory.

#![forbid(unsafe_code)]

use std::path::{Path, PathBuf};

use crate::base::error::{Error, Result, Status, ensure};

/// The same path from the root. Links in it are kept.
pub fn absolute(path: &Path) -> Result<PathBuf> {
    ensure!(!path.as_os_str().is_empty(), InvalidArgument, "the path is empty");
    std::path::absolute(path).map_err(|error| {
        let message = format!("the path {} has no absolute form: {error}", path.display());
        Error::new(Status::InvalidArgument, message)
    })
}
