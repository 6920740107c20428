// SPDX-License-Identifier: Apache-2.0
//! Tokens of two block tables, whose blocks may differ in size.
//!
//! Tokens that are consecutive in a block on both sides are a *span*. With blocks of p and q tokens, spans of gcd(p, q) tokens
//! cover the whole sequence, except for a shorter one at each end. So there are at most three sections, each with spans of one
//! length, which are planned like blocks: the id of a span is its distance from block 0 in units of one stride.
#![forbid(unsafe_code)]

use super::axes::PairedBlock;
use super::outline::{Outline, too_large};
use super::runs::BlockRuns;
use super::shape::Shape;
use crate::error::{Error, Result, Status, ensure};
use crate::layout::{Axis, Geometry};
use crate::transfer::request::{BlockPair, BlockTable, TokenTables};

const NAMES: [&str; 2] = ["source", "destination"];

/// Spans of one length, and the loops within each.
#[derive(Debug)]
pub struct Section {
    pub shape: Shape,
    pub block: PairedBlock,
    /// Each layer by itself; empty unless layers are moved one by one.
    pub layers: Vec<Shape>,
    /// The spans, as blocks whose ids are distances.
    pub spans: BlockRuns,
    /// Bytes of all layers.
    pub bytes: u64,
}

/// The pairs of whole blocks that tables consist of, if blocks of both sides have the same size and all tokens of each are
/// moved.
pub fn whole_blocks(outline: &Outline, tables: &TokenTables<'_>) -> Option<Vec<BlockPair>> {
    let [source, destination] = &tables.sides;
    let page = outline.page_sizes()[0];
    let is_whole = outline.page_sizes()[1] == page
        && tables.sides.iter().all(|side| side.token_step == 1 && side.first_token.is_multiple_of(page))
        && tables.tokens.is_multiple_of(page);
    if !is_whole {
        return None;
    }
    let range = |side: &BlockTable<'_>| {
        let first = (side.first_token / page) as usize;
        Some(first..first.checked_add((tables.tokens / page) as usize)?)
    };
    let sources = source.blocks.get(range(source)?)?;
    let pairs = sources.iter().zip(destination.blocks.get(range(destination)?)?);
    Some(
        pairs.map(|(source, destination)| BlockPair { source: *source, destination: *destination }).collect(),
    )
}

/// Plans the tokens of tables. Fails if a table is too short, has a block that does not exist, or names a token of the
/// destination twice.
pub fn sections(outline: &Outline, tables: &TokenTables<'_>) -> Result<Vec<Section>> {
    check(outline, tables)?;
    divide(outline.page_sizes(), tables)
        .into_iter()
        .filter(|cells| cells.count > 0)
        .map(|cells| section(outline, tables, cells))
        .collect()
}

/// Tokens in spans of one length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Cells {
    /// The first of all, counted from the first token that is moved.
    first: u64,
    /// Tokens of a span.
    tokens: u64,
    /// Number of spans.
    count: u64,
}

/// Divides tokens into spans, none of which crosses the end of a block.
fn divide(pages: [u64; 2], tables: &TokenTables<'_>) -> [Cells; 3] {
    let [source, destination] = &tables.sides;
    let none = Cells { first: 0, tokens: 0, count: 0 };
    if source.token_step != 1 || destination.token_step != 1 {
        return [none, Cells { first: 0, tokens: 1, count: tables.tokens }, none];
    }
    let both = common_divisor(pages[0], pages[1]);
    let size = common_divisor(both, source.first_token.abs_diff(destination.first_token));
    let head = ((size - source.first_token % size) % size).min(tables.tokens);
    let count = (tables.tokens - head) / size;
    let tail = tables.tokens - head - count * size;
    [
        Cells { first: 0, tokens: head, count: u64::from(head > 0) },
        Cells { first: head, tokens: size, count },
        Cells { first: head + count * size, tokens: tail, count: u64::from(tail > 0) },
    ]
}

