// SPDX-License-Identifier: Apache-2.0
//! Copies by the driver: one call per span, a batch, or rows if the strides are constant.
#![allow(unsafe_code)]

use crate::base::{Result, lists};
use crate::copy::gpu::gpu_sides::CudaSides;
use crate::cuda::Active;
use crate::cuda::copy::{Batch, Copy, EngineLoad, Rows, SourceOrder};
use crate::plan::{Matrices, Matrix, Move, Plan};

/// Copies, in the form of the driver's call.
pub enum DriverCopies {
    /// One call per copy.
    OneByOne(Batch),
    /// All in one call, or one call per copy where the driver supports no batches.
    Batch { batch: Batch, from_host: bool },
    /// Rows; single copies where the stride is not constant.
    Rows(Vec<Rows>),
}

impl DriverCopies {
    /// One call per copy.
    pub fn one_by_one(sides: &CudaSides, plan: &Plan) -> Result<Self> {
        copies(sides, plan).map(Self::OneByOne)
    }

    /// All in one call.
    pub fn batch(sides: &CudaSides, plan: &Plan, from_host: bool) -> Result<Self> {
        Ok(Self::Batch { batch: copies(sides, plan)?, from_host })
    }

    /// Rows with constant strides.
    pub fn rows(sides: &CudaSides, plan: &Plan) -> Result<Self> {
        let mut rows = Vec::new();
        let mut added = Ok(());
        let mut add =
            |Matrix { first, strides: [source_stride, destination_stride], rows: count }: Matrix| {
                if added.is_ok() {
                    let each = Rows { first: of_move(first), source_stride, destination_stride, count };
                    added = lists::push(&mut rows, each);
                }
            };
        let (source, destination) = (&*sides.source, &*sides.destination);
        for each in matrices(plan) {
            each.for_each(|matrix| matrix.cut(sides.left(source), sides.left(destination), &mut add));
        }
        added.map(|()| Self::Rows(rows))
    }

    /// Enqueues them.
    ///
    /// # Safety
    /// As for [`Active::copy`].
    pub unsafe fn enqueue(&self, on: &Active<'_>, place: StreamKind) -> Result<()> {
        // SAFETY: the caller's promise, for all of it.
        unsafe {
            match self {
                Self::Batch { batch, from_host } if place != StreamKind::WithoutBatches => {
                    on.copy_batch(batch, place.reading(*from_host), EngineLoad::Idle)
                }
                Self::Batch { batch, .. } | Self::OneByOne(batch) => on.copy_each(batch),
                Self::Rows(rows) => rows.iter().try_for_each(|rows| match rows.count {
                    1 => on.copy(rows.first),
                    _ => on.copy_rows(rows),
                }),
            }
        }
    }
}

/// The kind of stream that copies are enqueued on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamKind {
    /// A stream of the run, with no work before it.
    Own,
    Caller,
    /// Batches are not supported: the legacy default stream, or a graph.
    WithoutBatches,
}

impl StreamKind {
    /// When sources may be read: on a stream of the run, host memory is ready at submission.
    pub fn reading(self, from_host: bool) -> SourceOrder {
        if self == Self::Own && from_host { SourceOrder::Any } else { SourceOrder::Stream }
    }
}

/// The contiguous spans, cut where a copy must end. Fails if there is no memory for the list; the spans after that are
/// passed over.
fn copies(sides: &CudaSides, plan: &Plan) -> Result<Batch> {
    let mut all = Batch::with_capacity(plan.capacity())?;
    let mut added = Ok(());
    let mut add = |each: Move| {
        if added.is_ok() {
            added = all.push(of_move(each));
        }
    };
    let (source, destination) = (&*sides.source, &*sides.destination);
    // Most memory needs no cuts; then the moves are not checked one by one.
    if sides.is_one_piece(source) && sides.is_one_piece(destination) {
        plan.each_move(add);
    } else {
        let (here, there) = (sides.left(source), sides.left(destination));
        plan.each_move(|each| each.cut(&here, &there).for_each(&mut add));
    }
    added.map(|()| all)
}

fn of_move(Move { source, destination, size, .. }: Move) -> Copy {
    Copy { source, destination, size }
}

/// The maximum stride that the driver supports.
pub const LARGEST_PITCH: u64 = i32::MAX as u64;

/// The plan as calls that copy rows.
pub fn matrices(plan: &Plan) -> impl Iterator<Item = Matrices<'_>> {
    plan.matrices(LARGEST_PITCH)
}
