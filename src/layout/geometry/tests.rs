// SPDX-License-Identifier: Apache-2.0
//! Shapes of KVBM and of any order, and wrong ones.

use proptest::prelude::*;

use super::*;
use crate::base::Status;
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
            ..Dimensions::ONE
        },
    )
}

fn any_shape() -> impl Strategy<Value = Arrangement> {
    prop::sample::select(&Arrangement::KVBM[..])
}

fn pieces(dimensions: &Dimensions) -> impl Iterator<Item = (u64, u64, u64)> + use<> {
    let (blocks, layers, outers) = (dimensions.num_blocks, dimensions.num_layers, dimensions.outer_dim);
    (0..blocks).flat_map(move |b| (0..layers).flat_map(move |l| (0..outers).map(move |o| (b, l, o))))
}

proptest! {
    #[test]
    fn pieces_are_disjoint_and_inside_their_region(dimensions in any_dimensions(), arrangement in any_shape()) {
        let geometry = Geometry::new(dimensions.clone(), arrangement).unwrap();
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
        dimensions in any_dimensions(), arrangement in any_shape(), has_heads: bool,
    ) {
        let heads = dimensions.inner_dim;
        let dimensions = Dimensions { num_heads: has_heads.then_some(heads), ..dimensions };
        let geometry = Geometry::new(dimensions.clone(), arrangement).unwrap();
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
    fn the_published_formulas_hold_at_alignment_one(dimensions in any_dimensions(), arrangement in any_shape()) {
        let dimensions = Dimensions { alignment: 1, ..dimensions };
        let (n, l_count, o_count) = (dimensions.num_blocks, dimensions.num_layers, dimensions.outer_dim);
        let r = dimensions.page_size * dimensions.inner_dim * dimensions.dtype_width;
        let geometry = Geometry::new(dimensions.clone(), arrangement).unwrap();
        for (b, l, o) in pieces(&dimensions) {
            let expected = if arrangement == Arrangement::FULLY_CONTIGUOUS {
                (0, b * l_count * o_count * r + l * o_count * r + o * r)
            } else if arrangement == Arrangement::LAYER_SEPARATE {
                (l as usize, b * o_count * r + o * r)
            } else {
                (l as usize, o * n * r + b * r)
            };
            prop_assert_eq!(geometry.offset(b, l, o), expected);
        }
        let per_region = if arrangement == Arrangement::FULLY_CONTIGUOUS { n * l_count * o_count * r } else { n * o_count * r };
        prop_assert_eq!(geometry.region_size(), per_region);
    }

    #[test]
    fn blocks_are_aligned_and_regions_fit_their_allocation(
        dimensions in any_dimensions(), arrangement in any_shape(), unit in 1u64..1000, unit_shift in 0u32..14,
    ) {
        let geometry = Geometry::new(dimensions.clone(), arrangement).unwrap();
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
                let starts_block = arrangement != Arrangement::FULLY_CONTIGUOUS || layer == 0;
                if starts_block {
                    prop_assert_eq!(placement.address(block, layer, 0).1 % dimensions.alignment, 0);
                }
            }
        }
    }

    #[test]
    fn any_numbers_give_a_shape_or_an_error(
        n in any::<u64>(), l in any::<u64>(), p in any::<u64>(), i in any::<u64>(), shift in 0u32..64,
        arrangement in any_shape(),
    ) {
        let dimensions = Dimensions {
            num_blocks: n, num_layers: l, outer_dim: 2, page_size: p, inner_dim: i, dtype_width: 8,
            alignment: 1 << shift, ..Dimensions::ONE
        };
        if let Ok(geometry) = Geometry::new(dimensions, arrangement) {
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
        (Dimensions { num_heads: Some(7), ..Dimensions::small() }, "not a multiple of num_heads, 7"),
        (Dimensions { inner_dim: 1 << 62, num_heads: None, ..Dimensions::small() }, "more than 2^63 - 1"),
    ];
    for (dimensions, text) in wrong {
        let error = Geometry::new(dimensions, Arrangement::FULLY_CONTIGUOUS).unwrap_err();
        assert!(error.message().contains(text), "{error}");
        assert_eq!(error.status(), Status::InvalidArgument);
    }
}

fn ordered(dimensions: Dimensions, order: &str, strides: Strides) -> Result<Geometry> {
    Geometry::new(dimensions, Arrangement { order: Order::parse(order)?, strides })
}

#[test]
fn orders_may_have_the_same_addresses() {
    let one = Dimensions { outer_dim: 1, num_heads: None, ..Dimensions::small() };
    let aligned = Dimensions { alignment: 4096, ..one.clone() };
    let tight = Strides::default();
    for (dimensions, order, strides, other, is_same) in [
        (&one, "L/BNC", tight, Arrangement::LAYER_SEPARATE, true),
        (&one, "LO/BNC", tight, Arrangement::LAYER_SEPARATE_OUTER_FIRST, true),
        (&aligned, "BLNC", tight.with(Axis::Block, 4096), Arrangement::FULLY_CONTIGUOUS, true),
        (&Dimensions::small(), "BLOHNC", tight, Arrangement::FULLY_CONTIGUOUS, false),
        (&Dimensions::small(), "LO/BNHC", tight, Arrangement::LAYER_SEPARATE, false),
        (&one, "LBNC", tight, Arrangement::LAYER_SEPARATE, false),
        (&one, "BLNC", tight.with(Axis::Block, 4104), Arrangement::FULLY_CONTIGUOUS, false),
    ] {
        let geometry = ordered(dimensions.clone(), order, strides).unwrap();
        assert_eq!(geometry.order().to_string(), order);
        let other = Geometry::new(dimensions.clone(), other).unwrap();
        assert_eq!(geometry.same_addresses(&other), is_same, "{order}");
    }
    let tight_given = ordered(one, "LBNC", tight.with(Axis::Token, 128)).unwrap();
    assert_eq!(tight_given.arrangement().strides, tight);
}

#[test]
fn heads_and_their_number_come_together() {
    let unknown = Dimensions { num_heads: None, ..Dimensions::small() };
    for (order, strides) in
        [("LO/BHNC", Strides::default()), ("LO/BNHC", Strides::default().with(Axis::Head, 256))]
    {
        let error = ordered(unknown.clone(), order, strides).unwrap_err();
        assert!(error.message().contains("has axis H (head) apart from C or with a stride"), "{error}");
    }
    let merged = ordered(unknown.clone(), "LO/BNHC", Strides::default()).unwrap();
    assert!(merged.same_addresses(&ordered(unknown, "LO/BNC", Strides::default()).unwrap()));
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
