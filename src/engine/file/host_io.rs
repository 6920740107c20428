// SPDX-License-Identifier: Apache-2.0
//! Transfers between a file and host memory.

use std::sync::{Arc, Weak};

use super::file_sides::FileSides;
use super::io::Io;
use super::planned::{Counts, PlannedPieces, PlannedRequests, RequestSource};
use super::work::{Ending, FileJob, Work};
use crate::base::{Mutex, Result};
use crate::plan::Plan;
use crate::run::{Run, Start};

/// Prepared reads or writes.
pub struct HostIo {
    requests: Arc<PlannedRequests>,
    io: Io,
    /// The last run.
    current: Arc<Mutex<Weak<FileJob>>>,
}

impl HostIo {
    /// `ordered` is the plan in the order of the file.
    pub fn prepare(sides: &FileSides<'_>, ordered: Plan, io: Io) -> Self {
        let max_moves = ordered.max_moves();
        let pieces = PlannedPieces::new(sides, ordered);
        Self { requests: Arc::new(PlannedRequests::new(pieces, max_moves)), io, current: Arc::default() }
    }

    pub fn prepare_start(&self, run: Run) -> Start {
        let (io, current) = (self.io.clone(), self.current.clone());
        let requests = RequestSource::planned(self.requests.clone());
        Box::new(move || {
            let job = FileJob::new(Work { requests, stop: run.stop(), ending: Ending::OfRun(run) });
            *current.lock() = Arc::downgrade(&job);
            io.start(&job);
            // It may have been cancelled before another thread could find it.
            job.end_if_cancelled();
        })
    }

    /// Ends the last run if it was cancelled and the kernel executes none of its requests.
    pub fn end_if_cancelled(&self) {
        let job = self.current.lock().upgrade();
        if let Some(job) = job {
            job.end_if_cancelled();
        }
    }

    pub fn counts(&self) -> Result<Counts> {
        self.requests.counts()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Sender, channel};
    use std::time::Duration;

    use super::*;
    use crate::base::thread_pool::tests::occupy;
    use crate::base::{Pool, Status};
    use crate::layout::cache::LayoutCache;
    use crate::layout::{AllocationConfig, Arrangement, Dimensions, Layout};
    use crate::region::{DiskConfig, SystemConfig};
    use crate::transfer::{BlockPair, Preferences, Step, Transfer, TransferMethod, TransferRequest};

    /// Reports the thread that drops it.
    struct Dropped(Mutex<Sender<Option<String>>>);

    impl Drop for Dropped {
        fn drop(&mut self) {
            let name = std::thread::current().name().map(str::to_string);
            self.0.lock().send(name).unwrap();
        }
    }

    fn layout(allocation: AllocationConfig) -> Arc<Layout> {
        let dimensions = Dimensions { inner_dim: 4096, ..Dimensions::ONE };
        Layout::allocate(dimensions, Arrangement::FULLY_CONTIGUOUS, allocation).unwrap()
    }

    fn by_threads(source: &Arc<Layout>, destination: &Arc<Layout>) -> Transfer {
        let preferences = Preferences { method: Some(TransferMethod::Pread), ..Preferences::default() };
        let request = TransferRequest { preferences, ..TransferRequest::default() };
        Transfer::create(source, destination, request).unwrap()
    }

    #[test]
    fn objects_that_a_run_holds_last_are_freed_on_a_separate_thread() {
        let memory = layout(AllocationConfig::System(SystemConfig::default()));
        let file = layout(AllocationConfig::Disk(DiskConfig::default()));
        let (dropped, seen) = channel();
        static LAST: LayoutCache<Dropped> = LayoutCache::new();
        LAST.put(&memory, Arc::new(Dropped(Mutex::new(dropped))));
        // The run begins after its handles are gone.
        let occupied = occupy(&Pool::files(file.file_systems()));
        let pairs = [BlockPair { source: 0, destination: 0 }];
        let transfer = by_threads(&memory, &file);
        transfer.submit(Some(Step { pairs: &pairs, ..Step::default() })).unwrap();
        drop((transfer, memory, file));
        drop(occupied);
        assert_eq!(seen.recv().unwrap().as_deref(), Some("kvmem-free"));
    }

    /// The threads wait for a file system that does not respond, as all of its requests do.
    #[test]
    fn a_run_that_has_not_begun_ends_when_it_is_cancelled() {
        const PATIENCE: Option<Duration> = Some(Duration::from_secs(20));
        let memory = layout(AllocationConfig::System(SystemConfig::default()));
        let file = layout(AllocationConfig::Disk(DiskConfig::default()));
        let occupied = occupy(&Pool::files(file.file_systems()));
        let pairs = [BlockPair { source: 0, destination: 0 }];
        let transfer = by_threads(&file, &memory);
        let step = || Step { pairs: &pairs, ..Step::default() };
        transfer.submit(Some(step())).unwrap();
        transfer.cancel().unwrap();
        assert_eq!(transfer.wait(PATIENCE).unwrap_err().status(), Status::Cancelled);
        // Nothing uses the memory after the deadline either.
        transfer.submit(Some(Step { timeout: Some(Duration::from_millis(1)), ..step() })).unwrap();
        assert_eq!(transfer.wait(PATIENCE).unwrap_err().status(), Status::TimedOut);
        transfer.submit(Some(step())).unwrap();
        drop(occupied);
        transfer.wait(PATIENCE).unwrap();
    }
}
