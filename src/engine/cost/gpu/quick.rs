// SPDX-License-Identifier: Apache-2.0
//! The limits of copies that the calling thread submits itself: waking another thread would take as long.

pub const QUICK_CALLS: usize = 16;
pub const QUICK_BATCH: usize = 128;
/// Driver calls of a chunk of a staged copy with one launch, without those for its copies.
const CALLS: usize = 7;

/// Whether the calling thread submits a staged copy. `launches` is the number of kernel launches of all chunks, `copies` that of
/// the copies between staging memory and host.
pub fn is_quick(chunks: usize, launches: usize, copies: usize) -> bool {
    (CALLS - 1) * chunks + launches <= QUICK_CALLS && copies <= QUICK_BATCH
}
