// SPDX-License-Identifier: Apache-2.0
//! From pairs in any order to runs of blocks in order of destination: checked, and with no destination twice.

use super::moves::BlockRun;
use super::nest::LoopOrder;
use super::wanted::BlockPair;
use crate::base::sorting::sort_by_id;
use crate::base::{Error, Result, ensure, error, lists};

/// The maximum number of runs that memory is allocated for before they are known: there may be one for each pair.
const MAX_AT_ONCE: usize = 4096;
/// From a pair of ids in a word, the destination above the source, to the pair that follows it.
const NEXT: u64 = 1 << 32 | 1;
/// Below this, sorting is cheaper than a table of all destinations.
const FEW: usize = 256;

/// The runs of blocks of a plan, in order of destination. If it is filled again, it allocates only for more blocks than it
/// has ever contained.
#[derive(Debug, Default)]
pub struct BlockRuns {
    runs: Vec<BlockRun>,
    blocks: u64,
    /// The blocks before each run; empty if all runs are of one block.
    before: Vec<u64>,
    scratch: Scratch,
}

#[derive(Debug, Default)]
struct Scratch {
    runs: Vec<BlockRun>,
    keys: Vec<u64>,
    table: Vec<u32>,
}

/// A block of some runs.
pub(super) struct BlockCursor<'a> {
    runs: &'a [BlockRun],
    run: usize,
    /// Index in the run.
    pub block: u32,
}

impl BlockCursor<'_> {
    pub fn run(&self) -> Option<BlockRun> {
        self.runs.get(self.run).copied()
    }

    /// Past some blocks of the run, and after the last one to the first. Returns whether it was the last.
    pub fn pass(&mut self, run: &BlockRun, blocks: u32) -> bool {
        self.block += blocks;
        if self.block < run.length {
            return false;
        }
        (self.block, self.run) = (0, self.run + 1);
        let is_last = self.run == self.runs.len();
        if is_last {
            self.run = 0;
        }
        is_last
    }
}

impl BlockRuns {
    /// Finds the runs of `pairs`, whose ids must be below `sources` and `destinations`.
    pub(super) fn fill(&mut self, pairs: &[BlockPair], sources: u64, destinations: u64) -> Result<()> {
        ensure!(
            !pairs.is_empty(),
            InvalidArgument,
            "num_pairs is 0: the list of block pairs is empty; give pairs, or source_table and destination_table"
        );
        ensure!(
            u32::try_from(pairs.len()).is_ok(),
            InvalidArgument,
            "num_pairs is {}, and no layout has as many blocks",
            pairs.len()
        );
        join(&mut self.runs, pairs.iter().copied())?;
        check_range(&self.runs, pairs, sources, destinations)?;
        if !are_in_order(&self.runs) {
            // Ids are dense, so a table sorts them in one pass; a few runs of a huge cache do not justify the table.
            if self.runs.len() <= FEW || destinations > 16 * self.runs.len() as u64 {
                self.sort(pairs)?;
            } else {
                self.sort_by_table(pairs, destinations as usize)?;
            }
        }
        self.blocks = pairs.len() as u64;
        self.count_before()
    }

    pub fn runs(&self) -> &[BlockRun] {
        &self.runs
    }

    pub fn blocks(&self) -> u64 {
        self.blocks
    }

    /// The same in the order of one of the sides.
    pub(super) fn in_order(&self, order: LoopOrder) -> Result<Self> {
        let mut runs = lists::collect(self.runs.iter().copied())?;
        if order == LoopOrder::Source {
            sort_by_id(&mut runs, |run| run.source)?;
        }
        let mut sorted = Self { runs, blocks: self.blocks, ..Self::default() };
        sorted.count_before()?;
        Ok(sorted)
    }

