// SPDX-License-Identifier: Apache-2.0
//! A shape at addresses. Pure, like the shape: no memory is accessed.

use std::sync::Arc;

use super::axes::overflow;
use super::axis::Axis;
use super::config::Dimensions;
use super::geometry::Geometry;
use crate::base::{Count, Error, Result, ensure, error, fail, lists};

/// A shape with the address where each region starts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placement {
    geometry: Geometry,
    bases: Arc<[u64]>,
}

impl Placement {
    /// Places a shape at `bases`, one per region. Fails for an address that is not aligned or too high.
    pub fn new(geometry: Geometry, bases: Vec<u64>) -> Result<Self> {
        ensure!(
            bases.len() == geometry.num_regions(),
            InvalidArgument,
            "the layout needs {} regions, {} are given",
            geometry.num_regions(),
            bases.len()
        );
        let alignment = geometry.dimensions().alignment;
        for (index, base) in bases.iter().enumerate() {
            ensure!(
                base % alignment == 0,
                InvalidArgument,
                "region {index} of {} starts at {base:#x}, which is not a multiple of the alignment {alignment}",
                bases.len()
            );
            ensure!(
                base.checked_add(geometry.region_size()).is_some(),
                OutOfRange,
                "region {index} of {} at {base:#x} exceeds the address space",
                bases.len()
            );
        }
        Ok(Self { geometry, bases: bases.into() })
    }

    /// Places all regions in one span of memory that starts at `start`. They fit in [`Geometry::allocation_size`] bytes.
    pub fn within(geometry: Geometry, start: u64) -> Result<Self> {
        let mut alignment = geometry.first_region_alignment();
        let mut bases = Vec::new();
        lists::reserve(&mut bases, geometry.num_regions())?;
        let mut next = start;
        for _ in 0..geometry.num_regions() {
            let base = next.checked_next_multiple_of(alignment).ok_or_else(overflow)?;
            next = base.checked_add(geometry.region_size()).ok_or_else(overflow)?;
            bases.push(base);
            alignment = geometry.region_alignment();
        }
        Self::new(geometry, bases)
    }

    /// Fails if two regions have a byte in common, which blocks would share.
    pub fn ensure_separate(&self) -> Result<()> {
        let (mut sorted, size) = (lists::copied(&self.bases)?, self.geometry.region_size());
        sorted.sort_unstable();
        let Some(pair) = sorted.windows(2).find(|pair| pair[1] - pair[0] < size) else { return Ok(()) };
        let first = self.bases.iter().position(|base| *base == pair[0]).unwrap_or_default();
        let last = self.bases.iter().rposition(|base| *base == pair[1]).unwrap_or_default();
        fail!(
            InvalidArgument,
            "regions {} and {} of {size} bytes overlap, so blocks would share bytes",
            first.min(last),
            first.max(last)
        )
    }

    pub fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    /// Where each region starts.
    pub fn bases(&self) -> &[u64] {
        &self.bases
    }

    /// The same, for an object that outlives the borrow.
    pub fn shared_bases(&self) -> &Arc<[u64]> {
        &self.bases
    }

    /// Region index and address. The indices must be in range.
    #[inline]
    pub fn address(&self, block: u64, layer: u64, outer: u64) -> (usize, u64) {
        let (region, offset) = self.geometry.offset(block, layer, outer);
        (region, self.bases[region] + offset)
    }

    /// The address, for indices of any value.
    #[inline]
    pub fn checked_address(&self, block: u64, layer: u64, outer: u64) -> Result<u64> {
        let dimensions = self.geometry.dimensions();
        if block < dimensions.num_blocks && layer < dimensions.num_layers && outer < dimensions.outer_dim {
            return Ok(self.address(block, layer, outer).1);
        }
        Err(out_of_range(dimensions, block, layer, outer))
    }

    /// The address of the first element of a head of a token, for indices of any value: block, layer, outer slot, token, head.
    pub fn checked_row(&self, [block, layer, outer, token, head]: [u64; 5]) -> Result<u64> {
        self.checked_address(block, layer, outer)?;
        let (tokens, heads) = (self.geometry.count(Axis::Token), self.geometry.count(Axis::Head));
        ensure!(
            token < tokens && head < heads,
            OutOfRange,
            "token {token}, head {head} is outside a layout with {} per block and {} per token",
            Count(tokens, "token"),
            Count(heads, "head")
        );
        let (region, offset) = self.geometry.locate(&[
            (Axis::Block, block),
            (Axis::Layer, layer),
            (Axis::Outer, outer),
            (Axis::Token, token),
            (Axis::Head, head),
        ]);
        Ok(self.bases[region] + offset)
    }
}

#[cold]
fn out_of_range(dimensions: &Dimensions, block: u64, layer: u64, outer: u64) -> Error {
    let Dimensions { num_blocks, num_layers, outer_dim, .. } = dimensions;
    error!(
        OutOfRange,
        "block {block}, layer {layer}, outer {outer} is outside a layout of {num_blocks} blocks, {num_layers} layers \
         and {outer_dim} outer slots"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::Status;
    use crate::layout::Arrangement;

    #[test]
    fn regions_with_a_byte_in_common_are_refused() {
        let kind = Arrangement::LAYER_SEPARATE;
        let geometry = Geometry::new(Dimensions::small(), kind).unwrap();
        let size = geometry.region_size();
        let at =
            |second: u64| Placement::new(geometry.clone(), vec![size * 2, second]).unwrap().ensure_separate();
        let alignment = geometry.dimensions().alignment;
        for second in [size * 2, size * 3 - alignment, size + alignment] {
            assert_eq!(at(second).unwrap_err().status(), Status::InvalidArgument, "{second}");
        }
        for second in [size * 3, size, 0] {
            at(second).unwrap();
        }
    }

    #[test]
    fn addresses_of_more_regions_than_fit_in_memory_are_an_error() {
        let dimensions = Dimensions { num_layers: 1 << 44, ..Dimensions::small() };
        let geometry = Geometry::new(dimensions, Arrangement::LAYER_SEPARATE).unwrap();
        assert_eq!(Placement::within(geometry.clone(), 0).unwrap_err().status(), Status::OutOfMemory);
        let placed = super::super::extents::place(geometry, 0, 1 << 12);
        assert_eq!(placed.unwrap_err().status(), Status::OutOfMemory);
    }

    #[test]
    fn indices_out_of_range_are_refused() {
        let geometry = Geometry::new(Dimensions::small(), Arrangement::FULLY_CONTIGUOUS).unwrap();
        let placement = Placement::new(geometry, vec![4096]).unwrap();
        assert!(placement.checked_address(3, 1, 1).is_ok());
        for (b, l, o) in [(4, 0, 0), (0, 2, 0), (0, 0, 2), (u64::MAX, 0, 0)] {
            assert_eq!(placement.checked_address(b, l, o).unwrap_err().status(), Status::OutOfRange);
        }
    }
}
