// SPDX-License-Identifier: Apache-2.0
//! The pieces of blocks, in checksum order. Pieces that are adjacent in memory are merged: longer pieces have less overhead.

use crate::base::{Result, lists};
use crate::layout::{Axis, Layout};
use crate::plan::Slots;

/// Pieces of equal size, at the same offsets in each block.
#[derive(Default)]
pub struct Pieces {
    /// The address of block 0 in each layer, in the first of its outer slots; of each row of pieces, if pieces of a layer have
    /// no constant stride.
    pub layers: Vec<u64>,
    /// Number of outer slots of each address, or of pieces of a row.
    pub outers: u64,
    /// Bytes from one of those to the next.
    pub outer_stride: u64,
    pub size: u64,
    /// Bytes from one block to the next.
    pub block_stride: u64,
}

impl Pieces {
    /// Those of some layers and outer slots, in the order (layer, outer slot, token, head), whatever the order in memory.
    pub fn new(layout: &Layout, Slots { layers, outers }: &Slots) -> Result<Self> {
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
        // The innermost axis that is listed has a stride; an element may be a piece, so that addresses of all take more memory
        // than the block.
        let strided = match listed.last() {
            Some(axis) if geometry.region_step(*axis) == 0 => listed.pop(),
            None if geometry.region_step(Axis::Outer) == 0 => Some(Axis::Outer),
            _ => None,
        };
        let (starts, count) = match strided {
            Some(Axis::Outer) => (outers.start..outers.start + 1, outers.end - outers.start),
            Some(axis) => (outers.clone(), geometry.count(axis)),
            None => (outers.clone(), 1),
        };
        let indices = |axis| if listed.contains(&axis) { 0..geometry.count(axis) } else { 0..1 };
        let mut addresses = Vec::new();
        for layer in layers.clone() {
            for outer in starts.clone() {
                for token in indices(Axis::Token) {
                    for head in indices(Axis::Head) {
                        for element in indices(Axis::Element) {
                            // Tokens and heads may have separate regions.
                            let (region, offset) = geometry.locate(&[
                                (Axis::Layer, layer),
                                (Axis::Outer, outer),
                                (Axis::Token, token),
                                (Axis::Head, head),
                                (Axis::Element, element),
                            ]);
                            lists::push(&mut addresses, placement.bases()[region] + offset)?;
                        }
                    }
                }
            }
        }
        let mut pieces = Self {
            layers: addresses,
            outers: count,
            outer_stride: strided.map_or(0, |axis| geometry.stride(axis)),
            size,
            block_stride: geometry.stride(Axis::Block),
        };
        pieces.join_outers();
        pieces.join_layers();
        Ok(pieces)
    }

    pub fn block_size(&self) -> u64 {
        self.layers.len() as u64 * self.outers * self.size
    }

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
    use crate::layout::{Arrangement, Dimensions, Order};

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

    /// Values of llama.cpp: a piece is one element, and a block may be of many megabytes.
    #[test]
    fn elements_that_are_apart_are_rows_of_pieces() {
        let dimensions = Dimensions { page_size: 16, inner_dim: 64, num_heads: None, ..Dimensions::small() };
        let order = Order::parse("L/OCBN").unwrap();
        let kind = Arrangement::tight(order);
        let layout = Layout::in_host(dimensions, kind);
        let pieces = Pieces::new(&layout, &Slots::all(layout.geometry())).unwrap();
        assert_eq!((pieces.layers.len(), pieces.outers, pieces.size), (2 * 2 * 16, 64, 2));
        let mut expected = Vec::new();
        for index in 0..2 * 2 * 16 * 64 {
            let indices = [
                (Axis::Block, 3),
                (Axis::Layer, index / (2 * 16 * 64)),
                (Axis::Outer, index / (16 * 64) % 2),
                (Axis::Token, index / 64 % 16),
                (Axis::Element, index % 64),
            ];
            let (region, offset) = layout.geometry().locate(&indices);
            expected.push(layout.placement().bases()[region] + offset);
        }
        assert_eq!(pieces.addresses(3).collect::<Vec<_>>(), expected);
    }
}
