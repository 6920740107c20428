// SPDX-License-Identifier: Apache-2.0
//! Heads and their elements, also if one side does not know its number of heads.

use crate::layout::{Axis, Geometry};

/// The heads of one side. A layout without a number of heads has those of the other side.
#[derive(Clone, Copy, Debug)]
pub struct HeadView {
    heads: u64,
    elements: u64,
    head_stride: u64,
}

impl HeadView {
    /// Those of both sides.
    pub fn from_geometries(sides: [&Geometry; 2]) -> [Self; 2] {
        let known = sides.map(|side| side.dimensions().num_heads);
        [(sides[0], known[1]), (sides[1], known[0])].map(|(side, other)| {
            let (heads, elements) = (side.count(Axis::Head), side.count(Axis::Element));
            match (side.dimensions().num_heads, other) {
                (None, Some(other)) if heads == 1 && elements.is_multiple_of(other) => {
                    let elements = elements / other;
                    Self { heads: other, elements, head_stride: elements * side.stride(Axis::Element) }
                }
                _ => Self { heads, elements, head_stride: side.stride(Axis::Head) },
            }
        })
    }

    pub fn with(side: &Geometry, heads: u64) -> Option<Self> {
        let (known, elements) = (side.count(Axis::Head), side.count(Axis::Element));
        if known == heads {
            return Some(Self { heads, elements, head_stride: side.stride(Axis::Head) });
        }
        let is_unknown = side.dimensions().num_heads.is_none() && known == 1;
        (is_unknown && heads > 0 && elements.is_multiple_of(heads)).then(|| {
            let elements = elements / heads;
            Self { heads, elements, head_stride: elements * side.stride(Axis::Element) }
        })
    }

    pub fn count(&self, side: &Geometry, axis: Axis) -> u64 {
        match axis {
            Axis::Head => self.heads,
            Axis::Element => self.elements,
            _ => side.count(axis),
        }
    }

    pub fn stride(&self, side: &Geometry, axis: Axis) -> u64 {
        if axis == Axis::Head { self.head_stride } else { side.stride(axis) }
    }

    pub fn heads(&self) -> u64 {
        self.heads
    }
}
