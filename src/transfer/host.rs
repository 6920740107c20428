// SPDX-License-Identifier: Apache-2.0
//! The host engine: memcpy between two host layouts, by several threads when that is worth it.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use super::completion::Run;
use super::host_rate;
use super::plan::{Move, Plan};
use super::pool::{Pool, Shared};
use crate::error::{Error, Result, Status};
use crate::layout::Layout;

/// A copy up to this size is done before the submitting call returns: handing it over costs as much.
const INLINE: u64 = 64 << 10;
/// What a thread takes at a time.
const CHUNK: u64 = 1 << 20;
/// The least a further thread is woken for.
const BYTES_A_THREAD: u64 = 2 << 20;

/// A prepared copy.
pub struct HostCopy {
    chunks: Arc<Chunks>,
    layouts: [Arc<Layout>; 2],
    current: Mutex<Option<Arc<Job>>>,
}

impl HostCopy {
    /// Refuses a copy that would read what it has written.
    pub fn prepare(source: &Arc<Layout>, destination: &Arc<Layout>, plan: &Plan) -> Result<Self> {
        let moves = plan.collect_moves(source.placement(), destination.placement());
        ensure_apart(source, destination, || moves.clone())?;
        let layouts = [source.clone(), destination.clone()];
        Ok(Self { chunks: Arc::new(Chunks::cut(moves)), layouts, current: Mutex::new(None) })
    }

    /// How many stretches of memory it moves.
    pub fn moves(&self) -> u64 {
        self.chunks.moves.len() as u64
    }

    /// What a run is expected to take, by how fast this machine copies. The first who asks waits for that to be measured.
    pub fn seconds(&self) -> f64 {
        self.chunks.bytes as f64 / host_rate::of(self.threads())
    }

    /// Threads that are worth having.
    fn threads(&self) -> usize {
        (self.chunks.bytes / BYTES_A_THREAD).clamp(1, Pool::parallelism() as u64) as usize
    }

    /// Starts the copy; a small one is done when this returns.
    pub fn submit(&self, run: Run) {
        let job = Arc::new(Job {
            next: AtomicUsize::new(0),
            left: AtomicUsize::new(self.chunks.bounds.len()),
            chunks: self.chunks.clone(),
            ending: Mutex::new(Some((self.layouts.clone(), run))),
        });
        if self.chunks.bytes <= INLINE {
            return job.run();
        }
        let threads = self.threads();
        *self.current() = Some(job.clone());
        Pool::get().run(&(job as Arc<dyn Shared>), threads);
    }

    /// Copies along instead of waiting, but begins nothing after `deadline`.
    pub fn help(&self, deadline: Option<Instant>) {
        let job = self.current().clone();
        if let Some(job) = job {
            job.work(|| deadline.is_none_or(|deadline| Instant::now() < deadline));
        }
    }

    fn current(&self) -> std::sync::MutexGuard<'_, Option<Arc<Job>>> {
        self.current.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

/// The moves, cut into shares of about equal size.
struct Chunks {
    moves: Vec<Move>,
    bytes: u64,
    /// Where each chunk begins: a move, and how far into it.
    bounds: Vec<(usize, u64)>,
}

impl Chunks {
    fn cut(moves: Vec<Move>) -> Self {
        let mut bounds = vec![(0, 0)];
        let mut filled = 0;
        for (index, each) in moves.iter().enumerate() {
            let mut offset = 0;
            while each.size - offset > CHUNK - filled {
                offset += CHUNK - filled;
                bounds.push((index, offset));
                filled = 0;
            }
            filled += each.size - offset;
        }
        Self { bytes: moves.iter().map(|each| each.size).sum(), moves, bounds }
    }

    fn copy(&self, chunk: usize) {
        let moves = &self.moves;
        let (first, mut offset) = self.bounds[chunk];
        let (last, end) = self.bounds.get(chunk + 1).copied().unwrap_or((moves.len(), 0));
        for (index, each) in moves.iter().enumerate().take(last + 1).skip(first) {
            let until = if index == last { end } else { each.size };
            copy(each, offset, until - offset);
            offset = 0;
        }
    }
}

fn copy(each: &Move, offset: u64, size: u64) {
    let (from, to) = ((each.source + offset) as *const u8, (each.destination + offset) as *mut u8);
    // SAFETY: the plan checked both spans against their layouts, which the job keeps alive until its last chunk is copied, and `ensure_apart` that
    // no written byte is read. Users who write to the blocks meanwhile get what they asked for.
    unsafe { std::ptr::copy_nonoverlapping(from, to, size as usize) };
}

/// One run of the copy.
struct Job {
    next: AtomicUsize,
    left: AtomicUsize,
    chunks: Arc<Chunks>,
    /// The layouts are let go before anyone hears that the run is over: who hears it may free their memory.
    ending: Mutex<Option<([Arc<Layout>; 2], Run)>>,
}

impl Shared for Job {
    fn run(&self) {
        self.work(|| true);
    }
}

impl Job {
    /// Copies chunks until none is left to begin, or there is no time.
    fn work(&self, has_time: impl Fn() -> bool) {
        while has_time() {
            let chunk = self.next.fetch_add(1, Ordering::Relaxed);
            if chunk >= self.chunks.bounds.len() {
                return;
            }
            self.chunks.copy(chunk);
            if self.left.fetch_sub(1, Ordering::AcqRel) == 1 {
                self.finish();
            }
        }
    }

    fn finish(&self) {
        let ending = self.ending.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).take();
        if let Some((layouts, run)) = ending {
            drop(layouts);
            run.end(Ok(()));
        }
    }
}

/// Within one piece of memory no block may be read after it was written, or while it is.
pub(super) fn ensure_apart(
    source: &Layout,
    destination: &Layout,
    moves: impl FnOnce() -> Vec<Move>,
) -> Result<()> {
    let meet = source.descriptors().iter().any(|from| {
        destination
            .descriptors()
            .iter()
            .any(|to| from.address < to.address + to.size && to.address < from.address + from.size)
    });
    if !meet {
        return Ok(());
    }
    let moves = moves();
    let mut reads: Vec<_> = moves.iter().map(|each| (each.source, each.size)).collect();
    let mut wending: Vec<_> = moves.iter().map(|each| (each.destination, each.size)).collect();
    reads.sort_unstable();
    wending.sort_unstable();
    let (mut read, mut write) = (0, 0);
    while let (Some((from, from_size)), Some((to, to_size))) = (reads.get(read), wending.get(write)) {
        if from < &(to + to_size) && to < &(from + from_size) {
            let message = format!(
                "source and destination overlap: {from_size} bytes at {from:#x} are read and {to_size} at {to:#x} \
                 written"
            );
            return Err(Error::new(Status::InvalidArgument, message));
        }
        if from + from_size <= *to { read += 1 } else { write += 1 }
    }
    Ok(())
}
