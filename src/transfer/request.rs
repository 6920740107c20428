// SPDX-License-Identifier: Apache-2.0
//! The caller's request: blocks, layers and outer slots, preferences, expected checksums.
#![forbid(unsafe_code)]

use std::sync::Arc;
use std::time::Duration;

use super::path::TransferPath;
use super::run::queue::Queue;
use crate::error::{Result, ensure};

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
    /// Block ids.
    pub blocks: &'a [u32],
    /// The first token that is moved, counted from the start of the table.
    pub first_token: u64,
    /// Tokens from one that is moved to the next: 1 for all, n for every n-th.
    pub token_step: u64,
}

/// Tokens to move, by the block table of each side. Block sizes may differ.
#[derive(Clone, Copy, Debug)]
pub struct TokenTables<'a> {
    /// Source and destination.
    pub sides: [BlockTable<'a>; 2],
    /// Number of tokens that are moved.
    pub tokens: u64,
}

/// A range that may begin at a different index on each side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PairedRange {
    /// First index in the source.
    pub source: u64,
    /// First index in the destination.
    pub destination: u64,
    /// Number of indices.
    pub count: u64,
}

/// The part of each block that is moved. `None` selects all; then both sides must have the same number.
#[derive(Clone, Copy, Debug, Default)]
pub struct Wanted {
    /// Layers.
    pub layers: Option<PairedRange>,
    /// Outer slots.
    pub outers: Option<PairedRange>,
    /// Heads.
    pub heads: Option<PairedRange>,
}

impl Wanted {
    /// Whether all is moved.
    pub fn is_all(&self) -> bool {
        self.layers.is_none() && self.outers.is_none() && self.heads.is_none()
    }
}

/// Everything that a new transfer is created from, except the two layouts.
#[derive(Default)]
pub struct TransferRequest<'a> {
    /// The blocks of the first run.
    pub step: Step<'a>,
    /// The part of each block that is moved.
    pub wanted: Wanted,
    /// The parts of the layouts that are moved, by name; all if there is no name.
    pub parts: Vec<&'a str>,
    /// Receives the completions.
    pub queue: Option<Arc<Queue>>,
    /// Constraints on the path.
    pub preferences: Preferences,
    /// Each run compares the destination's blocks with the source's before it ends.
    pub verifies_source: bool,
}

/// The part of a request that changes from one step of an engine to the next.
#[derive(Default)]
pub struct Step<'a> {
    /// Blocks to move.
    pub pairs: &'a [BlockPair],
    /// Tokens to move, instead of blocks.
    pub tables: Option<TokenTables<'a>>,
    /// Returned with the completion.
    pub user_data: u64,
    /// Sent to the remote agent after the last byte.
    pub notification: Option<Vec<u8>>,
    /// Expected CRC32C of the destination's blocks, one per pair. They are compared before the run ends.
    pub checksums: Option<&'a [u32]>,
    /// How long a run with these blocks may take; `None` for the limit of the transfer, `Duration::MAX` for none.
    pub timeout: Option<Duration>,
}

impl<'a> Step<'a> {
    /// The expected contents of the destination's blocks, or `None` if they are not compared.
    pub fn expected(&self, verifies_source: bool) -> Result<Option<Expected<'a>>> {
        ensure!(
            self.checksums.is_none() || !verifies_source,
            InvalidArgument,
            "the request has both checksums and KVMEM_TRANSFER_VERIFY; use only one of the two"
        );
        let by_source = verifies_source.then_some(Expected::Source);
        Ok(self.checksums.map(Expected::Checksums).or(by_source))
    }
}

/// Constraints on the path of a transfer.
#[derive(Clone, Debug, Default)]
pub struct Preferences {
    /// No other kernel runs on the GPU during the transfer.
    pub compute_is_idle: bool,
    /// Maximum number of CTAs of a kernel; 0 for the default.
    pub max_ctas: u32,
    /// Bytes of staging memory; 0 for the default.
    pub staging_size: u64,
    /// Exclude paths with any memory between source and destination.
    pub zero_copy: bool,
    /// Exclude paths through host memory that is neither source nor destination.
    pub no_host_bounce: bool,
    /// Move one layer after the other, and report how many have moved.
    pub by_layer: bool,
    /// The path to take; `None` selects the fastest.
    pub path: Option<TransferPath>,
    /// How long a transfer with a peer may make no progress; `None` for the default.
    pub stall_timeout: Option<Duration>,
    /// How long a run may take; `None` for no limit.
    pub timeout: Option<Duration>,
}

/// The expected contents of a destination's blocks.
pub enum Expected<'a> {
    /// These CRC32C, one per pair.
    Checksums(&'a [u32]),
    /// The same as the source's blocks.
    Source,
}
