// SPDX-License-Identifier: Apache-2.0
//! From pairs in any order to runs of blocks in order of destination: checked, and with no destination twice.

use super::{BlockPair, Run};
use crate::error::{Error, Result, Status, ensure};

/// Below this, sorting is cheaper than a table of all destinations.
const FEW: usize = 256;

/// Finds the runs of `pairs`, whose ids must be below `sources` and `destinations`.
pub(super) fn find(pairs: &[BlockPair], sources: u64, destinations: u64) -> Result<Vec<Run>> {
    ensure!(!pairs.is_empty(), InvalidArgument, "there is no block to move");
    check_range(pairs, sources, destinations)?;
    let runs = as_given(pairs);
    if are_in_order(&runs) {
        return Ok(runs);
    }
    // Ids are dense, so a table sorts them in one pass; a few runs of a huge cache are not worth the table.
    if runs.len() <= FEW || destinations > 16 * runs.len() as u64 {
        by_sorting(runs)
    } else {
        by_table(pairs, destinations as usize)
    }
}

fn check_range(pairs: &[BlockPair], sources: u64, destinations: u64) -> Result<()> {
    let inside =
        |pair: &BlockPair| u64::from(pair.source) < sources && u64::from(pair.destination) < destinations;
    // Without a branch for each pair; which one it was is only asked when there is one.
    if pairs.iter().fold(true, |all, pair| all & inside(pair)) {
        return Ok(());
    }
    let index = pairs.iter().position(|pair| !inside(pair)).unwrap_or(0);
    let BlockPair { source, destination } = pairs[index];
    let message = format!(
        "pair {index} moves block {source} to block {destination}; the source layout has {sources} blocks, the \
         destination {destinations}"
    );
    Err(Error::new(Status::OutOfRange, message))
}

fn as_given(pairs: &[BlockPair]) -> Vec<Run> {
    collect(pairs.iter().copied(), pairs.len())
}

/// Joins pairs that follow each other on both sides.
fn collect(pairs: impl Iterator<Item = BlockPair>, capacity: usize) -> Vec<Run> {
    let mut runs: Vec<Run> = Vec::with_capacity(capacity);
    for BlockPair { source, destination } in pairs {
        match runs.last_mut() {
            Some(run)
                if run.source.wrapping_add(run.length) == source
                    && run.destination.wrapping_add(run.length) == destination =>
            {
                run.length += 1;
            }
            _ => runs.push(Run { source, destination, length: 1 }),
        }
    }
    runs
}

/// Ascending by destination, and none of them twice.
fn are_in_order(runs: &[Run]) -> bool {
    runs.windows(2).all(|pair| end(&pair[0]) <= u64::from(pair[1].destination))
}

fn end(run: &Run) -> u64 {
    u64::from(run.destination) + u64::from(run.length)
}

fn by_sorting(mut runs: Vec<Run>) -> Result<Vec<Run>> {
    runs.sort_unstable_by_key(|run| run.destination);
    match runs.windows(2).find(|pair| end(&pair[0]) > u64::from(pair[1].destination)) {
        Some(pair) => Err(twice(pair[1].destination)),
        None => Ok(joined(runs)),
    }
}

/// Runs that follow each other now that they are sorted.
fn joined(runs: Vec<Run>) -> Vec<Run> {
    let mut joined: Vec<Run> = Vec::with_capacity(runs.len());
    for run in runs {
        match joined.last_mut() {
            Some(last)
                if u64::from(last.source) + u64::from(last.length) == u64::from(run.source)
                    && end(last) == u64::from(run.destination) =>
            {
                last.length += run.length;
            }
            _ => joined.push(run),
        }
    }
    joined
}

fn by_table(pairs: &[BlockPair], destinations: usize) -> Result<Vec<Run>> {
    // Ids are below num_blocks, which is at most u32::MAX: that is none.
    const NONE: u32 = u32::MAX;
    let mut table = vec![NONE; destinations];
    for pair in pairs {
        let slot = &mut table[pair.destination as usize];
        if *slot != NONE {
            return Err(twice(pair.destination));
        }
        *slot = pair.source;
    }
    let taken = table.iter().enumerate().filter(|(_, source)| **source != NONE);
    let ordered =
        taken.map(|(destination, source)| BlockPair { source: *source, destination: destination as u32 });
    Ok(collect(ordered, pairs.len()))
}

#[cold]
fn twice(destination: u32) -> Error {
    Error::new(Status::InvalidArgument, format!("block {destination} is a destination twice"))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn both_ways_of_ordering_agree(
            sources in prop::collection::vec(0u32..40, 40),
            destinations in Just((0u32..40).collect::<Vec<_>>()).prop_shuffle(),
            count in 1usize..41,
        ) {
            let zipped = sources.into_iter().zip(destinations).take(count);
            let pairs: Vec<_> = zipped.map(|(source, destination)| BlockPair { source, destination }).collect();
            prop_assert_eq!(by_table(&pairs, 40).unwrap(), by_sorting(as_given(&pairs)).unwrap());
        }
    }

    #[test]
    fn the_last_id_there_can_be_does_not_wrap_into_the_first() {
        let last = u32::MAX - 1;
        let pairs = [BlockPair { source: last, destination: last }, BlockPair { source: 0, destination: 0 }];
        let runs = find(&pairs, u64::from(u32::MAX), u64::from(u32::MAX)).unwrap();
        assert_eq!(runs.len(), 2);
    }

    #[test]
    fn a_destination_twice_is_found_both_ways() {
        let pairs: Vec<_> =
            [(0, 5), (1, 3), (2, 5)].map(|(source, destination)| BlockPair { source, destination }).into();
        for error in [by_table(&pairs, 12).unwrap_err(), by_sorting(as_given(&pairs)).unwrap_err()] {
            assert_eq!(error.message(), "block 5 is a destination twice");
        }
    }
}
