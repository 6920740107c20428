// SPDX-License-Identifier: Apache-2.0
//! The caller's request: what a transfer is created from, and its expected checksums.
#![forbid(unsafe_code)]

use std::time::Duration;

use crate::base::error::{Result, ensure};
use crate::engine::preferences::Preferences;
use crate::plan::{BlockPair, TokenTables, Wanted};
use crate::run::reports::Reports;

/// What is the same in all runs of a transfer, except the two layouts.
#[derive(Default)]
pub struct TransferRequest<'a> {
    /// The part of each block that is moved.
    pub wanted: Wanted,
    /// The parts of the layouts that are moved, by name; all if there is no name.
    pub parts: Vec<&'a str>,
    /// The completions of its runs.
    pub reports: Reports,
    /// Constraints on the method.
    pub preferences: Preferences,
}

/// What belongs to one run: the blocks of a step of an engine.
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
    /// How long a run with these blocks may take; `None` for no limit.
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

/// The expected contents of a destination's blocks.
pub enum Expected<'a> {
    /// These CRC32C, one per pair.
    Checksums(&'a [u32]),
    /// The same as the source's blocks.
    Source,
}
