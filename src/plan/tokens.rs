// SPDX-License-Identifier: Apache-2.0
//! Tokens of two block tables, whose blocks may differ in size.
//!
//! The tokens that are moved within one block on both sides are a *span*. With blocks of p and q tokens, spans of gcd(p, q)
//! tokens cover the whole sequence, except for a shorter one at each end. So there are at most three sections, each with spans
//! of one length, which are planned like blocks: the id of a span is its distance from block 0 in units of one stride. Every n-th
//! token of a block is the same with blocks of p / n tokens and n times the stride, if n divides p; otherwise each token is a
//! span.

use super::axes::PairedBlock;
use super::block_runs::BlockRuns;
use super::nest::LoopOrder;
use super::outline::{Outline, PartOutline, too_large};
use super::shape::Shape;
use super::wanted::{BlockPair, BlockTable, TokenTables};
use crate::base::{Result, ensure, error, lists};
use crate::layout::{Axis, Geometry};

const NAMES: [&str; 2] = ["source", "destination"];

/// The sections of some tokens. If filled again, it allocates only for more spans than it has ever contained.
#[derive(Debug, Default)]
pub struct Sections {
    all: Vec<Section>,
    /// Number of sections in use.
    used: usize,
    pairs: Vec<BlockPair>,
    entries: Vec<Entry>,
}

/// Spans of one length, and the loops within each.
#[derive(Debug)]
pub struct Section {
    /// Index of the part of the layouts.
    pub part: usize,
    pub shape: Shape,
    pub block: PairedBlock,
    /// Each layer by itself; empty unless layers are moved one by one.
    pub layers: Vec<Shape>,
    /// The spans, as blocks whose ids are distances.
    pub spans: BlockRuns,
    pub bytes: u64,
}

impl Section {
    /// The same, or one of its layers, with loops in another order.
    pub(super) fn in_order(&self, order: LoopOrder, layer: Option<usize>) -> Result<Self> {
        let in_order = |block: &PairedBlock| {
            let mut shape = Shape::in_order(order, &self.shape.sides, block);
            shape.nest.unit = None;
            shape
        };
        let of_layer = |layer: usize| self.block.clone().of_layer(layer as u64);
        let block = layer.map_or_else(|| self.block.clone(), of_layer);
        let num_layers = if layer.is_none() { self.layers.len() } else { 0 };
        let layers = lists::collect((0..num_layers).map(|layer| in_order(&of_layer(layer))))?;
        let (shape, spans) = (in_order(&block), self.spans.in_order(order)?);
        let bytes = spans.blocks() * shape.block_size();
        Ok(Self { part: self.part, bytes, shape, block, layers, spans })
    }
}

/// Finds the pairs of whole blocks that tables consist of. Returns whether blocks of both sides have the same size and all
/// tokens of each are moved.
pub fn find_whole_blocks(
    [page, there]: [u64; 2],
    tables: &TokenTables<'_>,
    pairs: &mut Vec<BlockPair>,
) -> Result<bool> {
    let [source, destination] = &tables.sides;
    let is_whole = there == page
        && tables.sides.iter().all(|side| side.token_step == 1 && side.first_token.is_multiple_of(page))
        && tables.tokens.is_multiple_of(page);
    let blocks = |side: &BlockTable<'_>| {
        let first = (side.first_token / page) as usize;
        let end = first.checked_add((tables.tokens / page) as usize)?;
        Some(first..end).filter(|range| is_whole && range.end <= side.blocks.len())
    };
    let (Some(sources), Some(destinations)) = (blocks(source), blocks(destination)) else { return Ok(false) };
    let zipped = source.blocks[sources].iter().zip(&destination.blocks[destinations]);
    pairs.clear();
    let pair = |(source, destination): (&u32, &u32)| BlockPair { source: *source, destination: *destination };
    lists::extend(pairs, zipped.map(pair))?;
    Ok(!pairs.is_empty())
}

impl Sections {
    /// Plans the tokens of tables. Fails if a table is too short, has a block that does not exist, or names a token of the
    /// destination twice.
    pub fn fill(&mut self, outline: &Outline, tables: &TokenTables<'_>) -> Result<()> {
        self.used = 0;
        let mut parts = outline.parts.iter().enumerate();
        parts.try_for_each(|(index, part)| {
            self.fill_part((index, part), tables).map_err(|error| part.named(error))
        })
    }

