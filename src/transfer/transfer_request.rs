// SPDX-License-Identifier: Apache-2.0
//! The caller's request: what a transfer is created from, and its expected checksums.

use std::time::Duration;

use crate::base::{Result, ensure};
use crate::engine::preferences::Preferences;
use crate::plan::{BlockPair, TokenTables, Wanted};
use crate::run::Reports;

/// What is the same in all runs of a transfer, except the two layouts.
#[derive(Default)]
pub struct TransferRequest<'a> {
    /// The part of each block that is moved.
    pub wanted: Wanted,
    /// The parts of the layouts that are moved, by name; all if there is no name.
    pub parts: Vec<&'a str>,
    pub reports: Reports,
    pub preferences: Preferences,
}

/// What belongs to one run: the blocks of a step of an engine.
#[derive(Default)]
pub struct Step<'a> {
    pub pairs: &'a [BlockPair],
    /// Tokens to move, instead of blocks.
    pub tables: Option<TokenTables<'a>>,
    /// Returned with the completion.
    pub user_data: u64,
    /// Sent to the remote agent after the last byte.
    pub notification: Option<Vec<u8>>,
    /// Expected CRC32C of the destination's blocks, one per pair. They are compared before the run ends.
    pub checksums: Option<&'a [u32]>,
    /// The destination's blocks are compared with those of the source before the run ends.
    pub verifies: bool,
    /// Expected epochs of the source's blocks, one per pair or per entry of the source's table.
    pub epochs: Option<&'a [u64]>,
    /// The run returns a CRC32C per pair.
    pub returns_checksums: bool,
    /// How long a run with these blocks may take; `None` for no limit.
    pub timeout: Option<Duration>,
}

impl Step<'_> {
    /// Whether the destination's blocks are compared.
    pub fn compares(&self) -> bool {
        self.verifies || self.checksums.is_some()
    }

    /// Whether something is to be done with the blocks after they were moved.
    pub fn is_checked(&self) -> bool {
        self.compares() || self.returns_checksums
    }

    /// Fails if the blocks of a transfer, by layer or not, can't be checked like that.
    pub fn ensure_checkable(&self, by_layer: bool) -> Result<()> {
        ensure!(
            self.checksums.is_none() || !self.verifies,
            InvalidArgument,
            "the request has both checksums and KVMEM_SUBMIT_VERIFY; use only one of the two"
        );
        ensure!(
            !self.compares() || !by_layer,
            Unsupported,
            "a transfer by layer can't be verified: layers would be reported before they are compared; submit without \
             checksums and KVMEM_SUBMIT_VERIFY, or create the transfer without KVMEM_TRANSFER_BY_LAYER"
        );
        Ok(())
    }
}
