// SPDX-License-Identifier: Apache-2.0
//! Checksums of moved blocks, compared before the end of a run is reported.

pub mod checksum;
pub mod gpu;
mod host;
mod pieces;
mod remainder;

use std::sync::Arc;

use super::plan::{Selection, Slots};
use super::request::{BlockPair, Expected};
use super::run::Verify;
use super::run::completion::Outcome;
use crate::error::{Result, ensure, fail};
use crate::layout::{Layout, Locality};

/// The comparison of moved blocks with their expected contents.
pub struct Verification {
    pairs: Box<[BlockPair]>,
    selection: Selection,
    against: Against,
}

enum Against {
    Checksums(Box<[u32]>),
    Source,
}

impl Verification {
    /// Fails if the transfer can't be verified.
    pub fn new(
        [source, destination]: [&Arc<Layout>; 2],
        pairs: &[BlockPair],
        selection: Selection,
        by_layer: bool,
        expected: Expected<'_>,
    ) -> Result<Self> {
        ensure!(
            !by_layer,
            Unsupported,
            "a transfer by layer can't be verified: layers would be reported before they are compared; \
             remove one of the two flags, or compare with kvmem_layout_checksum"
        );
        let is_remote = |layout: &Layout| layout.memory().locality() == Locality::Remote;
        ensure!(
            !is_remote(destination),
            Unsupported,
            "this process can't access blocks of a remote destination; its owner can verify them with \
             kvmem_layout_checksum"
        );
        let against = match expected {
            Expected::Checksums(checksums) => Against::Checksums(checksums.into()),
            Expected::Source => {
                ensure!(
                    !is_remote(source),
                    Unsupported,
                    "this process can't access blocks of a remote source; let its owner call kvmem_layout_checksum, \
                     and pass the result as checksums"
                );
                Against::Source
            }
        };
        Ok(Self { pairs: pairs.into(), selection, against })
    }

    fn compare(&self, expected: &[u32], found: &[u32]) -> Outcome {
        let differs = |index: &usize| expected.get(*index) != found.get(*index);
        let mut different = (0..self.pairs.len()).filter(differs);
        let Some(first) = different.next() else { return Ok(()) };
        let BlockPair { source, destination } = self.pairs[first];
        fail!(
            Corrupt,
            "{} of {} moved blocks are corrupt: the first is pair {first}, source block {source} and destination block \
             {destination}, with CRC32C {:#010x}; expected {:#010x}",
            1 + different.count(),
            self.pairs.len(),
            found[first],
            expected[first]
        )
    }
}

impl Verify for Verification {
    fn outcome(&self, [source, destination]: &[Arc<Layout>; 2]) -> Outcome {
        let ids = |side: fn(&BlockPair) -> u32| self.pairs.iter().map(side).collect::<Vec<_>>();
        let found = of(destination, &ids(|pair| pair.destination), self.selection.destination())?;
        match &self.against {
            Against::Checksums(expected) => self.compare(expected, &found),
            Against::Source => {
                self.compare(&of(source, &ids(|pair| pair.source), self.selection.source())?, &found)
            }
        }
    }
}

fn of(layout: &Arc<Layout>, blocks: &[u32], slots: Slots) -> Result<Vec<u32>> {
    checksum::of_slots(layout, blocks, slots).map_err(|error| error.context("verify moved blocks"))
}
