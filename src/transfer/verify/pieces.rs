// SPDX-License-Identifier: Apache-2.0
//! The pieces of blocks, in the order in which their bytes count. Those that follow one another in memory are one: the
//! longer a piece, the less there is to do besides reading it.

#![forbid(unsafe_code)]

use crate::layout::Layout;
use crate::transfer::plan::Slots;

/// Pieces of one size, at the same places from the start of each block on.
pub struct Pieces {
    /// Where block 0 begins in each layer, in the first of its outer slots.
    pub layers: Vec<u64>,
    /// How many outer slots of a layer.
    pub outers: u64,
    /// Bytes from an outer slot to the next.
    pub outer_stride: u64,
    /// Bytes of a piece.
    pub size: u64,
    /// Bytes from a block to the next.
    pub block_stride: u64,
}

impl Pieces {
    /// Those of some layers and outer slots.
    pub fn of(layout: &Layout, Slots { layers, outers }: &Slots) -> Self {
        let geometry = layout.geometry();
        let mut pieces = Self {
            layers: layers
                .clone()
                .map(|layer| layout.placement().address(0, layer, outers.start).1)
                .collect(),
            outers: outers.end - outers.start,
            outer_stride: geometry.outer_stride(),
            size: geometry.piece_size(),
            block_stride: geometry.block_stride(),
        };
        pieces.join_outers();
        pieces.join_layers();
        pieces
    }

    /// Bytes of a block.
    pub fn block_size(&self) -> u64 {
        self.layers.len() as u64 * self.outers * self.size
    }

    /// Where the pieces of a block are.
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
    fn a_block_in_one_piece_is_one() {
        assert_eq!(found(&pieces(&[0, 32, 64], 2, 16)), (vec![2000], 96, 96));
        assert_eq!(found(&pieces(&[5], 1, 0)), (vec![2005], 16, 16));
    }

    #[test]
    fn slots_that_follow_one_another_are_one_though_layers_do_not() {
        assert_eq!(found(&pieces(&[0, 100], 2, 16)), (vec![2000, 2100], 32, 64));
        assert_eq!(found(&pieces(&[100, 0], 2, 16)), (vec![2100, 2000], 32, 64));
    }

    #[test]
    fn slots_apart_stay_apart() {
        assert_eq!(found(&pieces(&[0, 16], 2, 500)), (vec![2000, 2500, 2016, 2516], 16, 64));
    }
}
