// SPDX-License-Identifier: Apache-2.0
//! Which pairs or tokens differ, and the error that says so.

use super::moved_list::MovedList;
use crate::base::{Result, fail, lists};
use crate::run::{Findings, Outcome};

/// The blocks differed, but not when they were compared one by one.
pub const NONE_LEFT: &str = "When they were compared one by one after that, none differed, so none is listed: something writes to \
                             the blocks during the run. Move them again without that";

#[derive(Default)]
pub struct Differences {
    /// In ascending order.
    indices: Vec<u64>,
    /// The expected and the found checksum of the first.
    first: [u32; 2],
}

impl Differences {
    pub fn between(expected: &[u32], found: &[u32]) -> Result<Self> {
        let mut this = Self::default();
        for (index, (expected, found)) in (0..).zip(expected.iter().zip(found)) {
            this.compare(index, [*expected, *found])?;
        }
        Ok(this)
    }

    /// Compares the expected and the found checksum of a part of a pair, or of a token. None has a higher index than the next.
    pub fn compare(&mut self, index: u64, [expected, found]: [u32; 2]) -> Result<()> {
        if expected == found || self.indices.last() == Some(&index) {
            return Ok(());
        }
        if self.indices.is_empty() {
            self.first = [expected, found];
        }
        lists::push(&mut self.indices, index)
    }

    /// Fails if there are any, whose indices are added to `findings`. They are entries of `list`.
    pub fn outcome(self, list: &MovedList, findings: &mut Findings) -> Outcome {
        let Self { indices, first: [expected, found] } = self;
        let (number, Some(first)) = (indices.len(), indices.first().copied()) else { return Ok(()) };
        // Another part of the layouts may have found the same.
        lists::extend(&mut findings.mismatches, indices)?;
        findings.mismatches.sort_unstable();
        findings.mismatches.dedup();
        let ([all, entry], [source, destination]) = (list.nouns(), list.blocks_of(first));
        fail!(
            Corrupt,
            "{number} of {} moved {all} are corrupt: the first is {entry} {first}, source block {source} and destination block \
             {destination}, with CRC32C {found:#010x}; expected {expected:#010x}. kvmem_transfer_get_mismatches lists them; \
             move them again, and do not write to blocks of either side during a run",
            list.len()
        )
    }
}
