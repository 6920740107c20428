// SPDX-License-Identifier: Apache-2.0
//! The addresses of one side of a plan: where its regions start, and where the selection starts in them.

use std::sync::Arc;

use crate::layout::{Axis, LayoutPart};

/// Where block 0 of one side starts. An address costs the same, whatever the number of layers and blocks.
#[derive(Clone, Debug)]
pub struct Side {
    /// Where each region starts.
    bases: Arc<[u64]>,
    /// The index of the first of them among all regions of the layout, which may have other parts.
    first_region: u32,
    /// The region that the first index of each axis is in.
    region: u32,
    /// The offset of the first index of each axis.
    offset: u64,
    /// Bytes from a block to the next.
    pub block_stride: u64,
}

impl Side {
    /// A side whose regions start at `bases`, from block 0 on.
    pub fn new(bases: Arc<[u64]>, block_stride: u64) -> Self {
        Self { bases, first_region: 0, region: 0, offset: 0, block_stride }
    }

    /// A part of a layout, from block 0 on.
    pub fn from_part(LayoutPart { placement, first_region, .. }: &LayoutPart<'_>) -> Self {
        let block_stride = placement.geometry().stride(Axis::Block);
        Self { first_region: *first_region, ..Self::new(placement.shared_bases().clone(), block_stride) }
    }

    /// The same from so many regions and bytes after the start of a block on.
    pub fn starting_at(&self, (region, offset): (u32, u64)) -> Self {
        Self { region, offset, ..self.clone() }
    }

    /// Region and address of block 0, so many regions and bytes after the first index of each axis.
    pub fn at(&self, regions: u32, bytes: u64) -> (u32, u64) {
        let region = self.region + regions;
        (self.first_region + region, self.bases[region as usize] + self.offset + bytes)
    }

    /// Where block 0 may start, in any region.
    pub fn starts(&self) -> impl Iterator<Item = u64> {
        self.bases.iter().map(|base| base + self.offset)
    }

    /// The same with another stride of blocks.
    pub fn with_stride(&self, block_stride: u64) -> Self {
        Self { block_stride, ..self.clone() }
    }
}
