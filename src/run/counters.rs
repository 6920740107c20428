// SPDX-License-Identifier: Apache-2.0
//! What has happened within the runs of this process, for statistics.

use super::method::TransferMethod;
use super::statistics::{METHODS, STATUSES};
use crate::base::{Gauge, Status};

/// Bytes that were read from peers and discarded.
pub static EXCESS: Gauge = Gauge::new();
/// Number of times that a run with a peer has begun to wait for staging memory of this process.
pub static STAGING_WAITS: Gauge = Gauge::new();
/// Bytes of staging memory for transfers with peers and objects, also of layouts that are served.
pub static PEER_STAGING: Gauge = Gauge::new();
/// Bytes of staging memory between files and GPUs.
pub static FILE_STAGING: Gauge = Gauge::new();
/// Number of reads and writes of files that were continued or repeated, because the kernel had moved a part, or was interrupted.
pub static FILE_RETRIES: Gauge = Gauge::new();
/// Number of times that a transfer took another method, because the best one could not be prepared: by that method, and by the negative
/// value of the status of the failure.
pub static FALLBACKS: [[Gauge; STATUSES]; METHODS - 1] =
    [const { [const { Gauge::new() }; STATUSES] }; METHODS - 1];

/// Counts a method that could not be prepared.
pub fn count_fallback(method: TransferMethod, status: Status) {
    let by_status = &FALLBACKS[method as usize];
    if let Some(count) = by_status.get((status as i32).unsigned_abs() as usize) {
        count.add(1);
    }
}

/// Leases that layouts of this process keep for peers that reach them by NIXL, and their blocks.
pub static PEER_LEASES: Gauge = Gauge::new();
pub static PEER_LEASED_BLOCKS: Gauge = Gauge::new();
