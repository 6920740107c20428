// SPDX-License-Identifier: Apache-2.0
//! Copies between a slot and local memory, by another thread than the agent's or by a GPU. A [`SlotCopy`] is used for one
//! copy after the other, with the memory that it has.

use std::any::Any;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::time::Instant;

use super::arena::Slot;
use crate::base::error::{Error, Result, Status, ensure};
use crate::base::guarded::guarded;
use crate::base::lists;
use crate::base::sync::Mutex;
use crate::base::thread_pool::{Pool, Shared};
use crate::copy::gpu::row_copier::{RowCopier, RowsInFlight};
use crate::copy::host;
use crate::copy::host::poison::Poison;
use crate::nixl::MemoryType;
use crate::plan::{LinearPlan, Matrix};
use crate::region::ExtentHold;

const RUNNING: u8 = 0;
const DONE: u8 = 1;
const FAILED: u8 = 2;
/// Rows of a [`LinearCopy`] that are listed at a time.
const BATCH: usize = 1024;

/// A copy that is in progress or done.
#[derive(Default)]
pub struct SlotCopy {
    state: AtomicU8,
    nanoseconds: AtomicU64,
    /// Locked by the thread that copies.
    work: Mutex<CopyWork>,
    /// A copy by a GPU, and its begin.
    on_device: Mutex<Option<(RowsInFlight<Option<LinearCopy>>, Instant)>>,
}

#[derive(Default)]
struct CopyWork {
    /// What is copied, or memory for the rows of `linear`.
    rows: Vec<Matrix>,
    is_streamed: bool,
    linear: Option<LinearCopy>,
}

/// The rows between a layout and a slot at `slot`, for some bytes of a plan.
pub struct LinearCopy {
    pub plan: Arc<LinearPlan>,
    pub bytes: Range<u64>,
    pub slot: u64,
    pub into_layout: bool,
    /// Dropped when the copy has ended, as the extents of elastic memory are.
    pub _held: [Option<Arc<dyn Any + Send + Sync>>; 2],
    pub _extents: Option<ExtentHold>,
}

impl SlotCopy {
    /// Starts to copy rows between a slot and local memory; `rows` gets the rows of an earlier copy. If `is_inline` and
    /// without a copier, it has ended on return: passing few bytes to another thread takes longer than copying them.
    ///
    /// The caller keeps the slot and the memory alive, and does not use the rows, until [`Self::is_done`]. After a failure
    /// here nothing is copied.
    pub fn start(
        self: &Arc<Self>,
        rows: &mut Vec<Matrix>,
        copier: Option<&RowCopier>,
        is_streamed: bool,
        is_inline: bool,
    ) -> Result<()> {
        if let Some(copier) = copier {
            return self.begin_on(copier, rows, None);
        }
        let mut work = self.work.lock();
        std::mem::swap(&mut work.rows, rows);
        work.is_streamed = is_streamed;
        drop(work);
        self.begin(is_inline);
        Ok(())
    }

    /// The same for rows of a plan, which are listed some at a time.
    pub fn start_linear(
        self: &Arc<Self>,
        copy: LinearCopy,
        copier: Option<&RowCopier>,
        is_inline: bool,
    ) -> Result<()> {
        let mut work = self.work.lock();
        if let Some(copier) = copier {
            let rows = &mut work.rows;
            rows.clear();
            lists::extend(rows, copy.rows())?;
            return self.begin_on(copier, rows, Some(copy));
        }
        (work.linear, work.is_streamed) = (Some(copy), false);
        drop(work);
        self.begin(is_inline);
        Ok(())
    }

    fn begin_on(&self, copier: &RowCopier, rows: &mut [Matrix], held: Option<LinearCopy>) -> Result<()> {
        let begun = Instant::now();
        // SAFETY: as in `copy_rows`. Kernels of the device access the layout and the slot, which were chosen for it.
        let in_flight = unsafe { copier.start(rows, held) }?;
        *self.on_device.lock() = Some((in_flight, begun));
        self.state.store(RUNNING, Ordering::Relaxed);
        Ok(())
    }

