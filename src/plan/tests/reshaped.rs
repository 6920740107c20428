// SPDX-License-Identifier: Apache-2.0
//! Plans between sides that store the same elements in any order, with any padding: compared with a copy element by element.

use std::ops::Range;

use super::*;
use crate::layout::Axis;
use crate::plan::axes::PairedBlock;
use crate::plan::nest::{LoopOrder, PairedAxis};
use crate::plan::side::Side;
use crate::plan::{count, tiles, units};

const BLOCKS: u64 = 5;
const ELEMENT: u64 = 2;
/// The axes of a block, in the order of [`Sizes`].
const AXES: [Axis; 5] = [Axis::Layer, Axis::Outer, Axis::Token, Axis::Head, Axis::Element];

/// One side: strides and steps between regions of the axes of a block, and of blocks.
#[derive(Clone, Debug)]
struct Layouted {
    counts: [u64; 5],
    strides: [u64; 5],
    regions: [u32; 5],
    block_stride: u64,
    bases: Vec<u64>,
}

/// Describes a side: the order of its axes (5 is the block), those that have separate regions, and padding.
fn layouted(counts: [u64; 5], order: &[usize], separate: [bool; 2], padding: &[u64], start: u64) -> Layouted {
    let (mut strides, mut regions, mut block_stride) = ([0; 5], [0; 5], 0);
    let (mut size, mut count) = (ELEMENT, 1);
    for (axis, padding) in order.iter().zip(padding) {
        if *axis < 2 && separate[*axis] {
            regions[*axis] = count as u32;
            count *= counts[*axis];
            continue;
        }
        size += padding * ELEMENT;
        match *axis {
            5 => block_stride = size,
            axis => strides[axis] = size,
        }
        size *= if *axis == 5 { BLOCKS } else { counts[*axis] };
    }
    let bases = (0..count).map(|region| start + region * 2 * size).collect();
    Layouted { counts, strides, regions, block_stride, bases }
}

impl Layouted {
    fn element(&self, block: u64, indices: [u64; 5]) -> (u32, u64) {
        let region: u64 = (0..5).map(|axis| indices[axis] * u64::from(self.regions[axis])).sum();
        let offset: u64 = (0..5).map(|axis| indices[axis] * self.strides[axis]).sum();
        (region as u32, self.bases[region as usize] + offset + block * self.block_stride)
    }
}

/// Two sides, and what is moved of each block: first indices and counts.
#[derive(Clone, Debug)]
struct Case {
    sides: [Layouted; 2],
    counts: [u64; 5],
    firsts: [[u64; 2]; 5],
}

prop_compose! {
    fn any_side(start: u64)(
        extra in [0u64..2, 0u64..2, 0u64..1, 0u64..3, 0u64..1],
        order in prop_oneof![
            Just(vec![4, 3, 2, 1, 0, 5]),
            Just(vec![4, 2, 3, 1, 5, 0]),
            Just((0usize..6).collect::<Vec<_>>()).prop_shuffle(),
        ],
        separate: [bool; 2],
        padding in prop_oneof![Just(vec![0; 6]), prop::collection::vec(prop_oneof![3 => Just(0u64), 1 => 1u64..4], 6)],
    ) -> (u64, [u64; 5], Vec<usize>, [bool; 2], Vec<u64>) {
        (start, extra, order, separate, padding)
    }
}

prop_compose! {
    fn any_case()(
        counts in [1u64..4, 1u64..3, 1u64..5, 1u64..4, 1u64..5],
        sides in (any_side(4096), any_side(1 << 20)),
        shift in [[0u64..3, 0u64..3], [0u64..3, 0u64..3]],
        is_like: bool,
    ) -> Case {
        let (source, mut destination) = sides;
        if is_like {
            destination = (destination.0, source.1, source.2.clone(), source.3, source.4.clone());
        }
        let extras = [source.1, destination.1];
        let side = |(start, extra, order, separate, padding): (u64, [u64; 5], Vec<usize>, [bool; 2], Vec<u64>)| {
            let all = std::array::from_fn(|axis| counts[axis] + extra[axis]);
            layouted(all, &order, separate, &padding, start)
        };
        let mut firsts = [[0; 2]; 5];
        for side in 0..2 {
            firsts[0][side] = shift[0][side].min(extras[side][0]);
            firsts[3][side] = shift[1][side].min(extras[side][3]);
        }
        Case { sides: [side(source), side(destination)], counts, firsts }
    }
}

