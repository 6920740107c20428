// SPDX-License-Identifier: Apache-2.0
//! The host engine: memcpy between two host layouts, by several threads and past the caches when that is worth it.

mod rate;
mod streaming;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Instant;

use once_cell::sync::OnceCell;

use crate::error::{Error, Result};
use crate::guarded::guarded;
use crate::layout::Layout;
use crate::sync::Mutex;
use crate::transfer::plan::overlap::ensure_apart;
use crate::transfer::plan::{Move, Plan};
use crate::transfer::run::threads::{Pool, Shared};
use crate::transfer::run::{Run, cancelled};

/// A copy up to this size is done before the submitting call returns: handing it over costs as much.
const INLINE: u64 = 64 << 10;
/// What a thread takes at a time.
const CHUNK: u64 = 1 << 20;
/// The least a further thread is woken for.
const BYTES_A_THREAD: u64 = 2 << 20;

/// The number of the next chunk of a copy of which no more shall begin; it may still be counted up.
const NONE_LEFT: usize = usize::MAX / 2;

/// A prepared copy.
pub struct HostCopy {
    chunks: Arc<Chunks>,
    current: Mutex<Option<Arc<Job>>>,
}

impl HostCopy {
    /// Refuses a copy that would read what it has written. By layer, no chunk reaches from one into the next.
    pub fn prepare(
        source: &Arc<Layout>,
        destination: &Arc<Layout>,
        plan: &Plan,
        by_layer: bool,
    ) -> Result<Self> {
        let moves = |plan: &Plan| plan.collect_moves(source.placement(), destination.placement());
        ensure_apart(source, destination, || moves(plan))?;
        let layers = match by_layer {
            true => {
                (0..plan.layers().count).map(|layer| moves(&plan.layer(source, destination, layer))).collect()
            }
            false => vec![moves(plan)],
        };
        Ok(Self { chunks: Arc::new(Chunks::cut(layers)), current: Mutex::new(None) })
    }

    /// How many stretches of memory it moves.
    pub fn moves(&self) -> u64 {
        self.chunks.moves.len() as u64
    }

    /// What a run is expected to take, by how fast this machine copies. The first who asks waits for that to be measured.
    pub fn seconds(&self) -> f64 {
        self.chunks.bytes as f64 / rate::of(self.threads())
    }

    /// Threads that are worth having.
    fn threads(&self) -> usize {
        (self.chunks.bytes / BYTES_A_THREAD).clamp(1, Pool::parallelism() as u64) as usize
    }

    /// Starts the copy; a small one is done when this returns.
    pub fn submit(&self, run: Run) {
        let stop = (self.chunks.bytes > INLINE).then(|| run.stop());
        let job = Arc::new(Job {
            next: AtomicUsize::new(0),
            left: AtomicUsize::new(self.chunks.bounds.len()),
            left_of_layers: self.chunks.of_layers(),
            is_cut_short: AtomicBool::new(false),
            failure: OnceCell::new(),
            chunks: self.chunks.clone(),
            run: Mutex::new(Some(run)),
        });
        let Some(stop) = stop else { return job.work(|| true) };
        let threads = self.threads();
        *self.current() = Some(job.clone());
        if stop.is_asked() {
            job.cancel();
        }
        Pool::get().run(&(job as Arc<dyn Shared>), threads);
    }

    /// Copies along instead of waiting, but begins nothing after `deadline`, or once there is enough.
    pub fn help(&self, deadline: Option<Instant>, is_enough: impl Fn() -> bool) {
        let job = self.current().clone();
        if let Some(job) = job {
            job.work(|| !is_enough() && deadline.is_none_or(|deadline| Instant::now() < deadline));
        }
    }

    /// Has no more chunks of the last run begin.
    pub fn cancel(&self) {
        let job = self.current().clone();
        if let Some(job) = job {
            job.cancel();
        }
    }

    fn current(&self) -> crate::sync::MutexGuard<'_, Option<Arc<Job>>> {
        self.current.lock()
    }
}

/// The moves, cut into shares of about equal size.
struct Chunks {
    moves: Vec<Move>,
    bytes: u64,
    /// Where each chunk begins: a move, and how far into it.
    bounds: Vec<(usize, u64)>,
    /// The chunk behind each layer's last; empty where nobody asks for layers.
    layer_ends: Vec<usize>,
    /// Past the caches.
    is_streamed: bool,
}

impl Chunks {
    /// Cuts the moves of each layer, or all of them in one.
    fn cut(layers: Vec<Vec<Move>>) -> Self {
        let mut bounds = Vec::new();
        let mut layer_ends = Vec::new();
        let mut index = 0;
        for moves in &layers {
            bounds.push((index, 0));
            let mut filled = 0;
            for each in moves {
                let mut offset = 0;
                while each.size - offset > CHUNK - filled {
                    offset += CHUNK - filled;
                    bounds.push((index, offset));
                    filled = 0;
                }
                filled += each.size - offset;
                index += 1;
            }
            layer_ends.push(bounds.len());
        }
        if layers.len() == 1 {
            layer_ends.clear();
        }
        let moves = layers.concat();
        let bytes = moves.iter().map(|each| each.size).sum();
        Self { moves, bytes, bounds, layer_ends, is_streamed: streaming::suits(bytes) }
    }

