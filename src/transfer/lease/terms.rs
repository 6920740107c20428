// SPDX-License-Identifier: Apache-2.0
//! What a caller asks of a lease.

use std::time::Duration;

/// What a lease is for, and how long it lasts.
#[derive(Clone, Copy, Debug, Default)]
pub struct LeaseTerms {
    /// The holder may also write the blocks.
    pub writes: bool,
    /// `None` until the lease is dropped, or for as long as the owner of a remote layout keeps leases.
    pub duration: Option<Duration>,
    /// How long each request waits for the owner of a remote layout; `None` for as long as calls of the agent do.
    pub timeout: Option<Duration>,
}
