// SPDX-License-Identifier: Apache-2.0
//! A plan of several parts moves the bytes of each of them, in regions of its own.

use super::linear::places;
use super::*;
use crate::layout::LayoutPart;
use crate::plan::BlockTable;
use crate::plan::outline::PartOutline;

/// A part of both sides, of any kind and size.
fn any_part() -> impl Strategy<Value = [Placement; 2]> {
    let kinds = prop::sample::select(KINDS.to_vec());
    ((1u64..4, 1u64..3, 1u64..5), kinds.clone(), kinds).prop_map(|((layers, outers, inner), one, other)| {
        let dimensions =
            Dimensions { num_layers: layers, outer_dim: outers, inner_dim: inner, ..dimensions() };
        [placement(dimensions.clone(), one, 1 << 20), placement(dimensions, other, 1 << 30)]
    })
}

/// The outline of parts that are behind each other in the list of regions of each side.
fn outline(parts: &[[Placement; 2]], by_layer: bool) -> Result<Arc<Outline>> {
    let mut first_regions = [0u32; 2];
    let outlines = parts.iter().enumerate().map(|(index, sides)| {
        let name = format!("part {index}");
        let side = |side: usize| LayoutPart {
            name: &name,
            placement: &sides[side],
            first_region: first_regions[side],
        };
        let part = PartOutline::new([side(0), side(1)], Wanted::default(), by_layer);
        for (first, side) in first_regions.iter_mut().zip(sides) {
            *first += side.bases().len() as u32;
        }
        part
    });
    Outline::from_parts(outlines.collect::<Result<_>>()?, by_layer).map(Arc::new)
}

/// The bytes that plans of the parts by themselves move, in the regions of the whole.
fn bytes_apart(
    parts: &[[Placement; 2]],
    plan: impl Fn(&Arc<Outline>) -> Plan,
) -> BTreeMap<(u32, u64), (u32, u64)> {
    let mut first_regions = [0u32; 2];
    let mut bytes = BTreeMap::new();
    for sides in parts {
        let alone = Outline::between(&sides[0], &sides[1], Wanted::default(), false).unwrap();
        let moves: Vec<_> = plan(&Arc::new(alone)).moves().collect();
        let shifted = bytes_of(&moves).into_iter().map(|((to_region, to), (from_region, from))| {
            ((to_region + first_regions[1], to), (from_region + first_regions[0], from))
        });
        bytes.extend(shifted);
        for (first, side) in first_regions.iter_mut().zip(sides) {
            *first += side.bases().len() as u32;
        }
    }
    bytes
}

