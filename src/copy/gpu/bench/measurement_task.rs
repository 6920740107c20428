// SPDX-License-Identifier: Apache-2.0
//! The tasks of a measurement, and the sizes of its buffers.

use crate::copy::gpu::direction::CopyDirection;

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
/// The minimum size of a buffer on the device, in bytes.
const MIN_DEVICE_SIZE: u64 = 32 * MIB;
/// The maximum. A measurement copies 15 times as much, which takes 2 ms at 2 TB/s.
const MAX_DEVICE_SIZE: u64 = 256 * MIB;
/// Times the device's cache: half a buffer of this size and its copy are four times as large as the cache, so that next to
/// nothing is found there.
const CACHES: u64 = 4;
/// Of the free memory, this part may be used for both buffers, because the program may allocate meanwhile.
const PART_OF_FREE: u64 = 8;
/// Size of the page-locked buffer, in bytes. With 8 MiB, the difference of two durations was a few microseconds too short, and links
/// and kernels were estimated 3 to 8% faster than long transfers are.
pub const HOST_SIZE: u64 = 24 * MIB;
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

/// The size of each of the two buffers on a device with a cache of `cache` bytes and so much free memory; 0 if either is
/// unknown.
pub fn device_size(cache: u64, free: u64) -> u64 {
    let wanted = CACHES.saturating_mul(cache).min(MAX_DEVICE_SIZE).min(free / PART_OF_FREE / 2);
    (wanted / MIB * MIB).max(MIN_DEVICE_SIZE)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Task {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_exceed_the_cache_as_far_as_memory_is_free() {
        const GIB: u64 = 1 << 30;
        for (cache, free, expected) in [
            (60 * MIB, 100 * GIB, 240 * MIB),
            (50 * MIB + 77, 100 * GIB, 200 * MIB),
            (126 * MIB, 100 * GIB, 256 * MIB),
            (u64::MAX, u64::MAX, 256 * MIB),
            (60 * MIB, GIB, 64 * MIB),
            (60 * MIB, 3 * MIB, 32 * MIB),
            (4 * MIB, 100 * GIB, 32 * MIB),
            (0, 100 * GIB, 32 * MIB),
            (60 * MIB, 0, 32 * MIB),
        ] {
            assert_eq!(device_size(cache, free), expected, "{cache} {free}");
        }
    }
}
