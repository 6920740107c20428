// SPDX-License-Identifier: Apache-2.0
//! Whether two shapes in the same memory have bytes in common, also if they alternate in it. Pure.
//!
//! The strides of a shape nest: an index of an axis covers less than the stride of the next outer one. So two shapes whose
//! outermost strides are equal meet only at few distances, whatever the number of indices. With different strides the indices
//! are tried, up to a limit; beyond it the shapes count as overlapping. Another process may claim a thousand parts that all
//! reach the limit, so that all pairs of parts have a limit, too.

use super::geometry::Geometry;

/// How many pairs of indices are tried for two shapes.
const MAX_STEPS: u32 = 1 << 16;
/// How many are tried for two shapes on average, if there are many. With equal strides a few suffice.
const STEPS_OF_MANY: u64 = 1 << 6;
/// How many are tried in addition for all.
const STEPS_OF_FEW: u64 = 1 << 20;

/// The pairs of indices that may still be tried.
pub struct Steps(u64);

impl Steps {
    pub fn new(pairs: usize) -> Self {
        Self(STEPS_OF_FEW + STEPS_OF_MANY * pairs as u64)
    }
}

/// Indices of an axis, and what one of them covers.
#[derive(Clone, Copy)]
struct Level {
    count: i128,
    stride: i128,
    /// Bytes from the first byte of an index to its last.
    inner: i128,
}

/// The axes within a region, outermost first; and the bytes of the innermost span.
struct Levels {
    levels: Vec<Level>,
    span: i128,
}

impl Levels {
    fn from_geometry(geometry: &Geometry) -> Self {
        let mut span = i128::from(geometry.element_size());
        let mut inner = span;
        let mut levels: Vec<Level> = Vec::new();
        for axis in geometry.axes_by_stride() {
            let (count, stride) = (i128::from(geometry.count(axis)), i128::from(geometry.stride(axis)));
            if levels.is_empty() && stride == span {
                span *= count;
            } else {
                levels.push(Level { count, stride, inner });
            }
            inner += stride * (count - 1);
        }
        levels.reverse();
        Self { levels, span }
    }
}

/// Levels from one on, at an address.
#[derive(Clone, Copy)]
struct At<'a> {
    start: i128,
    levels: &'a [Level],
    span: i128,
}

impl<'a> At<'a> {
    fn end(&self) -> i128 {
        self.start
            + self.levels.first().map_or(self.span, |level| level.stride * (level.count - 1) + level.inner)
    }

    /// One index of the outermost level.
    fn index(&self, index: i128) -> Self {
        let [level, levels @ ..] = self.levels else { return *self };
        Self { start: self.start + index * level.stride, levels, span: self.span }
    }
}

/// Whether two shapes whose region starts are in the same memory have bytes in common, or whether that can't be excluded.
pub fn share_elements(
    [one, other]: [&Geometry; 2],
    [start, other_start]: [i128; 2],
    steps: &mut Steps,
) -> bool {
    let (one, other) = (Levels::from_geometry(one), Levels::from_geometry(other));
    let most = steps.0.min(MAX_STEPS.into());
    let mut left = most;
    let found = meet(
        At { start, levels: &one.levels, span: one.span },
        At { start: other_start, levels: &other.levels, span: other.span },
        &mut left,
    );
    steps.0 -= most - left;
    found
}

/// `left` is the number of pairs of indices that may still be tried.
fn meet(one: At<'_>, other: At<'_>, left: &mut u64) -> bool {
    if one.start >= other.end() || other.start >= one.end() {
        return false;
    }
    if *left == 0 {
        return true;
    }
    *left -= 1;
    match (one.levels.first(), other.levels.first()) {
        (None, None) => true,
        (Some(a), Some(b)) if a.stride == b.stride => {
            // The distance of two indices decides, not the indices themselves.
            let from = (other.start - one.start - a.inner).div_euclid(a.stride).max(1 - b.count);
            let to = (other.start + b.inner - one.start).div_euclid(a.stride).min(a.count - 1);
            (from..=to).any(|distance| meet(one.index(distance), other.index(0), left))
        }
        (Some(a), Some(b)) if a.stride < b.stride => meet_each(other, one, left),
        (Some(_), _) => meet_each(one, other, left),
        (None, Some(_)) => meet_each(other, one, left),
    }
}

