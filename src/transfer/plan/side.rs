// SPDX-License-Identifier: Apache-2.0
//! The addresses of one side of a plan: those of block 0, and the bytes from a block, a layer and an outer slot to the next.
#![forbid(unsafe_code)]

use crate::layout::{LayoutKind, Placement};

/// Where the units of one side start. An address costs the same however many layers and blocks there are.
#[derive(Clone, Debug)]
pub struct Side {
    /// Region and address of the first layer, in block 0 and the first outer slot.
    first: Start,
    /// The same of each layer, if layers have regions of their own.
    layers: Box<[Start]>,
    layer_stride: u64,
    outer_stride: u64,
    block_stride: u64,
}

/// A region and an address in it.
#[derive(Clone, Copy, Debug)]
struct Start {
    region: u32,
    address: u64,
}

impl Side {
    /// The side of `placement` from this layer and outer slot on, with as many layers.
    pub fn new(placement: &Placement, first_layer: u64, first_outer: u64, layers: u64) -> Self {
        let geometry = placement.geometry();
        let start = |layer| {
            let (region, address) = placement.address(0, first_layer + layer, first_outer);
            Start { region: region as u32, address }
        };
        let layers = match geometry.kind() {
            LayoutKind::FullyContiguous => Box::default(),
            LayoutKind::LayerSeparate(_) | LayoutKind::Ordered(_) => (0..layers).map(start).collect(),
        };
        Self {
            first: start(0),
            layers,
            layer_stride: geometry.layer_stride(),
            outer_stride: geometry.outer_stride(),
            block_stride: geometry.block_stride(),
        }
    }

    /// Region and address of block 0 in one of the layers and outer slots.
    pub fn at(&self, layer: u64, outer: u64) -> (u32, u64) {
        let Start { region, address } = self.layers.get(layer as usize).copied().unwrap_or(self.first);
        (region, address + layer * self.layer_stride + outer * self.outer_stride)
    }

    /// Bytes from a block to the next.
    pub fn block_stride(&self) -> u64 {
        self.block_stride
    }

    /// Bytes from a layer to the next; 0 if layers have regions of their own.
    pub fn layer_stride(&self) -> u64 {
        self.layer_stride
    }

    /// Bytes from an outer slot to the next.
    pub fn outer_stride(&self) -> u64 {
        self.outer_stride
    }
}
