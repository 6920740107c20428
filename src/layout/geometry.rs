// SPDX-License-Identifier: Apache-2.0
//! The arithmetic of layouts. Pure: no memory is accessed, and every product and sum is checked.
//!
//! With R = page_size × inner_dim × dtype_width, N blocks, L layers and O outer slots (at alignment 1):
//!
//! - fully contiguous: `base + block·L·O·R + layer·O·R + outer·R`
//! - layer separate, block first: `base[layer] + block·O·R + outer·R`
//! - layer separate, block second: `base[layer] + outer·N·R + block·R`
//!
//! These are the shapes of NVIDIA Dynamo's KVBM. An alignment rounds the block stride up. Any other order of axes has an
//! address of the same form: the region and the offset are sums of an index times a number per axis.

use super::arrangement::Arrangement;
use super::axes::{Axes, overflow, product};
use super::axis::Axis;
use super::config::{BlockDim, Dimensions, LayoutKind};
use super::order::Order;
use crate::error::{Result, ensure};

/// The axes of a block in one layer and outer slot.
const PIECE: [Axis; 3] = [Axis::Token, Axis::Head, Axis::Element];

/// The shape of a layout: its sizes and strides, in bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Geometry {
    dimensions: Dimensions,
    kind: LayoutKind,
    order: Order,
    axes: Axes,
    piece_size: u64,
    has_contiguous_pieces: bool,
}

impl Geometry {
    /// Computes a shape. The error names the number that is invalid.
    pub fn new(dimensions: Dimensions, kind: LayoutKind) -> Result<Self> {
        dimensions.validate()?;
        let Dimensions { page_size, inner_dim, dtype_width, .. } = dimensions;
        let arrangement = kind.arrangement();
        let axes = Axes::of(&dimensions, &arrangement)?;
        let (kind, axes) = match kind {
            LayoutKind::Ordered(arrangement) => {
                ensure_heads(&dimensions, &arrangement)?;
                let arrangement = Arrangement { strides: axes.given(), ..arrangement };
                let found = named(&dimensions, &axes, &arrangement);
                found.unwrap_or((LayoutKind::Ordered(arrangement), axes))
            }
            named => (named, axes),
        };
        let piece_size = product(&[page_size, inner_dim, dtype_width])?;
        let has_contiguous_pieces = axes.contiguous(&PIECE, dtype_width).is_some();
        let order = kind.order(&dimensions);
        let geometry = Self { dimensions, kind, order, axes, piece_size, has_contiguous_pieces };
        geometry.allocation_size(1)?;
        Ok(geometry)
    }

    /// The dimensions that it was computed from.
    pub fn dimensions(&self) -> &Dimensions {
        &self.dimensions
    }

    /// The kind; one of KVBM's if the addresses are the same.
    pub fn kind(&self) -> LayoutKind {
        self.kind
    }

