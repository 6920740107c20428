// SPDX-License-Identifier: Apache-2.0
//! Leases of blocks: a process says which blocks it uses and until when, and the owner of the memory asks for that before it reuses
//! them. A lease keeps no block from being reused: epochs detect that.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use super::block_bytes::{self, BlockRange};
use crate::base::{Result, lists};
use crate::layout::Layout;
use crate::region::{FoundLease, LeaseEnd, LeaseHolder, Leased, LeasedBytes, LockBudget, RegionLease};

/// A lease that this process has of memory that is mapped here.
pub struct BlockLease {
    locks: RegionLease,
    /// Keeps the regions, and by that the presence of this process.
    layout: Arc<Layout>,
}

impl BlockLease {
    /// Leases some blocks of a layout that is not remote, from now on for a duration, or until it is dropped.
    pub fn take(
        layout: &Arc<Layout>,
        blocks: &[u32],
        writes: bool,
        duration: Option<Duration>,
    ) -> Result<Self> {
        if writes {
            layout.ensure_writable().map_err(|error| error.context("lease blocks to write them"))?;
        }
        let ids = block_bytes::leased_ids(layout, blocks)?;
        let roots = block_bytes::roots(layout);
        let found = block_bytes::in_roots(layout, &roots, &block_bytes::outline(layout)?, &ids)?;
        let mut leased = Vec::new();
        for (root, ranges) in roots.iter().zip(found).filter(|(_, ranges)| !ranges.is_empty()) {
            let own = root.control()?.own_leases()?.clone();
            leased.push(LeasedBytes { own, ranges: joined(ranges)? });
        }
        let holder = LeaseHolder { pid: std::process::id(), writes };
        let locks = RegionLease::take(&leased, holder, LeaseEnd::after(duration))?;
        // After the locks: an owner that ends has found them, or is found to have ended.
        roots.iter().try_for_each(|root| root.ensure_owner_lives())?;
        Ok(Self { locks, layout: layout.clone() })
    }

    /// Has it end after a duration from now on, or when it is dropped. Fails if it is over.
    pub fn renew(&self, duration: Option<Duration>) -> Result<()> {
        block_bytes::roots(&self.layout).iter().try_for_each(|root| root.ensure_owner_lives())?;
        self.locks.renew(LeaseEnd::after(duration))
    }

    /// The time until it ends: 0 if it is over, `None` if it has no end.
    pub fn remaining(&self) -> Option<Duration> {
        self.locks.end().guaranteed()
    }
}

/// The same bytes, without ranges that touch each other.
fn joined(ranges: Vec<BlockRange>) -> Result<Vec<Range<u64>>> {
    let mut joined: Vec<Range<u64>> = Vec::new();
    for (range, _) in ranges {
        match joined.last_mut() {
            Some(last) if last.end >= range.start => last.end = last.end.max(range.end),
            _ => lists::push(&mut joined, range)?,
        }
    }
    Ok(joined)
}

/// A lease, and the blocks that it has.
pub struct LeasedBlocks {
    pub lease: FoundLease,
    /// The indices of their ids, each once or more.
    pub blocks: Vec<usize>,
}

/// Blocks whose leases are found before those of the next ones: few at first, and if too many leases are found.
const BLOCKS_AT_A_TIME: usize = 16;
/// The most blocks: each look takes some look-ups for each of their layers, however many blocks there are.
const MAX_AT_A_TIME: usize = 1024;

/// The leases of all processes on some blocks of a layout that is mapped here. A block has one of an unknown process if it may have more:
/// locks hide them, there are too many, or there was no time to look.
pub fn of_blocks(layout: &Layout, ids: &[u32]) -> Result<Vec<LeasedBlocks>> {
    found_within(&LockBudget::default(), layout, ids)
}

