// SPDX-License-Identifier: Apache-2.0
//! Launches for rows that another engine has listed: those between a layout and a slot of staging memory. Pure.

use super::launch::{max_tile, single_units};
use super::rows::RowLoops;
use super::unit_launches::countable;
use crate::base::{Result, lists};
use crate::cuda::{Blocks, KernelRun, Layer, Units};
use crate::plan::{Loop, Matrix};

/// The launches of a copy, and the runs that they read.
#[derive(Default)]
pub struct Launches {
    pub runs: Vec<KernelRun>,
    pub launches: Vec<Blocks>,
}

impl Launches {
    /// Replaces them by those for `rows`, whose order may change.
    ///
    /// Rows of equal shape are blocks of one launch, and the greatest common divisor of their distances is the size of a
    /// block. So a launch needs 16 bytes for each of them, whatever their addresses.
    ///
    /// Rows are sorted only if they must be: sorting takes longer than all the rest, and most copies have rows of one shape.
    pub fn fill(&mut self, rows: &mut [Matrix]) -> Result<()> {
        self.runs.clear();
        self.launches.clear();
        let bytes = rows.iter().map(|each| each.rows * each.first.size).sum();
        for row in rows.iter_mut().filter(|row| row.rows == 1) {
            row.strides = [0; 2];
        }
        if !rows.is_sorted_by_key(shape_of) {
            rows.sort_unstable_by_key(shape_of);
        }
        for alike in rows.chunk_by_mut(|one, other| shape_of(one) == shape_of(other)) {
            self.add(alike, bytes)?;
        }
        self.launches.iter().try_for_each(Blocks::ensure_countable)
    }

    fn add(&mut self, alike: &mut [Matrix], bytes: u64) -> Result<()> {
        let Some(first) = alike.first() else { return Ok(()) };
        let sides = [
            Steps::from_rows(alike, |row| row.first.source),
            Steps::from_rows(alike, |row| row.first.destination),
        ];
        if sides.iter().any(|steps| !steps.is_countable()) {
            // Halves by address have smaller distances, and a single row has none.
            alike.sort_unstable_by_key(|row| row.first.source);
            let (these, others) = alike.split_at_mut(alike.len() / 2);
            return self.add(these, bytes).and_then(|()| self.add(others, bytes));
        }
        let [source, destination] = sides;
        let first_run = self.runs.len();
        let runs = alike.iter().map(|row| {
            KernelRun::new(source.index(row.first.source), destination.index(row.first.destination), 1)
        });
        lists::extend(&mut self.runs, runs)?;
        let layer = [Layer { source: source.first, destination: destination.first }];
        let runs = first_run..self.runs.len();
        let unit_size = first.first.size;
        let units = Units { unit_size, block_strides: [source.step, destination.step], max_blocks: 1 };
        let within = Loop { count: first.rows, strides: first.strides, regions: [0; 2] };
        let as_rows = RowLoops::from_loops(unit_size, &[within])
            .and_then(|(rows, _)| rows.blocks(&units, &layer, 0, &runs));
        let outer = (countable(first.rows)?, first.strides);
        let blocks = as_rows.unwrap_or_else(|| single_units(&units, outer, max_tile(bytes), &layer, &runs));
        lists::push(&mut self.launches, blocks)
    }
}

/// What rows of one launch have in common.
fn shape_of(row: &Matrix) -> (u64, u64, [u64; 2]) {
    (row.first.size, row.rows, row.strides)
}

/// Addresses of one side as distances from the first, in equal steps.
struct Steps {
    first: u64,
    last: u64,
    /// 0 if all are equal.
    step: u64,
}

impl Steps {
    fn from_rows(rows: &[Matrix], address: impl Fn(&Matrix) -> u64) -> Self {
        let first = rows.iter().map(&address).min().unwrap_or_default();
        let last = rows.iter().map(&address).max().unwrap_or_default();
        let step = rows.iter().fold(0, |step, row| common_divisor(address(row) - first, step));
        Self { first, last, step }
    }

    fn is_countable(&self) -> bool {
        u32::try_from((self.last - self.first) / self.step.max(1)).is_ok_and(|most| most < u32::MAX)
    }

    fn index(&self, address: u64) -> u32 {
        ((address - self.first) / self.step.max(1)) as u32
    }
}

