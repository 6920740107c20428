// SPDX-License-Identifier: Apache-2.0
//! Copies between a slot and local memory, by another thread than the agent's or by a GPU.
#![allow(unsafe_code)]

use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

use super::arena::Slot;
use super::linear_copy::{Checksums, LinearCopy, copy_rows};
use crate::base::{Error, Mutex, Pool, Result, Shared, ensure, guarded, lists};
use crate::copy::gpu::{CopiesInFlight, RowCopier};
use crate::copy::host::poison::Poison;
use crate::nixl::MemoryType;
use crate::plan::Matrix;

/// A copy that is in progress or done.
pub struct SlotCopy(Mutex<Life>);

enum Life {
    /// Until a thread takes it.
    Queued(CopyWork),
    /// A thread has the work, without the lock.
    Running,
    OnDevice(OnDevice),
    Ended(Result<EndedCopy>),
}

struct OnDevice {
    rows: CopiesInFlight<Option<LinearCopy>>,
    begun: Instant,
    /// Computes the checksums afterwards, if the copy has any.
    copier: Arc<RowCopier>,
}

#[derive(Default)]
struct CopyWork {
    /// What is copied, or those of `linear` that are listed.
    rows: Vec<Matrix>,
    is_streamed: bool,
    linear: Option<LinearCopy>,
    /// The GPU that has made the copy, of which only checksums are missing, and its seconds.
    copied_by: Option<(Arc<RowCopier>, f64)>,
}

#[derive(Clone, Copy, Debug, Default)]
pub struct EndedCopy {
    pub seconds: f64,
    /// Zeros, if none were requested.
    pub checksums: Checksums,
}

impl SlotCopy {
    /// Starts to copy rows between a slot and local memory. If `is_inline` and without a copier, it has ended on return: passing few
    /// bytes to another thread takes longer than copying them.
    ///
    /// The caller keeps the slot and the memory alive until [`Self::is_done`]. After a failure here nothing is copied.
    pub fn start(
        rows: Vec<Matrix>,
        copier: Option<&Arc<RowCopier>>,
        is_streamed: bool,
        is_inline: bool,
    ) -> Result<Arc<Self>> {
        Self::begun(CopyWork { rows, is_streamed, ..CopyWork::default() }, copier, is_inline)
    }

    /// The same for rows of a plan, which are listed some at a time. Computes checksums, too, if they were requested.
    pub fn start_linear(
        copy: LinearCopy,
        copier: Option<&Arc<RowCopier>>,
        is_inline: bool,
    ) -> Result<Arc<Self>> {
        let copier = copier.filter(|_| copy.slot.is_some());
        let mut rows = Vec::new();
        if copier.is_some() {
            lists::extend(&mut rows, copy.rows())?;
        }
        Self::begun(CopyWork { rows, linear: Some(copy), ..CopyWork::default() }, copier, is_inline)
    }

    fn begun(mut work: CopyWork, copier: Option<&Arc<RowCopier>>, is_inline: bool) -> Result<Arc<Self>> {
        let Some(copier) = copier.cloned() else {
            let this = Arc::new(Self(Mutex::new(Life::Queued(work))));
            match is_inline {
                true => this.run(),
                false => this.pass(),
            }
            return Ok(this);
        };
        let begun = Instant::now();
        // SAFETY: as in `copy_rows`. Kernels of the device access the layout and the slot, which were chosen for it.
        let rows = unsafe { copier.start(&mut work.rows, work.linear.take()) }?;
        Ok(Arc::new(Self(Mutex::new(Life::OnDevice(OnDevice { rows, begun, copier })))))
    }

    fn pass(self: &Arc<Self>) {
        Pool::get().run(&(self.clone() as Arc<dyn Shared>), 1);
    }

    /// Whether it has ended. Fails if it has failed; nothing is copied any more then.
    pub fn is_done(self: &Arc<Self>) -> Result<Option<EndedCopy>> {
        let mut life = self.0.lock();
        if let Life::OnDevice(on_device) = &mut *life {
            let Some(next) = on_device.next() else { return Ok(None) };
            *life = next;
            if let Life::Queued(_) = *life {
                // On a thread that does nothing else: it waits for the GPU, which may have other work for any time.
                match Pool::services().run_alone(self.clone()) {
                    Ok(_) => return Ok(None),
                    Err(error) => *life = Life::Ended(Err(copying(error))),
                }
            }
        }
        match &*life {
            Life::Ended(outcome) => outcome.clone().map(Some),
            _ => Ok(None),
        }
    }
}

impl OnDevice {
    /// What follows, if the device has made the copy.
    fn next(&mut self) -> Option<Life> {
        if !self.rows.is_done() {
            return None;
        }
        let seconds = self.begun.elapsed().as_secs_f64();
        let checked = self.rows.take_held().flatten().filter(|linear| linear.check.is_some());
        Some(match (self.rows.failure().cloned(), checked) {
            (Some(error), _) => Life::Ended(Err(copying(error))),
            (None, None) => Life::Ended(Ok(EndedCopy { seconds, checksums: Checksums::default() })),
            (None, linear) => {
                let copied_by = Some((self.copier.clone(), seconds));
                Life::Queued(CopyWork { linear, copied_by, ..CopyWork::default() })
            }
        })
    }
}

impl CopyWork {
    fn execute(&mut self) -> Result<Checksums> {
        match (&self.linear, &self.copied_by) {
            (Some(linear), Some((copier, _))) => linear.check_copied(copier, &mut self.rows),
            (Some(linear), None) => linear.copy(&mut self.rows),
            (None, _) => {
                copy_rows(&self.rows, self.is_streamed);
                Ok(Checksums::default())
            }
        }
    }
}

impl Shared for SlotCopy {
    fn run(&self) {
        let mut work = {
            let mut life = self.0.lock();
            match std::mem::replace(&mut *life, Life::Running) {
                Life::Queued(work) => work,
                other => {
                    *life = other;
                    return;
                }
            }
        };
        let started = Instant::now();
        let outcome = guarded(|| work.execute()).and_then(|outcome| outcome);
        let on_device = work.copied_by.as_ref().map_or(0.0, |(_, seconds)| *seconds);
        let seconds = on_device + started.elapsed().as_secs_f64();
        // What it holds, before the end is visible.
        drop(work);
        let ended = outcome.map(|checksums| EndedCopy { seconds, checksums });
        *self.0.lock() = Life::Ended(ended.map_err(copying));
    }
}

fn copying(error: Error) -> Error {
    error.context("copy between staging memory and a layout")
}

impl Slot {
    /// Fills ranges of the slot with poison. Nothing uses the slot meanwhile.
    pub fn poison(&self, ranges: impl Iterator<Item = Range<u64>>) -> Result<()> {
        let poison = Poison::new()?;
        let (size, is_of_host) = (self.arena.slot_size, self.arena.kind.memory_type() == MemoryType::Dram);
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
