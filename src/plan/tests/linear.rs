// SPDX-License-Identifier: Apache-2.0
//! Both sides of a plan count the same bytes alike, the other side by terms alone; hostile terms are refused.

use super::tokens::{BLOCKS, any_table, expected_of_tokens, side};
use super::*;
use crate::layout::{Arrangement, LayoutPart, Order};
use crate::plan::{BlockTable, Terms, TokenTables};

fn parts(placement: &Placement) -> impl Iterator<Item = LayoutPart<'_>> + Clone {
    std::iter::once(LayoutPart { name: "", placement, first_region: 0 })
}

/// Offset in the row → byte of the side.
pub(super) fn places(plan: &LinearPlan, step: u64) -> BTreeMap<u64, (u32, u64)> {
    let mut places = BTreeMap::new();
    for first in (0..plan.bytes()).step_by(step as usize) {
        for each in plan.rows_in(first..plan.bytes().min(first + step)).flat_map(Matrix::moves) {
            for byte in 0..each.size {
                let before = places.insert(each.destination + byte, (each.source_region, each.source + byte));
                assert_eq!(before, None, "a byte is counted twice");
            }
        }
    }
    assert_eq!(places.len() as u64, plan.bytes());
    places
}

/// Byte of the destination → byte of the source.
type Moved = BTreeMap<(u32, u64), (u32, u64)>;

/// Terms of any plan of these tests that name one span have fewer bytes.
const MIN_TERMS: usize = 240;

/// Moves the bytes of a plan through rows, in the order of one of the sides: one row for each slice, whose terms have at most
/// `max_bytes`. Returns the number of slices, too.
fn through_rows(
    plan: &Plan,
    sides: [&Placement; 2],
    leader: usize,
    step: u64,
    max_bytes: usize,
) -> Result<(Moved, usize)> {
    let led = plan.led_by(leader).unwrap();
    let mut moved = Moved::new();
    let slices = led.slices(1 - leader, max_bytes)?;
    for slice in &slices {
        let words = serde_round_trip(&slice.terms(1 - leader)?, max_bytes.max(MIN_TERMS));
        let other = places(&words.checked_in(parts(sides[1 - leader]))?.placed()?, step);
        let own = places(&slice.linear(leader)?, step);
        let [sources, destinations] = if leader == 0 { [own, other] } else { [other, own] };
        assert_eq!(sources.len(), destinations.len());
        for (offset, to) in destinations {
            assert_eq!(moved.insert(to, sources[&offset]), None, "two slices have the same byte");
        }
    }
    Ok((moved, slices.len()))
}

fn through_a_row(plan: &Plan, sides: [&Placement; 2], leader: usize, step: u64) -> Result<Moved> {
    let (moved, slices) = through_rows(plan, sides, leader, step, 1 << 20)?;
    assert_eq!(slices, 1);
    Ok(moved)
}

fn serde_round_trip(terms: &Terms, max_bytes: usize) -> Terms {
    let bytes = minicbor_serde::to_vec(terms).unwrap();
    assert!(bytes.len() <= max_bytes, "{} bytes of terms, {max_bytes} are the most", bytes.len());
    let read: Terms = minicbor_serde::from_slice(&bytes).unwrap();
    assert_eq!(&read, terms);
    read
}