impl Case {
    fn block(&self) -> PairedBlock {
        let axis = |axis: usize| PairedAxis {
            axis: AXES[axis],
            count: self.counts[axis],
            strides: [0, 1].map(|side| self.sides[side].strides[axis]),
            regions: [0, 1].map(|side| self.sides[side].regions[axis]),
            is_whole: self.sides.iter().all(|side| side.counts[axis] == self.counts[axis]),
        };
        PairedBlock {
            axes: std::array::from_fn(axis),
            firsts: self.firsts,
            offsets: [0; 2],
            element_size: ELEMENT,
            page_strides: [0, 1].map(|side| self.sides[side].block_stride),
        }
    }

    fn shape(&self) -> Shape {
        let sides = [0, 1].map(|side| {
            let side = &self.sides[side];
            Side::new(side.bases.clone().into(), side.block_stride)
        });
        Shape::new(&sides, &self.block())
    }

    fn shape_in_order(&self, order: LoopOrder) -> Shape {
        Shape::in_order(order, &self.shape().sides, &self.block())
    }

    /// The copy element by element.
    fn expected(&self, pairs: &[BlockPair]) -> BTreeMap<(u32, u64), (u32, u64)> {
        let mut bytes = BTreeMap::new();
        for pair in pairs {
            for index in 0..self.counts.iter().product() {
                let mut left: u64 = index;
                let indices: [u64; 5] = std::array::from_fn(|axis| {
                    let index = left % self.counts[axis];
                    left /= self.counts[axis];
                    index
                });
                let at = |side: usize, block: u32| {
                    let indices = std::array::from_fn(|axis| self.firsts[axis][side] + indices[axis]);
                    self.sides[side].element(block.into(), indices)
                };
                let ((from_region, from), (to_region, to)) = (at(0, pair.source), at(1, pair.destination));
                for byte in 0..ELEMENT {
                    bytes.insert((to_region, to + byte), (from_region, from + byte));
                }
            }
        }
        bytes
    }
}

fn some_pairs() -> impl Strategy<Value = Vec<BlockPair>> {
    any_pairs_of(BLOCKS as u32)
}

fn moves(shape: &Shape, blocks: &BlockRuns, bytes: Range<u64>) -> Vec<Move> {
    units::join(units::spans(shape, blocks, bytes).flat_map(Matrix::moves)).collect()
}

fn runs_of(pairs: &[BlockPair]) -> BlockRuns {
    let mut blocks = BlockRuns::default();
    blocks.fill(pairs, BLOCKS, BLOCKS).unwrap();
    blocks
}

proptest! {
    #![proptest_config(cases(1000))]

    #[test]
    fn any_two_orders_give_the_bytes_of_a_copy_element_by_element(
        case in any_case(), pairs in some_pairs(), step in 1u64..200,
    ) {
        let (shape, blocks) = (case.shape(), runs_of(&pairs));
        let expected = case.expected(&pairs);
        let bytes = expected.len() as u64;
        let all = moves(&shape, &blocks, 0..bytes);
        prop_assert_eq!(&bytes_of(&all), &expected);
        let most = if shape.blocks_together { blocks.runs().len() as u64 } else { blocks.blocks() };
        prop_assert!(all.len() as u64 <= most * shape.units_of_block());
        prop_assert_eq!(count::moves([(&shape, &blocks)].into_iter()), all.len() as u64);
        let parts: Vec<_> = (0..bytes)
            .step_by(step as usize)
            .flat_map(|first| moves(&shape, &blocks, first..bytes.min(first + step)))
            .collect();
        prop_assert_eq!(&bytes_of(&parts), &expected);
        for max_pitch in [1, 40, 1 << 31] {
            let mut rows = Vec::new();
            let matrices = Matrices::new(&shape, &blocks, max_pitch);
            let mut count = 0;
            matrices.for_each(|matrix| {
                count += 1;
                rows.extend(matrix.moves());
            });
            prop_assert_eq!(matrices.count(u64::MAX), Some(count));
            prop_assert_eq!(&bytes_of(&rows), &expected);
        }
    }

    #[test]
    fn any_order_of_loops_gives_the_same_bytes(
        case in any_case(), pairs in some_pairs(), step in 1u64..200, by_source: bool,
    ) {
        let order = if by_source { LoopOrder::Source } else { LoopOrder::StrictDestination };
        let (shape, blocks) = (case.shape_in_order(order), runs_of(&pairs).in_order(order).unwrap());
        let expected = case.expected(&pairs);
        let bytes = expected.len() as u64;
        prop_assert_eq!(&bytes_of(&moves(&shape, &blocks, 0..bytes)), &expected);
        let parts: Vec<_> = (0..bytes)
            .step_by(step as usize)
            .flat_map(|first| moves(&shape, &blocks, first..bytes.min(first + step)))
            .collect();
        prop_assert_eq!(&bytes_of(&parts), &expected);
    }

    #[test]
    fn windows_have_the_bytes_of_a_copy_element_by_element(
        case in any_case(), pairs in some_pairs(), windows in 1u64..20, by_source: bool,
    ) {
        let order = if by_source { LoopOrder::Source } else { LoopOrder::Destination };
        let (shape, block) = (case.shape_in_order(order), case.block());
        let blocks = runs_of(&pairs).in_order(order).unwrap();
        let part = PlanPart { name: "", shape: &shape, block: &block, blocks: &blocks };
        let windows = windows.min(part.passes());
        let mut all = Vec::new();
        for window in 0..windows {
            let bytes = part.bytes_of_window(window, windows);
            prop_assert!(!bytes.is_empty());
            all.extend(moves(&shape, &blocks, bytes));
        }
        prop_assert_eq!(bytes_of(&all), case.expected(&pairs));
    }

    #[test]
    fn the_unit_of_a_list_is_contiguous_and_whole(case in any_case()) {
        let shape = case.shape();
        let Some(unit) = shape.nest.unit else { return Ok(()) };
        let axes: &[usize] = match unit {
            Unit::Block => &[0, 1, 2, 3, 4],
            Unit::Layer => &[1, 2, 3, 4],
            Unit::Piece => &[2, 3, 4],
        };
        let mut size = ELEMENT;
        for axis in axes {
            prop_assert!(case.sides.iter().all(|side| side.counts[*axis] == case.counts[*axis]));
            size *= case.counts[*axis];
        }
        for side in &case.sides {
            let mut elements: Vec<_> = (0..size / ELEMENT)
                .map(|index| {
                    let (mut left, mut indices) = (index, [0; 5]);
                    for axis in axes {
                        indices[*axis] = left % case.counts[*axis];
                        left /= case.counts[*axis];
                    }
                    side.element(0, indices)
                })
                .collect();
            elements.sort_unstable();
            let first = side.element(0, [0; 5]);
            let contiguous: Vec<_> = (0..size / ELEMENT).map(|index| (first.0, first.1 + index * ELEMENT)).collect();
            prop_assert_eq!(elements, contiguous);
        }
    }
}