/// Tries the indices of one side that are near the other.
fn meet_each(one: At<'_>, other: At<'_>, left: &mut u64) -> bool {
    let Some(level) = one.levels.first() else { return true };
    let from = (other.start - one.start - level.inner).div_euclid(level.stride).max(0);
    let to = (other.end() - one.start).div_euclid(level.stride).min(level.count - 1);
    (from..=to).any(|index| meet(one.index(index), other, left))
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use proptest::prelude::*;

    use super::*;
    use crate::layout::axis::Axis;
    use crate::layout::{Arrangement, Dimensions, Order, Strides};

    fn geometry(order: &str, dimensions: Dimensions, strides: Strides) -> Option<Geometry> {
        let kind = Arrangement { order: Order::parse(order).unwrap(), strides };
        Geometry::new(dimensions, kind).ok()
    }

    fn bytes(geometry: &Geometry, start: u64) -> HashSet<u64> {
        let mut places = vec![start];
        for axis in Axis::ALL.into_iter().filter(|axis| geometry.region_step(*axis) == 0) {
            let indices = 0..geometry.count(axis);
            places = places
                .iter()
                .flat_map(|at| indices.clone().map(move |i| at + i * geometry.stride(axis)))
                .collect();
        }
        places.into_iter().flat_map(|at| at..at + geometry.element_size()).collect()
    }

    fn any_shape() -> impl Strategy<Value = Geometry> {
        let order =
            prop::sample::select(vec!["BLONHC", "L/BONHC", "LBHNOC", "OBHNLC", "BNC", "L/BNC", "HCBN"]);
        let strides =
            prop::collection::vec((0usize..6, prop::sample::select(vec![0u64, 8, 24, 64, 200])), 0..3);
        (order, (1u64..4, 1u64..3, 1u64..3, 1u64..4, 1u64..3, 1u64..4), strides).prop_filter_map(
            "no such layout",
            |(order, (num_blocks, num_layers, outer_dim, page_size, heads, elements), strides)| {
                let has = |letter| order.contains(letter);
                let heads = if has('H') { heads } else { 1 };
                let dimensions = Dimensions {
                    num_blocks,
                    num_layers: if has('L') { num_layers } else { 1 },
                    outer_dim: if has('O') { outer_dim } else { 1 },
                    page_size,
                    inner_dim: heads * elements,
                    dtype_width: 2,
                    num_heads: has('H').then_some(heads),
                    ..Dimensions::ONE
                };
                let given = strides
                    .into_iter()
                    .fold(Strides::default(), |all, (axis, stride)| all.with(Axis::ALL[axis], stride));
                geometry(order, dimensions, given)
            },
        )
    }

    fn shared(one: &Geometry, start: i128, other: &Geometry, other_start: i128) -> bool {
        share_elements([one, other], [start, other_start], &mut Steps::new(1))
    }

    proptest! {
        #[test]
        fn the_same_as_byte_by_byte(one in any_shape(), other in any_shape(), start in 0u64..300) {
            let meets = !bytes(&one, 100).is_disjoint(&bytes(&other, start));
            prop_assert_eq!(shared(&one, 100, &other, i128::from(start)), meets);
            prop_assert_eq!(shared(&other, i128::from(start), &one, 100), meets);
        }
    }

    #[test]
    fn data_and_scales_of_millions_of_rows_alternate_without_meeting() {
        // Rows of 128 bytes of data and 8 bytes of scales.
        let shape = |elements: u64| {
            let dimensions = Dimensions {
                num_blocks: 1 << 20,
                outer_dim: 1,
                inner_dim: 8 * elements,
                dtype_width: 1,
                ..Dimensions::small()
            };
            let page = 16 * 8 * 136;
            let strides =
                Strides::default().with(Axis::Head, 16 * 136).with(Axis::Token, 136).with(Axis::Block, page);
            geometry("L/BHNC", dimensions, strides).unwrap()
        };
        let (data, scales) = (shape(128), shape(8));
        assert!(!shared(&data, 0, &scales, 128));
        assert!(shared(&data, 0, &scales, 127));
        assert!(shared(&data, 0, &scales, 130), "the last scales are in the next row");
    }

    /// Bytes of which one shape has every second, and the other every fourth.
    #[test]
    fn many_shapes_that_alternate_with_different_strides_take_bounded_time() {
        let shape = |layers, stride| {
            let dimensions = Dimensions {
                num_layers: layers,
                outer_dim: 1,
                page_size: 1,
                inner_dim: 1,
                dtype_width: 1,
                num_heads: None,
                ..Dimensions::small()
            };
            geometry("LBC", dimensions, Strides::default().with(Axis::Block, stride)).unwrap()
        };
        let (near, far) = (shape(1 << 10, 2), shape(1 << 9, 4));
        assert!(!shared(&near, 0, &far, 1), "two of them are compared exactly");
        let mut steps = Steps::new(1 << 10);
        let compared = (0..1 << 10).take_while(|_| !share_elements([&near, &far], [0, 1], &mut steps));
        let compared = compared.count() as u64;
        assert!((1..1 << 9).contains(&compared), "{compared}");
        let mut steps = Steps::new(1 << 10);
        let alike = (0..1 << 10).all(|_| !share_elements([&near, &near], [0, 1], &mut steps));
        assert!(alike, "those with equal strides are all compared");
    }
}
