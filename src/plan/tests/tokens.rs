// SPDX-License-Identifier: Apache-2.0
//! Tokens of block tables and ranges of heads: compared with a copy element by element.

use super::*;
use crate::layout::{Arrangement, Axis, Order, Strides};
use crate::plan::{BlockTable, TokenTables};

pub(super) const BLOCKS: u64 = 9;
const ELEMENTS: u64 = 3;

/// Orders of real engines, and a transposed one.
const ORDERS: [&str; 9] =
    ["BLOHNC", "L/BHNOC", "L/BNHOC", "LO/BNHC", "LO/BHNC", "OBNLHC", "OBHNLC", "L/OHCBN", "HBNCLO"];

/// One of the three kinds, or of the orders.
fn kind_of(index: usize) -> Arrangement {
    let Some(order) = index.checked_sub(KINDS.len()) else { return KINDS[index] };
    let order = Order::parse(ORDERS[order]).unwrap();
    Arrangement { order, strides: Strides::default() }
}

pub(super) fn side(kind: usize, tokens: u64, heads: u64, alignment: u64, start: u64) -> Placement {
    let dimensions = Dimensions {
        num_blocks: BLOCKS,
        page_size: tokens,
        inner_dim: heads * ELEMENTS,
        num_heads: Some(heads),
        alignment,
        ..dimensions()
    };
    placement(dimensions, kind_of(kind), start)
}

/// Address of an element, by the strides of the geometry.
fn element(side: &Placement, indices: [(Axis, u64); 6]) -> (u32, u64) {
    let geometry = side.geometry();
    let region: u64 = indices.iter().map(|(axis, index)| geometry.region_step(*axis) as u64 * index).sum();
    let offset: u64 = indices.iter().map(|(axis, index)| geometry.stride(*axis) * index).sum();
    (region as u32, side.bases()[region as usize] + offset)
}

/// The copy element by element; `None` if a token of the destination is written twice.
pub(super) fn expected_of_tokens(
    sides: [&Placement; 2],
    tables: &TokenTables<'_>,
    heads: PairedRange,
) -> Option<BTreeMap<(u32, u64), (u32, u64)>> {
    let mut bytes = BTreeMap::new();
    let (layers, outers) = (sides[0].geometry().count(Axis::Layer), sides[0].geometry().count(Axis::Outer));
    for token in 0..tables.tokens {
        for index in 0..layers * outers * heads.count * ELEMENTS {
            let at = |side: usize| {
                let table = &tables.sides[side];
                let page = sides[side].geometry().count(Axis::Token);
                let token = table.first_token + token * table.token_step;
                let first = if side == 0 { heads.source } else { heads.destination };
                let block = table.blocks[(token / page) as usize];
                element(
                    sides[side],
                    [
                        (Axis::Block, block.into()),
                        (Axis::Token, token % page),
                        (Axis::Layer, index % layers),
                        (Axis::Outer, index / layers % outers),
                        (Axis::Head, first + index / layers / outers % heads.count),
                        (Axis::Element, index / layers / outers / heads.count),
                    ],
                )
            };
            let ((from_region, from), (to_region, to)) = (at(0), at(1));
            for byte in 0..sides[0].geometry().element_size() {
                if bytes.insert((to_region, to + byte), (from_region, from + byte)).is_some() {
                    return None;
                }
            }
        }
    }
    Some(bytes)
}

pub(super) fn any_table() -> impl Strategy<Value = Vec<u32>> {
    let shuffled = Just((0..BLOCKS as u32).collect::<Vec<_>>()).prop_shuffle();
    let repeated = prop::collection::vec(0..BLOCKS as u32, 1..6);
    prop_oneof![3 => shuffled, 1 => Just((0..BLOCKS as u32).collect::<Vec<_>>()), 1 => repeated]
}

