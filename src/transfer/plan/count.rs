// SPDX-License-Identifier: Apache-2.0
//! The number of moves of a plan. Two units are joined if the second continues where the first ends on both sides, which
//! depends only on their distance: so the units of one block show how many are joined within every block, and only the last
//! unit of each block is compared with the first of the next.
#![forbid(unsafe_code)]

use super::moves::{BlockRun, Move};
use super::odometer::{Odometer, Position};
use super::runs::BlockRuns;
use super::shape::Shape;

/// The number of moves of blocks with the same loops, and of others that follow them.
pub fn moves<'a>(parts: impl Iterator<Item = (&'a Shape, &'a BlockRuns)>) -> u64 {
    let (mut moves, mut last) = (0, None::<Move>);
    for (shape, blocks) in parts {
        let [Some(first_run), Some(last_run)] = [blocks.runs().first(), blocks.runs().last()] else {
            continue;
        };
        let (ends, mut outside) = (Ends::of(shape), Odometer::new(shape.nest.outside(), 0));
        let (units, joints) = ends.of_pass(blocks.runs());
        loop {
            let first = ends.first(&outside.at, first_run);
            let joins =
                last.replace(ends.last(&outside.at, last_run)).is_some_and(|last| last.goes_on_in(&first));
            moves += units - joints - u64::from(joins);
            if !outside.step() {
                break;
            }
        }
    }
    moves
}

/// The first and the last unit of blocks that are moved together: of one, or of a run that is contiguous.
struct Ends<'a> {
    shape: &'a Shape,
    last: Position,
}

impl<'a> Ends<'a> {
    fn of(shape: &'a Shape) -> Self {
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
        let last = BlockRun { source: run.source + before, destination: run.destination + before, length: 1 };
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
        let mut slot = Odometer::new(self.shape.nest.inside(), 0);
        let (mut last, mut within) = (self.shape.unit(&slot.at, of_unit), 0);
        while slot.step() {
            let next = self.shape.unit(&slot.at, of_unit);
            within += u64::from(last.goes_on_in(&next));
            last = next;
        }
        let joins_next = blocks > 1 && last.goes_on_in(&self.first(&Position::default(), &block(1)));
        blocks * within + if joins_next { blocks - 1 } else { 0 }
    }
}
