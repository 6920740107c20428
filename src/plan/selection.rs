// SPDX-License-Identifier: Apache-2.0
//! The layers, outer slots and heads that are moved of each block, on each side.

use std::ops::Range;

use super::heads::HeadView;
use super::wanted::{PairedRange, Wanted};
use crate::base::{Result, ensure};
use crate::layout::{Axis, Geometry};

/// What is moved of each block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Selection {
    pub layers: PairedRange,
    pub outers: PairedRange,
    pub heads: PairedRange,
}

/// Layers and outer slots of one side.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Slots {
    pub layers: Range<u64>,
    pub outers: Range<u64>,
}

impl Selection {
    /// Fails for a selection of what a layout does not have.
    pub(super) fn new(sides: [&Geometry; 2], wanted: Wanted) -> Result<Self> {
        Ok(Self {
            layers: LAYERS.resolve(sides.map(|side| side.count(Axis::Layer)), wanted.layers)?,
            outers: OUTERS.resolve(sides.map(|side| side.count(Axis::Outer)), wanted.outers)?,
            heads: HEADS.resolve(HeadView::from_geometries(sides).map(|view| view.heads()), wanted.heads)?,
        })
    }

    pub fn layer(self, layer: u64) -> Self {
        let PairedRange { source, destination, .. } = self.layers;
        let layers = PairedRange { source: source + layer, destination: destination + layer, count: 1 };
        Self { layers, ..self }
    }

    pub fn source(&self) -> Slots {
        self.side(|range| range.source)
    }

    pub fn destination(&self) -> Slots {
        self.side(|range| range.destination)
    }

    fn side(&self, first: impl Fn(&PairedRange) -> u64) -> Slots {
        let range = |paired| first(paired)..first(paired) + paired.count;
        Slots { layers: range(&self.layers), outers: range(&self.outers) }
    }
}

impl Slots {
    pub fn all(geometry: &Geometry) -> Self {
        Self { layers: 0..geometry.count(Axis::Layer), outers: 0..geometry.count(Axis::Outer) }
    }

    /// Bytes of a block in them.
    pub fn size(&self, geometry: &Geometry) -> u64 {
        let count = |range: &Range<u64>| range.end - range.start;
        count(&self.layers) * count(&self.outers) * geometry.piece_size()
    }
}

/// What errors call an axis and its indices.
struct Kind {
    field: &'static str,
    /// The end of the fields of a transfer: the first index of each side, and the number of indices.
    range: &'static str,
    /// An index.
    name: &'static str,
}

const LAYERS: Kind = Kind { field: "num_layers", range: "layer", name: "layer" };
const OUTERS: Kind = Kind { field: "outer_dim", range: "outer", name: "outer slot" };
const HEADS: Kind = Kind { field: "num_heads", range: "head", name: "head" };

impl Kind {
    fn resolve(
        &self,
        [in_source, in_destination]: [u64; 2],
        wanted: Option<PairedRange>,
    ) -> Result<PairedRange> {
        let Self { field, range, name } = self;
        let Some(wanted) = wanted else {
            ensure!(
                in_source == in_destination,
                InvalidArgument,
                "{field} is {in_source} in the source layout and {in_destination} in the destination; to move some of the \
                 {name}s, give num_{range}s, source_{range} and destination_{range} in the options"
            );
            return Ok(PairedRange { source: 0, destination: 0, count: in_source });
        };
        let PairedRange { source, destination, count } = wanted;
        ensure!(count > 0, InvalidArgument, "a range of 0 {name}s is empty");
        for (side, first, have) in
            [("source", source, in_source), ("destination", destination, in_destination)]
        {
            ensure!(
                first.checked_add(count).is_some_and(|end| end <= have),
                OutOfRange,
                "{count} {name}s from {name} {first} on are outside the {side} layout, which has {have}; change {side}_{range} \
                 or num_{range}s"
            );
        }
        Ok(wanted)
    }
}
