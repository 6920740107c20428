// SPDX-License-Identifier: Apache-2.0
//! What all plans between the same two layouts have in common, whatever the blocks: computed once.

use super::axes::{PairedBlock, ensure_same_elements, ensure_same_identity};
use super::block_runs::BlockRuns;
use super::heads::HeadView;
use super::matching::matched;
use super::nest::LoopOrder;
use super::selection::Selection;
use super::shape::Shape;
use super::side::Side;
use super::wanted::{BlockPair, TokenTables, Wanted};
use crate::base::{Error, Result, ensure, error, lists};
use crate::layout::{Axis, Geometry, Layout, LayoutPart, Placement};

/// The maximum number of layers that are moved one by one: each has loops of its own.
const MAX_LAYERS: u64 = 1 << 16;

/// Two layouts that blocks can move between, what is moved of each block, and the loops over it.
#[derive(Clone, Debug)]
pub struct Outline {
    /// The parts that are moved, in the order of their names; at least one.
    pub(super) parts: Vec<PartOutline>,
    /// Bytes of what is moved of a block.
    pub(super) block_size: u64,
    /// Both layouts have some memory in common.
    pub(super) has_common_memory: bool,
}

/// The outline of one part of both layouts.
#[derive(Clone, Debug)]
pub struct PartOutline {
    /// Empty if the layouts have no parts.
    name: String,
    pub(super) whole: LayerOutline,
    /// Each layer by itself; empty unless layers are moved one by one.
    pub(super) layers: Vec<LayerOutline>,
    /// Bytes of what is moved of a block.
    block_size: u64,
    geometries: [Geometry; 2],
    /// The first byte of each side.
    starts: [Side; 2],
}

/// What is moved of each block at a time.
#[derive(Clone, Debug)]
pub(super) struct LayerOutline {
    pub selection: Selection,
    pub block: PairedBlock,
    pub shape: Shape,
}

impl Outline {
    /// The outline of moves between two layouts, as a whole or layer by layer.
    pub fn new(source: &Layout, destination: &Layout, wanted: Wanted, by_layer: bool) -> Result<Self> {
        Self::with_parts(source, destination, &[], wanted, by_layer)
    }

    /// The same for some of the parts of the layouts, by name; for all if there is no name. What is wanted is wanted of each
    /// part.
    pub fn with_parts(
        source: &Layout,
        destination: &Layout,
        names: &[&str],
        wanted: Wanted,
        by_layer: bool,
    ) -> Result<Self> {
        let parts = matched(source, destination, names)?.into_iter();
        let parts = parts.map(|sides| PartOutline::new(sides, wanted, by_layer)).collect::<Result<_>>()?;
        let has_common_memory = source.has_common_memory(destination);
        Ok(Self { has_common_memory, ..Self::from_parts(parts, by_layer)? })
    }

    /// The same for two placements: all checks and arithmetic, no layout.
    pub fn between(
        source: &Placement,
        destination: &Placement,
        wanted: Wanted,
        by_layer: bool,
    ) -> Result<Self> {
        let side = |placement| LayoutPart { name: "", placement, first_region: 0 };
        let part = PartOutline::new([side(source), side(destination)], wanted, by_layer)?;
        Self::from_parts(vec![part], by_layer)
    }

    pub(super) fn from_parts(parts: Vec<PartOutline>, by_layer: bool) -> Result<Self> {
        let first = &parts[0];
        for part in parts.iter().filter(|_| by_layer) {
            let [layers, others] = [first, part].map(|part| part.whole.selection.layers.count);
            ensure!(
                layers == others,
                InvalidArgument,
                "part '{}' has {layers} layers and part '{}' {others}; parts that are moved by layer need the same number: \
                 move them by transfers of their own, or select layers",
                first.name,
                part.name
            );
        }
        let sizes = parts.iter().map(|part| part.block_size);
        let block_size = sizes.into_iter().try_fold(0u64, u64::checked_add).ok_or_else(too_large)?;
        Ok(Self { parts, block_size, has_common_memory: false })
    }

