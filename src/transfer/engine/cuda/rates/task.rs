// SPDX-License-Identifier: Apache-2.0
//! The tasks of a measurement, and the sizes of its buffers.
#![forbid(unsafe_code)]

use super::super::direction::CopyDirection;

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
/// Size of a buffer on the device, in bytes. Two of them exceed the device's cache.
pub const DEVICE_SIZE: u64 = 32 * MIB;
/// Size of the page-locked buffer, in bytes.
pub const HOST_SIZE: u64 = 8 * MIB;
/// Size of the pageable buffer, in bytes.
pub const PAGEABLE_SIZE: u64 = 2 * MIB;
/// Size of a buffer on a peer, in bytes. Over NVLink, copying it takes clearly longer than starting the copy; over PCIe it
/// is still short.
pub const PEER_SIZE: u64 = 16 * MIB;
/// Bytes of a block that the kernel copies.
pub const BLOCK: u64 = 64 * KIB;
/// Bytes of a copy in a batch. The CPU time per copy is measured; larger copies would hide it behind their bytes.
pub const BATCH_BLOCK: u64 = 2 * KIB;
/// A number of CTAs that does not saturate a link. Two saturate the link to the host.
pub const FEW_CTAS: u32 = 1;

/// A task that is timed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Task {
    /// One copy by the driver.
    Copy(CopyDirection),
    /// One copy by the driver from memory that is not page-locked.
    Pageable,
    /// Many tiny copies, one call per copy.
    Copies,
    /// Many blocks in one call.
    Batch(CopyDirection),
    /// The kernel, with the number of CTAs of a transfer.
    Kernel(CopyDirection),
    /// The kernel, with few CTAs.
    FewCtas(CopyDirection),
}
