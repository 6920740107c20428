// SPDX-License-Identifier: Apache-2.0
//! The epochs that a run expects of its source's blocks. They are read before the first byte moves, which saves the
//! copy of stale blocks, and after the last, which proves that all bytes are of the expected epoch: docs/epochs.md has the argument.
//!
//! A table that is mapped here is read in place, by the thread that starts or ends the run. That of a peer is read by the engine:
//! NIXL copies parts of it to memory of this process.

use std::sync::Arc;

use crate::base::{Mutex, Result, ensure, error, lists};
use crate::layout::cache::LayoutCache;
use crate::layout::{Epochs, Layout};
use crate::nixl::{Agent, Descriptor, Span};
use crate::plan::BlockPair;
use crate::region::{EpochTable, Region, Registration, RegistrationHold, SystemConfig, after_reading};

/// Words that are read although no pair needs them, rather than a range of their own: NIXL takes about as long for a descriptor as
/// for this many.
const GAP: u64 = 512;

/// The bits in which a word that was not read differs from the expected one. Not all bits: a caller may expect `UINT64_MAX` of a block whose
/// epoch it does not know, which may be 0.
const UNREAD: u64 = 0x9e37_79b9_7f4a_7c15;

/// Registered memory for copies of the tables of each remote layout. A registration takes longer than a small run.
static SPARE: LayoutCache<Spare> = LayoutCache::new();
/// Copies that are kept for a layout.
const MAX_SPARE: usize = 8;

#[derive(Default)]
struct Spare(Mutex<Vec<RegistrationHold>>);

pub struct ExpectedEpochs {
    /// The word of each source block in the table below, and its expected value, in the order of the pairs or of the entries.
    words: Vec<(u64, u64)>,
    table: EpochTable,
    /// If the table is a copy of parts of a peer's.
    remote: Option<RemoteTable>,
    /// The entries of the caller's table that are compared, if there are no pairs.
    entries: Option<Vec<usize>>,
    /// The indices in the caller's list of those that differed when they were compared last.
    stale: Mutex<Vec<u64>>,
}

struct RemoteTable {
    table: Descriptor,
    /// Taken when it is dropped.
    copy: Option<RegistrationHold>,
    spare: Arc<Spare>,
    /// The first word and the number of words of each range, in ascending order. In the copy they are one after the other.
    ranges: Vec<(u64, u64)>,
}

impl ExpectedEpochs {
    /// The epochs that blocks of a source are expected to have, one per pair. The ids were checked. Fails if the source has none.
    pub fn of_pairs(source: &Layout, pairs: &[BlockPair], expected: &[u64]) -> Result<Self> {
        let ids = lists::collect(pairs.iter().map(|pair| u64::from(pair.source)))?;
        Self::new(source, ids, expected)
    }

    /// The same, one per block of a table. Those are compared that are in some of its entries.
    pub fn of_table(
        source: &Layout,
        blocks: &[u32],
        entries: impl Iterator<Item = usize>,
        expected: &[u64],
    ) -> Result<Self> {
        let entries = lists::collect(entries)?;
        let ids = lists::collect(entries.iter().map(|entry| u64::from(blocks[*entry])))?;
        let expected = lists::collect(entries.iter().map(|entry| expected[*entry]))?;
        Ok(Self { entries: Some(entries), ..Self::new(source, ids, &expected)? })
    }

    fn new(source: &Layout, ids: Vec<u64>, expected: &[u64]) -> Result<Self> {
        let pair_words = |words: Vec<u64>| lists::collect(words.into_iter().zip(expected.iter().copied()));
        let (words, table, remote) = match (source.epochs(), source.agent()) {
            (Some(Epochs::Mapped { table, .. }), _) => (pair_words(ids)?, table.clone(), None),
            (Some(Epochs::Remote(table)), Some(agent)) => {
                let ranges = ranges(&ids)?;
                let words = pair_words(in_copy(ids, &ranges)?)?;
                let (copied, remote) = RemoteTable::new(source, agent, *table, ranges)?;
                (words, copied, Some(remote))
            }
            _ => return Err(source.no_epochs()),
        };
        Ok(Self { words, table, remote, entries: None, stale: Mutex::default() })
    }

    /// Whether the engine reads the words, and compares them.
    pub fn is_remote(&self) -> bool {
        self.remote.is_some()
    }

    /// What the engine reads: each range here and in the peer's table.
    pub fn spans(&self) -> impl Iterator<Item = (Span, Span)> + Clone {
        let copy = self.table.descriptor();
        self.remote.iter().flat_map(move |remote| {
            let mut next = 0;
            remote.ranges.iter().map(move |(first, count)| {
                let here = EpochTable::span(&copy, next, *count);
                next += count;
                (here, EpochTable::span(&remote.table, *first, *count))
            })
        })
    }

