// SPDX-License-Identifier: Apache-2.0
//! The driver's own copies: a call a stretch, a batch, or rows where strides are regular.

use crate::cuda::copy::{Batch, Copy, Reading, Rows};
use crate::cuda::stream::Active;
use crate::error::Result;
use crate::layout::Layout;
use crate::transfer::plan::{Grid, Move, Plan};

/// The driver takes no rows that are further apart.
const LARGEST_PITCH: u64 = i32::MAX as u64;

/// Copies as one of the driver's calls takes them.
pub enum DriverCopies {
    /// One a call.
    Loop(Vec<Copy>),
    /// All in one call; one a call where that is refused. Whether they come from the host.
    Batch(Batch, bool),
    /// Rows; single copies where there are none.
    Rows(Vec<Rows>),
}

impl DriverCopies {
    /// One a call.
    pub fn one_by_one(source: &Layout, destination: &Layout, plan: &Plan) -> Self {
        let mut list = Vec::with_capacity(plan.room());
        each_copy(source, destination, plan, |copy| list.push(copy));
        Self::Loop(list)
    }

    /// All in one call.
    pub fn batch(source: &Layout, destination: &Layout, plan: &Plan, from_host: bool) -> Self {
        let mut batch = Batch::with_room(plan.room());
        each_copy(source, destination, plan, |copy| batch.push(copy));
        Self::Batch(batch, from_host)
    }

    /// Rows of blocks, one matrix for each run, layer and outer slot.
    pub fn rows(source: &Layout, destination: &Layout, plan: &Plan) -> Self {
        Self::Rows(rows(source, destination, plan))
    }

    /// Starts them.
    ///
    /// # Safety
    /// As for [`Active::copy`].
    pub unsafe fn enqueue(&self, on: &Active<'_>, place: Place) -> Result<()> {
        // SAFETY: the caller's promise, for all of it.
        unsafe {
            match self {
                Self::Batch(batch, from_host) if place != Place::Elsewhere => {
                    on.copy_batch(batch, place.reading(*from_host))
                }
                Self::Batch(batch, _) => batch.copies().try_for_each(|copy| on.copy(copy)),
                Self::Loop(copies) => copies.iter().try_for_each(|copy| on.copy(*copy)),
                Self::Rows(rows) => rows.iter().try_for_each(|rows| match rows.count {
                    1 => on.copy(rows.first),
                    _ => on.copy_rows(rows),
                }),
            }
        }
    }
}

/// Where copies are put.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// A stream of the run's own, with nothing before it.
    Own,
    /// A stream of the caller's.
    Callers,
    /// Where no batch can go: the legacy default stream, a graph.
    Elsewhere,
}

impl Place {
    /// When sources may be read: host memory is there when a run of its own is submitted.
    pub fn reading(self, from_host: bool) -> Reading {
        if self == Self::Own && from_host { Reading::AtOnce } else { Reading::InTurn }
    }
}

/// Tells of every stretch, cut where the driver sees two pieces of memory.
fn each_copy(source: &Layout, destination: &Layout, plan: &Plan, mut tell: impl FnMut(Copy)) {
    let moves = plan.moves(source.placement(), destination.placement());
    // Most memory is one piece, and then there is nothing to ask of each of many moves.
    if is_one_piece(source) && is_one_piece(destination) {
        return moves
            .for_each(|Move { source, destination, size, .. }| tell(Copy { source, destination, size }));
    }
    moves.for_each(|each| cut(source, destination, each).for_each(&mut tell));
}

/// Whether no region of a layout has a place that copies must not reach over.
fn is_one_piece(layout: &Layout) -> bool {
    let regions = layout.memory().regions();
    regions
        .iter()
        .enumerate()
        .all(|(index, region)| layout.bytes_in_piece(index as u32, region.address()) >= region.size())
}

/// No copy of the driver's may reach over the end of an extent or of a page lock, on either side.
fn cut<'a>(
    source: &'a Layout,
    destination: &'a Layout,
    mut left: Move,
) -> impl Iterator<Item = Copy> + use<'a> {
    std::iter::from_fn(move || {
        let here = source.bytes_in_piece(left.source_region, left.source);
        let there = destination.bytes_in_piece(left.destination_region, left.destination);
        let size = left.size.min(here).min(there);
        let next = Copy { source: left.source, destination: left.destination, size };
        left = Move {
            source: left.source + size,
            destination: left.destination + size,
            size: left.size - size,
            ..left
        };
        (size > 0).then_some(next)
    })
}

/// Whether rows can be had of this geometry, or why not.
pub fn rows_fit(grid: &Grid) -> std::result::Result<(), String> {
    if grid.blocks_together {
        return Err("blocks that follow each other lie together".to_string());
    }
    let pitch = grid.strides.iter().copied().max().unwrap_or(0);
    if pitch > LARGEST_PITCH {
        return Err(format!("blocks are {pitch} bytes apart, the driver takes {LARGEST_PITCH}"));
    }
    Ok(())
}

fn rows(source: &Layout, destination: &Layout, plan: &Plan) -> Vec<Rows> {
    let grid = plan.grid(source.placement(), destination.placement());
    let mut matrices = Vec::new();
    for layer in 0..grid.layers {
        for outer in 0..grid.outers {
            for run in plan.runs() {
                let first = plan.unit_move(source.placement(), destination.placement(), layer, outer, *run);
                cut_rows(source, destination, &grid, first, u64::from(run.length), &mut matrices);
            }
        }
    }
    matrices
}

/// Rows up to the end of a piece of memory on either side; one that straddles it is cut.
fn cut_rows(
    source: &Layout,
    destination: &Layout,
    grid: &Grid,
    mut first: Move,
    mut left: u64,
    matrices: &mut Vec<Rows>,
) {
    let [source_stride, destination_stride] = grid.strides;
    while left > 0 {
        let here = source.bytes_in_piece(first.source_region, first.source);
        let there = destination.bytes_in_piece(first.destination_region, first.destination);
        let fit =
            rows_in(here, first.size, source_stride).min(rows_in(there, first.size, destination_stride));
        let count = fit.min(left);
        if count == 0 {
            let single = |copy| Rows { first: copy, source_stride, destination_stride, count: 1 };
            matrices.extend(cut(source, destination, first).map(single));
        } else {
            let copy = Copy { source: first.source, destination: first.destination, size: first.size };
            matrices.push(Rows { first: copy, source_stride, destination_stride, count });
        }
        let done = count.max(1);
        first.source += done * source_stride;
        first.destination += done * destination_stride;
        left -= done;
    }
}

/// Whole rows in the first `bytes`.
fn rows_in(bytes: u64, size: u64, stride: u64) -> u64 {
    bytes.checked_sub(size).map_or(0, |rest| rest / stride + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_end_with_the_piece_they_lie_in() {
        assert_eq!(rows_in(99, 100, 200), 0);
        assert_eq!(rows_in(100, 100, 200), 1);
        assert_eq!(rows_in(299, 100, 200), 1);
        assert_eq!(rows_in(300, 100, 200), 2);
        assert_eq!(rows_in(u64::MAX, 100, 100), (u64::MAX - 100) / 100 + 1);
    }
}
