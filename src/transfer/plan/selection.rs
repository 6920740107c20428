// SPDX-License-Identifier: Apache-2.0
//! Which layers and outer slots of each block are moved, and from where to where.

use std::ops::Range;

use crate::error::{Result, ensure};
use crate::layout::{Dimensions, Placement};
use crate::transfer::request::{PairedRange, Wanted};

/// What is moved of each block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Selection {
    /// Layers.
    pub layers: PairedRange,
    /// Outer slots.
    pub outers: PairedRange,
}

/// Layers and outer slots of one side.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Slots {
    /// Layers.
    pub layers: Range<u64>,
    /// Outer slots of each.
    pub outers: Range<u64>,
}

impl Selection {
    /// Refuses what is not there.
    pub(super) fn of(source: &Placement, destination: &Placement, wanted: Wanted) -> Result<Self> {
        let sides = [source, destination].map(|side| side.geometry().dimensions());
        Ok(Self {
            layers: LAYERS.resolve(sides.map(|side| side.num_layers), wanted.layers)?,
            outers: OUTERS.resolve(sides.map(|side| side.outer_dim), wanted.outers)?,
        })
    }

    /// One of the layers.
    pub fn layer(self, layer: u64) -> Self {
        let PairedRange { source, destination, .. } = self.layers;
        let layers = PairedRange { source: source + layer, destination: destination + layer, count: 1 };
        Self { layers, ..self }
    }

    /// What is read.
    pub fn source(&self) -> Slots {
        self.side(|range| range.source)
    }

    /// What is written.
    pub fn destination(&self) -> Slots {
        self.side(|range| range.destination)
    }

    fn side(&self, first: impl Fn(&PairedRange) -> u64) -> Slots {
        let range = |paired| first(paired)..first(paired) + paired.count;
        Slots { layers: range(&self.layers), outers: range(&self.outers) }
    }
}

impl Slots {
    /// All that blocks of such dimensions have.
    pub fn all(dimensions: &Dimensions) -> Self {
        Self { layers: 0..dimensions.num_layers, outers: 0..dimensions.outer_dim }
    }
}

/// What errors call that of which there may be a range.
struct Kind {
    /// In the dimensions.
    field: &'static str,
    /// One of them.
    name: &'static str,
}

const LAYERS: Kind = Kind { field: "num_layers", name: "layer" };
const OUTERS: Kind = Kind { field: "outer_dim", name: "outer slot" };

impl Kind {
    fn resolve(
        &self,
        [in_source, in_destination]: [u64; 2],
        wanted: Option<PairedRange>,
    ) -> Result<PairedRange> {
        let Self { field, name } = self;
        let Some(wanted) = wanted else {
            ensure!(
                in_source == in_destination,
                InvalidArgument,
                "{field} is {in_source} in the source layout and {in_destination} in the destination; name the \
                 {name}s to move"
            );
            return Ok(PairedRange { source: 0, destination: 0, count: in_source });
        };
        let PairedRange { source, destination, count } = wanted;
        ensure!(count > 0, InvalidArgument, "a range of 0 {name}s moves nothing");
        for (side, first, have) in
            [("source", source, in_source), ("destination", destination, in_destination)]
        {
            ensure!(
                first.checked_add(count).is_some_and(|end| end <= have),
                OutOfRange,
                "{count} {name}s from {name} {first} on are outside the {side} layout, which has {have}"
            );
        }
        Ok(wanted)
    }
}
