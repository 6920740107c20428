// SPDX-License-Identifier: Apache-2.0
//! From block pairs to the fewest moves. Pure: addresses in, addresses out.

use crate::error::{Error, Result, Status, ensure};
use crate::layout::{Layout, Placement, Unit};

/// A block of the source and the block of the destination it goes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(C)]
pub struct BlockPair {
    /// Block id in the source layout.
    pub source: u32,
    /// Block id in the destination layout.
    pub destination: u32,
}

/// A range of layers, which may begin elsewhere on each side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layers {
    /// First layer in the source.
    pub source: u64,
    /// First layer in the destination.
    pub destination: u64,
    /// How many.
    pub count: u64,
}

/// One stretch of bytes that lies together on both sides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Move {
    /// Where it comes from.
    pub source: u64,
    /// Where it goes.
    pub destination: u64,
    /// Bytes.
    pub size: u64,
    /// The source layout's region it lies in.
    pub source_region: u32,
    /// The destination layout's.
    pub destination_region: u32,
}

/// What a transfer does, in order of destination.
#[derive(Debug)]
pub struct Plan {
    pairs: Vec<BlockPair>,
    layers: Layers,
    unit: Unit,
    pieces: u64,
    bytes: u64,
    moves: Vec<Move>,
}

impl Plan {
    /// Plans the move of `pairs` between two layouts.
    pub fn new(
        source: &Layout,
        destination: &Layout,
        pairs: &[BlockPair],
        layers: Option<Layers>,
    ) -> Result<Self> {
        Self::between(source.placement(), destination.placement(), pairs, layers)
    }

    /// The same for two placements: all checks and arithmetic, no layout.
    pub fn between(
        source: &Placement,
        destination: &Placement,
        pairs: &[BlockPair],
        layers: Option<Layers>,
    ) -> Result<Self> {
        source.geometry().ensure_same_blocks(destination.geometry())?;
        let layers = range(source, destination, layers)?;
        let pairs = in_order(source, destination, pairs)?;
        let dimensions = source.geometry().dimensions();
        let pieces = product(&[pairs.len() as u64, layers.count, dimensions.outer_dim])?;
        let bytes = product(&[pieces, source.geometry().piece_size()])?;
        let shape = Shape::of(source, destination, layers);
        let moves = shape.moves(source, destination, &pairs, layers);
        Ok(Self { pairs, layers, unit: shape.unit, pieces, bytes, moves })
    }

    /// The pairs, in order of destination.
    pub fn pairs(&self) -> &[BlockPair] {
        &self.pairs
    }

    /// The layers moved of each block.
    pub fn layers(&self) -> Layers {
        self.layers
    }

    /// The largest stretch that lies together in both layouts for every block.
    pub fn unit(&self) -> Unit {
        self.unit
    }

    /// How many (block, layer, outer) are moved.
    pub fn pieces(&self) -> u64 {
        self.pieces
    }

    /// Bytes moved.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The moves: no two can be joined.
    pub fn moves(&self) -> &[Move] {
        &self.moves
    }
}

fn product(factors: &[u64]) -> Result<u64> {
    let product = factors.iter().try_fold(1u64, |product, factor| product.checked_mul(*factor));
    product.ok_or_else(|| Error::new(Status::InvalidArgument, "the transfer is of more than 2^64 - 1 bytes"))
}

fn range(source: &Placement, destination: &Placement, layers: Option<Layers>) -> Result<Layers> {
    let (have_source, have_destination) =
        (source.geometry().dimensions().num_layers, destination.geometry().dimensions().num_layers);
    let Some(layers) = layers else {
        ensure!(
            have_source == have_destination,
            InvalidArgument,
            "num_layers is {have_source} in the source layout and {have_destination} in the destination; name the \
             layers to move"
        );
        return Ok(Layers { source: 0, destination: 0, count: have_source });
    };
    ensure!(layers.count > 0, InvalidArgument, "a range of 0 layers moves nothing");
    for (side, first, have) in
        [("source", layers.source, have_source), ("destination", layers.destination, have_destination)]
    {
        ensure!(
            first.checked_add(layers.count).is_some_and(|end| end <= have),
            OutOfRange,
            "{} layers from layer {first} on are outside the {side} layout, which has {have}",
            layers.count
        );
    }
    Ok(layers)
}

/// The pairs by ascending destination, so that runs of blocks are found; in range, and no destination twice.
fn in_order(source: &Placement, destination: &Placement, pairs: &[BlockPair]) -> Result<Vec<BlockPair>> {
    ensure!(!pairs.is_empty(), InvalidArgument, "there is no block to move");
    let sources = source.geometry().dimensions().num_blocks;
    let destinations = destination.geometry().dimensions().num_blocks;
    let mut ascending = true;
    let mut last = None;
    for (index, pair) in pairs.iter().enumerate() {
        if u64::from(pair.source) >= sources || u64::from(pair.destination) >= destinations {
            return Err(out_of_range(index, *pair, sources, destinations));
        }
        ascending &= last < Some(pair.destination);
        last = Some(pair.destination);
    }
    if ascending {
        return Ok(pairs.to_vec());
    }
    // Ids are dense, so a table sorts them in one pass; a few pairs of a huge cache are not worth the table.
    if destinations <= 16 * pairs.len() as u64 {
        by_table(pairs, destinations as usize)
    } else {
        by_sorting(pairs)
    }
}