proptest! {
    #![proptest_config(cases(1500))]

    #[test]
    fn any_tokens_and_heads_give_the_bytes_of_a_copy_element_by_element(
        kinds in [0usize..12, 0usize..12], pages in [1u64..7, 1u64..7], shifts in [0u32..6, 0u32..6],
        tables in [any_table(), any_table()], firsts in [0u64..8, 0u64..8],
        steps in prop_oneof![2 => Just([1u64, 1]), 1 => [1u64..4, 1u64..4]],
        heads in any_range(3), more_heads in [0u64..2, 0u64..2], tokens in 0u64..20, by_layer: bool, step in 1u64..500,
    ) {
        let side = |index: usize, start| {
            side(kinds[index], pages[index], 3 + more_heads[index], 1 << shifts[index], start)
        };
        let (source, destination) = (side(0, 4096), side(1, 1 << 20));
        let table = |index: usize| BlockTable {
            blocks: &tables[index],
            first_token: firsts[index],
            token_step: steps[index],
        };
        let asked = TokenTables { sides: [table(0), table(1)], tokens };
        let wanted = Wanted { heads: Some(heads), ..Wanted::default() };
        let outline = Outline::between(&source, &destination, wanted, by_layer);
        if !fits(&heads, more_heads.map(|more| 3 + more)) {
            prop_assert_eq!(outline.unwrap_err().status(), Status::OutOfRange);
            return Ok(());
        }
        let plan = Plan::from_tokens(&Arc::new(outline.unwrap()), &asked, None);
        let ends = [0, 1].map(|side| firsts[side] + tokens.saturating_sub(1) * steps[side]);
        let is_short = (0..2).any(|side| ends[side] >= tables[side].len() as u64 * pages[side]);
        if tokens == 0 || is_short {
            let wrong = if tokens == 0 { Status::InvalidArgument } else { Status::OutOfRange };
            prop_assert_eq!(plan.unwrap_err().status(), wrong);
            return Ok(());
        }
        let Some(expected) = expected_of_tokens([&source, &destination], &asked, heads) else {
            let error = plan.unwrap_err();
            prop_assert!(error.message().contains("is a destination twice"), "{}", error);
            return Ok(());
        };
        let plan = plan.unwrap();
        prop_assert_eq!(plan.bytes(), expected.len() as u64);
        let moves: Vec<_> = plan.moves().collect();
        prop_assert_eq!(&bytes_of(&moves), &expected);
        for (index, side) in [&source, &destination].into_iter().enumerate() {
            let of_moves = moves.iter().map(|each| match index {
                0 => (each.source_region, each.source, each.size),
                _ => (each.destination_region, each.destination, each.size),
            });
            let of_moves: Vec<_> = of_moves.collect();
            let ranges: Vec<_> = plan.footprints(index).collect();
            let is_in = |(region, at, size): (u32, u64, u64), other: &(u32, u64, u64)| {
                other.0 == region && other.1 <= at && at + size <= other.1 + other.2
            };
            for each in &of_moves {
                // Moves of neighbours may be one, and then are in several.
                let starts = ranges.iter().any(|range| is_in((each.0, each.1, 1), range));
                prop_assert!(starts && ranges.iter().any(|range| is_in((each.0, each.1 + each.2 - 1, 1), range)));
            }
            // Extents of elastic memory, each of which has whole parts of blocks.
            let geometry = side.geometry();
            let stride = geometry.block_stride();
            if geometry.outside_blocks().any(|axis| !geometry.stride(axis).is_multiple_of(stride)) {
                continue;
            }
            for blocks in [1, 2] {
                let extents = |ranges: &[(u32, u64, u64)]| {
                    let touched = ranges.iter().flat_map(|(region, at, size)| {
                        let first = at - side.bases()[*region as usize];
                        let end = (first + size).div_ceil(blocks * stride);
                        (first / (blocks * stride)..end).map(move |extent| (*region, extent))
                    });
                    touched.collect::<std::collections::BTreeSet<_>>()
                };
                prop_assert_eq!(extents(&of_moves), extents(&ranges));
            }
        }
        prop_assert!(moves.len() as u64 <= plan.max_moves());
        prop_assert_eq!(plan.count_moves(false), moves.len() as u64);
        prop_assert_eq!(&passed(&plan), &moves);
        let plans: Vec<_> = match by_layer {
            true => (0..3).map(|layer| plan.layer(layer)).collect(),
            false => vec![plan.clone()],
        };
        let parts: Vec<_> = plans
            .iter()
            .flat_map(|plan| {
                (0..plan.bytes()).step_by(step as usize).flat_map(|first| {
                    plan.moves_in(first..plan.bytes().min(first + step)).collect::<Vec<_>>()
                })
            })
            .collect();
        prop_assert_eq!(&bytes_of(&parts), &expected);
        let mut rows = Vec::new();
        plan.matrices(1 << 31).for_each(|matrices| matrices.for_each(|matrix| rows.extend(matrix.moves())));
        prop_assert_eq!(&bytes_of(&rows), &expected);
        check_canonical_order(&plan)?;
    }
}