    /// The same, or one of its layers, with loops in another order.
    pub(super) fn in_order(&self, order: LoopOrder, layer: Option<usize>) -> Result<Self> {
        let parts = lists::collect_each(self.parts.iter().map(|part| part.in_order(order, layer)))?;
        Ok(Self { parts, block_size: self.block_size, has_common_memory: self.has_common_memory })
    }

    /// What is moved of each block, of the first part.
    pub fn selection(&self) -> &Selection {
        &self.parts[0].whole.selection
    }

    /// The parts that are moved: their names, and what is moved of each block.
    pub fn selections(&self) -> impl Iterator<Item = (&str, &Selection)> {
        self.parts.iter().map(|part| (part.name.as_str(), &part.whole.selection))
    }

    /// Whether all that is moved of a block is a whole block on both sides.
    pub fn moves_whole_blocks(&self) -> bool {
        self.parts.iter().all(|part| part.whole.block.axes.iter().all(|axis| axis.is_whole))
    }

    /// Whether all layers, outer slots and heads of one side are moved.
    pub fn fills_blocks_of(&self, side: usize) -> bool {
        self.parts.iter().all(|part| {
            let (geometry, selection) = (part.geometry(side), &part.whole.selection);
            let heads = HeadView::from_geometries(part.geometries.each_ref())[side].heads();
            let counts = [geometry.count(Axis::Layer), geometry.count(Axis::Outer), heads];
            counts == [selection.layers.count, selection.outers.count, selection.heads.count]
        })
    }

    /// The number of layers that are moved: of the part with the most.
    pub fn layers(&self) -> u64 {
        self.selections().map(|(_, selection)| selection.layers.count).max().unwrap_or(0)
    }

    /// Finds the runs of some blocks, all of which must exist and have the same number of tokens on both sides.
    pub(super) fn fill(&self, blocks: &mut BlockRuns, pairs: &[BlockPair]) -> Result<()> {
        self.parts.iter().try_for_each(|part| part.ensure_same_pages().map_err(|error| part.named(error)))?;
        // All parts of a layout have the same blocks.
        let [sources, destinations] = [0, 1].map(|side| self.parts[0].geometry(side).count(Axis::Block));
        blocks.fill(pairs, sources, destinations)
    }

    /// The entries of the source's table of which tokens are moved.
    pub fn source_entries<'a>(
        &self,
        tables: &'a TokenTables<'_>,
    ) -> Result<impl Iterator<Item = usize> + 'a> {
        let [page, _] = self.page_sizes()?;
        Ok(tables.sides[0].moved(tables.tokens, page).map(|(entry, ..)| entry))
    }

    /// Tokens of a block, in source and destination. Fails if parts differ in it.
    pub(super) fn page_sizes(&self) -> Result<[u64; 2]> {
        let first = &self.parts[0];
        for part in &self.parts {
            let [pages, others] = [first, part].map(PartOutline::page_sizes);
            let side = usize::from(pages[0] == others[0]);
            ensure!(
                pages == others,
                InvalidArgument,
                "part '{}' has blocks of {} tokens in the {} layout and part '{}' of {}; parts that are moved by block \
                 tables need the same page_size: select parts, or give pairs of blocks",
                first.name,
                pages[side],
                ["source", "destination"][side],
                part.name,
                others[side]
            );
        }
        Ok(first.page_sizes())
    }
}

