// SPDX-License-Identifier: Apache-2.0
//! Transfers of blocks between two layouts.

pub mod explain;
pub mod options;
pub mod pairs;
pub mod method;
pub mod progress;
pub mod run;

use crate::ffi::common::handle::{Handle, opaque};
use crate::transfer::Transfer;

/// A move of blocks from one layout to another: checked, planned and prepared once, submitted any number of
/// times. It keeps both layouts alive.
///
/// A transfer can be given new pairs with each submission: kvmem_transfer_submit_pairs. One run of a transfer
/// is in flight at a time.
///
/// Threads: all functions may use one transfer at the same time, except kvmem_transfer_destroy. Of several
/// threads that submit it, one succeeds, and the others get KVMEM_STATUS_BUSY.
pub struct kvmem_transfer {
    handle: Handle<Transfer>,
}
opaque!(kvmem_transfer, Transfer, "transfer");