fn common_divisor(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { common_divisor(b, a % b) }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::plan::Move;

    fn row(source: u64, destination: u64, size: u64, rows: u64, strides: [u64; 2]) -> Matrix {
        let first = Move { source, destination, size, source_region: 0, destination_region: 0 };
        Matrix { first, strides, rows }
    }

    /// What the kernels copy: addresses on both sides, and sizes.
    fn copied(launches: &Launches) -> Vec<(u64, u64, u64)> {
        let mut all = Vec::new();
        for blocks in &launches.launches {
            assert_eq!((blocks.num_layers, blocks.max_blocks), (1, 1));
            let first = blocks.runs as usize / size_of::<KernelRun>();
            for run in &launches.runs[first..first + blocks.num_runs as usize] {
                assert_eq!(run.length, 1);
                let from = blocks.layers[0].source + u64::from(run.source) * blocks.source_block_stride;
                let to = blocks.layers[0].destination
                    + u64::from(run.destination) * blocks.destination_block_stride;
                for outer in 0..u64::from(blocks.num_outers) {
                    let from = from + outer * blocks.source_outer_stride;
                    let to = to + outer * blocks.destination_outer_stride;
                    let inners = if blocks.are_rows() { blocks.num_inners } else { 1 };
                    for inner in 0..u64::from(inners) {
                        let from = from + inner * u64::from(blocks.source_inner_stride);
                        let to = to + inner * u64::from(blocks.destination_inner_stride);
                        if blocks.are_rows() {
                            let words = [from, to, blocks.unit_size];
                            assert!(words.iter().all(|each| each % u64::from(blocks.word_size) == 0));
                        }
                        all.push((from, to, blocks.unit_size));
                    }
                }
            }
        }
        all.sort_unstable();
        all
    }

    fn listed(rows: &[Matrix]) -> Vec<(u64, u64, u64)> {
        let moves = rows.iter().flat_map(|row| row.moves());
        let mut all: Vec<_> = moves.map(|each| (each.source, each.destination, each.size)).collect();
        all.sort_unstable();
        all
    }

    fn check(rows: Vec<Matrix>) -> Launches {
        let mut launches = Launches::default();
        let expected = listed(&rows);
        launches.fill(&mut rows.clone()).unwrap();
        assert_eq!(copied(&launches), expected);
        launches
    }

    #[test]
    fn rows_of_one_shape_are_one_launch() {
        let rows: Vec<_> = (0..40u64)
            .map(|i| row(0x1000 + (i * 7 % 40) * 8192, 0x9000 + i * 4096, 256, 16, [512, 256]))
            .collect();
        let launches = check(rows);
        assert_eq!(launches.launches.len(), 1);
        assert!(launches.launches[0].are_rows() && launches.launches[0].word_size == 16);
    }

    #[test]
    fn rows_of_one_shape_keep_their_order() {
        let sources = [7u64, 2, 9, 4];
        let rows = sources.map(|at| row(0x1000 + at * 4096, 0x90000 + at * 64, 64, 1, [0; 2]));
        let launches = check(rows.to_vec());
        let listed: Vec<_> = launches.runs.iter().map(|run| run.source).collect();
        assert_eq!(listed, [5, 0, 7, 2], "sorting would take longer than listing");
    }

    #[test]
    fn rows_that_are_too_far_apart_for_one_launch_have_several() {
        let far = 1 << 40;
        let launches = check(vec![
            row(16, 16, 2, 1, [0; 2]),
            row(18, 19, 2, 1, [0; 2]),
            row(far + 1, 40, 2, 1, [0; 2]),
            row(20, far, 2, 1, [0; 2]),
        ]);
        assert!(launches.launches.len() > 1);
    }

    #[test]
    fn no_rows_have_no_launch() {
        assert!(check(Vec::new()).launches.is_empty());
    }

    proptest! {
        #[test]
        fn every_row_is_copied_once(
            rows in prop::collection::vec((0u64..1 << 34, 0u64..1 << 34, 1u64..5000, 1u64..20, 0u64..9000, 0u64..9000), 0..50),
            shapes in 1u64..4,
        ) {
            let rows = rows.iter().map(|&(source, destination, size, count, here, there)| {
                let size = 1 + size % shapes * 128;
                row(source, destination, size, 1 + count % shapes, [size + here % shapes, size + there % shapes])
            });
            check(rows.collect());
        }
    }
}
