// SPDX-License-Identifier: Apache-2.0
//! The pieces of blocks, in checksum order. Pieces that are adjacent in memory are merged: longer pieces have less overhead.
#![forbid(unsafe_code)]

use crate::layout::{Axis, Layout};
use crate::transfer::plan::Slots;

/// Pieces of equal size, at the same offsets in each block.
pub struct Pieces {
    /// The address of block 0 in each layer, in the first of its outer slots; of each piece, if pieces of a layer have no
    /// constant stride.
    pub layers: Vec<u64>,
    /// Number of outer slots of each address.
    pub outers: u64,
    /// Bytes from one outer slot to the next.
    pub outer_stride: u64,
    /// Bytes of a piece.
    pub size: u64,
    /// Bytes from one block to the next.
    pub block_stride: u64,
}

impl Pieces {
    /// Those of some layers and outer slots, in the order (layer, outer slot, token, head), whatever the order in memory.
    pub fn of(layout: &Layout, Slots { layers, outers }: &Slots) -> Self {
        let (geometry, placement) = (layout.geometry(), layout.placement());
        let mut size = geometry.element_size();
        // Axes that are contiguous in this order belong to a piece; the others are listed.
        let mut listed = vec![Axis::Token, Axis::Head, Axis::Element];
        while let Some(axis) = listed.last().copied()
            && (geometry.count(axis) == 1 || geometry.stride(axis) == size)
        {
            size *= geometry.count(axis);
            listed.pop();
        }
        let has_slots = listed.is_empty() && geometry.region_step(Axis::Outer) == 0;
        let (starts, slots) = match has_slots {
            true => (outers.start..outers.start + 1, outers.end - outers.start),
            false => (outers.clone(), 1),
        };
        let of_slot = |layer, outer| {
            [
                (Axis::Layer, layer),
                (Axis::Outer, outer),
                (Axis::Token, 0),
                (Axis::Head, 0),
                (Axis::Element, 0),
            ]
        };
        let mut first_elements: Vec<_> =
            layers.clone().flat_map(|layer| starts.clone().map(move |outer| of_slot(layer, outer))).collect();
        for axis in listed {
            let indices = 0..geometry.count(axis);
            let with_index = |element: [(Axis, u64); 5], index| {
                element.map(|(at, of)| (at, if at == axis { index } else { of }))
            };
            let of_element = |element| indices.clone().map(move |index| with_index(element, index));
            first_elements = first_elements.into_iter().flat_map(of_element).collect();
        }
        // Tokens and heads may have regions of their own.
        let addresses = first_elements.iter().map(|element| {
            let (region, offset) = geometry.locate(element);
            placement.bases()[region] + offset
        });
        let mut pieces = Self {
            layers: addresses.collect(),
            outers: slots,
            outer_stride: geometry.stride(Axis::Outer),
            size,
            block_stride: geometry.stride(Axis::Block),
        };
        pieces.join_outers();
        pieces.join_layers();
        pieces
    }

    /// Size of a block in bytes.
    pub fn block_size(&self) -> u64 {
        self.layers.len() as u64 * self.outers * self.size
    }

    /// The addresses of a block's pieces.
    pub fn addresses(&self, block: u32) -> impl Iterator<Item = u64> + '_ {
        let offset = u64::from(block) * self.block_stride;
        let of_layer = move |start: &u64| {
            let first = start + offset;
            (0..self.outers).map(move |outer| first + outer * self.outer_stride)
        };
        self.layers.iter().flat_map(of_layer)
    }

    fn join_outers(&mut self) {
        if self.outers > 1 && self.outer_stride == self.size {
            self.size *= self.outers;
            self.outers = 1;
        }
    }

    fn join_layers(&mut self) {
        let follow = self.layers.windows(2).all(|pair| pair[0].checked_add(self.size) == Some(pair[1]));
        if self.outers == 1 && follow {
            self.size *= self.layers.len() as u64;
            self.layers.truncate(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pieces(layers: &[u64], outers: u64, outer_stride: u64) -> Pieces {
        let mut pieces =
            Pieces { layers: layers.to_vec(), outers, outer_stride, size: 16, block_stride: 1000 };
        pieces.join_outers();
        pieces.join_layers();
        pieces
    }

    fn found(pieces: &Pieces) -> (Vec<u64>, u64, u64) {
        (pieces.addresses(2).collect(), pieces.size, pieces.block_size())
    }

    #[test]
    fn contiguous_pieces_are_merged() {
        assert_eq!(found(&pieces(&[0, 32, 64], 2, 16)), (vec![2000], 96, 96));
        assert_eq!(found(&pieces(&[5], 1, 0)), (vec![2005], 16, 16));
    }

    #[test]
    fn adjacent_outer_slots_are_merged_and_layers_that_are_apart_are_not() {
        assert_eq!(found(&pieces(&[0, 100], 2, 16)), (vec![2000, 2100], 32, 64));
        assert_eq!(found(&pieces(&[100, 0], 2, 16)), (vec![2100, 2000], 32, 64));
    }

    #[test]
    fn outer_slots_that_are_apart_are_not_merged() {
        assert_eq!(found(&pieces(&[0, 16], 2, 500)), (vec![2000, 2500, 2016, 2516], 16, 64));
    }
}
