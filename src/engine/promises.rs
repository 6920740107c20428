// SPDX-License-Identifier: Apache-2.0
//! Checks files against the caller's flags, for all engines that read and write them.
#![forbid(unsafe_code)]

use crate::base::error::{Result, ensure};
use crate::engine::preferences::Preferences;
use crate::layout::Layout;

/// Fails if the page cache would be used, and the caller excludes any memory between source and destination.
pub fn ensure_no_page_cache(file: &Layout, preferences: &Preferences) -> Result<()> {
    ensure!(
        !preferences.zero_copy || file.is_direct(),
        Unsupported,
        "bytes of a buffered file pass through the page cache, which the flags exclude; open it for direct I/O"
    );
    Ok(())
}
