// SPDX-License-Identifier: Apache-2.0
//! The blocks of a plan, or the spans of tokens, and memory to plan other ones in.

use super::block_runs::BlockRuns;
use super::nest::LoopOrder;
use super::outline::{Outline, too_large};
use super::tokens::{Section, Sections, find_whole_blocks};
use super::wanted::{BlockPair, TokenTables};
use crate::base::Result;

/// Whole blocks or spans of tokens. If filled again, it allocates only for more of them than it has ever contained.
#[derive(Debug, Default)]
pub struct PlannedBlocks {
    runs: BlockRuns,
    sections: Sections,
    are_sections: bool,
    /// Memory to list whole blocks in.
    pairs: Vec<BlockPair>,
}

impl PlannedBlocks {
    pub(super) fn fill(&mut self, outline: &Outline, pairs: &[BlockPair]) -> Result<()> {
        self.are_sections = false;
        outline.fill(&mut self.runs, pairs)
    }

    /// Tokens; whole blocks of them are as by pairs.
    pub(super) fn fill_tokens(&mut self, outline: &Outline, tables: &TokenTables<'_>) -> Result<()> {
        self.are_sections = !find_whole_blocks(outline.page_sizes()?, tables, &mut self.pairs)?;
        match self.are_sections {
            true => self.sections.fill(outline, tables),
            false => outline.fill(&mut self.runs, &self.pairs).map_err(|error| {
                // The caller has given tables and knows no pairs.
                let of_tables = self.sections.fill(outline, tables).err();
                of_tables.filter(|other| other.status() == error.status()).unwrap_or(error)
            }),
        }
    }

    /// The same, or one layer of tokens, with loops in another order.
    pub(super) fn in_order(&self, order: LoopOrder, layer: Option<usize>) -> Result<Self> {
        Ok(match self.runs() {
            Some(runs) => Self { runs: runs.in_order(order)?, ..Self::default() },
            None => {
                let sections = self.sections.in_order(order, layer)?;
                Self { sections, are_sections: true, ..Self::default() }
            }
        })
    }

    /// Whole blocks, unless tokens are moved.
    pub(super) fn runs(&self) -> Option<&BlockRuns> {
        (!self.are_sections).then_some(&self.runs)
    }

    /// The spans of tokens; none if whole blocks are moved.
    pub(super) fn sections(&self) -> &[Section] {
        if self.are_sections { self.sections.list() } else { &[] }
    }

    /// Bytes of all of them. Fails if that exceeds the address space.
    pub(super) fn bytes(&self, outline: &Outline) -> Result<u64> {
        let bytes = match self.runs() {
            Some(runs) => outline.block_size.checked_mul(runs.blocks()),
            None => self.sections().iter().try_fold(0u64, |sum, section| sum.checked_add(section.bytes)),
        };
        bytes.ok_or_else(too_large)
    }
}