fn by_table(pairs: &[BlockPair], destinations: usize) -> Result<Vec<BlockPair>> {
    const NONE: u64 = u64::MAX;
    let mut sources = vec![NONE; destinations];
    for pair in pairs {
        let slot = &mut sources[pair.destination as usize];
        if *slot != NONE {
            return Err(twice(pair.destination));
        }
        *slot = pair.source.into();
    }
    let mut ordered = Vec::with_capacity(pairs.len());
    ordered.extend(
        sources.iter().enumerate().filter(|(_, source)| **source != NONE).map(|(destination, source)| {
            BlockPair { source: *source as u32, destination: destination as u32 }
        }),
    );
    Ok(ordered)
}

fn by_sorting(pairs: &[BlockPair]) -> Result<Vec<BlockPair>> {
    let mut ordered = pairs.to_vec();
    ordered.sort_unstable_by_key(|pair| pair.destination);
    match ordered.windows(2).find(|pair| pair[0].destination == pair[1].destination) {
        Some(pair) => Err(twice(pair[0].destination)),
        None => Ok(ordered),
    }
}

#[cold]
fn out_of_range(index: usize, pair: BlockPair, sources: u64, destinations: u64) -> Error {
    let BlockPair { source, destination } = pair;
    let message = format!(
        "pair {index} moves block {source} to block {destination}; the source layout has {sources} blocks, the \
         destination {destinations}"
    );
    Error::new(Status::OutOfRange, message)
}

#[cold]
fn twice(destination: u32) -> Error {
    Error::new(Status::InvalidArgument, format!("block {destination} is a destination twice"))
}

/// Which loops are left once everything that always lies together is one unit.
struct Shape {
    unit: Unit,
    unit_size: u64,
    layers: u64,
    outers: u64,
    blocks_outermost: bool,
}

impl Shape {
    fn of(source: &Placement, destination: &Placement, layers: Layers) -> Self {
        let sides = [source.geometry(), destination.geometry()];
        let piece = sides[0].piece_size();
        let outer_dim = sides[0].dimensions().outer_dim;
        let whole = sides.iter().all(|side| side.dimensions().num_layers == layers.count);
        let contiguous = sides.iter().all(|side| side.num_regions() == 1 && side.layer_stride() > 0);

        let slots_together = outer_dim == 1 || sides.iter().all(|side| side.outer_stride() == piece);
        let layers_together = slots_together && contiguous;
        let (unit, size) = match (slots_together, layers_together) {
            (false, _) => (Unit::Piece, piece),
            (true, false) => (Unit::Layer, piece * outer_dim),
            (true, true) if whole => (Unit::Block, piece * outer_dim * layers.count),
            // A part of a block's layers lies together too, but no prepared list has it as a unit.
            (true, true) => (Unit::Layer, piece * outer_dim * layers.count),
        };
        Self {
            unit,
            unit_size: size,
            layers: if layers_together { 1 } else { layers.count },
            outers: if slots_together { 1 } else { outer_dim },
            blocks_outermost: contiguous,
        }
    }

    /// Neighbours are met one after the other, so joining each move with the one before finds every run.
    fn moves(
        &self,
        source: &Placement,
        destination: &Placement,
        pairs: &[BlockPair],
        layers: Layers,
    ) -> Vec<Move> {
        let mut moves = Moves(Vec::new());
        let mut push = |pair: &BlockPair, layer: u64, outer: u64| {
            let (source_region, from) = source.address(pair.source.into(), layers.source + layer, outer);
            let (destination_region, to) =
                destination.address(pair.destination.into(), layers.destination + layer, outer);
            moves.push(Move {
                source: from,
                destination: to,
                size: self.unit_size,
                source_region: source_region as u32,
                destination_region: destination_region as u32,
            });
        };
        if self.blocks_outermost {
            for pair in pairs {
                for layer in 0..self.layers {
                    (0..self.outers).for_each(|outer| push(pair, layer, outer));
                }
            }
        } else {
            for layer in 0..self.layers {
                for outer in 0..self.outers {
                    pairs.iter().for_each(|pair| push(pair, layer, outer));
                }
            }
        }
        moves.0
    }
}

struct Moves(Vec<Move>);

impl Moves {
    #[inline]
    fn push(&mut self, next: Move) {
        if let Some(last) = self.0.last_mut()
            && last.source + last.size == next.source
            && last.destination + last.size == next.destination
            && last.source_region == next.source_region
            && last.destination_region == next.destination_region
        {
            last.size += next.size;
        } else {
            self.0.push(next);
        }
    }
}

#[cfg(test)]
mod tests;