    /// Replaces the words of the copy by others than the expected ones, so that a request that moves nothing is found.
    pub fn forget(&self) {
        self.words.iter().for_each(|(word, expected)| self.table.store(*word, expected ^ UNREAD));
    }

    /// Compares the words with the expected ones. Fails with STALE if one differs.
    pub fn check(&self) -> Result<()> {
        after_reading();
        let differs = |(word, expected): &(u64, u64)| self.table.load(*word) != *expected;
        let mut stale = Vec::new();
        for (index, _) in self.words.iter().enumerate().filter(|(_, word)| differs(word)) {
            lists::push(&mut stale, index)?;
        }
        let Some(first) = stale.first().copied() else { return Ok(()) };
        let (word, expected) = self.words[first];
        let found = self.table.load(word);
        ensure!(
            !self.is_remote() || found != expected ^ UNREAD,
            Nixl,
            "NIXL reports that the epochs were read, and has moved nothing"
        );
        let in_list = |index: usize| self.entries.as_ref().map_or(index, |entries| entries[index]) as u64;
        let error = error!(
            Stale,
            "{} of {} source blocks have other epochs than expected; the first, of {} {}, has epoch {}, and {expected} was \
             expected. Their bytes are of another use: discard what was moved from them; kvmem_transfer_get_mismatches returns which",
            stale.len(),
            self.words.len(),
            if self.entries.is_some() { "entry" } else { "pair" },
            in_list(first),
            found
        );
        *self.stale.lock() = lists::collect(stale.into_iter().map(in_list))?;
        Err(error)
    }

    /// The indices of those that differed when they were compared last, once.
    pub fn take_stale(&self) -> Vec<u64> {
        std::mem::take(&mut *self.stale.lock())
    }
}

impl RemoteTable {
    fn new(
        source: &Layout,
        agent: &Arc<Agent>,
        table: Descriptor,
        ranges: Vec<(u64, u64)>,
    ) -> Result<(EpochTable, Self)> {
        let words = ranges.iter().map(|(_, count)| count).sum();
        let spare = SPARE.get_or_default(source);
        let copy = match spare.take(EpochTable::size(words)) {
            Some(copy) => copy,
            None => {
                let size = EpochTable::size(words).next_power_of_two().max(rustix::param::page_size() as u64);
                let region = Region::system(&SystemConfig { size, ..SystemConfig::default() })?;
                Registration::create(&region, agent)?.hold()?
            }
        };
        let copied = EpochTable::new(copy.region().clone(), words)?;
        Ok((copied, Self { table, copy: Some(copy), spare, ranges }))
    }
}

impl Drop for RemoteTable {
    /// NIXL no longer writes to the copy: the requests of runs that it may still execute are leaked, and this with them.
    fn drop(&mut self) {
        self.copy.take().into_iter().for_each(|copy| self.spare.put(copy));
    }
}

impl Spare {
    fn take(&self, size: u64) -> Option<RegistrationHold> {
        let mut kept = self.0.lock();
        let index = kept.iter().position(|copy| copy.region().size() >= size)?;
        Some(kept.swap_remove(index))
    }

    fn put(&self, copy: RegistrationHold) {
        let mut kept = self.0.lock();
        let left = if kept.len() < MAX_SPARE {
            kept.push(copy);
            None
        } else {
            Some(copy)
        };
        drop(kept);
        drop(left);
    }
}

/// Ranges of words that contain some, in ascending order.
fn ranges(ids: &[u64]) -> Result<Vec<(u64, u64)>> {
    let mut sorted = lists::copied(ids)?;
    sorted.sort_unstable();
    let mut ranges: Vec<(u64, u64)> = Vec::new();
    for id in sorted {
        match ranges.last_mut() {
            Some((first, count)) if id < *first + *count + GAP => *count = (*count).max(id + 1 - *first),
            _ => lists::push(&mut ranges, (id, 1))?,
        }
    }
    Ok(ranges)
}