fn found_within(budget: &LockBudget, layout: &Layout, ids: &[u32]) -> Result<Vec<LeasedBlocks>> {
    let roots = block_bytes::roots(layout);
    let mut leased = Vec::new();
    for (index, root) in roots.iter().enumerate() {
        // A region that was never shared, and of which nothing was leased, has none.
        let Some(control) = root.shared_control() else { continue };
        let locks = control.leases(budget)?;
        if !locks.is_empty() {
            lists::push(&mut leased, (index, locks))?;
        }
    }
    let (mut found, mut unknown) = (Vec::new(), Vec::new());
    if leased.is_empty() {
        return Ok(found);
    }
    let outline = block_bytes::outline(layout)?;
    let (mut first, mut size) = (0, BLOCKS_AT_A_TIME);
    while first < ids.len() {
        let some = &ids[first..ids.len().min(first + size)];
        let asked = block_bytes::in_roots(layout, &roots, &outline, some)?;
        let (known, before) = (found.len(), unknown.len());
        for (index, locks) in &leased {
            let ranges = lists::collect(asked[*index].iter().map(|(range, _)| range.clone()))?;
            let blocks = |indices: Vec<usize>| -> Result<Vec<usize>> {
                let mut blocks = lists::collect(indices.iter().map(|range| first + asked[*index][*range].1))?;
                blocks.sort_unstable();
                blocks.dedup();
                Ok(blocks)
            };
            let Leased { leases, unknown: others } = locks.on(&ranges)?;
            for (lease, indices) in leases {
                lists::push(&mut found, LeasedBlocks { lease, blocks: blocks(indices)? })?;
            }
            lists::extend(&mut unknown, blocks(others)?)?;
        }
        // Others than these few may not be unknown because of their leases.
        if unknown.len() > before && size > BLOCKS_AT_A_TIME && !budget.is_spent() {
            found.truncate(known);
            unknown.truncate(before);
            size = BLOCKS_AT_A_TIME;
            continue;
        }
        first += some.len();
        size = (2 * size).min(MAX_AT_A_TIME);
    }
    if !unknown.is_empty() {
        let lease = FoundLease { slot: u64::MAX, holder: LeaseHolder::UNKNOWN, end: LeaseEnd::never() };
        lists::push(&mut found, LeasedBlocks { lease, blocks: unknown })?;
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::Status;
    use crate::layout::{Arrangement, Dimensions, Order};
    use crate::region::{Region, SystemConfig};
    use crate::run::accesses::{self, Accessor};

    const LONG: Option<Duration> = Some(Duration::from_secs(1000));

    fn region() -> Arc<Region> {
        Region::system(&SystemConfig { size: 1 << 20, ..SystemConfig::default() }).unwrap()
    }

    fn over(regions: &[Arc<Region>], order: &str) -> Arc<Layout> {
        let arrangement = Arrangement::tight(Order::parse(order).unwrap());
        Layout::place(Dimensions::small(), arrangement, regions.to_vec()).unwrap()
    }

    fn leased(layout: &Layout, blocks: &[u32]) -> Vec<(u32, bool)> {
        let mut found = Vec::new();
        for each in of_blocks(layout, blocks).unwrap() {
            assert_eq!(each.lease.holder.pid, std::process::id());
            found.extend(each.blocks.iter().map(|index| (blocks[*index], each.lease.holder.writes)));
        }
        found.sort_unstable();
        found.dedup();
        found
    }

    #[test]
    fn blocks_are_leased_until_the_lease_is_dropped() {
        let layout = over(&[region()], "BLONHC");
        assert!(layout.memory().regions()[0].shared_id().is_none());
        assert!(leased(&layout, &[0, 1, 2, 3]).is_empty());
        let reader = BlockLease::take(&layout, &[3, 0, 3], false, LONG).unwrap();
        let writer = BlockLease::take(&layout, &[2, 3], true, None).unwrap();
        assert_eq!(leased(&layout, &[0, 1, 2, 3]), [(0, false), (2, true), (3, false), (3, true)]);
        assert_eq!(leased(&layout, &[1]), []);
        assert!(reader.remaining() <= LONG && reader.remaining() > Some(Duration::from_secs(500)));
        assert_eq!(writer.remaining(), None);
        drop(reader);
        assert_eq!(leased(&layout, &[0, 1, 2, 3]), [(2, true), (3, true)]);
    }

    /// The same memory by other blocks, of another order.
    #[test]
    fn blocks_of_other_layouts_over_the_same_bytes_are_leased() {
        let region = region();
        let view = Region::view(&region, 0, region.size() / 2).unwrap();
        let (blocks, layers) = (over(std::slice::from_ref(&region), "BLONHC"), over(&[view], "LBONHC"));
        let lease = BlockLease::take(&layers, &[0], false, LONG).unwrap();
        let piece = layers.geometry().stride(crate::layout::Axis::Layer);
        let last = u32::try_from(piece / blocks.geometry().block_stride()).unwrap();
        assert_eq!(leased(&blocks, &[0]), [(0, false)], "its first layer is at the start of both");
        assert_eq!(
            leased(&blocks, &[last]),
            [(last, false)],
            "its second layer is after all blocks of the first"
        );
        assert_eq!(leased(&layers, &[0, 1]), [(0, false)]);
        drop(lease);
        assert!(leased(&blocks, &[0, last]).is_empty());
    }

    #[test]
    fn a_lease_of_several_regions_is_one() {
        let layers = Dimensions::small().num_layers;
        let layout = over(&(0..layers).map(|_| region()).collect::<Vec<_>>(), "L/BONHC");
        let _lease = BlockLease::take(&layout, &[1, 2], false, LONG).unwrap();
        let found = of_blocks(&layout, &[1]).unwrap();
        assert_eq!(found.len() as u64, layers);
        assert!(found.iter().all(|each| each.lease.identity() == found[0].lease.identity()));
        let accesses = accesses::of_blocks(&layout, &[0, 1, 2]).unwrap();
        assert_eq!(accesses.iter().map(|access| access.block).collect::<Vec<_>>(), [1, 2]);
    }

    #[test]
    fn a_lease_that_is_over_is_not_renewed() {
        let layout = over(&[region()], "BLONHC");
        let lease = BlockLease::take(&layout, &[0], false, LONG).unwrap();
        lease.renew(None).unwrap();
        assert_eq!(lease.remaining(), None);
        lease.locks.renew(LeaseEnd::passed()).unwrap();
        assert_eq!(lease.remaining(), Some(Duration::ZERO));
        assert!(leased(&layout, &[0]).is_empty());
        assert_eq!(lease.renew(LONG).unwrap_err().status(), Status::Stale);
        assert!(leased(&layout, &[0]).is_empty());
    }

    #[test]
    fn a_lease_in_several_regions_has_the_last_of_its_ends() {
        let layout = over(&[region(), region()], "L/BONHC");
        for region in 0..2 {
            let lease = BlockLease::take(&layout, &[0], false, LONG).unwrap();
            lease.locks.extend_one(region, LeaseEnd::never()).unwrap();
            let accesses = accesses::of_blocks(&layout, &[0]).unwrap();
            let [access] = &accesses[..] else { panic!("{} accesses", accesses.len()) };
            assert!(matches!(&*access.by, Accessor::Lease(found) if found.end == LeaseEnd::never()));
        }
    }

    /// With each step more is known, and nothing that is not.
    #[test]
    fn blocks_that_there_was_no_time_to_look_at_are_unknown() {
        const LEASED: [u32; 4] = [0, 15, 17, 38];
        let dimensions = Dimensions { num_blocks: 40, ..Dimensions::small() };
        let arrangement = Arrangement::tight(Order::parse("LBONHC").unwrap());
        let layout = Layout::place(dimensions, arrangement, vec![region()]).unwrap();
        let _leases = LEASED.map(|block| BlockLease::take(&layout, &[block], false, LONG).unwrap());
        let ids = Vec::from_iter(0..40);
        let mut last = ids.len();
        for steps in 0.. {
            let (mut known, mut unknown) = (Vec::new(), Vec::new());
            for LeasedBlocks { lease, blocks } in
                found_within(&LockBudget::with_steps(steps), &layout, &ids).unwrap()
            {
                let is_known = lease.holder.pid == std::process::id();
                assert!(is_known || lease.holder == LeaseHolder::UNKNOWN);
                if is_known { &mut known } else { &mut unknown }.extend(blocks);
            }
            for block in LEASED.map(|block| block as usize) {
                assert!(known.contains(&block) || unknown.contains(&block), "{block} after {steps} steps");
            }
            assert!(known.iter().all(|block| LEASED.contains(&(*block as u32))));
            assert!(unknown.len() <= last && unknown.iter().eq(&Vec::from_iter(40 - unknown.len()..40)));
            last = unknown.len();
            if last == 0 {
                assert!(steps > 20);
                break;
            }
        }
    }

    #[test]
    fn what_cannot_be_leased_is_named() {
        let layout = over(&[region()], "BLONHC");
        let refused = |blocks: &[u32]| BlockLease::take(&layout, blocks, false, LONG).err().unwrap();
        assert_eq!(refused(&[]).status(), Status::InvalidArgument);
        assert_eq!(refused(&[0, u32::MAX]).status(), Status::OutOfRange);
        assert!(refused(&[0, u32::MAX]).message().contains("blocks[1] is 4294967295"));
    }
}