fn section(outline: &Outline, tables: &TokenTables<'_>, cells: Cells) -> Result<Section> {
    let grids = [0, 1].map(|side| SpanIds::of(outline.geometry(side), &tables.sides[side], cells));
    let [source, destination] = grids;
    let pairs: Result<Vec<_>> = (0..cells.count)
        .map(|index| {
            let token = cells.first + index * cells.tokens;
            Ok(BlockPair { source: source.id(token)?, destination: destination.id(token)? })
        })
        .collect();
    let mut spans = BlockRuns::default();
    spans.fill(&pairs?, u64::from(u32::MAX), u64::from(u32::MAX))?;
    let sides = [0, 1].map(|side| outline.start(side).with_stride(grids[side].unit));
    let shape = |block: &PairedBlock| {
        let mut shape = Shape::of(&sides, block);
        // No list is prepared for spans.
        shape.nest.unit = None;
        shape
    };
    let block = outline.block(None, cells.tokens);
    let size = block.size().and_then(|size| size.checked_mul(cells.count)).ok_or_else(too_large)?;
    let layers =
        (0..outline.layers.len() as u64).map(|layer| shape(&outline.block(Some(layer), cells.tokens)));
    Ok(Section { shape: shape(&block), layers: layers.collect(), block, spans, bytes: size })
}

/// The ids of spans of one side: their distance from the first token of block 0, in units that divide all distances.
#[derive(Clone, Copy)]
struct SpanIds<'a> {
    table: &'a BlockTable<'a>,
    page: u64,
    block_stride: u64,
    token_stride: u64,
    unit: u64,
}

impl<'a> SpanIds<'a> {
    fn of(geometry: &Geometry, table: &'a BlockTable<'a>, cells: Cells) -> Self {
        let (page, block_stride, token_stride) =
            (geometry.count(Axis::Token), geometry.stride(Axis::Block), geometry.stride(Axis::Token));
        // Spans start at multiples of their length, except for a single one.
        let step = if cells.count > 1 { cells.tokens } else { 1 };
        let starts_blocks = step == page;
        let unit =
            if starts_blocks { block_stride } else { common_divisor(block_stride, step * token_stride) };
        Self { table, page, block_stride, token_stride, unit }
    }

    /// The id of the span that starts with a token, which is counted from the first that is moved.
    fn id(&self, token: u64) -> Result<u32> {
        let token = self.table.first_token + token * self.table.token_step;
        let block = u64::from(self.table.blocks[(token / self.page) as usize]);
        let distance = (block * self.block_stride + token % self.page * self.token_stride) / self.unit;
        u32::try_from(distance).ok().filter(|id| *id < u32::MAX).ok_or_else(|| {
            let message = format!(
                "block {block} is more than 2^32 units of {} bytes away from block 0; give blocks a stride that is a \
                 multiple of the stride of their tokens",
                self.unit
            );
            Error::new(Status::Unsupported, message)
        })
    }
}

/// Fails if tables do not have the tokens, or name one of the destination twice.
fn check(outline: &Outline, tables: &TokenTables<'_>) -> Result<()> {
    ensure!(tables.tokens > 0, InvalidArgument, "num_tokens is 0; at least one token must be moved");
    for (side, table) in tables.sides.iter().enumerate() {
        let (name, geometry) = (NAMES[side], outline.geometry(side));
        ensure!(
            geometry.region_step(Axis::Token) == 0,
            Unsupported,
            "each token of the {name} layout has a region of its own; only whole blocks of it can be moved"
        );
        ensure!(table.token_step > 0, InvalidArgument, "the token step of the {name} table is 0");
        let page = geometry.count(Axis::Token);
        let end = (tables.tokens - 1)
            .checked_mul(table.token_step)
            .and_then(|last| last.checked_add(table.first_token))
            .and_then(|last| last.checked_add(1));
        let have = table.blocks.len() as u64 * page;
        ensure!(
            end.is_some_and(|end| end <= have),
            OutOfRange,
            "{} tokens from token {} on with a step of {} exceed the {name} table, which has {} blocks of {page} tokens",
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
                "entry {index} of the {name} table is block {id}; the layout has {num_blocks} blocks"
            );
        }
    }
    ensure_written_once(&tables.sides[1], tables.tokens, outline.page_sizes()[1])
}