impl PartOutline {
    pub(super) fn new(sides: [LayoutPart<'_>; 2], wanted: Wanted, by_layer: bool) -> Result<Self> {
        let name = sides[0].name;
        Self::unnamed(sides, wanted, by_layer).map_err(|error| in_part(name, error))
    }

    fn unnamed(parts: [LayoutPart<'_>; 2], wanted: Wanted, by_layer: bool) -> Result<Self> {
        let sides = parts.map(|part| part.placement.geometry());
        ensure_same_identity(sides)?;
        ensure_same_elements(sides, wanted.heads.is_some())?;
        for (name, side) in ["source", "destination"].into_iter().zip(sides) {
            ensure!(
                side.region_step(Axis::Block) == 0,
                Unsupported,
                "each block of the {name} layout has a region of its own; blocks that share regions can be moved"
            );
        }
        let selection = Selection::new(sides, wanted)?;
        let tokens = sides.map(|side| side.count(Axis::Token));
        let tokens = tokens[0].min(tokens[1]);
        let starts = parts.each_ref().map(Side::from_part);
        let outline = |selection: Selection| {
            let block = PairedBlock::new(sides, &selection, tokens);
            let mut shape = Shape::new(&starts, &block);
            // No lists are prepared for a part of a layout.
            shape.nest.unit = shape.nest.unit.filter(|_| parts[0].name.is_empty());
            LayerOutline { selection, shape, block }
        };
        let layers = if by_layer { selection.layers.count } else { 0 };
        ensure!(
            layers <= MAX_LAYERS,
            Unsupported,
            "{layers} layers are to be moved one by one, and {MAX_LAYERS} are the most; select fewer, or move all at once"
        );
        let whole = outline(selection);
        Ok(Self {
            name: parts[0].name.to_string(),
            block_size: whole.block.size().ok_or_else(too_large)?,
            whole,
            layers: lists::collect((0..layers).map(|layer| outline(selection.layer(layer))))?,
            geometries: sides.map(Geometry::clone),
            starts,
        })
    }

    /// Empty if the layouts have no parts.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// The same, or one of its layers, with loops in another order.
    fn in_order(&self, order: LoopOrder, layer: Option<usize>) -> Result<Self> {
        let in_order = |before: &LayerOutline| {
            let shape = Shape::in_order(order, &before.shape.sides, &before.block);
            LayerOutline { shape, ..before.clone() }
        };
        let layers = if layer.is_none() { &self.layers[..] } else { &[] };
        Ok(Self {
            name: self.name.clone(),
            whole: in_order(self.layer(layer)),
            layers: lists::collect(layers.iter().map(in_order))?,
            block_size: self.block_size,
            geometries: self.geometries.clone(),
            starts: self.starts.clone(),
        })
    }

    /// An error with the name of the part, if it has one.
    pub(super) fn named(&self, error: Error) -> Error {
        in_part(&self.name, error)
    }

    fn ensure_same_pages(&self) -> Result<()> {
        let [source, destination] = self.page_sizes();
        ensure!(
            source == destination,
            InvalidArgument,
            "page_size is {source} in the source layout and {destination} in the destination; to move tokens between blocks of \
             different sizes, give source_table, destination_table and num_tokens"
        );
        Ok(())
    }

    /// One of the two shapes.
    pub(super) fn geometry(&self, side: usize) -> &Geometry {
        &self.geometries[side]
    }

    /// The first byte of one side.
    pub(super) fn start(&self, side: usize) -> &Side {
        &self.starts[side]
    }

    /// Tokens of a block, in source and destination.
    pub(super) fn page_sizes(&self) -> [u64; 2] {
        [0, 1].map(|side| self.geometry(side).count(Axis::Token))
    }

    /// What is moved of as many tokens of a block: of one of the layers, or of all.
    pub(super) fn block(&self, layer: Option<u64>, tokens: u64) -> PairedBlock {
        let selection = match layer {
            Some(layer) => self.whole.selection.layer(layer),
            None => self.whole.selection,
        };
        PairedBlock::new(self.geometries.each_ref(), &selection, tokens)
    }

    /// One of the layers, or all.
    pub(super) fn layer(&self, layer: Option<usize>) -> &LayerOutline {
        layer.and_then(|layer| self.layers.get(layer)).unwrap_or(&self.whole)
    }
}

fn in_part(name: &str, error: Error) -> Error {
    if name.is_empty() { error } else { error.context(format!("part '{name}'")) }
}

/// The error for a transfer that exceeds the address space.
pub(super) fn too_large() -> Error {
    error!(InvalidArgument, "the transfer is of more than 2^64 - 1 bytes")
}
