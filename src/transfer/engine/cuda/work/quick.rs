// SPDX-License-Identifier: Apache-2.0
//! The limits of copies that the calling thread submits itself: waking another thread would take as long.
#![forbid(unsafe_code)]

/// Maximum number of driver calls.
pub const QUICK_CALLS: usize = 16;
/// Maximum number of copies in a batch.
pub const QUICK_BATCH: usize = 128;
/// Driver calls of a chunk of a staged copy, without those for its copies.
const CALLS: usize = 7;

/// Whether the calling thread submits a staged copy. `copies` is the number of copies between staging memory and host in all
/// chunks.
pub fn is_quick(chunks: usize, copies: usize) -> bool {
    CALLS * chunks <= QUICK_CALLS && copies <= QUICK_BATCH
}