proptest! {
    #![proptest_config(cases(1500))]

    #[test]
    fn both_sides_count_the_bytes_alike(
        kinds in [0usize..12, 0usize..12], pages in [1u64..7, 1u64..7], shifts in [0u32..6, 0u32..6],
        tables in [any_table(), any_table()], firsts in [0u64..8, 0u64..8],
        steps in prop_oneof![2 => Just([1u64, 1]), 1 => [1u64..4, 1u64..4]],
        heads in any_range(3), more_heads in [0u64..2, 0u64..2], tokens in 1u64..20, by_layer: bool, step in 1u64..500,
        leader in 0usize..2, max_bytes in 0usize..500,
    ) {
        let side = |index: usize, start| {
            side(kinds[index], pages[index], 3 + more_heads[index], 1 << shifts[index], start)
        };
        let sides = [side(0, 4096), side(1, 1 << 20)];
        let sides = sides.each_ref();
        let table = |index: usize| BlockTable {
            blocks: &tables[index],
            first_token: firsts[index],
            token_step: steps[index],
        };
        let asked = TokenTables { sides: [table(0), table(1)], tokens };
        let wanted = Wanted { heads: Some(heads), ..Wanted::default() };
        let Ok(outline) = Outline::between(sides[0], sides[1], wanted, by_layer) else { return Ok(()) };
        let Ok(plan) = Plan::from_tokens(&Arc::new(outline), &asked, None) else { return Ok(()) };
        let expected = expected_of_tokens(sides, &asked, heads).unwrap();
        if by_layer {
            let layers = (0..3).map(|layer| through_a_row(&plan.layer(layer), sides, leader, step));
            prop_assert_eq!(layers.flat_map(Result::unwrap).collect::<BTreeMap<_, _>>(), expected);
        } else {
            prop_assert_eq!(&through_a_row(&plan, sides, leader, step).unwrap(), &expected);
            let (moved, slices) = through_rows(&plan, sides, leader, step, max_bytes).unwrap();
            prop_assert_eq!(moved, expected);
            prop_assert!(slices as u64 <= plan.blocks());
        }
    }

    #[test]
    fn a_side_without_a_number_of_heads_has_those_of_the_other(
        pairs in any_pairs(), from in 0usize..3, to in 0usize..3, heads in [prop::bool::ANY, prop::bool::ANY],
        leader in 0usize..2,
    ) {
        let side = |kind: usize, heads: bool, start| {
            placement(Dimensions { num_heads: heads.then_some(3), ..dimensions() }, KINDS[kind], start)
        };
        let sides = [side(from, heads[0], 4096), side(to, heads[1], 1 << 20)];
        let Ok(plan) = Plan::between(&sides[0], &sides[1], &pairs, Wanted::default()) else { return Ok(()) };
        let moves: Vec<_> = plan.moves().collect();
        prop_assert_eq!(through_a_row(&plan, sides.each_ref(), leader, 7).unwrap(), bytes_of(&moves));
    }

    #[test]
    fn other_terms_stay_within_the_layout(
        kind in 0usize..12, page in 1u64..7, numbers in prop::collection::vec(0u64..9, 9), huge in 0usize..20,
        order in "[BLONHC]{4,7}", is_valid: bool, spans in prop::collection::vec((0u32..12, 0u32..8, 0u32..4), 0..5),
        odd: bool,
    ) {
        let layout = side(kind, page, 3, 1, 1 << 20);
        let at = |index: usize| if index == huge { u64::MAX } else { numbers[index] };
        let range = |index: usize| [at(index), at(index + 1)];
        let order = if is_valid { "BLONHC".to_string() } else { order };
        let mut bytes: Vec<u8> =
            spans.iter().flat_map(|(block, token, count)| [*block, *token, *count]).flat_map(u32::to_le_bytes).collect();
        bytes.extend(odd.then_some(7));
        let terms = Terms::raw(order, range(0), range(2), range(4), [3, at(6), at(7), 2], bytes);
        let Ok(checked) = terms.checked_in(parts(&layout)) else { return Ok(()) };
        let Ok(plan) = checked.placed() else { return Ok(()) };
        prop_assert_eq!(checked.bytes(), plan.bytes());
        let size = layout.geometry().region_size();
        for each in plan.rows_in(0..plan.bytes()).flat_map(Matrix::moves) {
            let base = layout.bases()[each.source_region as usize];
            prop_assert!(each.source >= base && each.source + each.size <= base + size);
        }
    }
}