proptest! {
    #[test]
    fn plans_of_tokens_that_use_the_memory_of_another_are_as_new_ones(
        kinds in [0usize..12, 0usize..12], pages in [1u64..7, 1u64..7], by_layer: bool,
        steps in prop::collection::vec(([0u64..8, 0u64..8], [1u64..4, 1u64..4], 1u64..20), 2..5),
    ) {
        let (source, destination) = (side(kinds[0], pages[0], 3, 1, 4096), side(kinds[1], pages[1], 3, 1, 1 << 20));
        let outline = Arc::new(Outline::between(&source, &destination, Wanted::default(), by_layer).unwrap());
        let ids: Vec<_> = (0..BLOCKS as u32).rev().collect();
        let mut spare = None;
        for (firsts, steps, tokens) in steps {
            let table = |side: usize| BlockTable {
                blocks: &ids,
                first_token: firsts[side],
                token_step: steps[side],
            };
            let asked = TokenTables { sides: [table(0), table(1)], tokens };
            let Ok(fresh) = Plan::from_tokens(&outline, &asked, None) else { continue };
            let again = Plan::from_tokens(&outline, &asked, spare.take()).unwrap();
            prop_assert_eq!(again.moves().collect::<Vec<_>>(), fresh.moves().collect::<Vec<_>>());
            prop_assert_eq!((again.bytes(), again.blocks()), (fresh.bytes(), fresh.blocks()));
            if by_layer {
                let last = |plan: &Plan| plan.layer(2).moves().collect::<Vec<_>>();
                prop_assert_eq!(last(&again), last(&fresh));
            }
            spare = Some(again.shared_blocks());
        }
    }
}

/// Both sides have the same bytes in the same canonical order.
fn check_canonical_order(plan: &Plan) -> std::result::Result<(), TestCaseError> {
    let moves = bytes_of(&plan.moves().collect::<Vec<_>>());
    let addresses: BTreeMap<u64, u64> = moves.iter().map(|((_, to), (_, from))| (*to, *from)).collect();
    for part in plan.parts() {
        for run in part.runs() {
            let listed = |side: usize, id: u32| {
                let mut bytes = Vec::new();
                part.each_in_canonical_order(side, id, |at, size| bytes.extend(at..at + size));
                bytes
            };
            for index in 0..run.length {
                let (from, to) = (listed(0, run.source + index), listed(1, run.destination + index));
                prop_assert_eq!(from, to.iter().map(|at| addresses[at]).collect::<Vec<_>>());
            }
        }
    }
    Ok(())
}

#[test]
fn whole_blocks_of_one_size_are_planned_as_pairs() {
    let (source, destination) = (side(0, 4, 2, 1, 4096), side(1, 4, 2, 1, 1 << 20));
    let outline = Arc::new(Outline::between(&source, &destination, Wanted::default(), false).unwrap());
    let table = |blocks, first_token| BlockTable { blocks, first_token, token_step: 1 };
    let tables = TokenTables { sides: [table(&[5, 3, 1, 8], 4), table(&[2, 0, 7], 0)], tokens: 12 };
    let plan = Plan::from_tokens(&outline, &tables, None).unwrap();
    let by_pairs = Plan::new(&outline, &pairs(&[(3, 2), (1, 0), (8, 7)]), None).unwrap();
    assert_eq!(plan.block_runs(), by_pairs.block_runs());
}

#[test]
fn tables_that_do_not_fit_are_refused_by_name() {
    let (source, destination) = (side(0, 4, 2, 1, 4096), side(0, 2, 2, 1, 1 << 20));
    let outline = Arc::new(Outline::between(&source, &destination, Wanted::default(), false).unwrap());
    type Case<'a> = (&'a [u32], u64, &'a [u32], u64, Status, &'a str);
    let cases: [Case<'_>; 5] = [
        (&[1, 2], 0, &[1, 2, 3, 4], 9, Status::OutOfRange, "exceed source_table, which has 2 blocks of 4"),
        (&[1, 2], 0, &[1, 2, 3], 8, Status::OutOfRange, "exceed destination_table, which has 3 blocks of 2"),
        (&[1, 9], 0, &[1, 2, 3, 4], 8, Status::OutOfRange, "blocks[1] of source_table is 9"),
        (&[1, 2], 0, &[1, 2, 1, 4], 8, Status::InvalidArgument, "token 0 of block 1 is a destination twice"),
        (&[1, 2], u64::MAX, &[1, 2], 3, Status::OutOfRange, "exceed source_table"),
    ];
    for (from, first_token, to, tokens, status, text) in cases {
        let table = |blocks, first_token| BlockTable { blocks, first_token, token_step: 1 };
        let tables = TokenTables { sides: [table(from, first_token), table(to, 0)], tokens };
        Plan::from_tokens(&outline, &tables, None).unwrap_err().assert_is(status, text);
    }
    let error = Plan::new(&outline, &pairs(&[(0, 0)]), None).unwrap_err();
    assert!(error.message().contains("page_size is 4 in the source layout and 2"), "{error}");
}

