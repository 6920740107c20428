// SPDX-License-Identifier: Apache-2.0
//! The count, stride and regions of each axis. Pure: every product and sum is checked.
//!
//! A tight stride is the stride of the next inner axis times its count. That of blocks is rounded up to the alignment.

use super::arrangement::{Arrangement, Strides};
use super::axis::Axis;
use super::config::Dimensions;
use super::order::{AXES, Order};
use crate::base::error::{Error, Result, Status, ensure};
use crate::base::sorting::sort_few_by_key;

/// All axes of a layout.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Axes {
    counts: [u64; AXES],
    strides: [u64; AXES],
    region_steps: [u64; AXES],
    num_regions: u64,
    region_size: u64,
    given: Strides,
}

impl Axes {
    /// Computes the strides of an arrangement. Fails, with the name of the axis, if two elements had one address.
    pub fn new(dimensions: &Dimensions, arrangement: &Arrangement) -> Result<Self> {
        let Arrangement { order, strides: given } = arrangement;
        let counts = Axis::ALL.map(|axis| dimensions.count(axis));
        ensure_named(&counts, arrangement)?;
        let mut axes = Self {
            counts,
            strides: [0; AXES],
            region_steps: [0; AXES],
            num_regions: 1,
            region_size: 0,
            given: Strides::default(),
        };
        for axis in order.in_regions().iter().rev() {
            axes.region_steps[*axis as usize] = axes.num_regions;
            axes.num_regions = product(&[axes.num_regions, axes.count(*axis)])?;
        }
        let mut tight = [0; AXES];
        let mut next = dimensions.dtype_width;
        // A single block needs no axis, and still has a stride: the unit of elastic memory.
        let block = (!order.has(Axis::Block)).then_some(Axis::Block);
        for axis in order.within().iter().copied().rev().chain(block) {
            if axis == Axis::Block {
                next = aligned(next, dimensions.alignment)?;
            }
            tight[axis as usize] = next;
            let stride = given.given(axis).unwrap_or(next);
            axes.strides[axis as usize] = stride;
            if stride != next {
                axes.given = axes.given.with(axis, stride);
            }
            let covered = product(&[stride, axes.count(axis)]).map_err(|error| axes.named(error, axis))?;
            // The stride of a single index may be any, as in tensors. A larger one is padding.
            next = if axes.count(axis) == 1 { covered.max(next) } else { covered };
        }
        axes.ensure_disjoint(dimensions.dtype_width, order, &tight)?;
        axes.ensure_aligned(dimensions.alignment, arrangement)?;
        axes.region_size = aligned(axes.extent(dimensions.dtype_width)?, dimensions.alignment)?;
        Ok(axes)
    }

    /// The number of indices of an axis.
    pub fn count(&self, axis: Axis) -> u64 {
        self.counts[axis as usize]
    }

    /// Bytes within a region from an index to the next; 0 if each index has regions of its own.
    #[inline]
    pub fn stride(&self, axis: Axis) -> u64 {
        self.strides[axis as usize]
    }

    /// Regions from an index to the next; 0 if its indices share regions.
    #[inline]
    pub fn region_step(&self, axis: Axis) -> u64 {
        self.region_steps[axis as usize]
    }

    /// The number of regions.
    pub fn num_regions(&self) -> u64 {
        self.num_regions
    }

    /// The strides that are not tight.
    pub fn given(&self) -> Strides {
        self.given
    }

    /// Bytes of a region: to the end of the last element, rounded up to the alignment.
    pub fn region_size(&self) -> u64 {
        self.region_size
    }

    /// The axes that one region contains several indices of, from the smallest stride to the largest.
    pub fn by_stride(&self) -> Vec<Axis> {
        let mut axes: Vec<_> = Axis::ALL
            .into_iter()
            .filter(|axis| self.count(*axis) > 1 && self.region_step(*axis) == 0)
            .collect();
        sort_few_by_key(&mut axes, |axis| self.stride(*axis));
        axes
    }

    /// Whether both give every element the same address.
    pub fn same_addresses(&self, other: &Self) -> bool {
        let same = |axis: Axis| {
            self.count(axis) == 1
                || (self.stride(axis) == other.stride(axis)
                    && self.region_step(axis) == other.region_step(axis))
        };
        self.counts == other.counts
            && self.num_regions == other.num_regions
            && self.region_size == other.region_size
            && self.stride(Axis::Block) == other.stride(Axis::Block)
            && Axis::ALL.into_iter().all(same)
    }