/// The indices of words in a copy of ranges that contain them.
fn in_copy(ids: Vec<u64>, ranges: &[(u64, u64)]) -> Result<Vec<u64>> {
    let mut starts = Vec::new();
    let mut next = 0;
    for (_, count) in ranges {
        lists::push(&mut starts, next)?;
        next += count;
    }
    lists::collect(ids.into_iter().map(|id| {
        let range = ranges.partition_point(|(first, _)| *first <= id) - 1;
        starts[range] + id - ranges[range].0
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::Status;
    use crate::layout::{Arrangement, Dimensions};
    use crate::run::{Account, Completion, Ticket};

    fn pairs() -> [BlockPair; 3] {
        [3, 1, 3].map(|source| BlockPair { source, destination: source })
    }

    fn layout() -> Arc<Layout> {
        let layout = Layout::in_host(Dimensions::small(), Arrangement::FULLY_CONTIGUOUS);
        layout.create_epochs(None).unwrap();
        layout
    }

    fn ticket(completion: &Arc<Completion>, layout: &Layout, expected: [u64; 3]) -> Ticket {
        let epochs = ExpectedEpochs::of_pairs(layout, &pairs(), &expected).unwrap();
        Ticket::unheld(completion, Account::default()).expecting(Arc::new(epochs))
    }

    /// The owner reuses a block after the first look, while bytes move.
    #[test]
    fn a_block_that_is_raised_during_the_run_ends_it_as_stale() {
        let (layout, completion) = (layout(), Arc::new(Completion::new(1, None)));
        for damage in [Ok(()), Err(error!(Corrupt, "the checksum differs"))] {
            let before = layout.read_epochs(&[3, 1]).unwrap();
            let ticket = ticket(&completion, &layout, [before[0], before[1], before[0]]).unless_stale();
            let run = ticket.unwrap().start();
            layout.raise_epochs(&[3]).unwrap();
            run.end(damage);
            assert_eq!(completion.poll().unwrap_err().status(), Status::Stale);
            let found = completion.findings(|findings| findings.mismatches.clone());
            assert_eq!(found.unwrap().unwrap(), [0, 2]);
        }
    }

    #[test]
    fn a_block_that_is_not_of_its_epoch_ends_the_run_before_it_begins() {
        let (layout, completion) = (layout(), Arc::new(Completion::new(1, None)));
        layout.raise_epochs(&[1]).unwrap();
        assert!(ticket(&completion, &layout, [0, 0, 0]).unless_stale().is_none());
        assert_eq!(completion.poll().unwrap_err().status(), Status::Stale);
        assert_eq!(completion.findings(|findings| findings.mismatches.clone()).unwrap().unwrap(), [1]);
        ticket(&completion, &layout, [0, 1, 0]).unless_stale().unwrap().start().end(Ok(()));
        assert_eq!(completion.poll().unwrap(), Some(()));
        assert!(completion.findings(|findings| findings.mismatches.is_empty()).unwrap().unwrap());
    }

    #[test]
    fn words_that_were_forgotten_and_not_read_are_a_failure_of_nixl() {
        for expected in [0, 1, u64::MAX] {
            let mut epochs = ExpectedEpochs::of_pairs(&layout(), &pairs(), &[expected; 3]).unwrap();
            let table = epochs.table.descriptor();
            epochs.remote =
                Some(RemoteTable { table, copy: None, spare: Arc::default(), ranges: Vec::new() });
            let read = epochs.check().map_err(|error| error.status());
            assert_eq!(read, if expected == 0 { Ok(()) } else { Err(Status::Stale) });
            epochs.forget();
            let error = epochs.check().unwrap_err();
            assert!(error.status() == Status::Nixl && error.message().contains("moved nothing"), "{error}");
        }
    }

    /// A peer that is stale names no blocks, and a run that failed for another reason is not explained by epochs.
    #[test]
    fn other_failures_stay_what_they_are() {
        let (layout, completion) = (layout(), Arc::new(Completion::new(1, None)));
        for status in [Status::Stale, Status::PeerLost, Status::Cancelled] {
            let run = ticket(&completion, &layout, [0; 3]).start();
            layout.raise_epochs(&[0]).unwrap();
            run.end(Err(crate::base::Error::new(status, "another reason")));
            assert_eq!(completion.poll().unwrap_err().message(), "another reason");
            assert_eq!(completion.findings(|_| ()).unwrap_err().status(), status);
        }
    }

    #[test]
    fn each_word_is_found_in_the_copy_of_its_range() {
        let ids = vec![7, 4000, 3, 8, 4000 + GAP, 3, 4000 + 3 * GAP, 0];
        let ranges = ranges(&ids).unwrap();
        assert_eq!(ranges, [(0, 9), (4000, GAP + 1), (4000 + 3 * GAP, 1)]);
        let mut copy: Vec<u64> = Vec::new();
        for (first, count) in &ranges {
            copy.extend(*first..first + count);
        }
        let found = in_copy(ids.clone(), &ranges).unwrap();
        assert_eq!(found.iter().map(|word| copy[*word as usize]).collect::<Vec<_>>(), ids);
    }
}
