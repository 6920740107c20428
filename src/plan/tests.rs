// SPDX-License-Identifier: Apache-2.0
//! Plans copy the same bytes as a copy block by block, in fewer moves, whatever the layouts.

mod cuts;
mod extremes;
mod linear;
mod matrices;
mod parts;
mod reshaped;
mod tokens;

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::base::Status;
use crate::layout::{Arrangement, Axis, Dimensions, Geometry, Placement};

impl Plan {
    /// The plan of one list of pairs.
    pub fn between(
        source: &Placement,
        destination: &Placement,
        pairs: &[BlockPair],
        wanted: Wanted,
    ) -> Result<Self> {
        Self::new(&Arc::new(Outline::between(source, destination, wanted, false)?), pairs, None)
    }
}

/// So many cases of a property; in Miri, which is a thousand times slower, those that the environment asks for.
fn cases(count: u32) -> ProptestConfig {
    if cfg!(miri) { ProptestConfig::default() } else { ProptestConfig::with_cases(count) }
}

fn dimensions() -> Dimensions {
    Dimensions {
        num_blocks: 12,
        num_layers: 3,
        outer_dim: 2,
        page_size: 2,
        inner_dim: 3,
        dtype_width: 2,
        ..Dimensions::ONE
    }
}

fn placement(dimensions: Dimensions, kind: Arrangement, start: u64) -> Placement {
    Placement::within(Geometry::new(dimensions, kind).unwrap(), start).unwrap()
}

const KINDS: [Arrangement; 3] = Arrangement::KVBM;

fn pairs(list: &[(u32, u32)]) -> Vec<BlockPair> {
    list.iter()
        .map(|(source, destination)| BlockPair { source: *source, destination: *destination })
        .collect()
}

/// Destination byte → source byte, as the moves say.
fn bytes_of(moves: &[Move]) -> BTreeMap<(u32, u64), (u32, u64)> {
    let mut bytes = BTreeMap::new();
    for m in moves {
        for i in 0..m.size {
            let old =
                bytes.insert((m.destination_region, m.destination + i), (m.source_region, m.source + i));
            assert_eq!(old, None, "a byte is written twice");
        }
    }
    bytes
}

/// The same, block by block.
fn expected(
    source: &Placement,
    destination: &Placement,
    pairs: &[BlockPair],
    layers: PairedRange,
    outers: PairedRange,
) -> BTreeMap<(u32, u64), (u32, u64)> {
    let mut bytes = BTreeMap::new();
    for pair in pairs {
        for layer in 0..layers.count {
            for outer in 0..outers.count {
                let (layer_there, outer_there) = (layers.destination + layer, outers.destination + outer);
                let (layer, outer) = (layers.source + layer, outers.source + outer);
                let (sr, s) = source.address(pair.source.into(), layer, outer);
                let (dr, d) = destination.address(pair.destination.into(), layer_there, outer_there);
                for i in 0..source.geometry().piece_size() {
                    bytes.insert((dr as u32, d + i), (sr as u32, s + i));
                }
            }
        }
    }
    bytes
}

/// Some of so many blocks of two layouts. A block may be a source twice.
pub fn any_pairs_of(blocks: u32) -> impl Strategy<Value = Vec<BlockPair>> {
    let all = Just((0..blocks).collect::<Vec<_>>());
    let ids = prop_oneof![all.clone(), all.prop_shuffle()];
    let sources = prop_oneof![prop::collection::vec(0..blocks, blocks as usize), ids.clone()];
    (sources, ids, 1..=blocks as usize).prop_map(|(sources, destinations, count)| {
        let zipped = sources.into_iter().zip(destinations).take(count);
        zipped.map(|(source, destination)| BlockPair { source, destination }).collect()
    })
}

fn any_pairs() -> impl Strategy<Value = Vec<BlockPair>> {
    any_pairs_of(12)
}

/// One that both sides have, of as many as `most`.
pub fn fitting_range(most: u64) -> impl Strategy<Value = PairedRange> {
    (1..=most).prop_flat_map(move |count| {
        (0..=most - count, 0..=most - count).prop_map(move |(source, destination)| PairedRange {
            source,
            destination,
            count,
        })
    })
}

fn any_range(most: u64) -> impl Strategy<Value = PairedRange> {
    (0..most, 0..most, 1..most + 1).prop_map(|(source, destination, count)| PairedRange {
        source,
        destination,
        count,
    })
}