/// The entries of a table with tokens that are moved, or between such.
fn used_blocks(table: &BlockTable<'_>, tokens: u64, page: u64) -> std::ops::Range<usize> {
    let last = table.first_token + (tokens - 1) * table.token_step;
    (table.first_token / page) as usize..(last / page) as usize + 1
}

/// Fails if a token of the destination is named twice: by two entries with the same block.
fn ensure_written_once(table: &BlockTable<'_>, tokens: u64, page: u64) -> Result<()> {
    let used = used_blocks(table, tokens, page);
    let ids = &table.blocks[used.clone()];
    if ids.windows(2).all(|pair| pair[0] < pair[1]) {
        return Ok(());
    }
    let (first, step) = (table.first_token, table.token_step);
    let end = first + (tokens - 1) * step + 1;
    // The tokens of each entry within its block; those between two steps do not count.
    let mut entries: Vec<_> = used
        .map(|entry| {
            let start = entry as u64 * page;
            let from = if start <= first { first } else { first + (start - first).div_ceil(step) * step };
            (table.blocks[entry], from.saturating_sub(start), end.min(start + page).saturating_sub(start))
        })
        .filter(|(_, from, until)| from < until)
        .collect();
    entries.sort_unstable();
    for (index, (block, from, until)) in entries.iter().enumerate() {
        let same = entries[index + 1..].iter().take_while(|(other, ..)| other == block);
        for (_, other_from, other_until) in same {
            let meets = other_from < until && from < other_until && (other_from - from).is_multiple_of(step);
            ensure!(!meets, InvalidArgument, "token {other_from} of block {block} is a destination twice");
        }
    }
    Ok(())
}

fn common_divisor(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { common_divisor(b, a % b) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(first_token: u64, token_step: u64) -> BlockTable<'static> {
        BlockTable { blocks: &[], first_token, token_step }
    }

    fn lengths(pages: [u64; 2], firsts: [u64; 2], tokens: u64) -> Vec<(u64, u64)> {
        let tables = TokenTables { sides: firsts.map(|first| table(first, 1)), tokens };
        let cells = divide(pages, &tables);
        assert_eq!(cells.iter().map(|cells| cells.tokens * cells.count).sum::<u64>(), tokens);
        cells.iter().filter(|cells| cells.count > 0).map(|cells| (cells.tokens, cells.count)).collect()
    }

    #[test]
    fn spans_are_as_long_as_both_block_sizes_allow() {
        assert_eq!(lengths([16, 64], [0, 0], 128), [(16, 8)]);
        assert_eq!(lengths([16, 64], [0, 0], 130), [(16, 8), (2, 1)]);
        assert_eq!(lengths([16, 64], [5, 5], 130), [(11, 1), (16, 7), (7, 1)]);
        assert_eq!(lengths([16, 16], [4, 8], 30), [(4, 7), (2, 1)]);
        assert_eq!(lengths([16, 48], [0, 32], 3), [(3, 1)]);
        assert_eq!(lengths([12, 18], [0, 0], 36), [(6, 6)]);
        assert_eq!(lengths([16, 16], [3, 0], 2), [(1, 2)]);
    }

    #[test]
    fn every_nth_token_is_a_span_by_itself() {
        let tables = TokenTables { sides: [table(1, 2), table(0, 1)], tokens: 9 };
        assert_eq!(divide([16, 16], &tables)[1], Cells { first: 0, tokens: 1, count: 9 });
    }
}
