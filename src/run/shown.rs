// SPDX-License-Identifier: Apache-2.0
//! The run of a transfer that is in flight, as a range in the timeline of a profiler. The functions of the profiler are called without the
//! lock of the completion: they may wait, and may ask kvmem for the run.

use std::ffi::CString;
use std::sync::atomic::{AtomicU64, Ordering};

use super::statistics::CountedAs;
use crate::base::nvtx;

/// The range; 0 for none. Only for the run that has claimed the transfer.
#[derive(Default)]
pub(super) struct ShownRun(AtomicU64);

impl ShownRun {
    /// Begins the range of a run, unless it has one.
    #[inline]
    pub fn begin(&self, counted: CountedAs, bytes: u64) {
        if nvtx::is_on() {
            self.start(counted, bytes);
        }
    }

    #[inline]
    pub fn end(&self) {
        if nvtx::is_on() {
            drop(self.take());
        }
    }

    /// The range, which ends when it is dropped.
    #[cold]
    pub fn take(&self) -> Range {
        Range(self.0.swap(0, Ordering::Relaxed))
    }

    #[cold]
    fn start(&self, counted: CountedAs, bytes: u64) {
        if self.0.load(Ordering::Relaxed) == 0 {
            // No label has a NUL byte.
            let name = CString::new(counted.name()).unwrap_or_default();
            self.0.store(nvtx::start(&name, bytes), Ordering::Relaxed);
        }
    }
}

pub(super) struct Range(u64);

impl Drop for Range {
    fn drop(&mut self) {
        if self.0 != 0 {
            nvtx::end(self.0);
        }
    }
}