/// Whether a range lies in what the two sides have.
fn fits(range: &PairedRange, [here, there]: [u64; 2]) -> bool {
    range.source + range.count <= here && range.destination + range.count <= there
}

/// The moves that a plan passes to a function.
fn passed(plan: &Plan) -> Vec<Move> {
    let mut all = Vec::new();
    plan.each_move(|each| all.push(each));
    all
}

/// The contiguous ranges of one side that moves touch.
fn ranges_on(side: usize, moves: &[Move]) -> u64 {
    let place = |each: &Move| match side {
        0 => (each.source_region, each.source, each.source + each.size),
        _ => (each.destination_region, each.destination, each.destination + each.size),
    };
    let mut places: Vec<_> = moves.iter().map(place).collect();
    places.sort_unstable();
    places.dedup();
    let breaks = places.windows(2).filter(|pair| pair[0].0 != pair[1].0 || pair[0].2 != pair[1].1).count();
    (breaks + usize::from(!places.is_empty())) as u64
}

proptest! {
    #[test]
    fn a_plan_moves_exactly_the_bytes_asked_in_the_fewest_moves(
        pairs in any_pairs(), from in 0usize..3, to in 0usize..3, from_shift in 0u32..7, to_shift in 0u32..7,
        outer_dims in [1u64..3, 1u64..3], layers in any_range(3), outers in any_range(2),
    ) {
        let side = |kind: usize, shift: u32, outer_dim, start| {
            placement(Dimensions { alignment: 1 << shift, outer_dim, ..dimensions() }, KINDS[kind], start)
        };
        let source = side(from, from_shift, outer_dims[0], 4096);
        let destination = side(to, to_shift, outer_dims[1], 1 << 20);
        let wanted = Wanted { layers: Some(layers), outers: Some(outers), heads: None };
        let plan = Plan::between(&source, &destination, &pairs, wanted);
        if !fits(&layers, [3, 3]) || !fits(&outers, outer_dims) {
            prop_assert_eq!(plan.unwrap_err().status(), Status::OutOfRange);
            return Ok(());
        }
        let plan = plan.unwrap();
        let moves: Vec<_> = plan.moves().collect();
        prop_assert_eq!(bytes_of(&moves), expected(&source, &destination, &pairs, layers, outers));
        prop_assert_eq!(plan.bytes(), moves.iter().map(|m| m.size).sum::<u64>());
        prop_assert!(moves.len() as u64 <= plan.max_moves());
        prop_assert_eq!(plan.count_moves(false), moves.len() as u64);
        prop_assert_eq!(&passed(&plan), &moves);
        for side in 0..2 {
            let max_spans: u64 = plan.parts().map(|part| part.max_spans_on(side)).sum();
            prop_assert!(ranges_on(side, &moves) <= max_spans && max_spans <= plan.max_ranges_on(side));
        }
        prop_assert_eq!(plan.bytes(), plan.pieces() * source.geometry().piece_size());
        for each in &moves {
            prop_assert!(!moves.iter().any(|other| each.goes_on_in(other)), "two moves could be one");
        }
        check_units(&plan, &source, &destination)?;
    }
}

proptest! {
    #[test]
    fn parts_of_the_bytes_are_the_same_moves_wherever_they_are_cut(
        pairs in any_pairs(), from in 0usize..3, to in 0usize..3, to_shift in 0u32..7,
        layers in any_range(3), outers in any_range(2), by_layer: bool, step in 1u64..600,
    ) {
        let source = placement(dimensions(), KINDS[from], 4096);
        let destination = placement(Dimensions { alignment: 1 << to_shift, ..dimensions() }, KINDS[to], 1 << 20);
        prop_assume!(fits(&layers, [3, 3]) && fits(&outers, [2, 2]));
        let wanted = Wanted { layers: Some(layers), outers: Some(outers), heads: None };
        let outline = Arc::new(Outline::between(&source, &destination, wanted, by_layer).unwrap());
        let whole = Plan::new(&outline, &pairs, None).unwrap();
        let plans: Vec<_> = match by_layer {
            true => (0..layers.count).map(|layer| whole.layer(layer)).collect(),
            false => vec![whole.clone()],
        };
        let mut cut = Vec::new();
        for plan in &plans {
            for first in (0..plan.bytes()).step_by(step as usize) {
                let part: Vec<_> = plan.moves_in(first..plan.bytes().min(first + step)).collect();
                prop_assert_eq!(part.iter().map(|each| each.size).sum::<u64>(), step.min(plan.bytes() - first));
                cut.extend(part);
            }
        }
        let all: Vec<_> = whole.moves().collect();
        prop_assert_eq!(bytes_of(&cut), bytes_of(&all));
        prop_assert_eq!(cut.iter().map(|each| each.size).sum::<u64>(), whole.bytes());
    }

    #[test]
    fn a_plan_that_uses_the_memory_of_another_is_as_a_new_one(
        first in any_pairs(), second in any_pairs(), from in 0usize..3, to in 0usize..3, is_shared: bool,
    ) {
        let source = placement(dimensions(), KINDS[from], 4096);
        let destination = placement(dimensions(), KINDS[to], 1 << 20);
        let outline = Arc::new(Outline::between(&source, &destination, Wanted::default(), false).unwrap());
        let before = Plan::new(&outline, &first, None).unwrap();
        let shared = is_shared.then(|| before.clone());
        let expected: Vec<_> = before.moves().collect();
        let blocks = before.shared_blocks();
        drop(before);
        let again = Plan::new(&outline, &second, Some(blocks)).unwrap();
        let fresh = Plan::new(&outline, &second, None).unwrap();
        prop_assert_eq!(again.moves().collect::<Vec<_>>(), fresh.moves().collect::<Vec<_>>());
        if let Some(shared) = shared {
            prop_assert_eq!(shared.moves().collect::<Vec<_>>(), expected, "blocks that are in use are left alone");
        }
    }
}