    /// The size of the smallest range that contains all indices of some axes, if they are contiguous in it.
    pub fn contiguous(&self, of: &[Axis], element_size: u64) -> Option<u64> {
        if of.iter().any(|axis| self.count(*axis) > 1 && self.region_step(*axis) > 0) {
            return None;
        }
        self.by_stride().into_iter().filter(|axis| of.contains(axis)).try_fold(element_size, |size, axis| {
            (self.stride(axis) == size).then(|| size.checked_mul(self.count(axis))).flatten()
        })
    }

    fn extent(&self, element_size: u64) -> Result<u64> {
        self.by_stride().into_iter().try_fold(element_size, |extent, axis| self.extended(extent, axis))
    }

    /// The bytes that an axis covers, if one of its indices covers `extent`.
    fn extended(&self, extent: u64, axis: Axis) -> Result<u64> {
        let last = self.stride(axis).checked_mul(self.count(axis) - 1);
        let sum = last.and_then(|last| last.checked_add(extent)).filter(|sum| *sum <= MAX);
        sum.ok_or_else(|| self.named(overflow(), axis))
    }

    fn named(&self, error: Error, axis: Axis) -> Error {
        let (count, stride) = (self.count(axis), self.stride(axis));
        let (letter, name) = (axis.letter(), axis.name());
        error.context(format!("axis {letter} ({name}) has {count} indices and a stride of {stride} bytes"))
    }

    /// Each stride must be at least what the axes with smaller strides cover. So axes nest, which plans rely on: strides that
    /// only alternate, such as 4 for two indices and 6 for two others, are refused too. No known engine has such.
    fn ensure_disjoint(&self, element_size: u64, order: &Order, tight: &[u64; AXES]) -> Result<()> {
        let mut axes = self.by_stride();
        if !axes.contains(&Axis::Block) {
            let place = axes.partition_point(|axis| self.stride(*axis) < self.stride(Axis::Block));
            axes.insert(place, Axis::Block);
        }
        let mut covered = element_size;
        for axis in &axes {
            if self.stride(*axis) < covered {
                return Err(self.overlap(element_size, order, tight)?);
            }
            covered = self.extended(covered, *axis)?;
        }
        Ok(())
    }

    /// Names the innermost axis of the order whose stride is less than what the axes inside it cover. It was given: a tight
    /// stride is large enough. If there is none, it is that of a single block: an axis outside it has less.
    fn overlap(&self, element_size: u64, order: &Order, tight: &[u64; AXES]) -> Result<Error> {
        let mut covered = element_size;
        for axis in order.within().iter().rev().filter(|axis| self.count(**axis) > 1 || **axis == Axis::Block)
        {
            let stride = self.stride(*axis);
            if stride < covered {
                let name = axis.name();
                let message = format!(
                    "axis {} ({name}) has a stride of {stride} bytes, and one {name} spans {covered}, so that two of \
                     them overlap or alternate in memory; give it at least {covered} bytes, or 0 for the tight stride of {}",
                    axis.letter(),
                    tight[*axis as usize]
                );
                return Ok(Error::new(Status::InvalidArgument, message));
            }
            covered = self.extended(covered, *axis)?;
        }
        let message = format!(
            "axis {} ({}) has one index and a stride of {} bytes, less than the block covers; give it at least {} bytes",
            Axis::Block.letter(),
            Axis::Block.name(),
            self.stride(Axis::Block),
            self.extent(element_size)?
        );
        Ok(Error::new(Status::InvalidArgument, message))
    }

    /// Every block starts at a multiple of the alignment, if all strides of and outside blocks are multiples.
    fn ensure_aligned(&self, alignment: u64, arrangement: &Arrangement) -> Result<()> {
        let within = arrangement.order.within();
        let until = within.iter().position(|axis| *axis == Axis::Block).map_or(0, |index| index + 1);
        // Blocks first: the tight strides outside them follow from theirs.
        let is_relevant = |axis: &&Axis| self.count(**axis) > 1 || **axis == Axis::Block;
        for axis in within[..until].iter().rev().filter(is_relevant) {
            ensure!(
                self.stride(*axis).is_multiple_of(alignment),
                InvalidArgument,
                "axis {} ({}) has a stride of {} bytes, which is not a multiple of the alignment {alignment}; give it a \
                 multiple, or lower the alignment",
                axis.letter(),
                axis.name(),
                self.stride(*axis)
            );
        }
        Ok(())
    }
}