/// Every entry of the destination's table is the same block, and each writes another token of it. Comparing each with each would
/// take minutes.
#[test]
fn a_block_that_is_named_a_million_times_is_planned_at_once() {
    const TOKENS: u64 = 1 << 20;
    let kind = Arrangement::FULLY_CONTIGUOUS;
    let sized = Dimensions { page_size: TOKENS, ..Dimensions::ONE };
    let side = |start| Placement::within(Geometry::new(sized.clone(), kind).unwrap(), start).unwrap();
    let outline = Arc::new(Outline::between(&side(4096), &side(1 << 40), Wanted::default(), false).unwrap());
    let blocks = vec![0; TOKENS as usize + 1];
    let planned = |token_step, tokens| {
        let source = BlockTable { blocks: &blocks, first_token: 0, token_step: 1 };
        let destination = BlockTable { token_step, ..source };
        Plan::from_tokens(&outline, &TokenTables { sides: [source, destination], tokens }, None)
    };
    assert_eq!(planned(TOKENS + 1, TOKENS).unwrap().bytes(), TOKENS);
    assert!(planned(TOKENS - 1, TOKENS).is_ok());
    let error = planned(TOKENS - 1, TOKENS + 1).unwrap_err();
    assert!(error.message().contains("of block 0 is a destination twice"), "{error}");
}

#[test]
fn contents_that_differ_are_refused_by_name() {
    let sized = |change: fn(Dimensions) -> Dimensions, start| {
        let dimensions = Dimensions { inner_dim: 4, num_heads: Some(2), ..dimensions() };
        placement(change(dimensions), KINDS[0], start)
    };
    let same = sized(|it| it, 4096);
    let range = |source, destination, count| Some(PairedRange { source, destination, count });
    let all = Wanted::default();
    let one = Wanted { heads: range(0, 0, 1), ..all };
    let cases: [(Placement, Wanted, &str); 11] = [
        (
            sized(|it| Dimensions { dtype_width: 1, ..it }, 1 << 20),
            all,
            "dtype_width is 2 in the source layout and 1",
        ),
        (
            sized(|it| Dimensions { inner_dim: 8, ..it }, 1 << 20),
            all,
            "the number of elements per head is 2 in the source layout and 4 in the destination; compare inner_dim and num_heads",
        ),
        (
            sized(|it| Dimensions { num_heads: Some(4), ..it }, 1 << 20),
            all,
            "the number of elements per head is 2 in the source layout and 1",
        ),
        (
            sized(|it| Dimensions { num_heads: Some(3), inner_dim: 6, ..it }, 1 << 20),
            all,
            "num_heads is 2 in the source layout and 3 in the destination; to move some of the heads, give num_heads",
        ),
        (
            sized(|it| Dimensions { num_heads: None, inner_dim: 6, ..it }, 1 << 20),
            all,
            "inner_dim is 4 in the source layout and 6 in the destination; to move some of the heads, build both",
        ),
        (
            sized(|it| Dimensions { num_layers: 7, ..it }, 1 << 20),
            all,
            "to move some of the layers, give num_layers, source_layer and destination_layer in the options",
        ),
        (
            sized(|it| Dimensions { outer_dim: 1, ..it }, 1 << 20),
            all,
            "to move some of the outer slots, give num_outers, source_outer and destination_outer in the options",
        ),
        (sized(|it| Dimensions { inner_dim: 8, ..it }, 1 << 20), one, "the number of elements per head is 2"),
        (
            sized(|it| Dimensions { num_heads: None, ..it }, 1 << 20),
            one,
            "num_heads is 0 in the destination layout",
        ),
        (
            sized(|it| it, 1 << 20),
            Wanted { heads: range(1, 0, 2), ..all },
            "outside the source layout, which has 2",
        ),
        (sized(|it| it, 1 << 20), Wanted { heads: range(0, 0, 0), ..all }, "0 heads"),
    ];
    for (other, wanted, text) in cases {
        let error = Outline::between(&same, &other, wanted, false).unwrap_err();
        assert!(error.message().contains(text), "{error}");
    }
    let unsaid = sized(|it| Dimensions { num_heads: None, num_blocks: 9, alignment: 64, ..it }, 1 << 20);
    let plan = Plan::between(&same, &unsaid, &pairs(&[(0, 0)]), all).unwrap();
    assert_eq!(plan.unit(), Some(Unit::Block));
}