    /// The order of the axes. Axes of the three kinds that have one index are left out.
    pub fn order(&self) -> Order {
        self.order
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

    /// Bytes from a layer to the next; 0 if each layer has its own region.
    pub fn layer_stride(&self) -> u64 {
        self.axes.stride(Axis::Layer)
    }

    /// Bytes from an outer slot to the next; 0 if each has its own region.
    pub fn outer_stride(&self) -> u64 {
        self.axes.stride(Axis::Outer)
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

    /// The axes outside blocks within a region: those that have larger strides.
    pub fn outside_blocks(&self) -> impl Iterator<Item = Axis> + '_ {
        let is_outside = |axis: &Axis| *axis != Axis::Block && self.stride(*axis) >= self.block_stride();
        self.axes.by_stride().into_iter().filter(is_outside)
    }

    /// Bytes of an element. [`Axis::Element`] counts elements, whether or not they are contiguous.
    pub fn element_size(&self) -> u64 {
        self.dimensions.dtype_width
    }

    /// The number of its regions.
    pub fn num_regions(&self) -> usize {
        self.axes.num_regions() as usize
    }

    /// Bytes per region.
    pub fn region_size(&self) -> u64 {
        self.axes.region_size()
    }

    /// Bytes of all regions.
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

/// An order that names heads needs their number.
fn ensure_heads(dimensions: &Dimensions, arrangement: &Arrangement) -> Result<()> {
    let order = arrangement.order;
    ensure!(
        dimensions.num_heads.is_some() || !order.has(Axis::Head),
        InvalidArgument,
        "the order {order} names axis H (head), and num_heads is not given; set it, or omit H: C is then all heads of a \
         token"
    );
    Ok(())
}

/// The kind of KVBM that gives every element the same address, and its axes.
fn named(dimensions: &Dimensions, axes: &Axes, arrangement: &Arrangement) -> Option<(LayoutKind, Axes)> {
    let separate = [BlockDim::First, BlockDim::Second].map(LayoutKind::LayerSeparate);
    let kinds: &[LayoutKind] = match arrangement.order.in_regions() {
        [] => &[LayoutKind::FullyContiguous],
        _ => &separate,
    };
    let of_kind = |kind: &LayoutKind| Some((*kind, Axes::of(dimensions, &kind.arrangement()).ok()?));
    kinds.iter().filter_map(of_kind).find(|(_, of_kind)| of_kind.same_addresses(axes))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::error::Status;
    use crate::layout::{Placement, Strides};

    fn any_dimensions() -> impl Strategy<Value = Dimensions> {
        let sizes = (1u64..20, 1u64..6, 1u64..3, 1u64..5, 1u64..9);
        (sizes, prop::sample::select(vec![1, 2, 4, 8]), 0u32..14).prop_map(
            |((num_blocks, num_layers, outer_dim, page_size, inner_dim), dtype_width, shift)| Dimensions {
                num_blocks,
                num_layers,
                outer_dim,
                page_size,
                inner_dim,
                dtype_width,
                alignment: 1 << shift,
                num_heads: None,
            },
        )
    }

    fn any_kind() -> impl Strategy<Value = LayoutKind> {
        prop::sample::select(vec![
            LayoutKind::FullyContiguous,
            LayoutKind::LayerSeparate(BlockDim::First),
            LayoutKind::LayerSeparate(BlockDim::Second),
        ])
    }

    fn pieces(dimensions: &Dimensions) -> impl Iterator<Item = (u64, u64, u64)> + use<> {
        let (blocks, layers, outers) = (dimensions.num_blocks, dimensions.num_layers, dimensions.outer_dim);
        (0..blocks).flat_map(move |b| (0..layers).flat_map(move |l| (0..outers).map(move |o| (b, l, o))))
    }

    proptest! {
        #[test]
        fn pieces_are_disjoint_and_inside_their_region(dimensions in any_dimensions(), kind in any_kind()) {
            let geometry = Geometry::new(dimensions.clone(), kind).unwrap();
            let mut spans: Vec<_> = pieces(&dimensions).map(|(b, l, o)| geometry.offset(b, l, o)).collect();
            spans.sort_unstable();
            for pair in spans.windows(2) {
                let ((region, offset), (next_region, next_offset)) = (pair[0], pair[1]);
                prop_assert!(region < next_region || offset + geometry.piece_size() <= next_offset);
            }
            for (region, offset) in spans {
                prop_assert!(region < geometry.num_regions());
                prop_assert!(offset + geometry.piece_size() <= geometry.region_size());
            }
        }

        #[test]
        fn counts_and_strides_of_axes_give_the_address_of_every_element(
            dimensions in any_dimensions(), kind in any_kind(), has_heads: bool,
        ) {
            let heads = dimensions.inner_dim;
            let dimensions = Dimensions { num_heads: has_heads.then_some(heads), ..dimensions };
            let geometry = Geometry::new(dimensions.clone(), kind).unwrap();
            let mut inside = 0;
            for token in 0..geometry.count(Axis::Token) {
                for head in 0..geometry.count(Axis::Head) {
                    for element in 0..geometry.count(Axis::Element) {
                        let offset = token * geometry.stride(Axis::Token)
                            + head * geometry.stride(Axis::Head)
                            + element * geometry.stride(Axis::Element);
                        prop_assert_eq!(offset, inside);
                        inside += geometry.element_size();
                    }
                }
            }
            prop_assert_eq!(inside, geometry.piece_size());
            for (block, layer, outer) in pieces(&dimensions) {
                let indices = [(Axis::Block, block), (Axis::Layer, layer), (Axis::Outer, outer)];
                let region: usize =
                    indices.iter().map(|(axis, index)| *index as usize * geometry.region_step(*axis)).sum();
                let offset: u64 = indices.iter().map(|(axis, index)| index * geometry.stride(*axis)).sum();
                prop_assert_eq!((region, offset), geometry.offset(block, layer, outer));
            }
        }

        #[test]
        fn the_published_formulas_hold_at_alignment_one(dimensions in any_dimensions(), kind in any_kind()) {
            let dimensions = Dimensions { alignment: 1, ..dimensions };
            let (n, l_count, o_count) = (dimensions.num_blocks, dimensions.num_layers, dimensions.outer_dim);
            let r = dimensions.page_size * dimensions.inner_dim * dimensions.dtype_width;
            let geometry = Geometry::new(dimensions.clone(), kind).unwrap();
            for (b, l, o) in pieces(&dimensions) {
                let expected = match kind {
                    LayoutKind::FullyContiguous => (0, b * l_count * o_count * r + l * o_count * r + o * r),
                    LayoutKind::LayerSeparate(BlockDim::First) => (l as usize, b * o_count * r + o * r),
                    LayoutKind::LayerSeparate(BlockDim::Second) => (l as usize, o * n * r + b * r),
                    LayoutKind::Ordered(_) => unreachable!(),
                };
                prop_assert_eq!(geometry.offset(b, l, o), expected);
            }
            let per_region = if kind == LayoutKind::FullyContiguous { n * l_count * o_count * r } else { n * o_count * r };
            prop_assert_eq!(geometry.region_size(), per_region);
        }

        #[test]
        fn blocks_are_aligned_and_regions_fit_their_allocation(
            dimensions in any_dimensions(), kind in any_kind(), unit in 1u64..1000, unit_shift in 0u32..14,
        ) {
            let geometry = Geometry::new(dimensions.clone(), kind).unwrap();
            let start_alignment = 1 << unit_shift;
            let start = unit * start_alignment;
            let placement = Placement::within(geometry.clone(), start).unwrap();
            for (index, base) in placement.bases().iter().enumerate() {
                prop_assert!(index == 0 || base % 512 == 0);
                prop_assert_eq!(base % dimensions.alignment, 0);
                prop_assert!(*base >= start);
                prop_assert!(base + geometry.region_size() <= start + geometry.allocation_size(start_alignment).unwrap());
            }
            for block in 0..dimensions.num_blocks {
                for layer in 0..dimensions.num_layers {
                    let starts_block = kind != LayoutKind::FullyContiguous || layer == 0;
                    if starts_block {
                        prop_assert_eq!(placement.address(block, layer, 0).1 % dimensions.alignment, 0);
                    }
                }
            }
        }

        #[test]
        fn any_numbers_give_a_shape_or_an_error(
            n in any::<u64>(), l in any::<u64>(), p in any::<u64>(), i in any::<u64>(), shift in 0u32..64,
            kind in any_kind(),
        ) {
            let dimensions = Dimensions {
                num_blocks: n, num_layers: l, outer_dim: 2, page_size: p, inner_dim: i, dtype_width: 8,
                alignment: 1 << shift, num_heads: None,
            };
            if let Ok(geometry) = Geometry::new(dimensions, kind) {
                prop_assert!(geometry.total_size().unwrap() <= geometry.allocation_size(4096).unwrap());
            }
        }
    }

    #[test]
    fn wrong_dimensions_are_refused_by_name() {
        let wrong = [
            (Dimensions { num_blocks: 0, ..Dimensions::small() }, "num_blocks is 0"),
            (Dimensions { num_blocks: 1 << 32, ..Dimensions::small() }, "block ids have 32 bits"),
            (Dimensions { num_layers: 0, ..Dimensions::small() }, "num_layers is 0"),
            (Dimensions { outer_dim: 3, ..Dimensions::small() }, "outer_dim is 3"),
            (Dimensions { page_size: 0, ..Dimensions::small() }, "page_size is 0"),
            (Dimensions { inner_dim: 0, ..Dimensions::small() }, "inner_dim is 0"),
            (Dimensions { dtype_width: 3, ..Dimensions::small() }, "dtype_width is 3"),
            (Dimensions { alignment: 3, ..Dimensions::small() }, "alignment is 3"),
            (Dimensions { alignment: 0, ..Dimensions::small() }, "alignment is 0"),
            (Dimensions { num_heads: Some(7), ..Dimensions::small() }, "no multiple of num_heads 7"),
            (Dimensions { inner_dim: 1 << 62, num_heads: None, ..Dimensions::small() }, "more than 2^63 - 1"),
        ];
        for (dimensions, text) in wrong {
            let error = Geometry::new(dimensions, LayoutKind::FullyContiguous).unwrap_err();
            assert!(error.message().contains(text), "{error}");
            assert_eq!(error.status(), Status::InvalidArgument);
        }
    }

    fn ordered(dimensions: Dimensions, order: &str, strides: Strides) -> Result<Geometry> {
        Geometry::new(dimensions, LayoutKind::Ordered(Arrangement { order: Order::parse(order)?, strides }))
    }

    #[test]
    fn an_order_with_the_addresses_of_a_kind_is_that_kind() {
        let one = Dimensions { outer_dim: 1, num_heads: None, ..Dimensions::small() };
        let aligned = Dimensions { alignment: 4096, ..one.clone() };
        let tight = Strides::default();
        for (dimensions, order, strides, kind, shown) in [
            (Dimensions::small(), "BLONHC", tight, LayoutKind::FullyContiguous, "BLONHC"),
            (Dimensions::small(), "L/BONHC", tight, LayoutKind::LayerSeparate(BlockDim::First), "L/BONHC"),
            (Dimensions::small(), "L/OBNHC", tight, LayoutKind::LayerSeparate(BlockDim::Second), "L/OBNHC"),
            (one.clone(), "L/BNC", tight, LayoutKind::LayerSeparate(BlockDim::First), "L/BNC"),
            (one.clone(), "LO/BNC", tight, LayoutKind::LayerSeparate(BlockDim::First), "L/BNC"),
            (aligned.clone(), "BLNC", tight.with(Axis::Block, 4096), LayoutKind::FullyContiguous, "BLNC"),
        ] {
            let geometry = ordered(dimensions.clone(), order, strides).unwrap();
            assert_eq!(geometry.kind(), kind, "{order}");
            assert_eq!(geometry.order().to_string(), shown);
            assert_eq!(geometry, Geometry::new(dimensions, kind).unwrap());
        }
        for (dimensions, order, strides) in [
            (Dimensions::small(), "BLOHNC", tight),
            (Dimensions::small(), "LO/BNHC", tight),
            (one.clone(), "LBNC", tight),
            (one.clone(), "BLNC", tight.with(Axis::Block, 4104)),
            (one.clone(), "L/BNC", tight.with(Axis::Block, 4104)),
        ] {
            let geometry = ordered(dimensions, order, strides).unwrap();
            let expected = Arrangement { order: Order::parse(order).unwrap(), strides };
            assert_eq!(geometry.kind(), LayoutKind::Ordered(expected));
        }
        let tight_given = ordered(one, "LBNC", tight.with(Axis::Token, 128)).unwrap();
        assert_eq!(
            tight_given.kind(),
            LayoutKind::Ordered(Arrangement::tight(Order::parse("LBNC").unwrap()))
        );
    }

    #[test]
    fn heads_and_their_number_come_together() {
        let unknown = Dimensions { num_heads: None, ..Dimensions::small() };
        let error = ordered(unknown, "LO/BNHC", Strides::default()).unwrap_err();
        assert!(error.message().contains("names axis H (head), and num_heads is not given"), "{error}");
    }

    #[test]
    fn pieces_and_rows_are_contiguous_or_not() {
        for (order, strides, pieces, row) in [
            ("LO/BHNC", Strides::default(), true, 16),
            ("L/BHNOC", Strides::default(), false, 16),
            ("LO/HCBN", Strides::default(), false, 2),
            ("BLONHC", Strides::default().with(Axis::Head, 32), false, 16),
            ("BLONHC", Strides::default().with(Axis::Element, 4), false, 2),
            ("BLONHC", Strides::default().with(Axis::Outer, 4096), true, 16),
        ] {
            let geometry = ordered(Dimensions::small(), order, strides).unwrap();
            assert_eq!((geometry.has_contiguous_pieces(), geometry.row_size()), (pieces, row), "{order}");
        }
    }
}
