// SPDX-License-Identifier: Apache-2.0
//! What the caller's flags rule out of what NIXL does.

#![forbid(unsafe_code)]

use std::sync::Arc;

use crate::error::{Result, ensure};
use crate::layout::Layout;
use crate::transfer::engine::promises::ensure_no_page_cache;
use crate::transfer::path::Path;
use crate::transfer::request::Preferences;

/// Refuses a way of which it is known that it breaks a promise, or not known that it keeps it.
pub fn ensure_allowed(
    path: Path,
    [source, destination]: [&Arc<Layout>; 2],
    preferences: &Preferences,
) -> Result<()> {
    if !matches!(path, Path::NixlRead | Path::NixlWrite) {
        let file = if path == Path::NixlFileRead { source } else { destination };
        return ensure_no_page_cache(file, preferences);
    }
    ensure!(
        !preferences.zero_copy && !preferences.no_host_bounce,
        Unsupported,
        "the way to a peer is chosen inside NIXL, by UCX for the most part, which may pass bytes through memory of its own \
         and tells nobody: no promise can be given there; leave KVMEM_TRANSFER_ZERO_COPY and \
         KVMEM_TRANSFER_NO_HOST_BOUNCE out, or map the peer's memory where it is on this machine"
    );
    Ok(())
}
