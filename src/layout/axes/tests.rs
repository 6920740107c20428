// SPDX-License-Identifier: Apache-2.0
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
        axes(&Dimensions::small(), order, strides).unwrap_err().assert_is(Status::InvalidArgument, part);
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
        ("L/BONHC", given(Axis::Layer, 8), "axis L (layer) has a stride of 8 bytes, and regions of its own"),
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
        |((num_blocks, num_layers, outer_dim, page_size, heads, elements), dtype_width, shift)| Dimensions {
            num_blocks,
            num_layers,
            outer_dim,
            page_size,
            inner_dim: heads * elements,
            dtype_width,
            alignment: 1 << shift,
            num_heads: Some(heads),
            ..Dimensions::ONE
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
