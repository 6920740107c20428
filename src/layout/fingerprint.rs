// SPDX-License-Identifier: Apache-2.0
//! The fingerprint of a layout, which labels its file: a layout of another shape would find other bytes in its blocks.
//!
//! It is the shape itself rather than a hash of it, so that an error contains the differences. docs/files.md has
//! it byte by byte.

use serde::{Deserialize, Serialize};

use super::arrangement::Arrangement;
use super::axis::Axis;
use super::config::Dimensions;
use super::geometry::Geometry;
use crate::base::wire::Form;
use crate::base::{Result, Status, error, fail};
use crate::region::Label;

/// A file ends with its label, which is in a page of its own.
const PAGE: u64 = 4096;
const VERSION: u16 = 3;
const FORM: Form = Form { magic: b"KVMEMFIL", versions: VERSION..=VERSION, name: "fingerprint of a layout" };

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Shape {
    arrangement: Arrangement,
    dimensions: Dimensions,
}

/// The label of a file that holds a layout.
pub fn label(geometry: &Geometry) -> Result<Label> {
    let shape = Shape { arrangement: geometry.arrangement(), dimensions: geometry.dimensions().clone() };
    Ok(Label { bytes: FORM.write(VERSION, &shape)?, differences: differences_of_labels })
}

/// The shape that a label describes, as text for people.
pub fn described(label: &[u8]) -> Result<String> {
    let (_, Shape { arrangement, dimensions }) = FORM.read::<Shape>(label)?;
    let numbers = [
        ("num_layers", dimensions.num_layers),
        ("outer_dim", dimensions.outer_dim),
        ("page_size", dimensions.page_size),
        ("inner_dim", dimensions.inner_dim),
        ("num_heads", dimensions.num_heads.unwrap_or(0)),
        ("dtype_width", dimensions.dtype_width),
    ];
    // A layout whose heads are not distinguished has 0.
    let numbers = numbers.iter().filter(|(name, value)| *name != "num_heads" || *value > 0);
    let numbers: Vec<_> = numbers.map(|(name, value)| format!("{name} {value}")).collect();
    Ok(format!("{}, {}", arrangement.order, numbers.join(", ")))
}

/// How the layout of the label `found`, which is that of a file, differs from that of the label `wanted`, as text.
pub fn differences_of_labels(found: &[u8], wanted: &[u8]) -> Result<Vec<String>> {
    let found = match FORM.read::<Shape>(found) {
        Ok((_, shape)) => shape,
        Err(error) if error.status() == Status::VersionMismatch => return Err(error),
        Err(_) => fail!(
            Corrupt,
            "the file does not end with the fingerprint of a layout, so its content is unknown; to use it nevertheless, open \
             it as a region and build the layout with KVMEM_LAYOUT_REGIONS"
        ),
    };
    let (_, wanted) = FORM.read::<Shape>(wanted)?;
    Ok(differences(&found, &wanted))
}

/// Bytes of the file that has a label.
pub fn file_size(label: &[u8]) -> Result<u64> {
    let (_, Shape { arrangement, dimensions }) = FORM.read::<Shape>(label)?;
    let size = Geometry::new(dimensions, arrangement)?.allocation_size(PAGE)?;
    size.checked_next_multiple_of(PAGE).and_then(|end| end.checked_add(PAGE)).ok_or_else(|| {
        error!(Corrupt, "the fingerprint of a layout has {size} bytes of blocks, more than a file")
    })
}

