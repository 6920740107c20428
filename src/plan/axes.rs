// SPDX-License-Identifier: Apache-2.0
//! A block as both sides have it: which axes are moved, and where they start on each side.

use super::heads::HeadView;
use super::nest::{BLOCK_AXES, PairedAxis};
use super::selection::Selection;
use super::wanted::PairedRange;
use crate::base::{Result, ensure};
use crate::layout::{Axis, Geometry};

#[derive(Clone, Debug)]
pub struct PairedBlock {
    pub axes: [PairedAxis; BLOCK_AXES],
    /// The first index of each axis, in source and destination.
    pub firsts: [[u64; 2]; BLOCK_AXES],
    /// Bytes from there to the first that is moved: of tokens between those that are moved.
    pub offsets: [u64; 2],
    pub element_size: u64,
    /// Bytes from a block to the next, in source and destination.
    pub page_strides: [u64; 2],
}

impl PairedBlock {
    /// The selection of blocks, of which as many tokens are moved.
    pub fn new(sides: [&Geometry; 2], selection: &Selection, tokens: u64) -> Self {
        let heads = HeadView::from_geometries(sides);
        let Selection { layers, outers, heads: head_range, .. } = *selection;
        let from_start = |count| PairedRange { source: 0, destination: 0, count };
        let ranges = [
            (Axis::Layer, layers),
            (Axis::Outer, outers),
            (Axis::Token, from_start(tokens)),
            (Axis::Head, head_range),
            (Axis::Element, from_start(heads[0].count(sides[0], Axis::Element))),
        ];
        let axes = ranges.map(|(axis, range)| PairedAxis {
            axis,
            count: range.count,
            strides: [0, 1].map(|side| heads[side].stride(sides[side], axis)),
            regions: sides.map(|side| side.region_step(axis) as u32),
            is_whole: (0..2).all(|side| heads[side].count(sides[side], axis) == range.count),
        });
        Self {
            axes,
            firsts: ranges.map(|(_, range)| [range.source, range.destination]),
            offsets: [0; 2],
            element_size: sides[0].element_size(),
            page_strides: sides.map(|side| side.stride(Axis::Block)),
        }
    }

    /// The same for every n-th token, from one of them on: n, and that token, of source and destination.
    pub fn of_every(mut self, steps: [(u64, u64); 2]) -> Self {
        let tokens = &mut self.axes[2];
        for (side, (step, phase)) in steps.into_iter().enumerate() {
            self.offsets[side] = phase * tokens.strides[side];
            tokens.strides[side] *= step;
            tokens.is_whole &= step == 1;
        }
        self
    }

    pub fn of_layer(mut self, layer: u64) -> Self {
        let layers = &mut self.axes[0];
        layers.is_whole &= layers.count == 1;
        layers.count = 1;
        self.firsts[0] = self.firsts[0].map(|first| first + layer);
        self
    }

    /// Regions and bytes from the first region and the start of a block to the first index of each axis.
    pub fn start(&self, side: usize) -> (u32, u64) {
        let mut start = (0, self.offsets[side]);
        for (axis, firsts) in self.axes.iter().zip(&self.firsts) {
            start.0 += firsts[side] as u32 * axis.regions[side];
            start.1 += firsts[side] * axis.strides[side];
        }
        start
    }

    /// Bytes of what is moved of a block.
    pub fn size(&self) -> Option<u64> {
        self.axes.iter().try_fold(self.element_size, |size, axis| size.checked_mul(axis.count))
    }
}

/// Fails for layouts with blocks of different models or data types, as far as their identities say so.
pub(super) fn ensure_same_identity(sides: [&Geometry; 2]) -> Result<()> {
    let [source, destination] = sides.map(|side| &side.dimensions().identity);
    ensure!(
        source == destination,
        InvalidArgument,
        "identity is {source} in the source layout and {destination} in the destination; build both layouts with the \
         identity of the blocks that they contain"
    );
    Ok(())
}

/// Fails for layouts whose elements differ. The numbers of blocks, tokens, layers and outer slots may differ, and that of heads
/// if some of them are selected.
pub(super) fn ensure_same_elements(sides: [&Geometry; 2], selects_heads: bool) -> Result<()> {
    let heads = sides.map(|side| side.dimensions().num_heads);
    match heads {
        _ if selects_heads => {}
        [Some(_), Some(_)] => ensure_same_heads(sides)?,
        _ => {
            let elements = sides.map(|side| side.count(Axis::Head) * side.count(Axis::Element));
            ensure!(
                elements[0] == elements[1],
                InvalidArgument,
                "inner_dim is {} in the source layout and {} in the destination; to move some of the heads, build both \
                 layouts with num_heads and give num_heads, source_head and destination_head in the options",
                elements[0],
                elements[1]
            );
        }
    }
    ensure_same("dtype_width", sides.map(Geometry::element_size), "elements are moved, not converted")?;
    match heads {
        _ if selects_heads => {
            for (name, heads) in ["source", "destination"].into_iter().zip(heads) {
                ensure!(
                    heads.is_some(),
                    InvalidArgument,
                    "heads are selected, and num_heads is 0 in the {name} layout; build it with the number of heads, or move it \
                     without a range of heads if it has none"
                );
            }
            ensure_same_heads_in_size(sides)
        }
        [None, Some(_)] => ensure_heads_together(sides[1], "source"),
        [Some(_), None] => ensure_heads_together(sides[0], "destination"),
        _ => Ok(()),
    }
}

fn ensure_same(name: &str, [source, destination]: [u64; 2], advice: &str) -> Result<()> {
    ensure!(
        source == destination,
        InvalidArgument,
        "{name} is {source} in the source layout and {destination} in the destination; {advice}"
    );
    Ok(())
}

/// Fails for heads that differ in size or number. The size first: no range of heads helps if it differs.
fn ensure_same_heads(sides: [&Geometry; 2]) -> Result<()> {
    ensure_same_heads_in_size(sides)?;
    let advice = "to move some of the heads, give num_heads, source_head and destination_head in the options";
    ensure_same("num_heads", sides.map(|side| side.count(Axis::Head)), advice)
}

fn ensure_same_heads_in_size(sides: [&Geometry; 2]) -> Result<()> {
    let sizes = sides.map(|side| side.count(Axis::Element));
    ensure_same("the number of elements per head", sizes, "compare inner_dim and num_heads of both")
}

/// Fails if the heads of a token are apart, while the layout of the other side does not say where its heads are.
fn ensure_heads_together(side: &Geometry, unknown: &str) -> Result<()> {
    let head = side.count(Axis::Element) * side.stride(Axis::Element);
    let is_together = side.count(Axis::Head) == 1 || side.stride(Axis::Head) == head;
    ensure!(
        is_together,
        InvalidArgument,
        "num_heads is 0 in the {unknown} layout, and the heads of a token are apart in the other one, so the order of heads \
         and tokens is unknown; build the {unknown} layout with num_heads"
    );
    Ok(())
}
