// SPDX-License-Identifier: Apache-2.0
//! An order of axes, with the strides that are not tight.

use serde::{Deserialize, Serialize};

use super::axis::Axis::{self, Block, Element, Head, Layer, Outer, Token};
use super::order::{AXES, Order};

/// A stride for each axis, in bytes; 0 for the tight one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Strides([u64; AXES]);

impl Strides {
    pub fn with(mut self, axis: Axis, stride: u64) -> Self {
        self.0[axis as usize] = stride;
        self
    }

    /// The stride of an axis, if it is not the tight one.
    pub fn given(&self, axis: Axis) -> Option<u64> {
        Some(self.0[axis as usize]).filter(|stride| *stride != 0)
    }
}

/// The order of all axes, and the strides that do not follow from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Arrangement {
    /// The axes from the outermost to the innermost.
    pub order: Order,
    /// The strides of padded pages, views into larger buffers and halves of rows.
    pub strides: Strides,
}

/// The shapes of NVIDIA Dynamo's KVBM.
impl Arrangement {
    /// One region; a block contains all its layers, a layer its outer slots.
    pub const FULLY_CONTIGUOUS: Self =
        Self::tight(Order::from_axes(&[], &[Block, Layer, Outer, Token, Head, Element]));
    /// One region per layer; a block contains its outer slots.
    pub const LAYER_SEPARATE: Self =
        Self::tight(Order::from_axes(&[Layer], &[Block, Outer, Token, Head, Element]));
    /// One region per layer; an outer slot contains all blocks.
    pub const LAYER_SEPARATE_OUTER_FIRST: Self =
        Self::tight(Order::from_axes(&[Layer], &[Outer, Block, Token, Head, Element]));

    #[cfg(test)]
    pub const KVBM: [Self; 3] =
        [Self::FULLY_CONTIGUOUS, Self::LAYER_SEPARATE, Self::LAYER_SEPARATE_OUTER_FIRST];

    pub const fn tight(order: Order) -> Self {
        Self { order, strides: Strides([0; AXES]) }
    }
}
