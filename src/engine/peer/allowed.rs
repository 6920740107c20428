// SPDX-License-Identifier: Apache-2.0
//! Checks paths of NIXL against the caller's flags.
#![forbid(unsafe_code)]

use std::sync::Arc;

use crate::base::error::{Result, ensure};
use crate::engine::preferences::Preferences;
use crate::engine::promises::ensure_no_page_cache;
use crate::layout::Layout;
use crate::run::path::TransferPath;

/// Fails if the caller's flags exclude the path, or if it is unknown whether they do.
pub fn ensure_allowed(
    path: TransferPath,
    [source, destination]: [&Arc<Layout>; 2],
    preferences: &Preferences,
) -> Result<()> {
    if path.is_nixl_file() {
        let file = if path == TransferPath::NixlFileRead { source } else { destination };
        return ensure_no_page_cache(file, preferences);
    }
    let is_excluded = preferences.zero_copy || preferences.no_host_bounce;
    ensure!(
        path.has_peer() || !is_excluded,
        Unsupported,
        "NIXL's backend may copy the bytes of storage through its own memory without reporting it, so \
         KVMEM_TRANSFER_ZERO_COPY and KVMEM_TRANSFER_NO_HOST_BOUNCE can't be guaranteed; omit these flags"
    );
    ensure!(
        !is_excluded,
        Unsupported,
        "NIXL and UCX choose the path to a peer, and may copy through their own memory without reporting it, so \
         KVMEM_TRANSFER_ZERO_COPY and KVMEM_TRANSFER_NO_HOST_BOUNCE can't be guaranteed; omit these flags, or share the \
         memory if the peer runs on this machine"
    );
    Ok(())
}
