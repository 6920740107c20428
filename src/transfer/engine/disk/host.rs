// SPDX-License-Identifier: Apache-2.0
//! Transfers between a file and host memory.
#![forbid(unsafe_code)]

use std::sync::Arc;

use super::io::Io;
use super::requests::{FileRequests, Piece};
use super::sides::FileSides;
use super::work::Work;
use crate::transfer::plan::Plan;
use crate::transfer::run::completion::Outcome;
use crate::transfer::run::disposal;
use crate::transfer::run::{Run, Start};

/// Prepared reads or writes.
pub struct HostIo {
    requests: Arc<FileRequests>,
    moves: u64,
    io: Io,
}

impl HostIo {
    pub fn prepare(sides: &FileSides<'_>, plan: &Plan, io: Io) -> Self {
        let mut list = Vec::with_capacity(plan.capacity());
        list.extend(pieces(sides, plan).map(|(piece, _)| piece));
        Self { moves: list.len() as u64, requests: Arc::new(FileRequests::gather(list, sides.writes)), io }
    }

    pub fn prepare_start(&self, run: Run) -> Start {
        let (io, requests, stop) = (self.io.clone(), self.requests.clone(), run.stop());
        let ending = Box::new(move |outcome| end(run, outcome));
        let work = Work { range: 0..requests.len(), requests, stop, ending };
        Box::new(move || {
            io.start(work);
            Ok(())
        })
    }

    pub fn moves(&self) -> u64 {
        self.moves
    }

    pub fn requests(&self) -> u64 {
        self.requests.len() as u64
    }
}

/// Ends a run. Unlocking pages or deregistering memory may take long, and io_uring has one thread for all
/// transfers, so another thread frees objects.
fn end(run: Run, outcome: Outcome) {
    match run.is_last_holder() {
        true => disposal::dispose_of_then((), move || run.end(outcome)),
        false => run.end(outcome),
    }
}

/// The moves by file and memory rather than source and destination, with the memory's region.
pub(super) fn pieces<'a>(
    sides: &'a FileSides<'_>,
    plan: &'a Plan,
) -> impl Iterator<Item = (Piece, u32)> + 'a {
    let files: Vec<_> =
        sides.file.memory().regions().iter().map(|region| region.fd().unwrap_or(-1)).collect();
    let writes = sides.writes;
    plan.moves().map(move |each| {
        let from = (each.source_region, each.source);
        let to = (each.destination_region, each.destination);
        let ((file, offset), (region, address)) = if writes { (to, from) } else { (from, to) };
        (Piece { file: files[file as usize], offset, address, size: each.size }, region)
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::sync::mpsc::{Receiver, Sender, channel};

    use super::*;
    use crate::layout::{AllocationConfig, Dimensions, Layout};
    use crate::region::{DiskConfig, SystemConfig};
    use crate::transfer::run::threads::{Pool, Shared};
    use crate::transfer::{BlockPair, Preferences, Step, Transfer, TransferPath, TransferRequest};

    /// Work that occupies a thread until the sender is dropped.
    struct Blocks(Mutex<Receiver<()>>);

    impl Shared for Blocks {
        fn run(&self) {
            let _ = self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).recv();
        }
    }

    /// Reports the thread that drops it.
    struct Dropped(Mutex<Sender<Option<String>>>);

    impl Drop for Dropped {
        fn drop(&mut self) {
            let name = std::thread::current().name().map(str::to_string);
            self.0.lock().unwrap().send(name).unwrap();
        }
    }

    fn layout(allocation: AllocationConfig) -> Arc<Layout> {
        let dimensions = Dimensions {
            num_blocks: 1,
            num_layers: 1,
            outer_dim: 1,
            page_size: 1,
            inner_dim: 4096,
            dtype_width: 1,
            alignment: 1,
            num_heads: None,
        };
        let builder = Layout::builder(dimensions).fully_contiguous().unwrap();
        builder.allocate(allocation).build().unwrap()
    }

    #[test]
    fn objects_that_a_run_holds_last_are_freed_on_a_separate_thread() {
        let memory = layout(AllocationConfig::System(SystemConfig::default()));
        let file = layout(AllocationConfig::Disk(DiskConfig::default()));
        let (dropped, seen) = channel();
        memory.keep(Arc::new(Dropped(Mutex::new(dropped))));
        let (go, gate) = channel::<()>();
        let blocks: Arc<dyn Shared> = Arc::new(Blocks(Mutex::new(gate)));
        // All threads of the pool, so that the run begins after its handles are gone.
        Pool::files().run(&blocks, 64);
        let pairs = [BlockPair { source: 0, destination: 0 }];
        let preferences = Preferences { path: Some(TransferPath::Pread), ..Preferences::default() };
        let request = TransferRequest {
            step: Step { pairs: &pairs, ..Step::default() },
            preferences,
            ..TransferRequest::default()
        };
        let transfer = Transfer::create(&memory, &file, request).unwrap();
        transfer.submit().unwrap();
        drop((transfer, memory, file));
        drop(go);
        assert_eq!(seen.recv().unwrap().as_deref(), Some("kvmem-free"));
    }
}
