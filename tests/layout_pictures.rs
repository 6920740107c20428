// SPDX-License-Identifier: Apache-2.0
//! The pictures of docs/layouts.md match the library's output. `KVMEM_BLESS=1 cargo test --test layout_pictures` writes
//! them again.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::path::Path;

use kvmem::layout::{Arrangement, Axis, Dimensions, Geometry, LayoutKind, Order, Strides, draw, draw_parts};

/// A file of docs/pictures, and the layout that it shows.
struct Picture {
    name: &'static str,
    order: &'static str,
    strides: Strides,
    dimensions: Dimensions,
}

/// 128 blocks of 16 tokens, 32 layers, 8 heads of 128 elements of 2 bytes.
fn usual() -> Dimensions {
    Dimensions {
        num_blocks: 128,
        num_layers: 32,
        outer_dim: 2,
        page_size: 16,
        inner_dim: 1024,
        dtype_width: 2,
        alignment: 1,
        num_heads: Some(8),
    }
}

fn pictures() -> Vec<Picture> {
    let tight = Strides::default();
    let combined = Dimensions { outer_dim: 1, ..usual() };
    let pairs = Dimensions { inner_dim: 2048, ..combined.clone() };
    vec![
        Picture { name: "vllm-flash-attention", order: "L/OBNHC", strides: tight, dimensions: usual() },
        Picture { name: "tensorrt-llm", order: "BLOHNC", strides: tight, dimensions: usual() },
        Picture { name: "vllm-packed", order: "L/BHNOC", strides: tight, dimensions: usual() },
        Picture {
            name: "vllm-padded-pages",
            order: "LBNHC",
            strides: tight.with(Axis::Block, 80_000),
            dimensions: pairs,
        },
        Picture { name: "llama-cpp-transposed", order: "L/HCBN", strides: tight, dimensions: combined },
    ]
}

fn geometry(order: &str, strides: Strides, dimensions: Dimensions) -> Geometry {
    let kind = LayoutKind::Ordered(Arrangement { order: Order::parse(order).unwrap(), strides });
    Geometry::new(dimensions, kind).unwrap()
}

/// Compares a picture with the committed one, or writes it.
fn check(name: &str, drawn: &str) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/pictures");
    let path = folder.join(format!("layout-{name}.svg"));
    if std::env::var_os("KVMEM_BLESS").is_some() {
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(&path, drawn).unwrap();
    }
    let committed = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(committed == drawn, "{} is stale: KVMEM_BLESS=1 writes it again", path.display());
}

#[test]
fn the_picture_of_parts_is_the_librarys_output() {
    let row =
        Strides::default().with(Axis::Head, 132).with(Axis::Token, 8 * 132).with(Axis::Block, 16 * 8 * 132);
    let part = |bytes: u64| Dimensions { outer_dim: 1, dtype_width: 1, inner_dim: 8 * bytes, ..usual() };
    let (data, scales) = (geometry("L/BNHC", row, part(128)), geometry("L/BNHC", row, part(4)));
    check("parts", &draw_parts(&[("data", &data), ("scales", &scales)], 42).unwrap());
}

#[test]
fn the_pictures_of_the_docs_are_the_librarys_output() {
    for Picture { name, order, strides, dimensions } in pictures() {
        check(name, &draw(&geometry(order, strides, dimensions), 42).unwrap());
    }
}
