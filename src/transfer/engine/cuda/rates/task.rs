// SPDX-License-Identifier: Apache-2.0
//! What is measured of a device, and the sizes of the buffers.
#![forbid(unsafe_code)]

use super::super::direction::Direction;

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
/// Two of these are more than a device keeps in its cache.
pub const DEVICE_SIZE: u64 = 32 * MIB;
/// Size of the page-locked buffer, in bytes.
pub const HOST_SIZE: u64 = 8 * MIB;
/// Size of the pageable buffer, in bytes.
pub const PAGEABLE_SIZE: u64 = 2 * MIB;
/// So much takes an NVLink long enough to be told from what a start takes, and PCIe not too long.
pub const PEER_SIZE: u64 = 16 * MIB;
/// A block of the kernel's.
pub const BLOCK: u64 = 64 * KIB;
/// A copy of a batch: of larger ones one does not see what each takes the CPU, because their bytes take longer.
pub const BATCH_BLOCK: u64 = 2 * KIB;
/// So few that they don't fill a link: two do, towards the host.
pub const FEW_CTAS: u32 = 1;

/// One thing that is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Task {
    /// One copy of the driver's.
    Copy(Direction),
    /// The same from memory that is not page-locked.
    Pageable,
    /// Many tiny copies, a call each.
    Copies,
    /// Many blocks in one call.
    Batch(Direction),
    /// The kernel with as many CTAs as it gets.
    Kernel(Direction),
    /// The kernel with a few.
    FewCtas(Direction),
}
