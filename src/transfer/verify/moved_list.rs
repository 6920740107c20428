// SPDX-License-Identifier: Apache-2.0
//! What the caller moves, in its own order: pairs of blocks, or the tokens of two tables.

use std::ops::Range;
use std::sync::Arc;

use crate::base::{Result, lists};
use crate::layout::{Axis, Layout};
use crate::plan::{BlockPair, BlockTable, Plan, TokenTables};
use crate::transfer::transfer_request::Step;

/// What a run moves. Its entries are pairs, or tokens.
pub struct MovedList {
    /// Of source and destination.
    sides: [Table; 2],
    tokens: u64,
    /// Tokens of an entry: those of a block, or one.
    each: u64,
    has_pairs: bool,
}

struct Table {
    blocks: Vec<u32>,
    first_token: u64,
    token_step: u64,
    /// Tokens of a block.
    page_size: u64,
}

impl MovedList {
    /// The list of a step between layouts, or between parts of them.
    pub fn new(step: &Step<'_>, layouts: [&Arc<Layout>; 2]) -> Result<Self> {
        let page_sizes = layouts.map(|layout| layout.geometry().count(Axis::Token));
        if let Some(TokenTables { sides: [source, destination], tokens }) = &step.tables {
            let sides = [Table::new(source, page_sizes[0])?, Table::new(destination, page_sizes[1])?];
            return Ok(Self { sides, tokens: *tokens, each: 1, has_pairs: false });
        }
        let side = |block: fn(&BlockPair) -> u32, page_size| {
            let blocks = lists::collect(step.pairs.iter().map(block))?;
            Ok(Table { blocks, first_token: 0, token_step: 1, page_size })
        };
        let sides = [side(|pair| pair.source, page_sizes[0])?, side(|pair| pair.destination, page_sizes[1])?];
        Ok(Self {
            sides,
            tokens: step.pairs.len() as u64 * page_sizes[0],
            each: page_sizes[0],
            has_pairs: true,
        })
    }

    pub fn len(&self) -> u64 {
        self.tokens / self.each
    }

    pub fn tokens(&self) -> u64 {
        self.tokens
    }

    pub fn entry(&self, token: u64) -> u64 {
        token / self.each
    }

    /// What is moved, and what an entry is.
    pub fn nouns(&self) -> [&'static str; 2] {
        if self.has_pairs { ["blocks", "pair"] } else { ["tokens", "token"] }
    }

    /// The blocks of a side, one after the other.
    pub fn blocks(&self, side: usize) -> &[u32] {
        &self.sides[side].blocks
    }

    /// The block of an entry on each side.
    pub fn blocks_of(&self, entry: u64) -> [u32; 2] {
        self.sides.each_ref().map(|side| side.block(entry * self.each))
    }

    pub fn part(&self, side: usize, tokens: &Range<u64>) -> BlockTable<'_> {
        let Table { blocks, first_token, token_step, .. } = &self.sides[side];
        BlockTable { blocks, first_token: first_token + tokens.start * token_step, token_step: *token_step }
    }

    /// The plan of one entry, between the same layouts as `plan`.
    pub fn plan_of(&self, entry: u64, plan: &Plan) -> Result<Plan> {
        let tokens = entry * self.each..(entry + 1) * self.each;
        let sides = [self.part(0, &tokens), self.part(1, &tokens)];
        plan.with_tokens(&TokenTables { sides, tokens: self.each })
    }
}

impl Table {
    fn new(table: &BlockTable<'_>, page_size: u64) -> Result<Self> {
        let BlockTable { blocks, first_token, token_step } = *table;
        Ok(Self { blocks: lists::copied(blocks)?, first_token, token_step, page_size })
    }

    fn block(&self, token: u64) -> u32 {
        let index = (self.first_token + token * self.token_step) / self.page_size.max(1);
        self.blocks.get(index as usize).copied().unwrap_or_default()
    }
}
