// SPDX-License-Identifier: Apache-2.0
//! Leases of blocks: a process says which blocks it uses and until when, and the owner of the memory asks for that before it reuses
//! them. A lease keeps no block from being reused: epochs detect that.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::block_bytes::{self, BlockRange};
use crate::base::{Mutex, Result, ensure, lists};
use crate::layout::Layout;
use crate::region::{FoundLease, LeaseEnd, LeaseHolder, LeasedBytes, LockBudget, RegionLease};

/// A lease that this process has.
pub struct BlockLease {
    locks: RegionLease,
    /// Changed by one renewal at a time.
    end: AtomicU64,
    renewals: Mutex<()>,
    /// Keeps the regions, and by that the presence of this process.
    layout: Arc<Layout>,
}

impl BlockLease {
    /// Leases some blocks, from now on for a duration, or until it is dropped.
    pub fn take(
        layout: &Arc<Layout>,
        blocks: &[u32],
        writes: bool,
        duration: Option<Duration>,
    ) -> Result<Self> {
        ensure!(
            !layout.memory().is_remote(),
            Unsupported,
            "the layout is remote, and leases are for memory that is mapped here: read its blocks with epochs, or have its owner serve \
             them (KVMEM_METHOD_NIXL_SERVED), who knows of such reads"
        );
        if writes {
            layout.ensure_writable().map_err(|error| error.context("lease blocks to write them"))?;
        }
        ensure!(!blocks.is_empty(), InvalidArgument, "num_blocks is 0; a lease has at least one block");
        let ids = block_bytes::sorted_ids(layout, blocks)?;
        let roots = block_bytes::roots(layout);
        let found = block_bytes::in_roots(layout, &roots, &block_bytes::outline(layout)?, &ids)?;
        let mut leased = Vec::new();
        for (root, ranges) in roots.iter().zip(found).filter(|(_, ranges)| !ranges.is_empty()) {
            let own = root.control()?.own_leases()?.clone();
            leased.push(LeasedBytes { own, ranges: joined(ranges)? });
        }
        let holder = LeaseHolder { pid: std::process::id(), writes };
        let end = LeaseEnd::after(duration);
        let locks = RegionLease::take(&leased, holder, end)?;
        // After the locks: an owner that ends has found them, or is found to have ended.
        roots.iter().try_for_each(|root| root.ensure_owner_lives())?;
        let end = AtomicU64::new(end.as_number());
        Ok(Self { locks, end, renewals: Mutex::default(), layout: layout.clone() })
    }

    /// Has it end after a duration from now on, or when it is dropped. Fails if it is over.
    pub fn renew(&self, duration: Option<Duration>) -> Result<()> {
        let _turn = self.renewals.lock();
        ensure_not_over(self.end())?;
        block_bytes::roots(&self.layout).iter().try_for_each(|root| root.ensure_owner_lives())?;
        self.proceed(LeaseEnd::after(duration))
    }

    /// Replaces its end. That may pass while the new one is locked, as in a process that is stopped: then the owner has seen no lease.
    fn proceed(&self, end: LeaseEnd) -> Result<()> {
        let last = self.end();
        self.locks.set_end(end)?;
        if let Err(error) = ensure_not_over(last) {
            self.locks.set_end(last)?;
            return Err(error);
        }
        self.end.store(end.as_number(), Ordering::Release);
        Ok(())
    }

    /// The time until it ends: 0 if it is over, `None` if it has no end.
    pub fn remaining(&self) -> Option<Duration> {
        self.end().remaining()
    }

    fn end(&self) -> LeaseEnd {
        LeaseEnd::from_number(self.end.load(Ordering::Acquire))
    }
}

fn ensure_not_over(end: LeaseEnd) -> Result<()> {
    ensure!(
        !end.is_over(),
        Stale,
        "the lease is over, and the owner may have reused its blocks since; lease them again, and compare their epochs"
    );
    Ok(())
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

/// The leases of all processes on some blocks of a layout that is mapped here.
pub fn of_blocks(layout: &Layout, ids: &[u32]) -> Result<Vec<LeasedBlocks>> {
    let (mut found, mut asked) = (Vec::new(), None);
    let roots = block_bytes::roots(layout);
    let budget = LockBudget::default();
    for (index, root) in roots.iter().enumerate() {
        // A region that was never shared, and of which nothing was leased, has none.
        let Some(control) = root.shared_control() else { continue };
        let locks = control.leases(&budget);
        let Some(leases) = locks.all()? else { return unknown(ids.len()) };
        if leases.is_empty() {
            continue;
        }
        let asked = match &mut asked {
            Some(asked) => asked,
            empty => {
                empty.insert(block_bytes::in_roots(layout, &roots, &block_bytes::outline(layout)?, ids)?)
            }
        };
        let ranges = lists::collect(asked[index].iter().map(|(range, _)| range.clone()))?;
        for lease in leases {
            let Some(indices) = locks.leased(&lease, &ranges)? else { return unknown(ids.len()) };
            let blocks = lists::collect(indices.into_iter().map(|range| asked[index][range].1))?;
            lists::push(&mut found, LeasedBlocks { lease, blocks })?;
        }
    }
    Ok(found)
}

/// A lease of all blocks whose holder is unknown, because locks hide each other, or there are too many.
fn unknown(blocks: usize) -> Result<Vec<LeasedBlocks>> {
    let holder = LeaseHolder { pid: 0, writes: true };
    let lease = FoundLease { slot: u64::MAX, holder, end: LeaseEnd::after(None) };
    Ok(vec![LeasedBlocks { lease, blocks: lists::collect(0..blocks)? }])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::Status;
    use crate::layout::{Arrangement, Dimensions, Order};
    use crate::region::{Region, SystemConfig};

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
        assert!(found.iter().all(|each| each.lease.is_part_of(&found[0].lease)));
        let accesses = crate::run::accesses::of_blocks(&layout, &[0, 1, 2]).unwrap();
        assert_eq!(accesses.iter().map(|access| access.block).collect::<Vec<_>>(), [1, 2]);
    }

    #[test]
    fn a_lease_that_is_over_is_not_renewed() {
        let layout = over(&[region()], "BLONHC");
        let lease = BlockLease::take(&layout, &[0], false, LONG).unwrap();
        lease.renew(None).unwrap();
        assert_eq!(lease.remaining(), None);
        lease.renew(Some(Duration::ZERO)).unwrap();
        assert_eq!(lease.remaining(), Some(Duration::ZERO));
        assert!(leased(&layout, &[0]).is_empty());
        assert_eq!(lease.renew(LONG).unwrap_err().status(), Status::Stale);
        assert!(leased(&layout, &[0]).is_empty());
    }

    #[test]
    fn a_lease_that_ends_while_it_is_renewed_is_over() {
        let layout = over(&[region()], "BLONHC");
        let lease = BlockLease::take(&layout, &[0], false, LONG).unwrap();
        lease.renew(Some(Duration::ZERO)).unwrap();
        // As after the look at its end.
        assert_eq!(lease.proceed(LeaseEnd::after(LONG)).unwrap_err().status(), Status::Stale);
        assert!(leased(&layout, &[0]).is_empty());
        assert_eq!(lease.remaining(), Some(Duration::ZERO));
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