/// The differences, as text.
fn differences(found: &Shape, wanted: &Shape) -> Vec<String> {
    let (there, here) = (&found.dimensions, &wanted.dimensions);
    let numbers = [
        ("num_blocks", there.num_blocks, here.num_blocks),
        ("num_layers", there.num_layers, here.num_layers),
        ("outer_dim", there.outer_dim, here.outer_dim),
        ("page_size", there.page_size, here.page_size),
        ("inner_dim", there.inner_dim, here.inner_dim),
        ("dtype_width", there.dtype_width, here.dtype_width),
        ("alignment", there.alignment, here.alignment),
    ];
    // Heads that one side does not state are no difference: the bytes are the same, and transfers compare them so, too.
    let heads = there.num_heads.zip(here.num_heads).map(|(there, here)| ("num_heads", there, here));
    let numbers = numbers.into_iter().chain(heads).filter(|(_, there, here)| there != here);
    let numbers = numbers.map(|(name, there, here)| format!("{name} is {there} in the file and {here} here"));
    let identity = (there.identity != here.identity)
        .then(|| format!("identity is {} in the file and {} here", there.identity, here.identity));
    arrangement_differences(found, wanted).into_iter().chain(numbers).chain(identity).collect()
}

/// The differences of order and strides, as text. There are none if all elements have the same addresses.
fn arrangement_differences(found: &Shape, wanted: &Shape) -> Vec<String> {
    let num_heads = found.dimensions.num_heads.or(wanted.dimensions.num_heads);
    let geometry = |shape: &Shape| {
        Geometry::new(Dimensions { num_heads, ..shape.dimensions.clone() }, shape.arrangement).ok()
    };
    if geometry(found).zip(geometry(wanted)).is_some_and(|(found, wanted)| found.same_addresses(&wanted)) {
        return Vec::new();
    }
    let (there, here) = (found.arrangement, wanted.arrangement);
    let order = (there.order != here.order)
        .then(|| format!("order is {} in the file and {} here", there.order, here.order));
    let bytes = |stride: Option<u64>| stride.map_or("tight".to_string(), |stride| format!("{stride} bytes"));
    let strides = Axis::ALL.into_iter().filter_map(|axis| {
        let (there, here) = (there.strides.given(axis), here.strides.given(axis));
        let text = || {
            format!(
                "the stride of axis {} is {} in the file and {} here",
                axis.letter(),
                bytes(there),
                bytes(here)
            )
        };
        (there != here).then(text)
    });
    order.into_iter().chain(strides).collect()
}

#[cfg(test)]
mod tests {
    use super::super::{ContentIdentity, Order, Strides};
    use super::*;
    use crate::base::wire::tests::{ensure_all_damage_is_found, of_version};

    fn fingerprint_of(arrangement: Arrangement, change: impl Fn(&mut Dimensions)) -> Vec<u8> {
        let mut dimensions = Dimensions::small();
        change(&mut dimensions);
        label(&Geometry::new(dimensions, arrangement).unwrap()).unwrap().bytes
    }

    type Change = fn(&mut Dimensions);

    /// Fails if there are differences.
    fn ensure_same(found: &[u8], wanted: &[u8]) -> Result<()> {
        let different = differences_of_labels(found, wanted)?;
        crate::base::ensure!(different.is_empty(), InvalidArgument, "{}", different.join(", "));
        Ok(())
    }

    fn small() -> Vec<u8> {
        fingerprint_of(Arrangement::FULLY_CONTIGUOUS, |_| {})
    }

    #[test]
    fn every_field_counts_and_is_named() {
        assert!(ensure_same(&small(), &small()).is_ok());
        let changes: [(&str, Change); 8] = [
            ("num_blocks", |d| d.num_blocks += 1),
            ("num_layers", |d| d.num_layers += 1),
            ("outer_dim", |d| d.outer_dim = 1),
            ("page_size", |d| d.page_size += 1),
            ("inner_dim", |d| d.inner_dim += 8),
            ("dtype_width", |d| d.dtype_width = 4),
            ("alignment", |d| d.alignment = 4096),
            ("num_heads", |d| d.num_heads = d.num_heads.map(|heads| 2 * heads)),
        ];
        for (name, change) in changes {
            let error =
                ensure_same(&fingerprint_of(Arrangement::FULLY_CONTIGUOUS, change), &small()).unwrap_err();
            error.assert_is(Status::InvalidArgument, name);
        }
        let separate = fingerprint_of(Arrangement::LAYER_SEPARATE, |_| {});
        let error = ensure_same(&separate, &small()).unwrap_err();
        assert!(error.message().contains("order is L/BONHC in the file and BLONHC here"), "{error}");
    }