    fn fill_part(&mut self, (part, outline): (usize, &PartOutline), tables: &TokenTables<'_>) -> Result<()> {
        check(outline, tables, &mut self.entries)?;
        let sides = [0, 1].map(|side| TokenGrid::new(outline.geometry(side), &tables.sides[side]));
        for cells in divide(&sides, tables.tokens).into_iter().filter(|cells| cells.count > 0) {
            let mut section = Section { part, ..self.section(outline, sides, cells)? };
            match self.all.get_mut(self.used) {
                Some(place) => std::mem::swap(place, &mut section),
                None => self.all.push(section),
            }
            self.used += 1;
        }
        Ok(())
    }

    pub fn list(&self) -> &[Section] {
        &self.all[..self.used]
    }

    /// The same, or one of their layers, with loops in another order.
    pub fn in_order(&self, order: LoopOrder, layer: Option<usize>) -> Result<Self> {
        let all = self.list().iter().map(|section| section.in_order(order, layer));
        let all = lists::collect_each(all)?;
        Ok(Self { used: all.len(), all, ..Self::default() })
    }

    /// One section, in the memory of the one that it replaces.
    fn section(&mut self, outline: &PartOutline, grids: [TokenGrid<'_>; 2], cells: Cells) -> Result<Section> {
        let before = self.all.get_mut(self.used);
        let (mut spans, mut layers) = before.map_or_else(Default::default, |before| {
            (std::mem::take(&mut before.spans), std::mem::take(&mut before.layers))
        });
        let [source, destination] = grids.map(|grid| SpanIds::new(grid, cells));
        self.pairs.clear();
        for index in 0..cells.count {
            let token = cells.first + index * cells.tokens;
            let pair = BlockPair { source: source.id(token)?, destination: destination.id(token)? };
            lists::push(&mut self.pairs, pair)?;
        }
        spans.fill(&self.pairs, u64::from(u32::MAX), u64::from(u32::MAX))?;
        let units = [source.unit, destination.unit];
        let sides = [0, 1].map(|side| outline.start(side).with_stride(units[side]));
        let block =
            |layer| outline.block(layer, cells.tokens).of_every(grids.map(|grid| (grid.step, grid.phase)));
        let shape = |block: &PairedBlock| {
            let mut shape = Shape::new(&sides, block);
            // No list is prepared for spans.
            shape.nest.unit = None;
            shape
        };
        let whole = block(None);
        let bytes = whole.size().and_then(|size| size.checked_mul(cells.count)).ok_or_else(too_large)?;
        layers.clear();
        layers.extend((0..outline.layers.len() as u64).map(|layer| shape(&block(Some(layer)))));
        Ok(Section { part: 0, shape: shape(&whole), layers, block: whole, spans, bytes })
    }
}

/// Tokens in spans of one length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Cells {
    /// The first of all, counted from the first token that is moved.
    first: u64,
    tokens: u64,
    count: u64,
}

/// The tokens of a table that may be moved, as blocks without the tokens between them.
#[derive(Clone, Copy, Debug)]
struct TokenGrid<'a> {
    blocks: &'a [u32],
    /// Tokens of a block.
    page: u64,
    /// The first that is moved, counted from the start of the table.
    first: u64,
    /// Tokens of this grid from one that is moved to the next. If that is not 1, spans are of one token.
    advance: u64,
    /// Tokens of the layout from one of this grid to the next.
    step: u64,
    /// Tokens of the layout from the start of a block to the first of this grid.
    phase: u64,
    block_stride: u64,
    /// Bytes from one token of this grid to the next.
    token_stride: u64,
}

impl<'a> TokenGrid<'a> {
    fn new(geometry: &Geometry, table: &BlockTable<'a>) -> Self {
        let BlockTable { blocks, first_token, token_step } = *table;
        let (page, block_stride) = (geometry.count(Axis::Token), geometry.stride(Axis::Block));
        let token_stride = geometry.stride(Axis::Token);
        let every = if page.is_multiple_of(token_step) { token_step } else { 1 };
        Self {
            blocks,
            page: page / every,
            first: first_token / every,
            advance: token_step / every,
            step: every,
            phase: first_token % every,
            block_stride,
            token_stride: every * token_stride,
        }
    }
}

