// SPDX-License-Identifier: Apache-2.0
//! What the regions of this process are together, for statistics.

use super::Tier;
use super::registration::REGISTERED;
use super::tiers::COMMITTED;
use crate::base::{Counted, Gauge};

/// Bytes by tier.
static BYTES: [Gauge; 7] = [const { Gauge::new() }; 7];

/// Bytes of memory of other processes.
static MAPPED: Gauge = Gauge::new();

/// Counts a region of another process, which is mapped here.
pub(super) fn count_mapped(size: u64) -> Counted {
    MAPPED.count(size)
}

/// Counts a region that is no view.
pub(super) fn count(tier: Tier, size: u64) -> Counted {
    BYTES[tier as usize].count(size)
}

/// Bytes of all regions of a tier that are no views; of an elastic one its addresses, whether they have memory or not.
pub fn bytes(tier: Tier) -> u64 {
    BYTES[tier as usize].value()
}

/// Bytes of regions of other processes that are mapped here. They are a part of those of their tiers.
pub fn mapped() -> u64 {
    MAPPED.value()
}

/// Bytes of elastic regions that have memory.
pub fn committed() -> u64 {
    COMMITTED.value()
}

/// Number of registrations of regions with agents, also those that are being made or ended.
pub fn registrations() -> u64 {
    REGISTERED.value()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_tier_has_a_gauge() {
        assert_eq!(Tier::Block as usize + 1, BYTES.len());
    }
}
