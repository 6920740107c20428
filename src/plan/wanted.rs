// SPDX-License-Identifier: Apache-2.0
//! Which blocks or tokens are moved, and which part of each block.

/// A block of the source and the block of the destination that it is copied to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(C)]
pub struct BlockPair {
    /// Block id in the source layout.
    pub source: u32,
    /// Block id in the destination layout.
    pub destination: u32,
}

/// The blocks of a sequence on one side, in the order of its tokens, and the tokens that are moved.
#[derive(Clone, Copy, Debug)]
pub struct BlockTable<'a> {
    pub blocks: &'a [u32],
    /// The first token that is moved, counted from the start of the table.
    pub first_token: u64,
    /// Tokens from one that is moved to the next: 1 for all, n for every n-th.
    pub token_step: u64,
}

/// Tokens to move, by the block table of each side. Block sizes may differ.
#[derive(Clone, Copy, Debug)]
pub struct TokenTables<'a> {
    pub sides: [BlockTable<'a>; 2],
    pub tokens: u64,
}

/// A range that may begin at a different index on each side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PairedRange {
    /// First index in the source.
    pub source: u64,
    /// First index in the destination.
    pub destination: u64,
    pub count: u64,
}

/// The part of each block that is moved. `None` selects all; then both sides must have the same number.
#[derive(Clone, Copy, Debug, Default)]
pub struct Wanted {
    pub layers: Option<PairedRange>,
    pub outers: Option<PairedRange>,
    pub heads: Option<PairedRange>,
}

impl Wanted {
    pub fn is_all(&self) -> bool {
        self.layers.is_none() && self.outers.is_none() && self.heads.is_none()
    }
}