    /// Goes through the blocks again and again, from this one on.
    pub(super) fn from(&self, block: u64) -> BlockCursor<'_> {
        let (run, block) = self.find(block);
        BlockCursor { runs: &self.runs, run, block }
    }

    /// The run of a block, which is counted from the first of all, and its index in the run.
    pub(super) fn find(&self, block: u64) -> (usize, u32) {
        if self.before.is_empty() {
            return (block as usize, 0);
        }
        let run = self.before.partition_point(|before| *before <= block) - 1;
        (run, (block - self.before[run]) as u32)
    }

    fn count_before(&mut self) -> Result<()> {
        self.before.clear();
        if self.runs.len() as u64 == self.blocks {
            return Ok(());
        }
        let mut before = 0;
        let counted = self.runs.iter().map(|run| {
            let this = before;
            before += u64::from(run.length);
            this
        });
        lists::extend(&mut self.before, counted)
    }

    fn sort(&mut self, pairs: &[BlockPair]) -> Result<()> {
        let Scratch { runs, keys, .. } = &mut self.scratch;
        // Words are sorted in half the time that runs are.
        keys.clear();
        let words = self.runs.iter().zip(0u64..).map(|(run, index)| u64::from(run.destination) << 32 | index);
        lists::extend(keys, words)?;
        keys.sort_unstable();
        let mut reached = 0;
        runs.clear();
        lists::reserve(runs, self.runs.len())?;
        for key in keys.iter() {
            let run = self.runs[*key as u32 as usize];
            if reached > u64::from(run.destination) {
                return Err(twice(pairs, run.destination));
            }
            reached = end(&run);
            push(runs, run);
        }
        std::mem::swap(&mut self.runs, runs);
        Ok(())
    }

    fn sort_by_table(&mut self, pairs: &[BlockPair], destinations: usize) -> Result<()> {
        // Ids are below num_blocks, which is at most u32::MAX, so this is no id.
        const NONE: u32 = u32::MAX;
        let table = &mut self.scratch.table;
        table.clear();
        lists::reserve(table, destinations)?;
        table.resize(destinations, NONE);
        for pair in pairs {
            let slot = &mut table[pair.destination as usize];
            if *slot != NONE {
                return Err(twice(pairs, pair.destination));
            }
            *slot = pair.source;
        }
        let taken = table.iter().enumerate().filter(|(_, source)| **source != NONE);
        let ordered =
            taken.map(|(destination, source)| BlockPair { source: *source, destination: destination as u32 });
        join(&mut self.runs, ordered)
    }
}

/// Fails if a pair is out of range: then its run is, also if it was joined with a pair that only seems to follow it.
fn check_range(runs: &[BlockRun], pairs: &[BlockPair], sources: u64, destinations: u64) -> Result<()> {
    let last_of = |first: u32, run: &BlockRun| u64::from(first) + u64::from(run.length);
    let is_inside =
        |run: &BlockRun| last_of(run.source, run) <= sources && last_of(run.destination, run) <= destinations;
    // Without a branch per run. The invalid pair is searched for only if there is one.
    match runs.iter().fold(true, |all, run| all & is_inside(run)) {
        true => Ok(()),
        false => Err(out_of_range(pairs, sources, destinations)),
    }
}

#[cold]
fn out_of_range(pairs: &[BlockPair], sources: u64, destinations: u64) -> Error {
    let is_outside =
        |pair: &BlockPair| u64::from(pair.source) >= sources || u64::from(pair.destination) >= destinations;
    let index = pairs.iter().position(is_outside).unwrap_or(0);
    let BlockPair { source, destination } = pairs[index];
    let (side, id, have) = match u64::from(source) >= sources {
        true => ("source", source, sources),
        false => ("destination", destination, destinations),
    };
    error!(
        OutOfRange,
        "pairs[{index}].{side} is {id}; the {side} layout has {have} blocks, give ids below that"
    )
}

/// Replaces `runs` by those of pairs that are consecutive on both sides. An id that is out of range may wrap to 0: a run of
/// it has the id, so that it is out of range as well.
fn join(runs: &mut Vec<BlockRun>, mut pairs: impl Iterator<Item = BlockPair>) -> Result<()> {
    runs.clear();
    lists::reserve(runs, pairs.size_hint().0.min(MAX_AT_ONCE))?;
    // Both ids in a word, so that they are compared at once.
    let word = |pair: BlockPair| u64::from(pair.destination) << 32 | u64::from(pair.source);
    let one = |BlockPair { source, destination }| BlockRun { source, destination, length: 1 };
    let Some(first) = pairs.next() else { return Ok(()) };
    let (mut last, mut next) = (one(first), word(first).wrapping_add(NEXT));
    // Most pairs only lengthen the last run, which is therefore not in memory.
    for pair in pairs {
        if word(pair) == next {
            last.length += 1;
        } else {
            lists::push(runs, last)?;
            (last, next) = (one(pair), word(pair));
        }
        next = next.wrapping_add(NEXT);
    }
    lists::push(runs, last)
}

/// Adds a run, or lengthens the last one if this one follows it on both sides.
fn push(runs: &mut Vec<BlockRun>, run: BlockRun) {
    match runs.last_mut() {
        Some(last) if follows(last, &run) => last.length += run.length,
        _ => runs.push(run),
    }
}

/// Whether a run follows another one on both sides. No sum wraps: ids are less than u32::MAX.
fn follows(last: &BlockRun, run: &BlockRun) -> bool {
    last.source + last.length == run.source && last.destination + last.length == run.destination
}

/// Ascending by destination, and none of them twice.
fn are_in_order(runs: &[BlockRun]) -> bool {
    runs.windows(2).all(|pair| end(&pair[0]) <= u64::from(pair[1].destination))
}

