// SPDX-License-Identifier: Apache-2.0
//! Whether what a transfer reads and what it writes are separate.

use super::common_memory::{CommonBytes, CommonPlaces};
use super::{LinearPlan, Matrix, Plan};
use crate::base::{Error, Result, Status, lists};
use crate::layout::Layout;
use crate::region::Places;

#[derive(Clone, Copy)]
pub enum Bytes<'a> {
    /// One side of a plan: 0 for what it reads, 1 for what it writes.
    Side(&'a Plan, usize),
    /// Ranges of the first region, each with its address and size.
    Ranges(&'a [(u64, u64)]),
    /// The rows of a layout.
    Rows(&'a LinearPlan),
}

/// Bytes, and where their regions are.
#[derive(Clone, Copy)]
pub struct Placed<'a> {
    pub bytes: Bytes<'a>,
    pub places: &'a Places,
}

impl<'a> Placed<'a> {
    /// What a plan reads or writes of a layout.
    pub fn side(plan: &'a Plan, side: usize, layout: &'a Layout) -> Self {
        Self { bytes: Bytes::Side(plan, side), places: layout.places() }
    }

    /// Region, address and size of ranges that contain all bytes: far fewer than there are moves.
    fn footprints(&self) -> Box<dyn Iterator<Item = (u32, u64, u64)> + '_> {
        match self.bytes {
            Bytes::Side(plan, side) => Box::new(plan.footprints(side)),
            Bytes::Ranges(_) | Bytes::Rows(_) => self.ranges(),
        }
    }

    /// The same of exactly the bytes.
    fn ranges(&self) -> Box<dyn Iterator<Item = (u32, u64, u64)> + '_> {
        match self.bytes {
            Bytes::Side(plan, 0) => {
                Box::new(plan.moves().map(|each| (each.source_region, each.source, each.size)))
            }
            Bytes::Side(plan, _) => {
                Box::new(plan.moves().map(|each| (each.destination_region, each.destination, each.size)))
            }
            Bytes::Ranges(ranges) => Box::new(ranges.iter().map(|(address, size)| (0, *address, *size))),
            Bytes::Rows(plan) => {
                let rows = plan.rows_in(0..plan.bytes()).flat_map(Matrix::moves);
                Box::new(rows.map(|each| (each.source_region, each.source, each.size)))
            }
        }
    }
}

/// Fails if bytes are both read and written.
pub fn ensure_apart(source: &Layout, destination: &Layout, plan: &Plan) -> Result<()> {
    if !plan.has_common_memory() || are_blocks_apart(source, destination, plan)? {
        return Ok(());
    }
    let Some([(_, from, from_size), (_, to, to_size)]) =
        common([Placed::side(plan, 0, source), Placed::side(plan, 1, destination)])?
    else {
        return Ok(());
    };
    let message = format!(
        "source and destination overlap: {from_size} bytes at {from:#x} are read and {to_size} at {to:#x} \
         written; move the blocks through other memory, or in two transfers"
    );
    let error = Error::new(Status::InvalidArgument, message);
    Err(match block_of_both(source, destination, plan) {
        Ok(Some(block)) => error.context(format!("block {block} is both a source and a destination")),
        _ => error,
    })
}

/// Some bytes that both have in common, or `None`. Ranges between the first and the last byte of blocks are compared first: there
/// may be thousands of moves in each.
pub fn common(both: [Placed<'_>; 2]) -> Result<Option<[CommonBytes; 2]>> {
    let places = CommonPlaces::between(both.map(|each| each.places));
    let [one, other] = [0, 1]
        .map(|index| lists::collect(both[index].footprints().flat_map(|range| places[index].find(range))));
    if first_common(one?, other?).is_none() {
        return Ok(None);
    }
    let [one, other] =
        [0, 1].map(|index| lists::collect(both[index].ranges().flat_map(|range| places[index].find(range))));
    Ok(first_common(one?, other?))
}

/// The indices of those plans that read bytes of a layout which `other` has, too.
pub fn which_meet(
    layout: &Layout,
    plans: impl Iterator<Item = Result<Plan>>,
    other: Placed<'_>,
) -> Result<Vec<usize>> {
    let [own, others] = CommonPlaces::between([layout.places(), other.places]);
    let others = joined(lists::collect(other.ranges().flat_map(|range| others.find(range)))?);
    let mut found = Vec::new();
    for (index, plan) in plans.enumerate() {
        let plan = plan?;
        let placed = Placed::side(&plan, 0, layout);
        if placed.ranges().flat_map(|range| own.find(range)).any(|range| touches(&others, range)) {
            lists::push(&mut found, index)?;
        }
    }
    Ok(found)
}

/// The same bytes in order, in ranges that do not touch each other.
fn joined(mut some: Vec<CommonBytes>) -> Vec<CommonBytes> {
    some.sort_unstable();
    some.dedup_by(|next, last| {
        let is_one = (next.0, next.1) <= (last.0, last.1 + last.2);
        if is_one {
            last.2 = last.2.max(next.1 + next.2 - last.1);
        }
        is_one
    });
    some
}

/// Whether joined ranges have bytes of another one.
fn touches(joined: &[CommonBytes], (space, start, size): CommonBytes) -> bool {
    let first = joined.partition_point(|known| (known.0, known.1 + known.2) <= (space, start));
    joined.get(first).is_some_and(|known| known.0 == space && known.1 < start + size)
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

fn first_common(mut some: Vec<CommonBytes>, mut others: Vec<CommonBytes>) -> Option<[CommonBytes; 2]> {
    some.sort_unstable();
    others.sort_unstable();
    let (mut index, mut other_index) = (0, 0);
    while let (Some(one), Some(other)) = (some.get(index), others.get(other_index)) {
        let [end, other_end] = [one, other].map(|(space, start, size)| (*space, start + size));
        if (one.0, one.1) < other_end && (other.0, other.1) < end {
            return Some([*one, *other]);
        }
        if end <= (other.0, other.1) { index += 1 } else { other_index += 1 }
    }
    None
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::layout::{Arrangement, Dimensions, Order};
    use crate::plan::{BlockPair, PairedRange, Wanted};
    use crate::region::{Region, SystemConfig};

    fn layout() -> std::sync::Arc<Layout> {
        let dimensions = Dimensions { num_blocks: 12, num_layers: 2, ..Dimensions::small() };
        Layout::in_host(dimensions, Arrangement::FULLY_CONTIGUOUS)
    }

    fn plan(layout: &Layout, pairs: &[BlockPair], layers: Option<PairedRange>) -> Plan {
        Plan::once(layout, layout, pairs, Wanted { layers, outers: None, heads: None }).unwrap()
    }

    fn have_common(source: &Layout, destination: &Layout, plan: &Plan) -> bool {
        common([Placed::side(plan, 0, source), Placed::side(plan, 1, destination)]).unwrap().is_some()
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
            let are_apart = !have_common(&layout, &layout, &plan);
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
            let kind = Arrangement::tight(Order::parse(order).unwrap());
            Layout::place(dimensions.clone(), kind, vec![region.clone()]).unwrap()
        };
        let pair = |source, destination| BlockPair { source, destination };
        let (source, destination) = (side("BLONHC"), side("BLOHNC"));
        let between =
            |pairs: &[BlockPair]| Plan::once(&source, &destination, pairs, Wanted::default()).unwrap();
        let plan = between(&[pair(0, 6), pair(5, 11), pair(1, 8)]);
        assert!(plan.has_common_memory() && !have_common(&source, &destination, &plan));
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
