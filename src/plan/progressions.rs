// SPDX-License-Identifier: Apache-2.0
//! Runs at regular distances. They are searched for among runs of blocks rather than among moves: all layers and outer slots
//! have the same runs, and there are many times as many moves.

use super::moves::BlockRun;

/// Two runs have one distance; three at the same distance are no coincidence.
const FEWEST: usize = 3;

/// Runs of equal length with a constant distance from each to the next; or a single run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progression {
    pub first: BlockRun,
    pub count: u64,
    /// Blocks from a run to the next, in source and destination.
    pub steps: [u64; 2],
}

/// Which runs may be joined.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// The maximum number of blocks of a run.
    pub length: u64,
    /// The maximum number of blocks from a run to the next, in source and destination.
    pub steps: [u64; 2],
}

/// Divides runs into the fewest progressions.
pub(super) fn find(mut runs: &[BlockRun], limits: Limits) -> impl Iterator<Item = Progression> + '_ {
    std::iter::from_fn(move || {
        let first = *runs.first()?;
        let count = runs.windows(FEWEST).take_while(|runs| is_regular(runs, &limits)).count();
        let (count, steps) = if count == 0 { (1, [0; 2]) } else { (count + FEWEST - 1, steps(runs)) };
        runs = &runs[count..];
        Some(Progression { first, count: count as u64, steps: steps.map(u64::from) })
    })
}

/// Blocks from the first run to the second; without meaning if the second starts before the first.
fn steps(runs: &[BlockRun]) -> [u32; 2] {
    [runs[1].source.wrapping_sub(runs[0].source), runs[1].destination.wrapping_sub(runs[0].destination)]
}

/// Whether three runs are at regular distances. The first condition is false for almost all scattered blocks, which a CPU
/// predicts; the others it could not.
fn is_regular(runs: &[BlockRun], limits: &Limits) -> bool {
    let both = |[here, there]: [u32; 2]| u64::from(here) << 32 | u64::from(there);
    if both(steps(runs)) != both(steps(&runs[1..])) {
        return false;
    }
    let length = runs[0].length;
    let is_ahead = runs[0].source < runs[1].source && runs[1].source < runs[2].source;
    // The copies of a run must not reach into the next.
    let fits = |step: u32, most: u64| step >= length && u64::from(step) <= most;
    let [here, there] = steps(runs);
    runs.iter().all(|run| run.length == length)
        && is_ahead
        && u64::from(length) <= limits.length
        && fits(here, limits.steps[0])
        && fits(there, limits.steps[1])
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn run((source, destination, length): (u32, u32, u32)) -> BlockRun {
        BlockRun { source, destination, length }
    }

    fn found(list: &[(u32, u32, u32)], limits: Limits) -> Vec<(u64, [u64; 2])> {
        let runs: Vec<_> = list.iter().copied().map(run).collect();
        find(&runs, limits).map(|each| (each.count, each.steps)).collect()
    }

    const ANY: Limits = Limits { length: u64::MAX, steps: [u64::MAX; 2] };

    #[test]
    fn regular_distances_are_one_progression() {
        assert_eq!(found(&[(0, 0, 1), (2, 1, 1), (4, 2, 1)], ANY), [(3, [2, 1])]);
        assert_eq!(found(&[(9, 1, 2), (11, 4, 2), (13, 7, 2), (15, 10, 2)], ANY), [(4, [2, 3])]);
        assert_eq!(
            found(&[(7, 0, 1), (0, 1, 1), (5, 9, 1), (10, 17, 1), (15, 25, 1)], ANY),
            [(1, [0, 0]), (4, [5, 8])]
        );
    }

    #[test]
    fn runs_that_form_no_matrix_stay_single() {
        for list in [
            [(4, 0, 1), (2, 1, 1), (0, 2, 1)],
            [(3, 0, 1), (3, 1, 1), (3, 2, 1)],
            [(0, 0, 4), (2, 8, 4), (4, 16, 4)],
            [(0, 0, 1), (5, 8, 2), (10, 16, 1)],
            [(0, 0, 1), (5, 8, 1), (11, 16, 1)],
        ] {
            assert_eq!(found(&list, ANY), [(1, [0, 0]); 3], "{list:?}");
        }
        let apart = [(0, 0, 2), (5, 8, 2), (10, 16, 2)];
        assert_eq!(found(&apart, Limits { length: 1, ..ANY }).len(), 3);
        assert_eq!(found(&apart, Limits { steps: [4, 8], ..ANY }).len(), 3);
        assert_eq!(found(&apart, Limits { steps: [5, 7], ..ANY }).len(), 3);
        assert_eq!(found(&apart, Limits { length: 2, steps: [5, 8] }).len(), 1);
        assert_eq!(found(&[(u32::MAX - 1, 0, 1), (0, 1, 1), (2, 2, 1)], ANY).len(), 3, "ids do not wrap");
    }

    proptest! {
        #[test]
        fn runs_stay_in_order_and_progressions_are_as_long_as_possible(
            steps in prop::collection::vec((0u32..4, 0u32..4, 1u32..3), 1..40),
        ) {
            let (mut source, mut destination) = (0, 0);
            let runs: Vec<_> = steps
                .into_iter()
                .map(|(here, there, length)| {
                    (source, destination) = (source + here, destination + length + there);
                    run((source, destination, length))
                })
                .collect();
            let mut left = &runs[..];
            for Progression { first, count, steps } in find(&runs, ANY) {
                prop_assert_eq!(first, left[0]);
                for (index, run) in (0..count).zip(left) {
                    prop_assert_eq!(u64::from(run.source), u64::from(first.source) + index * steps[0]);
                    prop_assert_eq!(u64::from(run.destination), u64::from(first.destination) + index * steps[1]);
                    prop_assert_eq!(run.length, first.length);
                }
                let from = (count as usize).saturating_sub(FEWEST - 1);
                let further = left.get(from..from + FEWEST).is_some_and(|runs| is_regular(runs, &ANY));
                prop_assert!(!further, "one more is at the same distance");
                left = &left[count as usize..];
            }
            prop_assert!(left.is_empty());
        }
    }
}