/// Fails if the order lacks an axis that has several indices, or a stride is given for one without.
fn ensure_named(counts: &[u64; AXES], Arrangement { order, strides }: &Arrangement) -> Result<()> {
    for (axis, count) in Axis::ALL.into_iter().zip(counts) {
        let (letter, name) = (axis.letter(), axis.name());
        ensure!(
            *count == 1 || order.has(axis),
            InvalidArgument,
            "the order '{order}' lacks axis {letter} ({name}), of which there are {count}; add {letter}, or set {}",
            match axis {
                Axis::Head => "num_heads to 0, so that C is all heads of a token".to_string(),
                Axis::Element => "inner_dim so that there is one".to_string(),
                _ => format!("{} to 1", axis.field()),
            }
        );
        let Some(stride) = strides.given(axis) else { continue };
        ensure!(
            order.has(axis),
            InvalidArgument,
            "axis {letter} ({name}) has a stride of {stride} bytes, and the order '{order}' lacks {letter}; add it, or give \
             no stride"
        );
        ensure!(
            order.within().contains(&axis),
            InvalidArgument,
            "axis {letter} ({name}) has a stride of {stride} bytes, and regions of its own in the order '{order}'; give no \
             stride, or name it after '/'"
        );
    }
    Ok(())
}

/// Sizes stay below 2⁶³ so that every address difference fits a signed word.
const MAX: u64 = i64::MAX as u64;

/// The product of some factors, if it is a size.
pub(super) fn product(factors: &[u64]) -> Result<u64> {
    let product = factors.iter().try_fold(1u64, |product, factor| product.checked_mul(*factor));
    product.filter(|size| *size <= MAX).ok_or_else(overflow)
}

fn aligned(size: u64, alignment: u64) -> Result<u64> {
    size.checked_next_multiple_of(alignment).ok_or_else(overflow)
}

