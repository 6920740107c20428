// SPDX-License-Identifier: Apache-2.0
//! Layouts and requests of extreme numbers, such as those of a hostile descriptor, are planned or refused. In builds that check
//! for it, no product or sum overflows; and no move is outside of the layouts.

use super::*;
use crate::layout::{Arrangement, Order, Strides};
use crate::plan::{BlockTable, TokenTables};

/// Bases are listed, so a layout has few regions here.
const MAX_REGIONS: u64 = 64;
/// Moves that are compared with the layouts.
const COMPARED: usize = 40;

/// Mostly small, and near powers of two up to the largest.
fn any_number() -> impl Strategy<Value = u64> {
    let near = (0u32..64, 0u64..3).prop_map(|(power, by)| (1u64 << power).wrapping_add(by).wrapping_sub(1));
    prop_oneof![3 => 1u64..5, 2 => near, 1 => Just(u64::MAX)]
}

prop_compose! {
    fn any_kind()(
        order in Just(Axis::ALL.to_vec()).prop_shuffle(), regions in 0usize..3,
        strides in prop::collection::vec((0usize..6, any_number()), 0..3),
    ) -> Arrangement {
        let letters: String = order.iter().map(|axis| axis.letter()).collect();
        let (before, after) = letters.split_at(regions);
        let text = if regions > 0 { format!("{before}/{after}") } else { letters.clone() };
        let order = Order::parse(&text).or_else(|_| Order::parse(&letters)).unwrap();
        let given = strides.into_iter().fold(Strides::default(), |given, (axis, stride)| {
            given.with(Axis::ALL[axis], stride)
        });
        Arrangement { order, strides: given }
    }
}

prop_compose! {
    fn any_sizes()(
        num_blocks in any_number(), num_layers in any_number(), outer_dim in 1u64..3, page_size in any_number(),
        heads in any_number(), elements in any_number(), width in 0u32..4, shift in prop_oneof![3 => 0u32..8, 1 => 0u32..64],
    ) -> Dimensions {
        Dimensions { num_blocks, num_layers, outer_dim, page_size, inner_dim: heads.saturating_mul(elements), dtype_width: 1 << width, alignment: 1 << shift, num_heads: Some(heads), ..Dimensions::ONE }
    }
}

/// A layout at the start of the addresses or at their end; `None` if there is none.
fn placed(dimensions: &Dimensions, kind: Arrangement, at_end: bool) -> Option<Placement> {
    let geometry = Geometry::new(dimensions.clone(), kind).ok()?;
    geometry.total_size().unwrap();
    let count = geometry.num_regions() as u64;
    if count > MAX_REGIONS {
        return None;
    }
    let size = geometry.allocation_size(1).ok()?;
    let start = if at_end { u64::MAX - size } else { 0 };
    Placement::within(geometry, start).ok()
}

fn ensure_inside(plan: &Plan, sides: [&Placement; 2]) {
    let end = plan.bytes();
    let first = plan.moves_in(0..end).take(COMPARED);
    let last = plan.moves_in(end.saturating_sub(COMPARED as u64)..end);
    for each in first.chain(last) {
        let of_side = [(each.source_region, each.source), (each.destination_region, each.destination)];
        for (side, (region, at)) in sides.into_iter().zip(of_side) {
            let base = side.bases()[region as usize];
            assert!(base <= at && at - base + each.size <= side.geometry().region_size());
        }
    }
    for (index, side) in sides.into_iter().enumerate() {
        for (region, at, size) in plan.footprints(index).take(COMPARED) {
            let base = side.bases()[region as usize];
            assert!(base <= at && at - base + size <= side.geometry().region_size());
        }
    }
    plan.description();
    plan.pieces();
    plan.windows(100, 1 << 20);
    plan.is_surely_aligned(512, [true; 2]);
    for tile in plan.tiling().into_iter().flat_map(|_| plan.tiles_in(0..3)) {
        assert!(tile.first.size > 0);
    }
    for matrices in plan.matrices(1 << 20) {
        matrices.count(1000);
    }
}