/// The units of lists and kernels, by lane, row and block, are the bytes of the moves.
fn check_units(
    plan: &Plan,
    source: &Placement,
    destination: &Placement,
) -> std::result::Result<(), TestCaseError> {
    let part = plan.parts().next().unwrap();
    let grid = part.grid();
    let mut units = Vec::new();
    for lane in part.shape.starts(part.shape.lanes().0) {
        for row in 0..grid.rows {
            for run in part.runs() {
                let at = |start: u64, side: usize, id: u32, block: u64| {
                    start + row * grid.row_strides[side] + (u64::from(id) + block) * grid.strides[side]
                };
                units.extend((0..u64::from(run.length)).map(|block| Move {
                    source: at(lane.source, 0, run.source, block),
                    destination: at(lane.destination, 1, run.destination, block),
                    ..lane
                }));
            }
        }
    }
    let moves: Vec<_> = plan.moves().collect();
    prop_assert_eq!(bytes_of(&units), bytes_of(&moves));
    let unit = plan.unit().unwrap();
    let whole = |side: &Placement| match unit {
        Unit::Block => side.geometry().dimensions().num_layers * side.geometry().dimensions().outer_dim,
        Unit::Layer => side.geometry().dimensions().outer_dim,
        Unit::Piece => 1,
    };
    let pieces = grid.unit_size / source.geometry().piece_size();
    prop_assert!(whole(source) == whole(destination) && pieces.is_multiple_of(whole(source)));
    Ok(())
}

#[test]
fn a_whole_cache_in_order_is_one_move_a_region() {
    let all: Vec<_> = (0..12).map(|block| BlockPair { source: block, destination: block }).collect();
    for (kind, moves) in KINDS.into_iter().zip([1, 3, 3]) {
        let (a, b) = (placement(dimensions(), kind, 4096), placement(dimensions(), kind, 1 << 20));
        let plan = Plan::between(&a, &b, &all, Wanted::default()).unwrap();
        assert_eq!(plan.moves().count(), moves, "{kind:?}");
    }
}

#[test]
fn what_is_written_is_written_in_order_as_far_as_the_layout_goes() {
    let some = pairs(&[(6, 2), (1, 4), (5, 8), (9, 10)]);
    for (from, to) in KINDS.into_iter().flat_map(|from| KINDS.into_iter().map(move |to| (from, to))) {
        let (a, b) = (placement(dimensions(), from, 4096), placement(dimensions(), to, 1 << 20));
        let plan = Plan::between(&a, &b, &some, Wanted::default()).unwrap();
        let written: Vec<_> = plan.moves().map(|each| (each.destination_region, each.destination)).collect();
        let in_order = written.windows(2).filter(|pair| pair[0] < pair[1]).count();
        assert_eq!(in_order, written.len() - 1, "{from:?} to {to:?}");
    }
}