#[test]
fn terms_that_a_layout_does_not_have_are_refused_by_name() {
    let layout = side(0, 4, 3, 1, 4096);
    let span = |block: u32, token: u32, count: u32| [block, token, count].map(u32::to_le_bytes).concat();
    let raw = |order: &str, layers, numbers, spans| {
        Terms::raw(order.into(), layers, [0, 2], [0, 3], numbers, spans)
    };
    for (terms, expected) in [
        (raw("BLONHC", [0, 4], [3, 4, 1, 2], span(0, 0, 1)), "4 from 0 on of the 3 indices of axis L"),
        (raw("BLONHC", [0, 3], [3, 4, 1, 2], span(8, 0, 2)), "the layout has 9 blocks of 4 tokens"),
        (raw("BLONHC", [0, 3], [3, 4, 1, 2], span(0, 1, 1)), "from token 1 of block 0 on"),
        (raw("BLONHC", [0, 3], [3, 2, 4, 2], span(0, 0, 1)), "each 4 after the one before"),
        (raw("BLONHC", [0, 3], [3, 2, 0, 2], span(0, 0, 1)), "each 0 after the one before"),
        (raw("BLONHC", [0, 3], [5, 2, 1, 2], span(0, 0, 1)), "a layout of 5 heads"),
        (raw("BLONHC", [0, 3], [3, 2, 1, 4], span(0, 0, 1)), "elements of 4 bytes"),
        (
            raw("BLONHB", [0, 3], [3, 2, 1, 2], span(0, 0, 1)),
            "the order 'BLONHB' does not have each axis once",
        ),
        (raw("BLONHCC", [0, 3], [3, 2, 1, 2], span(0, 0, 1)), "does not have each axis once"),
        (raw("BLONHC", [0, 3], [3, 2, 1, 2], vec![0; 11]), "lists spans in 11 bytes"),
        (raw("BLONHC", [0, 3], [3, 2, 1, 2], Vec::new()), "at least one"),
        (raw("BLONHC", [0, 3], [3, 2, 1, 2], span(0, 0, u32::MAX)), "of 4294967295 blocks"),
    ] {
        let error = terms.checked_in(parts(&layout)).err().unwrap();
        assert!(error.message().contains(expected), "{error}");
    }
    assert_eq!(BLOCKS, 9);
    let part = Placement::clone(&layout);
    let named = std::iter::once(LayoutPart { name: "keys", placement: &part, first_region: 0 });
    let error = raw("BLONHC", [0, 3], [3, 4, 1, 2], span(0, 0, 1)).checked_in(named).err().unwrap();
    assert_eq!(error.status(), Status::NotFound);
}

/// The owner would refuse what this side says, after other paths were excluded.
#[test]
fn what_an_owner_refuses_is_not_said() {
    let order = Order::parse("N/BLOHC").unwrap();
    let of_one_head = Dimensions { num_heads: Some(1), ..dimensions() };
    let apart = placement(of_one_head.clone(), Arrangement::tight(order), 4096);
    let together = placement(of_one_head, KINDS[0], 1 << 20);
    for (sides, owner) in [([&apart, &together], 0), ([&together, &apart], 1)] {
        let plan = Plan::between(sides[0], sides[1], &pairs(&[(1, 0)]), Wanted::default()).unwrap();
        let terms = |leader: usize| plan.led_by(leader).unwrap().whole().terms(1 - leader);
        assert_eq!(terms(1 - owner).unwrap_err().status(), Status::Unsupported);
        assert!(terms(owner).is_ok());
    }
}

#[test]
fn what_the_leader_has_together_is_together_in_the_row() {
    let (source, destination) = (side(5, 4, 3, 1, 4096), side(6, 4, 3, 1, 1 << 20));
    let plan =
        Plan::between(&source, &destination, &pairs(&[(3, 0), (1, 1), (7, 2)]), Wanted::default()).unwrap();
    let rows = |leader: usize| {
        plan.led_by(leader).unwrap().whole().linear(leader).unwrap().rows_in(0..plan.bytes()).count()
    };
    let moves = plan.moves().count();
    assert!(rows(0) < moves && rows(1) < moves, "{} and {} of {moves}", rows(0), rows(1));
}