/// Divides tokens into spans, none of which crosses the end of a block.
fn divide([source, destination]: &[TokenGrid<'_>; 2], tokens: u64) -> [Cells; 3] {
    let none = Cells { first: 0, tokens: 0, count: 0 };
    if source.advance != 1 || destination.advance != 1 {
        return [none, Cells { first: 0, tokens: 1, count: tokens }, none];
    }
    let both = common_divisor(source.page, destination.page);
    let size = common_divisor(both, source.first.abs_diff(destination.first));
    let head = ((size - source.first % size) % size).min(tokens);
    let count = (tokens - head) / size;
    let tail = tokens - head - count * size;
    [
        Cells { first: 0, tokens: head, count: u64::from(head > 0) },
        Cells { first: head, tokens: size, count },
        Cells { first: head + count * size, tokens: tail, count: u64::from(tail > 0) },
    ]
}

/// The ids of spans of one side: their distance from the first token of block 0, in units that divide all distances.
#[derive(Clone, Copy)]
struct SpanIds<'a> {
    grid: TokenGrid<'a>,
    unit: u64,
}

impl<'a> SpanIds<'a> {
    fn new(grid: TokenGrid<'a>, cells: Cells) -> Self {
        // Spans start at multiples of their length, except for a single one.
        let step = if cells.count > 1 { cells.tokens } else { 1 };
        let starts_blocks = step == grid.page;
        let unit = match starts_blocks {
            true => grid.block_stride,
            false => common_divisor(grid.block_stride, step * grid.token_stride),
        };
        Self { grid, unit }
    }

    /// The id of the span that starts with a token, which is counted from the first that is moved.
    fn id(&self, token: u64) -> Result<u32> {
        let TokenGrid { blocks, page, first, advance, block_stride, token_stride, .. } = self.grid;
        let token = first + token * advance;
        let block = u64::from(blocks[(token / page) as usize]);
        let distance = (block * block_stride + token % page * token_stride) / self.unit;
        u32::try_from(distance).ok().filter(|id| *id < u32::MAX).ok_or_else(|| {
            error!(Unsupported, "block {block} is more than 2^32 units of {} bytes away from block 0; give blocks a stride that is a \
                 multiple of the stride of their tokens",
                self.unit)
        })
    }
}

/// Fails if tables do not have the tokens, or name one of the destination twice.
fn check(outline: &PartOutline, tables: &TokenTables<'_>, entries: &mut Vec<Entry>) -> Result<()> {
    ensure!(tables.tokens > 0, InvalidArgument, "num_tokens is 0; at least one token must be moved");
    for (side, table) in tables.sides.iter().enumerate() {
        let (name, geometry) = (NAMES[side], outline.geometry(side));
        ensure!(
            geometry.region_step(Axis::Token) == 0,
            Unsupported,
            "each token of the {name} layout has a region of its own; only whole blocks of it can be moved"
        );
        ensure!(table.token_step > 0, InvalidArgument, "token_step of {name}_table is 0");
        let page = geometry.count(Axis::Token);
        let end = (tables.tokens - 1)
            .checked_mul(table.token_step)
            .and_then(|last| last.checked_add(table.first_token))
            .and_then(|last| last.checked_add(1));
        let have = table.blocks.len() as u64 * page;
        ensure!(
            end.is_some_and(|end| end <= have),
            OutOfRange,
            "{} tokens from token {} on with a step of {} exceed {name}_table, which has {} blocks of {page} tokens; add \
             blocks to the table, or lower num_tokens",
            tables.tokens,
            table.first_token,
            table.token_step,
            table.blocks.len()
        );
        let used = used_blocks(table, tables.tokens, page);
        let num_blocks = geometry.count(Axis::Block);
        for (index, id) in used.clone().zip(&table.blocks[used]) {
            ensure!(
                u64::from(*id) < num_blocks,
                OutOfRange,
                "blocks[{index}] of {name}_table is {id}; the layout has {num_blocks} blocks, give ids below that"
            );
        }
    }
    ensure_written_once(&tables.sides[1], tables.tokens, outline.page_sizes()[1], entries)
}

/// The entries of a table with tokens that are moved, or between such.
fn used_blocks(table: &BlockTable<'_>, tokens: u64, page: u64) -> std::ops::Range<usize> {
    let last = table.first_token + (tokens - 1) * table.token_step;
    (table.first_token / page) as usize..(last / page) as usize + 1
}

impl BlockTable<'_> {
    /// The entries of which tokens are moved, and the tokens of the block of each from the first that is moved until the last. A step
    /// can pass over entries.
    pub fn moved(&self, tokens: u64, page: u64) -> impl Iterator<Item = (usize, u64, u64)> {
        let (first, step) = (self.first_token, self.token_step);
        let end = first + (tokens - 1) * step + 1;
        let found = used_blocks(self, tokens, page).map(move |entry| {
            let start = entry as u64 * page;
            let from = if start <= first { first } else { first + (start - first).div_ceil(step) * step };
            (entry, from.saturating_sub(start), end.min(start + page).saturating_sub(start))
        });
        found.filter(|(_, from, until)| from < until)
    }
}

