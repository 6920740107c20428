// SPDX-License-Identifier: Apache-2.0
//! The caller's constraints on the method of a transfer.
#![forbid(unsafe_code)]

use std::time::Duration;

use crate::base::error::{Result, ensure};
use crate::run::method::TransferMethod;

/// How long a peer may make no progress in a transfer through an arena, unless the caller sets it.
pub const STALL_TIMEOUT: Duration = Duration::from_secs(30);

/// Constraints on the method of a transfer.
#[derive(Clone, Debug, Default)]
pub struct Preferences {
    /// No other kernel runs on the GPU during the transfer.
    pub compute_is_idle: bool,
    /// Maximum number of CTAs of a kernel; 0 for the default.
    pub max_ctas: u32,
    /// Bytes of staging memory; 0 for the default.
    pub staging_size: u64,
    /// Exclude methods with any memory between source and destination.
    pub zero_copy: bool,
    /// Exclude methods through host memory that is neither source nor destination.
    pub no_host_bounce: bool,
    /// Move one layer after the other, and report how many have moved.
    pub by_layer: bool,
    /// The method to take; `None` selects the fastest.
    pub method: Option<TransferMethod>,
    /// How long a transfer with a peer may make no progress; `None` for the default.
    pub stall_timeout: Option<Duration>,
    /// Each run compares the destination with the source before it ends.
    pub verifies: bool,
    /// The destination is host memory that the library compares: slots get poison before NIXL fills them.
    pub poisons_slots: bool,
}

/// Fails for a run by layer that is verified.
pub fn ensure_by_layer_or_verified(by_layer: bool, is_verified: bool) -> Result<()> {
    ensure!(
        !(by_layer && is_verified),
        Unsupported,
        "a transfer by layer can't be verified: layers would be reported before they are compared; \
         remove one of the two flags, or compare with kvmem_layout_checksum"
    );
    Ok(())
}
