// SPDX-License-Identifier: Apache-2.0
//! Blocks that a caller names, and where their bytes are in regions.

use std::ops::Range;
use std::sync::Arc;

use crate::base::{Result, ensure, lists};
use crate::layout::{Axis, Layout};
use crate::plan::{BlockPair, Outline, Plan, Wanted};
use crate::region::Region;

/// The ids in order, each once. Fails for one that the layout does not have.
pub(super) fn sorted_ids(layout: &Layout, blocks: &[u32]) -> Result<Vec<u32>> {
    let have = layout.geometry().count(Axis::Block);
    for (index, block) in blocks.iter().enumerate() {
        ensure!(
            u64::from(*block) < have,
            OutOfRange,
            "blocks[{index}] is {block}; the layout has {have} blocks, give ids below that"
        );
    }
    let mut ids = lists::copied(blocks)?;
    ids.sort_unstable();
    ids.dedup();
    Ok(ids)
}

/// The same of a lease, which has at least one.
pub(super) fn leased_ids(layout: &Layout, blocks: &[u32]) -> Result<Vec<u32>> {
    ensure!(!blocks.is_empty(), InvalidArgument, "num_blocks is 0; a lease has at least one block");
    sorted_ids(layout, blocks)
}

/// What a plan of some blocks reads of their layout: the blocks.
pub(super) fn outline(layout: &Layout) -> Result<Arc<Outline>> {
    Ok(Arc::new(Outline::new(layout, layout, Wanted::default(), false)?))
}

pub(super) fn plan(outline: &Arc<Outline>, ids: &[u32]) -> Result<Plan> {
    let pairs = lists::collect(ids.iter().map(|id| BlockPair { source: *id, destination: *id }))?;
    Plan::new(outline, &pairs, None)
}

/// The regions of a layout that are no views, each once.
pub(super) fn roots(layout: &Layout) -> Vec<Arc<Region>> {
    let mut roots: Vec<_> =
        layout.memory().regions().iter().map(|region| Region::root_of(region).0.clone()).collect();
    roots.sort_unstable_by_key(Arc::as_ptr);
    roots.dedup_by_key(|root| Arc::as_ptr(root));
    roots
}

/// Bytes of a region, and the index of the block that has them.
pub(super) type BlockRange = (Range<u64>, usize);

/// The bytes of some blocks in each of the roots, in ascending order.
pub(super) fn in_roots(
    layout: &Layout,
    roots: &[Arc<Region>],
    outline: &Arc<Outline>,
    ids: &[u32],
) -> Result<Vec<Vec<BlockRange>>> {
    let place = |region: &Arc<Region>| {
        let root = Region::root_of(region).0;
        (roots.partition_point(|other| Arc::as_ptr(other) < Arc::as_ptr(root)), root.address())
    };
    let places: Vec<_> = layout.memory().regions().iter().map(place).collect();
    let mut found: Vec<Vec<BlockRange>> = roots.iter().map(|_| Vec::new()).collect();
    for (index, id) in ids.iter().enumerate() {
        for each in plan(outline, std::slice::from_ref(id))?.moves() {
            let (root, address) = places[each.source_region as usize];
            let start = each.source - address;
            lists::push(&mut found[root], (start..start + each.size, index))?;
        }
    }
    found.iter_mut().for_each(|ranges| ranges.sort_unstable_by_key(|(range, _)| range.start));
    Ok(found)
}
