// SPDX-License-Identifier: Apache-2.0
//! Checks methods of NIXL against the caller's flags, and that one agent knows both layouts.

use std::sync::Arc;

use super::{local_and_remote, shared_agent};
use crate::base::{Result, ensure};
use crate::engine::preferences::Preferences;
use crate::layout::Layout;
use crate::nixl::MemoryType;

/// Fails if NIXL can move no blocks between the layouts.
pub fn ensure_possible(sides: [&Arc<Layout>; 2], preferences: &Preferences) -> Result<()> {
    if !sides.iter().any(|side| side.memory_type() == MemoryType::File) {
        ensure_allowed(sides, preferences)?;
    }
    let (_, [local, remote]) = local_and_remote(sides);
    shared_agent(local, remote).map(drop)
}

/// Fails if the caller's flags exclude NIXL, or if it is unknown whether they do.
fn ensure_allowed(sides: [&Arc<Layout>; 2], preferences: &Preferences) -> Result<()> {
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
