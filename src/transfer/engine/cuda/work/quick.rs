// SPDX-License-Identifier: Apache-2.0
//! Which copies the calling thread submits itself: passing them to another thread would cost as much.
#![forbid(unsafe_code)]

/// Maximum number of driver calls.
pub const QUICK_CALLS: usize = 16;
/// Maximum number of copies in a batch.
pub const QUICK_BATCH: usize = 128;
/// Driver calls of a chunk of a staged copy, without those for its copies.
const CALLS: usize = 7;

/// Whether a staged copy of so many chunks, with so many copies between staging memory and host in all, is quick to start.
pub fn is_quick(chunks: usize, copies: usize) -> bool {
    CALLS * chunks <= QUICK_CALLS && copies <= QUICK_BATCH
}