fn units_of(tile: &Tile) -> Vec<Move> {
    let mut units = vec![tile.first];
    for each in tile.loops.iter() {
        let [here, there] = each.strides;
        let steps =
            |unit: Move| (0..each.count).map(move |index| unit.further([index * here, index * there]));
        units = units.into_iter().flat_map(steps).collect();
    }
    units
}

proptest! {
    #![proptest_config(cases(1000))]

    #[test]
    fn tiles_have_the_bytes_of_a_copy_element_by_element(
        case in any_case(), pairs in some_pairs(), budget in prop_oneof![1u64..200, Just(1 << 20)], step in 1u64..9,
    ) {
        let (shape, blocks) = (case.shape(), runs_of(&pairs));
        let count = tiles::count(&shape, &blocks, budget);
        let mut moves = Vec::new();
        for first in (0..count).step_by(step as usize) {
            let end = count.min(first + step);
            let found: Vec<_> = tiles::tiles(&shape, &blocks, first..end, budget).collect();
            prop_assert_eq!(found.len() as u64, end - first);
            for tile in &found {
                let units = units_of(tile);
                prop_assert!(units.len() == 1 || units.len() as u64 * shape.nest.unit_size <= budget);
                prop_assert!(tile.loops.iter().all(|each| each.is_within_regions()));
                moves.extend(units);
            }
        }
        prop_assert_eq!(bytes_of(&moves), case.expected(&pairs));
    }
}

/// From a cache of tokens by head to one of heads by token.
#[test]
fn a_transposed_block_is_rows_of_one_head_of_one_token() {
    let counts = [1, 1, 16, 8, 64];
    let nhd = layouted(counts, &[4, 3, 2, 1, 5, 0], [true, false], &[0; 6], 4096);
    let hnd = layouted(counts, &[4, 2, 3, 1, 5, 0], [true, false], &[0; 6], 1 << 20);
    let case = Case { sides: [nhd, hnd], counts, firsts: [[0; 2]; 5] };
    let shape = case.shape();
    assert_eq!(shape.nest.unit, None);
    assert_eq!(shape.nest.unit_size, 128);
    let blocks = runs_of(&pairs(&[(3, 1)]));
    let rows: Vec<_> = units::spans(&shape, &blocks, 0..16 * 8 * 128).collect();
    assert_eq!(rows.len(), 8);
    assert!(rows.iter().all(|each| (each.rows, each.first.size, each.strides) == (16, 128, [8 * 128, 128])));
}