proptest! {
    #![proptest_config(cases(4000))]

    #[test]
    fn blocks_of_any_size_are_planned_or_refused(
        dimensions in any_sizes(), kinds in [any_kind(), any_kind()], at_end: bool, others in any_sizes(), is_like in 0u8..4,
        ids in prop::collection::vec((any_number(), any_number()), 1..4), ranges in prop::collection::vec(any_number(), 9),
        wants in [any::<bool>(), any::<bool>(), any::<bool>()], by_layer: bool,
    ) {
        let other = if is_like > 0 { &dimensions } else { &others };
        let (Some(source), Some(destination)) =
            (placed(&dimensions, kinds[0], at_end), placed(other, kinds[1], !at_end)) else { return Ok(()) };
        let range = |index: usize| wants[index].then(|| PairedRange {
            source: ranges[3 * index].saturating_sub(1), destination: ranges[3 * index + 1].saturating_sub(1), count: ranges[3 * index + 2],
        });
        let wanted = Wanted { layers: range(0), outers: range(1), heads: range(2) };
        let Ok(outline) = Outline::between(&source, &destination, wanted, by_layer && dimensions.num_layers < 100)
        else { return Ok(()) };
        let pairs: Vec<_> = ids
            .iter()
            .map(|(source, destination)| BlockPair {
                source: (*source as u32).saturating_sub(1),
                destination: (*destination as u32).saturating_sub(1),
            })
            .collect();
        let outline = Arc::new(outline);
        if let Ok(plan) = Plan::new(&outline, &pairs, None) {
            ensure_inside(&plan, [&source, &destination]);
            for leader in 0..2 {
                let led = plan.led_by(leader).unwrap();
                ensure_inside(&led, [&source, &destination]);
            }
        }
    }

    #[test]
    fn tokens_of_any_size_are_planned_or_refused(
        dimensions in any_sizes(), kinds in [any_kind(), any_kind()], at_end: bool, page in any_number(),
        ids in [prop::collection::vec(any_number(), 1..4), prop::collection::vec(any_number(), 1..4)],
        firsts in [any_number(), any_number()], steps in [any_number(), any_number()],
        tokens in prop_oneof![4 => 1u64..600, 1 => any_number()],
    ) {
        let other = Dimensions { page_size: page, ..dimensions.clone() };
        let (Some(source), Some(destination)) =
            (placed(&dimensions, kinds[0], at_end), placed(&other, kinds[1], !at_end)) else { return Ok(()) };
        let Ok(outline) = Outline::between(&source, &destination, Wanted::default(), false) else { return Ok(()) };
        let ids = ids.map(|ids| ids.iter().map(|id| (*id as u32).saturating_sub(1)).collect::<Vec<_>>());
        let table = |side: usize| BlockTable {
            blocks: &ids[side], first_token: firsts[side].saturating_sub(1), token_step: steps[side],
        };
        let tables = TokenTables { sides: [table(0), table(1)], tokens };
        // Each token may be a span, which is listed.
        if tokens > 1 << 12 {
            return Ok(());
        }
        if let Ok(plan) = Plan::from_tokens(&Arc::new(outline), &tables, None) {
            ensure_inside(&plan, [&source, &destination]);
        }
    }
}

/// 10^10 units of a block in 10^5 runs of alternating length: neither are visited one by one.
#[test]
fn the_moves_of_many_units_are_counted_at_once() {
    let sized = |num_blocks| Dimensions {
        num_blocks,
        num_layers: 100_000,
        page_size: 100_000,
        inner_dim: 2,
        dtype_width: 2,
        ..Dimensions::ONE
    };
    let ordered =
        |order: &str| Arrangement { order: Order::parse(order).unwrap(), strides: Strides::default() };
    let placed = |order, start| {
        Placement::within(Geometry::new(sized(150_000), ordered(order)).unwrap(), start).unwrap()
    };
    let runs: Vec<_> = (0..150_000u32)
        .map(|id| (id, if id % 3 == 0 { id } else { 150_000 - 3 - id / 3 * 3 + id % 3 }))
        .collect();
    // Blocks of a run are joined if they are adjacent on both sides.
    for (from, to, joined) in [("NLBC", "NBLC", 0), ("BNLC", "BLNC", 50_000), ("BLNC", "NLBC", 0)] {
        let plan =
            Plan::between(&placed(from, 0), &placed(to, 1 << 56), &pairs(&runs), Wanted::default()).unwrap();
        assert_eq!(plan.count_moves(false), 150_000 * 10_000_000_000 - joined, "{from} to {to}");
    }
}
