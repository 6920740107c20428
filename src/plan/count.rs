// SPDX-License-Identifier: Apache-2.0
//! The number of moves of a plan. Two units are joined if the second continues where the first ends on both sides, which
//! depends only on their distance. That has one value for each loop whose index the step to the second unit increments, so no loop
//! is executed here: an example of each value shows how many are joined.

use super::block_runs::BlockRuns;
use super::moves::{BlockRun, Move};
use super::nest::{Loop, iterations};
use super::odometer::{Odometer, Position};
use super::shape::Shape;

/// The number of moves of blocks with the same loops, and of others that follow them.
pub fn moves<'a>(parts: impl Iterator<Item = (&'a Shape, &'a BlockRuns)>) -> u64 {
    let (mut moves, mut last) = (0, None::<Move>);
    for (shape, blocks) in parts {
        let [Some(first_run), Some(last_run)] = [blocks.runs().first(), blocks.runs().last()] else {
            continue;
        };
        let (ends, outside) = (Ends::new(shape), shape.nest.outside());
        let (units, joints) = ends.of_pass(blocks.runs());
        let passes = iterations(outside);
        let joined_passes = joined_steps(outside, |before, after| {
            ends.last(before, last_run).goes_on_in(&ends.first(after, first_run))
        });
        let first = ends.first(&Position::default(), first_run);
        let end = Odometer::new(outside, passes - 1).at;
        let joins = last.replace(ends.last(&end, last_run)).is_some_and(|last| last.goes_on_in(&first));
        moves += passes * (units - joints) - joined_passes - u64::from(joins);
    }
    moves
}

/// The number of steps in nested loops that join what they connect: the positions before and after a step.
fn joined_steps(loops: &[Loop], joins: impl Fn(&Position, &Position) -> bool) -> u64 {
    let (mut joined, mut times) = (0, 1);
    for (index, each) in loops.iter().enumerate() {
        let inner = iterations(&loops[index + 1..]);
        let at = |iteration: u64| Odometer::new(&loops[index..], iteration).at;
        if each.count > 1 && joins(&at(inner - 1), &at(inner)) {
            joined += times * (each.count - 1);
        }
        times *= each.count;
    }
    joined
}

/// The first and the last unit of blocks that are moved together: of one, or of a run that is contiguous.
struct Ends<'a> {
    shape: &'a Shape,
    last: Position,
}

impl<'a> Ends<'a> {
    fn new(shape: &'a Shape) -> Self {
        Self { shape, last: Odometer::new(shape.nest.inside(), shape.units_inside - 1).at }
    }

    fn first(&self, outside: &Position, run: &BlockRun) -> Move {
        let length = if self.shape.blocks_together { run.length } else { 1 };
        self.shape.unit(outside, BlockRun { length, ..*run })
    }

    fn last(&self, outside: &Position, run: &BlockRun) -> Move {
        let at = Position::sum(outside, &self.last);
        if self.shape.blocks_together {
            return self.shape.unit(&at, *run);
        }
        let before = run.length - 1;
        let last = run.part(before, 1);
        self.shape.unit(&at, last)
    }

    /// The number of units of all runs in one iteration of the loops outside, and how many of them are joined with the one
    /// before.
    fn of_pass(&self, runs: &[BlockRun]) -> (u64, u64) {
        let at = Position::default();
        let between =
            runs.windows(2).filter(|pair| self.last(&at, &pair[0]).goes_on_in(&self.first(&at, &pair[1])));
        let (mut units, mut joints) = (0, between.count() as u64);
        // Most runs have the length of the one before.
        let mut known = (0, 0);
        for run in runs {
            if known.0 != run.length {
                known = (run.length, self.joints_in(run.length));
            }
            units += self.shape.units_inside * if self.shape.blocks_together { 1 } else { run.length.into() };
            joints += known.1;
        }
        (units, joints)
    }

    /// How many units of a run are joined with the one before.
    fn joints_in(&self, length: u32) -> u64 {
        let block = |id: u32| BlockRun { source: id, destination: id, length: 1 };
        let (of_unit, blocks) = match self.shape.blocks_together {
            true => (BlockRun { length, ..block(0) }, 1),
            false => (block(0), u64::from(length)),
        };
        let within = joined_steps(self.shape.nest.inside(), |before, after| {
            self.shape.unit(before, of_unit).goes_on_in(&self.shape.unit(after, of_unit))
        });
        let last = self.shape.unit(&self.last, of_unit);
        let joins_next = blocks > 1 && last.goes_on_in(&self.first(&Position::default(), &block(1)));
        blocks * within + if joins_next { blocks - 1 } else { 0 }
    }
}