    fn begin(self: &Arc<Self>, is_inline: bool) {
        self.state.store(RUNNING, Ordering::Relaxed);
        if is_inline {
            self.run();
        } else {
            Pool::get().run(&(self.clone() as Arc<dyn Shared>), 1);
        }
    }

    /// Whether it has ended, and its duration in seconds. Fails once if it has failed; nothing is copied any more then.
    pub fn is_done(&self) -> Result<Option<f64>> {
        let state = self.state.load(Ordering::Acquire);
        let mut on_device = self.on_device.lock();
        if let Some((in_flight, begun)) = &mut *on_device {
            if !in_flight.is_done() {
                return Ok(None);
            }
            let (failure, seconds) = (in_flight.failure(), begun.elapsed().as_secs_f64());
            *on_device = None;
            self.nanoseconds.store((seconds * 1e9) as u64, Ordering::Relaxed);
            self.state.store(DONE, Ordering::Relaxed);
            return match failure {
                None => Ok(Some(seconds)),
                Some(error) => Err(error.context("copy between staging memory and a layout")),
            };
        }
        drop(on_device);
        match state {
            RUNNING => Ok(None),
            DONE => Ok(Some(self.nanoseconds.load(Ordering::Relaxed) as f64 * 1e-9)),
            _ => Err(Error::new(
                Status::Panic,
                "a thread that copies between staging memory and a layout panicked",
            )),
        }
    }
}

impl Shared for SlotCopy {
    fn run(&self) {
        let started = Instant::now();
        let mut work = self.work.lock();
        let linear = work.linear.take();
        let CopyWork { rows, is_streamed, .. } = &mut *work;
        let outcome = guarded(|| match &linear {
            Some(linear) => linear.copy(rows),
            None => copy_rows(rows, *is_streamed),
        });
        // What it holds, too, before the end is visible.
        drop((work, linear));
        self.nanoseconds.store(started.elapsed().as_nanos() as u64, Ordering::Relaxed);
        self.state.store(if outcome.is_ok() { DONE } else { FAILED }, Ordering::Release);
    }
}

impl LinearCopy {
    fn rows(&self) -> impl Iterator<Item = Matrix> {
        self.plan.rows_in(self.bytes.clone()).map(|mut row| {
            row.first.destination = self.slot + (row.first.destination - self.bytes.start);
            if self.into_layout { row.reversed() } else { row }
        })
    }

    fn copy(&self, batch: &mut Vec<Matrix>) {
        batch.clear();
        for row in self.rows() {
            batch.push(row);
            if batch.len() == BATCH {
                copy_rows(batch, false);
                batch.clear();
            }
        }
        copy_rows(batch, false);
    }
}

impl Slot {
    /// Fills ranges of the slot with poison. Nothing uses the slot meanwhile.
    pub fn poison(&self, ranges: impl Iterator<Item = Range<u64>>) -> Result<()> {
        let poison = Poison::new()?;
        let (size, is_of_host) =
            (self.arena().slot_size(), self.arena().kind().memory_type() == MemoryType::Dram);
        for Range { start, end } in ranges {
            ensure!(
                is_of_host && start <= end && end <= size,
                Panic,
                "range {start}..{end} of a slot gets poison"
            );
            // SAFETY: host memory of the slot, which only the run that has taken it uses. No request has it yet.
            unsafe { poison.fill(self.address() + start, end - start) };
        }
        Ok(())
    }
}

fn copy_rows(rows: &[Matrix], is_streamed: bool) {
    // SAFETY: the caller of `start` checked the rows against a slot, and the plan against the layouts, which are held until
    // the copy has ended. A slot and memory of a layout have no byte in common.
    unsafe { host::copy_rows(rows, is_streamed) };
}
