// SPDX-License-Identifier: Apache-2.0
//! Checks methods of NIXL against the caller's flags.
#![forbid(unsafe_code)]

use std::sync::Arc;

use crate::base::error::{Result, ensure};
use crate::engine::preferences::Preferences;
use crate::engine::promises::ensure_no_page_cache;
use crate::layout::Layout;
use crate::nixl::MemoryType;

/// Fails if the caller's flags exclude NIXL, or if it is unknown whether they do.
pub fn ensure_allowed(sides: [&Arc<Layout>; 2], preferences: &Preferences) -> Result<()> {
    if let Some(file) = sides.into_iter().find(|side| side.memory_type() == MemoryType::File) {
        return ensure_no_page_cache(file, preferences);
    }
    let is_excluded = preferences.zero_copy || preferences.no_host_bounce;
    ensure!(
        sides.iter().any(|side| side.memory().is_remote()) || !is_excluded,
        Unsupported,
        "NIXL's backend may copy the bytes of storage through its own memory without reporting it, so \
         KVMEM_TRANSFER_ZERO_COPY and KVMEM_TRANSFER_NO_HOST_BOUNCE can't be guaranteed; omit these flags"
    );
    ensure!(
        !is_excluded,
        Unsupported,
        "NIXL and UCX choose the method to a peer, and may copy through their own memory without reporting it, so \
         KVMEM_TRANSFER_ZERO_COPY and KVMEM_TRANSFER_NO_HOST_BOUNCE can't be guaranteed; omit these flags, or share the \
         memory if the peer runs on this machine"
    );
    Ok(())
}