proptest! {
    #[test]
    fn blocks_of_parts_move_like_those_of_each(
        parts in prop::collection::vec(any_part(), 1..4), pairs in any_pairs(), cut in any::<prop::sample::Index>(),
    ) {
        let whole = Plan::new(&outline(&parts, false).unwrap(), &pairs, None).unwrap();
        let moves: Vec<_> = whole.moves().collect();
        let expected = bytes_apart(&parts, |alone| Plan::new(alone, &pairs, None).unwrap());
        prop_assert_eq!(bytes_of(&moves), expected.clone());
        prop_assert_eq!(whole.bytes(), expected.len() as u64);
        prop_assert_eq!(moves.iter().map(|each| each.size).sum::<u64>(), whole.bytes());
        prop_assert!(moves.len() as u64 <= whole.max_moves());
        prop_assert_eq!(whole.count_moves(false), moves.len() as u64);
        prop_assert_eq!(&passed(&whole), &moves);
        prop_assert_eq!(whole.unit(), None, "no list is prepared for parts");
        let at = cut.index(whole.bytes() as usize) as u64;
        let halves = whole.moves_in(0..at).chain(whole.moves_in(at..whole.bytes()));
        prop_assert_eq!(bytes_of(&halves.collect::<Vec<_>>()), expected, "cut at {}", at);
    }

    #[test]
    fn tokens_of_parts_move_like_those_of_each(
        parts in prop::collection::vec(any_part(), 1..4), first in 0u64..5, tokens in 1u64..12,
    ) {
        let blocks = [3, 7, 1, 11, 0, 2, 5, 8];
        let table = |first_token| BlockTable { blocks: &blocks, first_token, token_step: 1 };
        let tables = TokenTables { sides: [table(0), table(first)], tokens: tokens.min(16 - first) };
        let whole = Plan::from_tokens(&outline(&parts, false).unwrap(), &tables, None).unwrap();
        let expected = bytes_apart(&parts, |alone| Plan::from_tokens(alone, &tables, None).unwrap());
        prop_assert_eq!(whole.bytes(), expected.len() as u64);
        prop_assert_eq!(bytes_of(&whole.moves().collect::<Vec<_>>()), expected);
    }

    #[test]
    fn slices_of_parts_have_each_byte_once(
        parts in prop::collection::vec(any_part(), 1..4), pairs in any_pairs(), leader in 0usize..2, max_bytes in 0usize..1000,
    ) {
        let whole = Plan::new(&outline(&parts, false).unwrap(), &pairs, None).unwrap();
        let expected = bytes_of(&whole.moves().collect::<Vec<_>>());
        let mut first_region = 0;
        let names: Vec<_> = (0..parts.len()).map(|index| format!("part {index}")).collect();
        let theirs: Vec<_> = parts.iter().zip(&names).map(|(sides, name)| {
            let placement = &sides[1 - leader];
            let part = LayoutPart { name, placement, first_region };
            first_region += placement.bases().len() as u32;
            part
        }).collect();
        let led = whole.led_by(leader).unwrap();
        let mut moved = BTreeMap::new();
        for slice in led.slices(1 - leader, max_bytes).unwrap() {
            let own = places(&slice.linear(leader).unwrap(), 64);
            let other = places(&slice.terms(1 - leader).unwrap().checked_in(theirs.iter().copied()).unwrap().placed().unwrap(), 64);
            let [sources, destinations] = if leader == 0 { [own, other] } else { [other, own] };
            for (offset, to) in destinations {
                prop_assert_eq!(moved.insert(to, sources[&offset]), None, "two slices have the same byte");
            }
        }
        prop_assert_eq!(moved, expected);
    }

    #[test]
    fn layers_of_parts_are_all_of_the_plan(parts in prop::collection::vec(any_part(), 1..4), pairs in any_pairs()) {
        let layers: Vec<_> = parts.iter().map(|sides| sides[0].geometry().count(Axis::Layer)).collect();
        let by_layer = outline(&parts, true);
        if layers.iter().any(|count| *count != layers[0]) {
            prop_assert!(by_layer.unwrap_err().message().contains("parts that are moved by layer need the same number"));
            return Ok(());
        }
        let whole = Plan::new(&by_layer.unwrap(), &pairs, None).unwrap();
        let each: Vec<_> = (0..layers[0]).map(|layer| whole.layer(layer)).collect();
        let moves: Vec<_> = each.iter().flat_map(|layer| layer.moves().collect::<Vec<_>>()).collect();
        prop_assert_eq!(bytes_of(&moves), bytes_of(&whole.moves().collect::<Vec<_>>()));
        prop_assert_eq!(whole.count_moves(true), moves.len() as u64);
        prop_assert_eq!(each.iter().map(Plan::bytes).sum::<u64>(), whole.bytes());
        prop_assert_eq!(each.iter().map(Plan::pieces).sum::<u64>(), whole.pieces());
    }
}

/// Each layer has loops of its own; a number that is too large would take all memory.
#[test]
fn a_million_layers_are_not_moved_one_by_one() {
    let dimensions = Dimensions { num_layers: 1 << 20, page_size: 1, inner_dim: 1, ..dimensions() };
    let side = |start| placement(dimensions.clone(), KINDS[0], start);
    let between = |by_layer| Outline::between(&side(4096), &side(1 << 40), Wanted::default(), by_layer);
    assert!(between(false).is_ok());
    between(true).unwrap_err().assert_is(Status::Unsupported, "1048576 layers are to be moved one by one");
}
