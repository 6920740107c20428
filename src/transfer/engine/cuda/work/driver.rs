// SPDX-License-Identifier: Apache-2.0
//! The driver's own copies: a call a stretch, a batch, or rows where strides are regular.

use super::super::choice::rows;
use super::super::sides::Sides;
use crate::cuda::copy::{Batch, Copy, EngineLoad, Rows, SourceOrder};
use crate::cuda::stream::Active;
use crate::error::Result;
use crate::transfer::plan::{Matrix, Move, Plan};

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
    pub fn one_by_one(sides: &Sides, plan: &Plan) -> Self {
        let mut list = Vec::with_capacity(plan.room());
        each_copy(sides, plan, |copy| list.push(copy));
        Self::Loop(list)
    }

    /// All in one call.
    pub fn batch(sides: &Sides, plan: &Plan, from_host: bool) -> Self {
        let mut batch = Batch::with_room(plan.room());
        each_copy(sides, plan, |copy| batch.push(copy));
        Self::Batch(batch, from_host)
    }

    /// Rows at regular distances.
    pub fn rows(sides: &Sides, plan: &Plan) -> Self {
        let mut rows = Vec::new();
        let mut add =
            |Matrix { first, strides: [source_stride, destination_stride], rows: count }: Matrix| {
                rows.push(Rows { first: of_move(first), source_stride, destination_stride, count });
            };
        let (source, destination) = (&*sides.source, &*sides.destination);
        rows::matrices(plan)
            .for_each(|matrix| matrix.cut(sides.left(source), sides.left(destination), &mut add));
        Self::Rows(rows)
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
                    on.copy_batch(batch, place.reading(*from_host), EngineLoad::Idle)
                }
                Self::Batch(batch, _) => on.copy_each(batch),
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
    pub fn reading(self, from_host: bool) -> SourceOrder {
        if self == Self::Own && from_host { SourceOrder::Any } else { SourceOrder::Stream }
    }
}

/// Passes every stretch to `tell`, cut where no copy may reach over.
fn each_copy(sides: &Sides, plan: &Plan, mut tell: impl FnMut(Copy)) {
    let (source, destination) = (&*sides.source, &*sides.destination);
    let moves = plan.moves();
    // Most memory is one piece, and then there is nothing to ask of each of many moves.
    if sides.is_one_piece(source) && sides.is_one_piece(destination) {
        return moves.for_each(|each| tell(of_move(each)));
    }
    let parts = moves.flat_map(|each| each.cut(sides.left(source), sides.left(destination)));
    parts.for_each(|part| tell(of_move(part)));
}

fn of_move(Move { source, destination, size, .. }: Move) -> Copy {
    Copy { source, destination, size }
}