/// The block of an entry of a table, and the tokens of it from the first that is written until the last.
type Entry = (u32, u64, u64);

/// Fails if a token of the destination is named twice: by two entries with the same block. `entries` is memory to sort in.
fn ensure_written_once(
    table: &BlockTable<'_>,
    tokens: u64,
    page: u64,
    entries: &mut Vec<Entry>,
) -> Result<()> {
    let ids = &table.blocks[used_blocks(table, tokens, page)];
    if ids.windows(2).all(|pair| pair[0] < pair[1]) {
        return Ok(());
    }
    let step = table.token_step;
    entries.clear();
    let moved = table.moved(tokens, page);
    lists::extend(entries, moved.map(|(entry, from, until)| (table.blocks[entry], from, until)))?;
    // Two entries with the same block have a token in common if that is so for two neighbours in this order: their tokens are
    // as far apart, and start at the same remainder.
    entries.sort_unstable_by_key(|(block, from, _)| (*block, from % step, *from));
    for pair in entries.windows(2) {
        let ((block, from, until), (other, other_from, _)) = (pair[0], pair[1]);
        let meets = block == other && from % step == other_from % step && other_from < until;
        ensure!(
            !meets,
            InvalidArgument,
            "token {other_from} of block {block} is a destination twice; name each destination block once"
        );
    }
    Ok(())
}

/// The greatest number that divides both; the other one for 0.
pub(super) fn common_divisor(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { common_divisor(b, a % b) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::{Arrangement, Dimensions};

    fn grid(page: u64, first: u64, step: u64) -> TokenGrid<'static> {
        let dimensions = Dimensions { page_size: page, ..Dimensions::small() };
        let geometry = Geometry::new(dimensions, Arrangement::FULLY_CONTIGUOUS).unwrap();
        TokenGrid::new(&geometry, &BlockTable { blocks: &[], first_token: first, token_step: step })
    }

    fn lengths(sides: [TokenGrid<'_>; 2], tokens: u64) -> Vec<(u64, u64)> {
        let cells = divide(&sides, tokens);
        assert_eq!(cells.iter().map(|cells| cells.tokens * cells.count).sum::<u64>(), tokens);
        cells.iter().filter(|cells| cells.count > 0).map(|cells| (cells.tokens, cells.count)).collect()
    }

    #[test]
    fn spans_are_as_long_as_both_block_sizes_allow() {
        let lengths = |pages: [u64; 2], firsts: [u64; 2], tokens| {
            lengths([0, 1].map(|side| grid(pages[side], firsts[side], 1)), tokens)
        };
        assert_eq!(lengths([16, 64], [0, 0], 128), [(16, 8)]);
        assert_eq!(lengths([16, 64], [0, 0], 130), [(16, 8), (2, 1)]);
        assert_eq!(lengths([16, 64], [5, 5], 130), [(11, 1), (16, 7), (7, 1)]);
        assert_eq!(lengths([16, 16], [4, 8], 30), [(4, 7), (2, 1)]);
        assert_eq!(lengths([16, 48], [0, 32], 3), [(3, 1)]);
        assert_eq!(lengths([12, 18], [0, 0], 36), [(6, 6)]);
        assert_eq!(lengths([16, 16], [3, 0], 2), [(1, 2)]);
    }

    #[test]
    fn every_nth_token_of_a_block_is_one_span() {
        // Of two ranks with every second token, to all tokens of their own blocks.
        assert_eq!(lengths([grid(16, 1, 2), grid(8, 0, 1)], 64), [(8, 8)]);
        assert_eq!(lengths([grid(16, 1, 2), grid(16, 0, 1)], 64), [(8, 8)]);
        assert_eq!(lengths([grid(64, 0, 1), grid(64, 3, 4)], 64), [(16, 4)]);
        assert_eq!(lengths([grid(16, 33, 2), grid(16, 0, 1)], 9), [(8, 1), (1, 1)]);
    }

    #[test]
    fn a_step_that_does_not_divide_a_block_makes_each_token_a_span() {
        assert_eq!(lengths([grid(16, 1, 3), grid(16, 0, 1)], 9), [(1, 9)]);
    }
}
