// SPDX-License-Identifier: Apache-2.0
//! Whether what a transfer reads and what it writes are separate.
#![forbid(unsafe_code)]

use super::common_memory::{CommonBytes, CommonPlaces};
use super::{Move, Plan};
use crate::base::error::{Error, Result, Status};
use crate::base::lists;
use crate::layout::Layout;

/// Fails if bytes are both read and written.
pub fn ensure_apart(source: &Layout, destination: &Layout, plan: &Plan) -> Result<()> {
    let is_apart = !plan.has_common_memory()
        || are_blocks_apart(source, destination, plan)?
        || are_footprints_apart(source, destination, plan)?;
    if is_apart {
        return Ok(());
    }
    ensure_moves_apart(source, destination, plan).map_err(|error| {
        match block_of_both(source, destination, plan) {
            Ok(Some(block)) => error.context(format!("block {block} is both a source and a destination")),
            _ => error,
        }
    })
}

/// Whether no range of bytes between the first and the last of a block is both read and written. There may be thousands of
/// moves in each.
fn are_footprints_apart(source: &Layout, destination: &Layout, plan: &Plan) -> Result<bool> {
    let places = CommonPlaces::from_layouts([source, destination]);
    let [reads, writes] =
        [0, 1].map(|side| lists::collect(plan.footprints(side).flat_map(|range| places[side].find(range))));
    Ok(ensure_disjoint(reads?, writes?).is_ok())
}

/// Whether no block is both read and written, which takes little time within one layout. Of a block that is both, different
/// parts may be.
fn are_blocks_apart(source: &Layout, destination: &Layout, plan: &Plan) -> Result<bool> {
    let are_blocks = plan.block_runs().is_some() && std::ptr::eq(source, destination);
    Ok(are_blocks && block_of_both(source, destination, plan)?.is_none())
}

/// A block of one layout that is both read and written.
fn block_of_both(source: &Layout, destination: &Layout, plan: &Plan) -> Result<Option<u64>> {
    let Some(runs) = plan.block_runs().filter(|_| std::ptr::eq(source, destination)) else {
        return Ok(None);
    };
    let interval = |first: u32, length: u32| (u64::from(first), u64::from(first) + u64::from(length));
    let mut reads = lists::collect(runs.iter().map(|run| interval(run.source, run.length)))?;
    reads.sort_unstable();
    let mut reads = reads.into_iter().peekable();
    Ok(runs.iter().map(|run| interval(run.destination, run.length)).find_map(|(first, end)| {
        while reads.next_if(|(_, read_end)| *read_end <= first).is_some() {}
        reads.peek().filter(|(read_first, _)| *read_first < end).map(|(read_first, _)| first.max(*read_first))
    }))
}

fn ensure_moves_apart(source: &Layout, destination: &Layout, plan: &Plan) -> Result<()> {
    let moves = lists::collect(plan.moves())?;
    let [from, to] = CommonPlaces::from_layouts([source, destination]);
    let read = |each: &Move| from.find((each.source_region, each.source, each.size));
    let written = |each: &Move| to.find((each.destination_region, each.destination, each.size));
    let reads = lists::collect(moves.iter().flat_map(read))?;
    ensure_disjoint(reads, lists::collect(moves.iter().flat_map(written))?)
}

fn ensure_disjoint(mut reads: Vec<CommonBytes>, mut writes: Vec<CommonBytes>) -> Result<()> {
    reads.sort_unstable();
    writes.sort_unstable();
    let (mut read, mut write) = (0, 0);
    while let (Some((from_space, from, from_size)), Some((to_space, to, to_size))) =
        (reads.get(read), writes.get(write))
    {
        let [read_end, write_end] = [(from_space, from + from_size), (to_space, to + to_size)];
        if (from_space, *from) < write_end && (to_space, *to) < read_end {
            let message = format!(
                "source and destination overlap: {from_size} bytes at {from:#x} are read and {to_size} at {to:#x} \
                 written; move the blocks through other memory, or in two transfers"
            );
            return Err(Error::new(Status::InvalidArgument, message));
        }
        if read_end <= (to_space, *to) { read += 1 } else { write += 1 }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::layout::{AllocationConfig, Arrangement, Dimensions, LayoutKind, Order};
    use crate::plan::{BlockPair, PairedRange, Wanted};
    use crate::region::{Region, SystemConfig};

    fn layout() -> std::sync::Arc<Layout> {
        let memory = AllocationConfig::System(SystemConfig::default());
        let dimensions = Dimensions { num_blocks: 12, num_layers: 2, ..Dimensions::small() };
        Layout::allocate(dimensions, LayoutKind::FullyContiguous, memory).unwrap()
    }

    fn plan(layout: &Layout, pairs: &[BlockPair], layers: Option<PairedRange>) -> Plan {
        Plan::once(layout, layout, pairs, Wanted { layers, outers: None, heads: None }).unwrap()
    }

    proptest! {
        #[test]
        fn blocks_of_one_layout_are_apart_if_their_moves_are(
            destinations in Just((0u32..12).collect::<Vec<_>>()).prop_shuffle(),
            sources in prop::collection::vec(0u32..12, 12), count in 1usize..5,
        ) {
            let layout = layout();
            let zipped = sources.into_iter().zip(destinations).take(count);
            let pairs: Vec<_> = zipped.map(|(source, destination)| BlockPair { source, destination }).collect();
            let plan = plan(&layout, &pairs, None);
            prop_assert!(plan.has_common_memory());
            let are_apart = ensure_moves_apart(&layout, &layout, &plan).is_ok();
            prop_assert_eq!(are_blocks_apart(&layout, &layout, &plan).unwrap(), are_apart);
            prop_assert_eq!(ensure_apart(&layout, &layout, &plan).is_ok(), are_apart);
        }
    }

    /// Other blocks of another order in the same memory.
    #[test]
    fn blocks_of_two_layouts_in_one_region_are_compared_as_wholes() {
        let dimensions = Dimensions { num_blocks: 12, num_layers: 2, ..Dimensions::small() };
        let region = Region::system(&SystemConfig { size: 1 << 20, ..SystemConfig::default() }).unwrap();
        let side = |order: &str| {
            let kind = LayoutKind::Ordered(Arrangement::tight(Order::parse(order).unwrap()));
            Layout::place(dimensions.clone(), kind, vec![region.clone()]).unwrap()
        };
        let pair = |source, destination| BlockPair { source, destination };
        let (source, destination) = (side("BLONHC"), side("BLOHNC"));
        let between =
            |pairs: &[BlockPair]| Plan::once(&source, &destination, pairs, Wanted::default()).unwrap();
        let plan = between(&[pair(0, 6), pair(5, 11), pair(1, 8)]);
        assert!(plan.has_common_memory() && are_footprints_apart(&source, &destination, &plan).unwrap());
        assert!(plan.footprints(1).count() < 5 && plan.moves().count() > 100);
        let meeting = between(&[pair(0, 6), pair(6, 7)]);
        assert!(ensure_apart(&source, &destination, &meeting).is_err());
    }

    #[test]
    fn layers_of_one_block_may_move_to_other_layers_of_it() {
        let layout = layout();
        let layers = Some(PairedRange { source: 0, destination: 1, count: 1 });
        let plan = plan(&layout, &[BlockPair { source: 3, destination: 3 }], layers);
        assert!(!are_blocks_apart(&layout, &layout, &plan).unwrap());
        assert!(ensure_apart(&layout, &layout, &plan).is_ok());
    }
}