/// The error for a size that exceeds the address space.
pub(super) fn overflow() -> Error {
    let message = "the layout's size is more than 2^63 - 1 bytes; lower num_blocks, another size, a stride or the alignment";
    Error::new(Status::InvalidArgument, message)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use proptest::prelude::*;

    use super::*;
    use crate::layout::order::Order;

    fn axes(dimensions: &Dimensions, order: &str, strides: Strides) -> Result<Axes> {
        Axes::new(dimensions, &Arrangement { order: Order::parse(order)?, strides })
    }

    fn tight(order: &str) -> Axes {
        axes(&Dimensions::small(), order, Strides::default()).unwrap()
    }

    /// 4 blocks, 2 layers, 2 outer slots, 16 tokens, 8 heads of 8 elements of 2 bytes: strides by hand.
    #[test]
    fn strides_follow_from_the_order() {
        let strides = |order: &str| Axis::ALL.map(|axis| tight(order).stride(axis));
        assert_eq!(strides("BLONHC"), [8192, 4096, 2048, 128, 16, 2]);
        assert_eq!(strides("L/OBNHC"), [2048, 0, 8192, 128, 16, 2]);
        assert_eq!(strides("L/OBHNC"), [2048, 0, 8192, 16, 256, 2]);
        assert_eq!(strides("L/BHNOC"), [4096, 0, 16, 32, 512, 2]);
        assert_eq!(strides("LO/HCBN"), [32, 0, 0, 2, 1024, 128]);
        assert_eq!(strides("OBNLHC"), [4096, 128, 16384, 256, 16, 2]);
        let steps = |order: &str| Axis::ALL.map(|axis| tight(order).region_step(axis));
        assert_eq!(steps("LO/BNHC"), [0, 2, 1, 0, 0, 0]);
        assert_eq!(steps("OL/BNHC"), [0, 1, 2, 0, 0, 0]);
        assert_eq!((tight("LO/BNHC").num_regions(), tight("LO/BNHC").region_size()), (4, 8192));
    }

    #[test]
    fn contiguous_axes_are_found() {
        let piece = [Axis::Token, Axis::Head, Axis::Element];
        for (order, size) in [
            ("BLONHC", Some(2048)),
            ("L/OBHNC", Some(2048)),
            ("BOLCHN", Some(2048)),
            ("L/BHNOC", None),
            ("OBNLHC", None),
            ("OBHNLC", None),
            ("LH/BNOC", None),
            ("L/OBCHN", Some(2048)),
        ] {
            let found = axes(&Dimensions::small(), order, Strides::default()).ok();
            assert_eq!(found.and_then(|axes| axes.contiguous(&piece, 2)), size, "{order}");
        }
    }

    #[test]
    fn strides_that_overlap_are_refused_by_the_name_of_the_axis() {
        let given = |axis, stride| Strides::default().with(axis, stride);
        for (order, strides, part) in [
            ("BLONHC", given(Axis::Block, 8191), "axis B (block) has a stride of 8191 bytes"),
            ("BLONHC", given(Axis::Block, 100), "axis B (block) has a stride of 100 bytes"),
            ("BLONHC", given(Axis::Layer, 1), "axis L (layer) has a stride of 1 bytes"),
            ("BLONHC", given(Axis::Token, 16), "axis N (token) has a stride of 16 bytes"),
            ("BLONHC", given(Axis::Element, 1), "axis C (element) has a stride of 1 bytes"),
            ("L/OBNHC", given(Axis::Outer, 4096), "at least 8192 bytes, or 0 for the tight stride of 8192"),
        ] {
            let error = axes(&Dimensions::small(), order, strides).unwrap_err();
            assert_eq!(error.status(), Status::InvalidArgument);
            assert!(error.message().contains(part), "{error}");
        }
        for axis in [Axis::Block, Axis::Layer] {
            let huge = axes(&Dimensions::small(), "BLONHC", given(axis, 1 << 62)).unwrap_err();
            let named = format!("axis {} ({}) has", axis.letter(), axis.name());
            assert!(
                huge.message().contains(&named) && huge.message().contains("more than 2^63 - 1 bytes"),
                "{huge}"
            );
        }
    }

    /// Without a common byte, but not nested: 0, 2, 4 and 3, 5, 7 units of a piece.
    #[test]
    fn strides_that_alternate_are_refused_too() {
        let dimensions = Dimensions { num_layers: 3, ..Dimensions::small() };
        let strides = Strides::default().with(Axis::Layer, 2 * 2048).with(Axis::Outer, 3 * 2048);
        let error = axes(&dimensions, "BLONHC", strides.with(Axis::Block, 1 << 20)).unwrap_err();
        assert!(error.message().contains("axis L (layer) has a stride of 4096 bytes"), "{error}");
        assert!(error.message().contains("at least 8192 bytes"), "{error}");
        assert!(error.message().contains("overlap or alternate in memory"), "{error}");
    }

    /// The axis that is too near is named by the order, and not by the sizes of the strides.
    #[test]
    fn equal_strides_name_the_outer_axis() {
        let strides = Strides::default().with(Axis::Head, 64).with(Axis::Token, 64);
        let error = axes(&Dimensions::small(), "BLONHC", strides).unwrap_err();
        assert!(error.message().starts_with("axis N (token) has a stride of 64 bytes"), "{error}");
        assert!(error.message().contains("or 0 for the tight stride of 512"), "{error}");
    }

    /// A single block has a stride too, and an axis outside it a smaller one: no elements overlap, but blocks are not apart.
    #[test]
    fn a_single_block_that_is_larger_than_its_stride_is_refused_by_name() {
        let one =
            Dimensions { num_blocks: 1, outer_dim: 1, num_heads: None, inner_dim: 6, ..Dimensions::small() };
        let given = |block| Strides::default().with(Axis::Block, block);
        let near = given(32).with(Axis::Token, 22);
        for (order, strides, stride, most) in [
            ("LNBC", near, 32, 352 + 15 * 22 + 12),
            ("NCBL", given(20).with(Axis::Element, 8).with(Axis::Token, 48), 20, 15 * 48 + 5 * 8 + 4),
        ] {
            let error = axes(&one, order, strides).unwrap_err();
            assert_eq!(error.status(), Status::InvalidArgument);
            let text = format!(
                "axis B (block) has one index and a stride of {stride} bytes, less than the block covers; give it at \
                 least {most} bytes"
            );
            assert_eq!(error.message(), text, "{order}");
            assert!(axes(&one, order, strides.with(Axis::Block, most)).is_ok(), "{order}");
        }
    }

    #[test]
    fn axes_that_the_order_lacks_have_one_index() {
        let given = |axis, stride| Strides::default().with(axis, stride);
        for (order, strides, part) in [
            (
                "L/BNHC",
                Strides::default(),
                "lacks axis O (outer slot), of which there are 2; add O, or set outer_dim",
            ),
            ("L/ONHC", Strides::default(), "lacks axis B (block), of which there are 4"),
            ("L/BONC", Strides::default(), "lacks axis H (head), of which there are 8"),
            ("L/BONH", Strides::default(), "lacks axis C (element), of which there are 8"),
            (
                "L/BONHC",
                given(Axis::Layer, 8),
                "axis L (layer) has a stride of 8 bytes, and regions of its own",
            ),
        ] {
            let error = axes(&Dimensions::small(), order, strides).unwrap_err();
            assert!(error.message().contains(part), "{error}");
        }
        let one = Dimensions { num_blocks: 1, num_layers: 1, outer_dim: 1, ..Dimensions::small() };
        let found = axes(&one, "NHC", Strides::default()).unwrap();
        assert_eq!((found.region_size(), found.stride(Axis::Block)), (2048, 2048));
        let error = axes(&one, "NHC", given(Axis::Layer, 8)).unwrap_err();
        assert!(error.message().contains("and the order 'NHC' lacks L"), "{error}");
    }

    #[test]
    fn a_single_index_may_have_any_stride() {
        let given = |axis, stride| Strides::default().with(axis, stride);
        let one = Dimensions { num_blocks: 1, num_layers: 1, outer_dim: 1, ..Dimensions::small() };
        let found = axes(&one, "OLNHC", given(Axis::Outer, 4).with(Axis::Layer, 2)).unwrap();
        assert_eq!((found.region_size(), found.stride(Axis::Block)), (2048, 2048));
        let blocks = Dimensions { outer_dim: 1, ..Dimensions::small() };
        let found = axes(&blocks, "LBONHC", given(Axis::Outer, 2)).unwrap();
        assert_eq!((found.stride(Axis::Block), found.stride(Axis::Layer)), (2048, 8192));
        let aligned = Dimensions { alignment: 64, ..blocks.clone() };
        assert!(axes(&aligned, "LOBNHC", given(Axis::Outer, 2)).is_ok());
        let padded = axes(&blocks, "LBONHC", given(Axis::Outer, 4096)).unwrap();
        assert_eq!(padded.stride(Axis::Block), 4096);
    }

    #[test]
    fn strides_that_break_the_alignment_are_refused() {
        let dimensions = Dimensions { alignment: 64, ..Dimensions::small() };
        let given = |axis, stride| Strides::default().with(axis, stride);
        for (axis, stride) in [(Axis::Layer, 16400), (Axis::Block, 4100)] {
            let error = axes(&dimensions, "LBONHC", given(axis, stride)).unwrap_err();
            assert!(error.message().contains("not a multiple of the alignment 64"), "{error}");
            assert!(error.message().starts_with(&format!("axis {} ", axis.letter())), "{error}");
        }
        let inside = axes(&dimensions, "LBONHC", given(Axis::Outer, 2050)).unwrap();
        assert_eq!(inside.stride(Axis::Block), 4160);
    }

    fn any_dimensions() -> impl Strategy<Value = Dimensions> {
        let sizes = (1u64..4, 1u64..4, 1u64..3, 1u64..4, 1u64..4, 1u64..4);
        (sizes, prop::sample::select(vec![1, 2, 8]), 0u32..8).prop_map(
            |((num_blocks, num_layers, outer_dim, page_size, heads, elements), dtype_width, shift)| {
                Dimensions {
                    num_blocks,
                    num_layers,
                    outer_dim,
                    page_size,
                    inner_dim: heads * elements,
                    dtype_width,
                    alignment: 1 << shift,
                    num_heads: Some(heads),
                }
            },
        )
    }

    proptest! {
        #[test]
        fn no_two_elements_have_one_address(
            dimensions in any_dimensions(), order in Just(Axis::ALL.to_vec()).prop_shuffle(), regions in 0usize..4,
            strides in prop::collection::vec((0usize..6, 0u64..2000), 0..3),
        ) {
            let regions = order.iter().position(|axis| matches!(axis, Axis::Block | Axis::Element)).unwrap_or(0).min(regions);
            let given = strides.into_iter().fold(Strides::default(), |given, (axis, stride)| {
                if order[..regions].contains(&Axis::ALL[axis]) { given } else { given.with(Axis::ALL[axis], stride) }
            });
            let order = Order::from_axes(&order[..regions], &order[regions..]);
            let Ok(axes) = Axes::new(&dimensions, &Arrangement { order, strides: given }) else { return Ok(()) };
            let mut places = vec![(0, 0)];
            for axis in Axis::ALL {
                places = places.iter().flat_map(|(region, offset)| (0..axes.count(axis)).map({
                    let axes = &axes;
                    move |index| (region + index * axes.region_step(axis), offset + index * axes.stride(axis))
                })).collect();
            }
            let width = dimensions.dtype_width;
            let mut taken = HashSet::new();
            for (region, offset) in places {
                prop_assert!(region < axes.num_regions() && offset + width <= axes.region_size());
                for byte in offset..offset + width {
                    prop_assert!(taken.insert((region, byte)));
                }
            }
        }
    }
}
