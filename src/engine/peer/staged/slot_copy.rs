// SPDX-License-Identifier: Apache-2.0
//! Copies between a slot and local memory, by another thread than the agent's or by a GPU.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::time::Instant;

use super::arena::Slot;
use super::linear_copy::{Checksums, LinearCopy, copy_rows};
use crate::base::error::{Error, Result, ensure};
use crate::base::guarded::guarded;
use crate::base::lists;
use crate::base::sync::Mutex;
use crate::base::thread_pool::{Pool, Shared};
use crate::copy::gpu::row_copier::{RowCopier, RowsInFlight};
use crate::copy::host::poison::Poison;
use crate::nixl::MemoryType;
use crate::plan::Matrix;

const RUNNING: u8 = 0;
const DONE: u8 = 1;

/// A copy that is in progress or done.
pub struct SlotCopy {
    state: AtomicU8,
    nanoseconds: AtomicU64,
    /// Locked by the thread that copies.
    work: Mutex<CopyWork>,
    /// A copy by a GPU.
    on_device: Mutex<Option<OnDevice>>,
}

struct OnDevice {
    rows: RowsInFlight<Option<LinearCopy>>,
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
    /// The GPU that has made the copy, of which only checksums are missing.
    copied_by: Option<Arc<RowCopier>>,
    /// Memory for bytes of a layout.
    memory: Vec<u8>,
    failure: Option<Error>,
    checksums: Checksums,
}

#[derive(Clone, Copy, Debug, Default)]
pub struct EndedCopy {
    /// Its duration.
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
        let on_device = match copier {
            Some(copier) => {
                let begun = Instant::now();
                // SAFETY: as in `copy_rows`. Kernels of the device access the layout and the slot, which were chosen for it.
                let rows = unsafe { copier.start(&mut work.rows, work.linear.take()) }?;
                Some(OnDevice { rows, begun, copier: copier.clone() })
            }
            None => None,
        };
        let is_on_device = on_device.is_some();
        let this = Arc::new(Self {
            state: AtomicU8::new(RUNNING),
            nanoseconds: AtomicU64::new(0),
            work: Mutex::new(work),
            on_device: Mutex::new(on_device),
        });
        if !is_on_device {
            this.begin(is_inline);
        }
        Ok(this)
    }

    fn begin(self: &Arc<Self>, is_inline: bool) {
        if is_inline {
            self.run();
        } else {
            Pool::get().run(&(self.clone() as Arc<dyn Shared>), 1);
        }
    }

    /// Whether it has ended. Fails once if it has failed; nothing is copied any more then.
    pub fn is_done(self: &Arc<Self>) -> Result<Option<EndedCopy>> {
        // Before the other: a thread that computes checksums begins after that.
        let state = self.state.load(Ordering::Acquire);
        let mut on_device = self.on_device.lock();
        if let Some(OnDevice { rows, begun, copier }) = &mut *on_device {
            if !rows.is_done() {
                return Ok(None);
            }
            let (failure, seconds) = (rows.failure(), begun.elapsed().as_secs_f64());
            let checked = rows.take_held().flatten().filter(|linear| linear.check.is_some());
            let checked = checked.map(|linear| (linear, copier.clone()));
            *on_device = None;
            drop(on_device);
            self.nanoseconds.store((seconds * 1e9) as u64, Ordering::Relaxed);
            return match (failure, checked) {
                (Some(error), _) => Err(copying(error)),
                (None, None) => Ok(Some(EndedCopy { seconds, checksums: Checksums::default() })),
                (None, Some((linear, copier))) => {
                    let mut work = self.work.lock();
                    (work.linear, work.copied_by) = (Some(linear), Some(copier));
                    drop(work);
                    self.begin(false);
                    Ok(None)
                }
            };
        }
        drop(on_device);
        if state == RUNNING {
            return Ok(None);
        }
        let mut work = self.work.lock();
        if let Some(error) = work.failure.take() {
            return Err(copying(error));
        }
        let seconds = self.nanoseconds.load(Ordering::Relaxed) as f64 * 1e-9;
        Ok(Some(EndedCopy { seconds, checksums: work.checksums }))
    }
}

impl Shared for SlotCopy {
    fn run(&self) {
        let started = Instant::now();
        let mut work = self.work.lock();
        let (linear, copied_by) = (work.linear.take(), work.copied_by.take());
        let CopyWork { rows, is_streamed, memory, .. } = &mut *work;
        let outcome = guarded(|| match (&linear, &copied_by) {
            (Some(linear), Some(copier)) => linear.check_copied(copier, rows),
            (Some(linear), None) => linear.copy(rows, memory),
            (None, _) => {
                copy_rows(rows, *is_streamed);
                Ok(Checksums::default())
            }
        });
        (work.checksums, work.failure) = match outcome.and_then(|checksums| checksums) {
            Ok(checksums) => (checksums, None),
            Err(error) => (Checksums::default(), Some(error)),
        };
        // What it holds, too, before the end is visible.
        drop((work, linear, copied_by));
        self.nanoseconds.fetch_add(started.elapsed().as_nanos() as u64, Ordering::Relaxed);
        self.state.store(DONE, Ordering::Release);
    }
}

fn copying(error: Error) -> Error {
    error.context("copy between staging memory and a layout")
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