    /// How many chunks each layer has; allocates nothing where nobody asks for layers.
    fn of_layers(&self) -> Box<[AtomicUsize]> {
        let starts = std::iter::once(0).chain(self.layer_ends.iter().copied());
        starts.zip(&self.layer_ends).map(|(start, end)| AtomicUsize::new(end - start)).collect()
    }

    fn copy(&self, chunk: usize) {
        let moves = &self.moves;
        let (first, mut offset) = self.bounds[chunk];
        let (last, end) = self.bounds.get(chunk + 1).copied().unwrap_or((moves.len(), 0));
        for (index, each) in moves.iter().enumerate().take(last + 1).skip(first) {
            let until = if index == last { end } else { each.size };
            self.copy_part(each, offset, until - offset);
            offset = 0;
        }
        if self.is_streamed {
            streaming::settle();
        }
    }

    fn copy_part(&self, each: &Move, offset: u64, size: u64) {
        let (from, to) = ((each.source + offset) as *const u8, (each.destination + offset) as *mut u8);
        let size = size as usize;
        // SAFETY: the plan checked both spans against their layouts, which the run keeps alive until the last chunk is
        // copied, and `ensure_apart` that no written byte is read. Users who write to the blocks meanwhile get what
        // they asked for. `suits` said that this machine can stream.
        unsafe {
            match self.is_streamed {
                true => streaming::copy(from, to, size),
                false => std::ptr::copy_nonoverlapping(from, to, size),
            }
        }
    }
}

/// One run of the copy.
struct Job {
    next: AtomicUsize,
    left: AtomicUsize,
    /// Chunks left of each layer.
    left_of_layers: Box<[AtomicUsize]>,
    /// Some chunks were not begun, and will not be.
    is_cut_short: AtomicBool,
    /// A chunk ended by a panic.
    failure: OnceCell<Error>,
    chunks: Arc<Chunks>,
    /// Until it is over.
    run: Mutex<Option<Run>>,
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
            let copied = guarded(|| {
                self.chunks.copy(chunk);
                self.note(chunk);
            });
            if let Err(panic) = copied {
                drop(self.failure.set(panic));
                self.cancel();
            }
            if self.left.fetch_sub(1, Ordering::AcqRel) == 1 {
                self.finish();
            }
        }
    }

    /// Sees whether a layer is complete with this chunk, and all before it.
    fn note(&self, chunk: usize) {
        let layer = self.chunks.layer_ends.partition_point(|end| *end <= chunk);
        let Some(left) = self.left_of_layers.get(layer) else { return };
        if left.fetch_sub(1, Ordering::AcqRel) > 1 {
            return;
        }
        let run = self.unfinished();
        let is_complete = |left: &&AtomicUsize| left.load(Ordering::Acquire) == 0;
        let moved = self.left_of_layers.iter().take_while(is_complete).count();
        if let Some(run) = &*run {
            run.advance(moved as u64);
        }
    }

    fn cancel(&self) {
        let next = self.next.swap(NONE_LEFT, Ordering::AcqRel);
        let skipped = self.chunks.bounds.len().saturating_sub(next);
        if skipped == 0 {
            return;
        }
        self.is_cut_short.store(true, Ordering::Release);
        if self.left.fetch_sub(skipped, Ordering::AcqRel) == skipped {
            self.finish();
        }
    }

    fn finish(&self) {
        let run = self.unfinished().take();
        if let Some(run) = run {
            let is_cut_short = self.is_cut_short.load(Ordering::Acquire);
            run.end(match self.failure.get() {
                Some(error) => Err(error.clone()),
                None if is_cut_short => Err(cancelled()),
                None => Ok(()),
            });
        }
    }

    fn unfinished(&self) -> crate::sync::MutexGuard<'_, Option<Run>> {
        self.run.lock()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Status;
    use crate::transfer::run::completion::Completion;

    #[test]
    fn a_chunk_that_panics_ends_the_run() {
        // No such move: its end lies before its beginning.
        let moves =
            vec![Move { source_region: 0, source: 0, destination_region: 0, destination: 0, size: 0 }];
        let chunks = Chunks {
            moves,
            bytes: 0,
            bounds: vec![(0, 1), (0, 0)],
            layer_ends: Vec::new(),
            is_streamed: false,
        };
        let completion = Arc::new(Completion::new(0, 1, None, None));
        let run = Run::start(completion.clone(), Arc::default(), Default::default());
        let job = Job {
            next: AtomicUsize::new(0),
            left: AtomicUsize::new(chunks.bounds.len()),
            left_of_layers: chunks.of_layers(),
            is_cut_short: AtomicBool::new(false),
            failure: OnceCell::new(),
            chunks: Arc::new(chunks),
            run: Mutex::new(Some(run)),
        };
        job.work(|| true);
        assert_eq!(completion.poll().unwrap_err().status(), Status::Panic);
    }
}
