// SPDX-License-Identifier: Apache-2.0
//! Checksums of what a transfer has moved, compared before anyone hears that it is over.

pub mod checksum;
pub mod gpu;
mod host;
mod pieces;
mod remainder;

use std::sync::Arc;
use std::thread::{self, ThreadId};

use super::plan::{BlockPair, Selection, Slots};
use super::run::Run;
use super::run::completion::Outcome;
use super::run::threads::{Pool, Shared};
use crate::error::{Error, Result, Status, ensure, fail};
use crate::layout::{Layout, Locality};
use crate::sync::Mutex;

/// What the blocks of a destination shall be.
pub enum Expected<'a> {
    /// These checksums, one a pair.
    Checksums(&'a [u32]),
    /// What the source's blocks are.
    Source,
}

/// What is compared when all has moved.
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
    /// Refuses what can't be verified.
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
            "a transfer that tells of each layer is not verified: layers would be told of before they are compared; \
             take one of the two flags away, or compare with kvmem_layout_checksum"
        );
        let is_remote = |layout: &Layout| layout.memory().locality() == Locality::Remote;
        ensure!(
            !is_remote(destination),
            Unsupported,
            "blocks of a remote destination are not reached from here; its owner verifies them with \
             kvmem_layout_checksum"
        );
        let against = match expected {
            Expected::Checksums(checksums) => Against::Checksums(checksums.into()),
            Expected::Source => {
                ensure!(
                    !is_remote(source),
                    Unsupported,
                    "blocks of a remote source are not reached from here; have its owner send what \
                     kvmem_layout_checksum gives, and pass that as checksums"
                );
                Against::Source
            }
        };
        Ok(Self { pairs: pairs.into(), selection, against })
    }

    /// Has a thread compare, and end the run. The one that moves blocks has others to look after.
    pub fn start(self: Arc<Self>, run: Run) {
        let pending = Pending { work: Mutex::new(Some((self, run))), handed_over_by: thread::current().id() };
        Pool::checks().run(&(Arc::new(pending) as Arc<dyn Shared>), 1);
    }

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

    fn compare(&self, expected: &[u32], found: &[u32]) -> Outcome {
        let differs = |index: &usize| expected.get(*index) != found.get(*index);
        let mut different = (0..self.pairs.len()).filter(differs);
        let Some(first) = different.next() else { return Ok(()) };
        let BlockPair { source, destination } = self.pairs[first];
        fail!(
            Corrupt,
            "{} of {} blocks are not what they should be after they were moved: the first is pair {first}, of source \
             block {source} and destination block {destination}, whose CRC32C is {:#010x}, and {:#010x} is expected",
            1 + different.count(),
            self.pairs.len(),
            found[first],
            expected[first]
        )
    }
}

fn of(layout: &Arc<Layout>, blocks: &[u32], slots: Slots) -> Result<Vec<u32>> {
    checksum::of_slots(layout, blocks, slots).map_err(|error| error.context("verify moved blocks"))
}

/// A run that is over but for this.
struct Pending {
    work: Mutex<Option<(Arc<Verification>, Run)>>,
    handed_over_by: ThreadId,
}

impl Shared for Pending {
    fn run(&self) {
        let work = self.work.lock().take();
        let Some((verification, run)) = work else { return };
        // The thread that moved the blocks may have to move them for the checksums too, and must not wait for itself.
        let outcome = match (run.layouts(), thread::current().id() == self.handed_over_by) {
            (Some(layouts), false) => verification.outcome(layouts),
            _ => Err(Error::new(Status::OutOfMemory, "no thread could be started to verify moved blocks")),
        };
        run.end_verified(outcome);
    }
}
