// SPDX-License-Identifier: Apache-2.0
//! The arithmetic of layouts. Pure: no memory is accessed, and every product and sum is checked.
//!
//! With R = page_size × inner_dim × dtype_width, N blocks, L layers and O outer slots (at alignment 1):
//!
//! - fully contiguous, `BLONHC`: `base + block·L·O·R + layer·O·R + outer·R`
//! - layer separate, `L/BONHC`: `base[layer] + block·O·R + outer·R`
//! - layer separate with outer slots first, `L/OBNHC`: `base[layer] + outer·B·R + block·R`
//!
//! These are the shapes of NVIDIA Dynamo's KVBM. An alignment rounds the block stride up. Any other order of axes has an
//! address of the same form: the region and the offset are sums of an index times a number per axis.

use super::arrangement::Arrangement;
use super::axes::{Axes, overflow, product};
use super::axis::Axis;
use super::config::Dimensions;
use super::order::Order;
use crate::base::{Result, ensure};

/// The axes of a block in one layer and outer slot.
const PIECE: [Axis; 3] = [Axis::Token, Axis::Head, Axis::Element];

/// The shape of a layout: its sizes and strides, in bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Geometry {
    dimensions: Dimensions,
    arrangement: Arrangement,
    axes: Axes,
    piece_size: u64,
    has_contiguous_pieces: bool,
}

impl Geometry {
    /// Computes a shape. The error names the number that is invalid.
    pub fn new(dimensions: Dimensions, arrangement: Arrangement) -> Result<Self> {
        dimensions.validate()?;
        let Dimensions { page_size, inner_dim, dtype_width, .. } = dimensions;
        ensure_heads(&dimensions, &arrangement)?;
        let axes = Axes::new(&dimensions, &arrangement)?;
        let arrangement = Arrangement { strides: axes.given(), ..arrangement };
        let piece_size = product(&[page_size, inner_dim, dtype_width])?;
        let has_contiguous_pieces = axes.contiguous(&PIECE, dtype_width).is_some();
        let geometry = Self { dimensions, arrangement, axes, piece_size, has_contiguous_pieces };
        geometry.allocation_size(1)?;
        Ok(geometry)
    }

    pub fn dimensions(&self) -> &Dimensions {
        &self.dimensions
    }

    /// The order of the axes, and the strides that are not tight.
    pub fn arrangement(&self) -> Arrangement {
        self.arrangement
    }

    /// Whether both give every element the same address.
    pub fn same_addresses(&self, other: &Self) -> bool {
        self.axes.same_addresses(&other.axes)
    }

    pub fn order(&self) -> Order {
        self.arrangement.order
    }

    /// Bytes per block, layer and outer slot.
    pub fn piece_size(&self) -> u64 {
        self.piece_size
    }

    /// Whether the bytes of a block in one layer and outer slot are contiguous.
    pub fn has_contiguous_pieces(&self) -> bool {
        self.has_contiguous_pieces
    }

    /// Contiguous bytes from the first element of a head of a token: all of its elements, or only that one.
    pub fn row_size(&self) -> u64 {
        let element = self.dimensions.dtype_width;
        self.axes.contiguous(&[Axis::Element], element).unwrap_or(element)
    }

    /// Bytes from a block to the next.
    pub fn block_stride(&self) -> u64 {
        self.axes.stride(Axis::Block)
    }

    /// The number of indices of an axis. Without a number of heads, all elements of a token belong to one head.
    pub fn count(&self, axis: Axis) -> u64 {
        self.axes.count(axis)
    }

    /// Bytes within a region from an index of an axis to the next; 0 if each index has regions of its own.
    pub fn stride(&self, axis: Axis) -> u64 {
        self.axes.stride(axis)
    }

    /// Regions from an index of an axis to the next; 0 if its indices share regions.
    pub fn region_step(&self, axis: Axis) -> usize {
        self.axes.region_step(axis) as usize
    }

    /// The axes that one region contains several indices of, from the smallest stride to the largest.
    pub fn axes_by_stride(&self) -> Vec<Axis> {
        self.axes.by_stride()
    }

    /// The axes outside blocks within a region: those that have larger strides.
    pub fn outside_blocks(&self) -> impl Iterator<Item = Axis> + '_ {
        let is_outside = |axis: &Axis| *axis != Axis::Block && self.stride(*axis) >= self.block_stride();
        self.axes.by_stride().into_iter().filter(is_outside)
    }

    /// Bytes of an element. [`Axis::Element`] counts elements, whether or not they are contiguous.
    pub fn element_size(&self) -> u64 {
        self.dimensions.dtype_width
    }

    pub fn num_regions(&self) -> usize {
        self.axes.num_regions() as usize
    }

    pub fn region_size(&self) -> u64 {
        self.axes.region_size()
    }

    pub fn total_size(&self) -> Result<u64> {
        product(&[self.num_regions() as u64, self.region_size()])
    }

    /// The alignment of the first region of an allocation that contains all regions: the alignment of the layout, so that a
    /// layout with one region needs no more bytes than the region.
    pub fn first_region_alignment(&self) -> u64 {
        self.dimensions.alignment
    }

    /// The alignment of the other regions. Direct I/O needs 512 bytes.
    pub fn region_alignment(&self) -> u64 {
        self.dimensions.alignment.max(512)
    }

    /// Bytes of one allocation that contains all regions, if it starts at a multiple of `start_alignment`, a power of two.
    pub fn allocation_size(&self, start_alignment: u64) -> Result<u64> {
        let gaps = product(&[self.region_alignment() - 1, self.num_regions() as u64 - 1])?;
        // The maximum distance from the start to the first region. cuMemAlloc usually returns multiples of 2 MiB, but
        // sometimes an odd multiple of 1024, so more than 256 bytes cannot be relied on.
        let first = self.first_region_alignment();
        let head = first - start_alignment.min(first);
        self.total_size()?.checked_add(gaps).and_then(|size| size.checked_add(head)).ok_or_else(overflow)
    }

    /// Returns the region index and the offset in it of the first element. The indices must be in range.
    #[inline]
    pub fn offset(&self, block: u64, layer: u64, outer: u64) -> (usize, u64) {
        // Written out: this is most of kvmem_layout_get_block.
        let axes = &self.axes;
        let region = layer * axes.region_step(Axis::Layer) + outer * axes.region_step(Axis::Outer);
        let within = block * axes.stride(Axis::Block)
            + layer * axes.stride(Axis::Layer)
            + outer * axes.stride(Axis::Outer);
        (region as usize, within)
    }

    /// The same for indices of any axes; those that are not given are 0.
    pub fn locate(&self, indices: &[(Axis, u64)]) -> (usize, u64) {
        let region = indices.iter().map(|(axis, index)| *index as usize * self.region_step(*axis)).sum();
        let offset = indices.iter().map(|(axis, index)| index * self.stride(*axis)).sum();
        (region, offset)
    }
}

/// An order that names heads needs their number, unless all elements of a token are contiguous whatever it is.
fn ensure_heads(dimensions: &Dimensions, Arrangement { order, strides }: &Arrangement) -> Result<()> {
    let is_any = order.within().windows(2).any(|pair| pair == [Axis::Head, Axis::Element])
        && strides.given(Axis::Head).is_none();
    ensure!(
        dimensions.num_heads.is_some() || !order.has(Axis::Head) || is_any,
        InvalidArgument,
        "the order '{order}' has axis H (head) apart from C or with a stride, and num_heads is not given; set it, or omit H: \
         C is then all heads of a token"
    );
    Ok(())
}

#[cfg(test)]
mod tests;
