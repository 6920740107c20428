// SPDX-License-Identifier: Apache-2.0
//! Transfers of blocks between two layouts.

pub mod explain;
pub mod findings;
pub mod options;
pub mod method;
pub mod progress;
pub mod run;
pub mod submit;

use crate::ffi::common::{Handle, opaque};
use crate::transfer::Transfer;

/// Moves of blocks from one layout to another: created once, submitted any number of times, with other blocks
/// in each run or with the same. It keeps both layouts alive. One run is in flight at a time: of several
/// threads that submit it, one succeeds.
///
/// Functions that report the last run fail with KVMEM_STATUS_INVALID_STATE if the transfer was never
/// submitted, and functions that report on its blocks if it has none yet.
pub struct kvmem_transfer {
    handle: Handle<Transfer>,
}
opaque!(kvmem_transfer, Transfer, "transfer");