    #[test]
    fn another_identity_is_refused_with_both() {
        let of = |identity: &[u8]| {
            fingerprint_of(Arrangement::FULLY_CONTIGUOUS, |d| {
                d.identity = ContentIdentity::new(identity).unwrap()
            })
        };
        let (model, other) = (of(b"llama-3/bf16"), of(b"llama-3/f16"));
        assert!(ensure_same(&model, &model).is_ok());
        assert!(ensure_same(&of(b""), &small()).is_ok());
        for (there, here, text) in [
            (&model, &other, "identity is 'llama-3/bf16' in the file and 'llama-3/f16' here"),
            (&model, &small(), "identity is 'llama-3/bf16' in the file and none here"),
            (&small(), &model, "identity is none in the file and 'llama-3/bf16' here"),
        ] {
            ensure_same(there, here).unwrap_err().assert_is(Status::InvalidArgument, text);
        }
        let longest = of(&[0xff; 2048]);
        assert!(longest.len() < 4092, "a fingerprint of {} bytes is larger than a page", longest.len());
        ensure_all_damage_is_found(&model, |bytes| ensure_same(bytes, &model));
    }

    #[test]
    fn heads_that_one_side_does_not_state_are_no_difference() {
        let unstated = fingerprint_of(Arrangement::FULLY_CONTIGUOUS, |d| d.num_heads = None);
        assert!(ensure_same(&unstated, &small()).is_ok());
        assert!(ensure_same(&small(), &unstated).is_ok());
    }

    #[test]
    fn order_and_strides_count_and_are_named() {
        let ordered = |order: &str, strides| {
            fingerprint_of(Arrangement { order: Order::parse(order).unwrap(), strides }, |_| {})
        };
        let padded = Strides::default().with(Axis::Block, 10000);
        let here = ordered("BLOHNC", padded);
        assert!(ensure_same(&here, &here).is_ok());
        assert!(ensure_same(&ordered("BLONHC", Strides::default()), &small()).is_ok(), "the same addresses");
        for (there, part) in [
            (ordered("BLHONC", padded), "order is BLHONC in the file and BLOHNC here"),
            (
                ordered("BLOHNC", Strides::default()),
                "the stride of axis B is tight in the file and 10000 bytes here",
            ),
            (
                small(),
                "order is BLONHC in the file and BLOHNC here, the stride of axis B is tight in the file and 10000 bytes here",
            ),
        ] {
            ensure_same(&there, &here).unwrap_err().assert_is(Status::InvalidArgument, part);
        }
        ensure_all_damage_is_found(&here, |bytes| ensure_same(bytes, &here));
    }

    #[test]
    fn orders_with_the_same_addresses_are_no_difference() {
        let order = |text: &str| {
            let arrangement = Arrangement::tight(Order::parse(text).unwrap());
            fingerprint_of(arrangement, |d| (d.outer_dim, d.num_heads) = (1, None))
        };
        assert!(ensure_same(&order("L/BNC"), &order("LO/BNC")).is_ok());
        assert!(ensure_same(&order("L/BNC"), &order("L/OBNHC")).is_ok());
        assert!(ensure_same(&order("L/BNC"), &order("LBNC")).is_err());
    }

    #[test]
    fn what_is_no_fingerprint_is_refused() {
        let mut damaged = small();
        damaged[30] ^= 1;
        for bytes in [&[][..], &[0; 100], &damaged] {
            assert_eq!(ensure_same(bytes, &small()).unwrap_err().status(), Status::Corrupt);
        }
        ensure_all_damage_is_found(&small(), |bytes| ensure_same(bytes, &small()));
        ensure_same(&of_version(&small(), VERSION + 1), &small())
            .unwrap_err()
            .assert_is(Status::VersionMismatch, "");
    }
}
