// SPDX-License-Identifier: Apache-2.0
//! What a plan must be, whatever the layouts: the same bytes as block by block, in fewer moves.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::layout::{BlockDim, Dimensions, Geometry, LayoutKind};

fn dimensions() -> Dimensions {
    Dimensions {
        num_blocks: 12,
        num_layers: 3,
        outer_dim: 2,
        page_size: 2,
        inner_dim: 3,
        dtype_width: 2,
        alignment: 1,
        num_heads: None,
    }
}

fn placement(dimensions: Dimensions, kind: LayoutKind, start: u64) -> Placement {
    Placement::within(Geometry::new(dimensions, kind).unwrap(), start).unwrap()
}

const KINDS: [LayoutKind; 3] = [
    LayoutKind::FullyContiguous,
    LayoutKind::LayerSeparate(BlockDim::First),
    LayoutKind::LayerSeparate(BlockDim::Second),
];

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
    layers: Layers,
) -> BTreeMap<(u32, u64), (u32, u64)> {
    let mut bytes = BTreeMap::new();
    for pair in pairs {
        for layer in 0..layers.count {
            for outer in 0..source.geometry().dimensions().outer_dim {
                let (sr, s) = source.address(pair.source.into(), layers.source + layer, outer);
                let (dr, d) = destination.address(pair.destination.into(), layers.destination + layer, outer);
                for i in 0..source.geometry().piece_size() {
                    bytes.insert((dr as u32, d + i), (sr as u32, s + i));
                }
            }
        }
    }
    bytes
}

fn any_pairs() -> impl Strategy<Value = Vec<BlockPair>> {
    let destinations = Just((0u32..12).collect::<Vec<_>>()).prop_shuffle();
    (destinations, prop::collection::vec(0u32..12, 12), 1usize..13).prop_map(
        |(destinations, sources, count)| {
            let zipped = sources.into_iter().zip(destinations).take(count);
            zipped.map(|(source, destination)| BlockPair { source, destination }).collect()
        },
    )
}

proptest! {
    #[test]
    fn a_plan_moves_exactly_the_bytes_asked(
        pairs in any_pairs(), from in 0usize..3, to in 0usize..3, from_shift in 0u32..7, to_shift in 0u32..7,
        outer_dim in 1u64..3, first in 0u64..3, first_there in 0u64..3, count in 1u64..4,
    ) {
        let side = |kind: usize, shift: u32, start| {
            placement(Dimensions { alignment: 1 << shift, outer_dim, ..dimensions() }, KINDS[kind], start)
        };
        let (source, destination) = (side(from, from_shift, 4096), side(to, to_shift, 1 << 20));
        let layers = Layers { source: first, destination: first_there, count };
        let plan = Plan::between(&source, &destination, &pairs, Some(layers));
        if first + count > 3 || first_there + count > 3 {
            prop_assert_eq!(plan.unwrap_err().status(), Status::OutOfRange);
            return Ok(());
        }
        let plan = plan.unwrap();
        let moves: Vec<_> = plan.moves(&source, &destination).collect();
        prop_assert_eq!(bytes_of(&moves), expected(&source, &destination, &pairs, layers));
        prop_assert_eq!(plan.bytes(), moves.iter().map(|m| m.size).sum::<u64>());
        prop_assert!(moves.len() as u64 <= plan.most_moves());
        prop_assert_eq!(plan.bytes(), plan.pieces() * source.geometry().piece_size());
        for pair in moves.windows(2) {
            prop_assert!(!pair[0].goes_on_in(&pair[1]), "two moves could be one");
        }
    }
}

#[test]
fn a_whole_cache_in_order_is_one_move_a_region() {
    let all: Vec<_> = (0..12).map(|block| BlockPair { source: block, destination: block }).collect();
    for (kind, moves) in KINDS.into_iter().zip([1, 3, 3]) {
        let (a, b) = (placement(dimensions(), kind, 4096), placement(dimensions(), kind, 1 << 20));
        let plan = Plan::between(&a, &b, &all, None).unwrap();
        assert_eq!(plan.moves(&a, &b).count(), moves, "{kind:?}");
    }
}

#[test]
fn runs_of_blocks_join_whatever_order_they_come_in() {
    let contiguous = |start| placement(dimensions(), LayoutKind::FullyContiguous, start);
    let shuffled = pairs(&[(6, 2), (1, 8), (5, 1), (4, 0), (2, 9)]);
    let (a, b) = (contiguous(4096), contiguous(1 << 20));
    let plan = Plan::between(&a, &b, &shuffled, None).unwrap();
    assert_eq!(plan.moves(&a, &b).count(), 2);
    let run = |source, destination, length| Run { source, destination, length };
    assert_eq!(plan.runs(), [run(4, 0, 3), run(1, 8, 2)]);
}

#[test]
fn what_can_not_be_moved_is_refused() {
    let a = placement(dimensions(), KINDS[0], 4096);
    let fewer_layers = placement(Dimensions { num_layers: 2, ..dimensions() }, KINDS[0], 1 << 20);
    type Case<'a> = (&'a Placement, &'a [(u32, u32)], Option<Layers>, Status);
    let cases: [Case; 5] = [
        (&a, &[], None, Status::InvalidArgument),
        (&a, &[(12, 0)], None, Status::OutOfRange),
        (&a, &[(0, 12)], None, Status::OutOfRange),
        (&fewer_layers, &[(0, 0)], None, Status::InvalidArgument),
        (&a, &[(0, 0)], Some(Layers { source: 0, destination: 0, count: 0 }), Status::InvalidArgument),
    ];
    for (destination, list, layers, status) in cases {
        assert_eq!(
            Plan::between(&a, destination, &pairs(list), layers).unwrap_err().status(),
            status,
            "{list:?}"
        );
    }
    let huge = Layers { source: u64::MAX, destination: 0, count: 2 };
    assert_eq!(
        Plan::between(&a, &a, &pairs(&[(0, 0)]), Some(huge)).unwrap_err().status(),
        Status::OutOfRange
    );
}