#[test]
fn a_block_of_more_layers_than_memory_holds_is_met_all_the_same() {
    let layers = Dimensions { num_layers: 1 << 40, ..dimensions() };
    let (a, b) = (placement(layers.clone(), KINDS[0], 4096), placement(layers, KINDS[0], 1 << 50));
    let keys = Wanted {
        outers: Some(PairedRange { source: 0, destination: 0, count: 1 }),
        layers: None,
        heads: None,
    };
    let plan = Plan::between(&a, &b, &pairs(&[(1, 0)]), keys).unwrap();
    let last = plan.moves().nth(100_000).unwrap();
    assert_eq!((last.source, last.destination), (a.address(1, 100_000, 0).1, b.address(0, 100_000, 0).1));
}

#[test]
fn runs_of_blocks_join_whatever_order_they_come_in() {
    let contiguous = |start| placement(dimensions(), Arrangement::FULLY_CONTIGUOUS, start);
    let shuffled = pairs(&[(6, 2), (1, 8), (5, 1), (4, 0), (2, 9)]);
    let (a, b) = (contiguous(4096), contiguous(1 << 20));
    let plan = Plan::between(&a, &b, &shuffled, Wanted::default()).unwrap();
    assert_eq!(plan.moves().count(), 2);
    let run = |source, destination, length| BlockRun { source, destination, length };
    assert_eq!(plan.block_runs().unwrap(), [run(4, 0, 3), run(1, 8, 2)]);
}

#[test]
fn a_slot_alone_is_one_move_where_slots_lie_apart() {
    let all: Vec<_> = (0..12).map(|block| BlockPair { source: block, destination: block }).collect();
    let values = Wanted {
        outers: Some(PairedRange { source: 1, destination: 0, count: 1 }),
        layers: None,
        heads: None,
    };
    for (kind, moves) in KINDS.into_iter().zip([36, 36, 3]) {
        let (a, b) = (placement(dimensions(), kind, 4096), placement(dimensions(), kind, 1 << 20));
        let plan = Plan::between(&a, &b, &all, values).unwrap();
        assert_eq!(plan.moves().count(), moves, "{kind:?}");
    }
}

#[test]
fn what_can_not_be_moved_is_refused() {
    let a = placement(dimensions(), KINDS[0], 4096);
    let fewer_layers = placement(Dimensions { num_layers: 2, ..dimensions() }, KINDS[0], 1 << 20);
    let fewer_slots = placement(Dimensions { outer_dim: 1, ..dimensions() }, KINDS[0], 1 << 20);
    let range = |source, destination, count| Some(PairedRange { source, destination, count });
    let layers = |source, destination, count| Wanted {
        layers: range(source, destination, count),
        outers: None,
        heads: None,
    };
    let outers = |source, destination, count| Wanted {
        outers: range(source, destination, count),
        ..Wanted::default()
    };
    let all = Wanted::default();
    let b = &placement(dimensions(), KINDS[0], 1 << 20);
    type Case<'a> = (&'a Placement, &'a [(u32, u32)], Wanted, Status, &'a str);
    let cases: [Case; 12] = [
        (b, &[], all, Status::InvalidArgument, "block pairs is empty"),
        (b, &[(12, 0)], all, Status::OutOfRange, "pairs[0].source is 12"),
        (b, &[(0, 12)], all, Status::OutOfRange, "pairs[0].destination is 12"),
        (
            &fewer_layers,
            &[(0, 0)],
            all,
            Status::InvalidArgument,
            "num_layers is 3 in the source layout and 2",
        ),
        (&fewer_slots, &[(0, 0)], all, Status::InvalidArgument, "outer_dim is 2 in the source layout and 1"),
        (b, &[(0, 0)], layers(0, 0, 0), Status::InvalidArgument, "0 layers"),
        (b, &[(0, 0)], outers(0, 0, 0), Status::InvalidArgument, "0 outer slots"),
        (b, &[(0, 0)], layers(u64::MAX, 0, 2), Status::OutOfRange, "the source layout, which has 3"),
        (b, &[(0, 0)], outers(u64::MAX, 0, 2), Status::OutOfRange, "the source layout, which has 2"),
        (b, &[(0, 0)], outers(0, 1, 2), Status::OutOfRange, "the destination layout, which has 2"),
        (&fewer_slots, &[(0, 0)], outers(0, 1, 1), Status::OutOfRange, "the destination layout, which has 1"),
        (&fewer_slots, &[(0, 0)], outers(1, 0, 2), Status::OutOfRange, "the source layout, which has 2"),
    ];
    for (destination, list, wanted, status, part) in cases {
        Plan::between(&a, destination, &pairs(list), wanted).unwrap_err().assert_is(status, part);
    }
}
