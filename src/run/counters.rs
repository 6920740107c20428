// SPDX-License-Identifier: Apache-2.0
//! What has happened within the runs of this process, for statistics.

use crate::base::Gauge;

/// Bytes that were read from peers and discarded.
pub static EXCESS: Gauge = Gauge::new();
/// Number of times that a run with a peer has begun to wait for staging memory of this process.
pub static STAGING_WAITS: Gauge = Gauge::new();