fn end(run: &BlockRun) -> u64 {
    u64::from(run.destination) + u64::from(run.length)
}

#[cold]
fn twice(pairs: &[BlockPair], destination: u32) -> Error {
    let with_it = pairs.iter().enumerate().filter(|(_, pair)| pair.destination == destination);
    let pairs: Vec<_> = with_it.take(2).map(|(index, _)| format!("pairs[{index}]")).collect();
    error!(
        InvalidArgument,
        "destination of {} is {destination}; name each destination once",
        pairs.join(" and ")
    )
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::tests::any_pairs_of;
    use super::*;
    use crate::base::Status;

    fn as_given(pairs: &[BlockPair]) -> BlockRuns {
        let mut found = BlockRuns::default();
        join(&mut found.runs, pairs.iter().copied()).unwrap();
        found
    }

    fn sorted(pairs: &[BlockPair]) -> Result<Vec<BlockRun>> {
        let mut found = as_given(pairs);
        found.sort(pairs).map(|()| found.runs)
    }

    fn sorted_by_table(pairs: &[BlockPair], destinations: usize) -> Result<Vec<BlockRun>> {
        let mut found = as_given(pairs);
        found.sort_by_table(pairs, destinations).map(|()| found.runs)
    }

    proptest! {
        #[test]
        fn both_sorts_agree(pairs in any_pairs_of(40)) {
            prop_assert_eq!(sorted_by_table(&pairs, 40).unwrap(), sorted(&pairs).unwrap());
        }

        #[test]
        fn lists_that_are_filled_again_equal_new_ones(lists in prop::collection::vec(any_pairs_of(40), 1..5)) {
            let mut again = BlockRuns::default();
            for pairs in lists {
                let mut fresh = BlockRuns::default();
                fresh.fill(&pairs, 40, 40).unwrap();
                again.fill(&pairs, 40, 40).unwrap();
                prop_assert_eq!(again.runs(), fresh.runs());
                prop_assert_eq!(again.blocks(), pairs.len() as u64);
                prop_assert_eq!(&again.before, &fresh.before);
            }
        }

        #[test]
        fn every_block_is_found_in_its_run(pairs in any_pairs_of(40)) {
            let mut found = BlockRuns::default();
            found.fill(&pairs, 40, 40).unwrap();
            let mut block = 0;
            for (index, run) in found.runs().iter().enumerate() {
                for place in 0..run.length {
                    prop_assert_eq!(found.find(block), (index, place));
                    block += 1;
                }
            }
        }
    }

    #[test]
    fn the_last_possible_id_does_not_wrap_into_the_first() {
        let last = u32::MAX - 1;
        let pairs = [BlockPair { source: last, destination: last }, BlockPair { source: 0, destination: 0 }];
        let mut found = BlockRuns::default();
        found.fill(&pairs, u64::from(u32::MAX), u64::from(u32::MAX)).unwrap();
        assert_eq!(found.runs().len(), 2);
    }

    #[test]
    fn an_id_that_is_out_of_range_is_found_also_if_the_next_one_wraps_to_0() {
        let pair = |source, destination| BlockPair { source, destination };
        for pairs in [
            [pair(u32::MAX, 4), pair(0, 6)],
            [pair(4, u32::MAX), pair(5, 0)],
            [pair(u32::MAX, u32::MAX), pair(0, 1)],
            [pair(11, 3), pair(12, 4)],
            [pair(3, 11), pair(4, 12)],
        ] {
            let error = BlockRuns::default().fill(&pairs, 12, 12).unwrap_err();
            let wrong = pairs.iter().position(|pair| pair.source > 11 || pair.destination > 11).unwrap();
            assert_eq!(error.status(), Status::OutOfRange);
            assert!(error.message().starts_with(&format!("pairs[{wrong}].")), "{error}");
        }
    }

    #[test]
    fn a_destination_twice_is_found_by_both_sorts() {
        let pairs: Vec<_> =
            [(0, 5), (1, 3), (2, 5)].map(|(source, destination)| BlockPair { source, destination }).into();
        for error in [sorted_by_table(&pairs, 12).unwrap_err(), sorted(&pairs).unwrap_err()] {
            assert_eq!(
                error.message(),
                "destination of pairs[0] and pairs[2] is 5; name each destination once"
            );
        }
    }

    #[test]
    fn a_list_that_failed_leaves_nothing_for_the_next() {
        let pair = |source, destination| BlockPair { source, destination };
        let mut found = BlockRuns::default();
        found.fill(&[pair(0, 5), pair(1, 5)], 12, 12).unwrap_err();
        found.fill(&[pair(7, 1), pair(2, 0)], 12, 12).unwrap();
        let run = |source, destination| BlockRun { source, destination, length: 1 };
        assert_eq!(found.runs(), [run(2, 0), run(7, 1)]);
    }
}
