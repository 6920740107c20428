// SPDX-License-Identifier: Apache-2.0
//! The caller's constraints on the method of a transfer, and what it wants at the end of a run.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::run::ExpectedEpochs;
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
    /// When the caller expects the run to have ended: preparing it waits no longer.
    pub prepared_by: Option<Instant>,
    /// The destination is host memory that the library compares: slots get poison before NIXL fills them.
    pub poisons_slots: bool,
}

/// What follows the last byte of a run, if the engine can do that.
#[derive(Default)]
pub struct Ending {
    /// The destination is to be compared with the source. An engine that does so says that it [verifies](super::Engine::verifies).
    pub verifies: bool,
    /// Is sent to the peer, if nothing that the engine does not do is to come before it.
    pub notification: Option<Vec<u8>>,
    /// What the blocks of a peer are expected to have, which the engine compares before the first byte and after the last.
    pub epochs: Option<Arc<ExpectedEpochs>>,
}
