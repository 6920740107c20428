// SPDX-License-Identifier: Apache-2.0
//! The host engine: memcpy between two host layouts, by several threads and past the caches where that is
//! faster.
#![allow(unsafe_code)]

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Instant;

use once_cell::sync::OnceCell;

use crate::base::{Error, Mutex, Pool, Result, Shared, guarded, has_passed};
use crate::copy::host::{copy_matrix, rates, streaming, suits_streaming, tile};
use crate::engine::{Candidate, Engine};
use crate::plan::{Matrix, Plan, Tile};
use crate::run::{Run, Stop, Ticket, TransferMethod, cancelled};

/// A copy up to this size completes before the submitting call returns: passing it to a thread would take the caller as
/// long, also where blocks come from far memory.
const INLINE: u64 = 32 << 10;
const CHUNK: u64 = 1 << 20;
/// The minimum amount of work for another thread.
const BYTES_A_THREAD: u64 = 2 << 20;

/// The next chunk of a copy that was cancelled; threads may still increment it.
const NONE_LEFT: usize = usize::MAX / 2;

pub struct HostCopy {
    chunks: Chunks,
    moves: OnceCell<u64>,
    current: Mutex<Option<Arc<HostRun>>>,
}

impl HostCopy {
    /// By layer, no chunk spans two layers.
    pub fn new(plan: Plan, by_layer: bool) -> Self {
        Self { chunks: Chunks::new(plan, by_layer), moves: OnceCell::new(), current: Mutex::new(None) }
    }

    fn threads(&self) -> usize {
        (self.chunks.bytes() / BYTES_A_THREAD).clamp(1, Pool::parallelism() as u64) as usize
    }

    /// Starts the copy; a small one has ended on return.
    fn start(&self, run: Run) {
        let stop = (self.chunks.bytes() > INLINE).then(|| run.stop());
        let Some(stop) = stop else {
            return match self.chunks.layers {
                0 => HostRun::new(self.chunks.clone(), run, None).work(|| true),
                // What counts the chunks of each layer is used again.
                _ => self.shared(run, None).work(|| true),
            };
        };
        let (job, threads) = (self.shared(run, Some(stop)), self.threads());
        Pool::get().run(&(job as Arc<dyn Shared>), threads);
    }

    /// The run for several threads, in the memory of the one before it unless a thread still has that.
    fn shared(&self, run: Run, stop: Option<Stop>) -> Arc<HostRun> {
        let mut current = self.current();
        if let Some(job) = current.as_mut()
            && let Some(last) = Arc::get_mut(job)
        {
            last.restart(run, stop);
            return job.clone();
        }
        current.insert(Arc::new(HostRun::new(self.chunks.clone(), run, stop))).clone()
    }

    fn current(&self) -> crate::base::sync::MutexGuard<'_, Option<Arc<HostRun>>> {
        self.current.lock()
    }

    /// Counted at the first call: the copy needs no list of them.
    fn count_moves(&self) -> u64 {
        *self.moves.get_or_init(|| self.chunks.plan.count_moves(self.chunks.layers > 0))
    }
}

impl Engine for HostCopy {
    fn method(&self) -> TransferMethod {
        TransferMethod::Memcpy
    }

    /// The first call measures how fast this machine copies.
    fn candidates(&self) -> Vec<Candidate> {
        let seconds =
            rates::seconds(self.chunks.bytes(), self.chunks.rows(|| self.count_moves()), self.threads());
        let reason = seconds.as_ref().err().map(|_| "there is no memory to measure how fast it is".into());
        vec![Candidate::new(self.method(), seconds.unwrap_or_default()).with_reason(reason)]
    }

    fn moves(&self) -> Result<u64> {
        Ok(self.count_moves())
    }

    fn submit(&self, ticket: Ticket) -> Result<()> {
        self.start(ticket.start());
        Ok(())
    }

    fn assist(&self, deadline: Option<Instant>, is_enough: &dyn Fn() -> bool) {
        let job = self.current().clone();
        if let Some(job) = job {
            job.work(|| !is_enough() && !has_passed(deadline));
        }
    }

    fn end_if_cancelled(&self) {
        let job = self.current().clone();
        if let Some(job) = job {
            job.end_if_cancelled();
        }
    }
}

/// What is copied, in chunks of equal size. A chunk is a range of the plan's bytes or tiles: no list of moves is made, because
/// there may be many times as many moves as blocks.
#[derive(Clone)]
struct Chunks {
    /// Of all that is copied.
    plan: Plan,
    /// How many layers are moved one by one; 0 if they are not.
    layers: usize,
    /// Chunks of a layer, or of all.
    each: usize,
    /// Bytes of a chunk, except the last one.
    chunk_size: u64,
    /// Tiles of a chunk; 0 if chunks are ranges of bytes.
    tiles: u64,
    /// Bypass the caches.
    is_streamed: bool,
}

impl Chunks {
    fn new(plan: Plan, by_layer: bool) -> Self {
        let layers = if by_layer { plan.layers().count } else { 0 };
        let is_streamed = suits_streaming(plan.bytes());
        // All layers have as many tiles.
        let tiling = if by_layer { plan.layer(0).tiling() } else { plan.tiling() };
        let tiles = tiling.map_or(0, |tiling| (CHUNK / tiling.size).max(1));
        let each = match tiling {
            Some(tiling) => tiling.count.div_ceil(tiles),
            None => (plan.bytes() / layers.max(1)).div_ceil(CHUNK),
        };
        let chunk_size = tiling.map_or(CHUNK, |tiling| tiles * tiling.size);
        Self { plan, layers: layers as usize, each: each as usize, chunk_size, tiles, is_streamed }
    }

    fn bytes(&self) -> u64 {
        self.plan.bytes()
    }

    fn bytes_of(&self, chunk: usize) -> u64 {
        let before = (chunk % self.each) as u64 * self.chunk_size;
        self.chunk_size.min((self.bytes() / self.layers.max(1) as u64).saturating_sub(before))
    }

    fn count(&self) -> usize {
        self.each * self.layers.max(1)
    }

    /// The number of rows that cost more than their bytes: those of a tile do not.
    fn rows(&self, moves: impl FnOnce() -> u64) -> u64 {
        if self.tiles > 0 { self.count() as u64 * self.tiles } else { moves() }
    }

    /// How many chunks each layer has; allocates nothing unless layers are moved one by one.
    fn of_layers(&self) -> Box<[AtomicUsize]> {
        (0..self.layers).map(|_| AtomicUsize::new(self.each)).collect()
    }

    fn layer_of(&self, chunk: usize) -> usize {
        chunk / self.each
    }

    /// The plan that a chunk is a part of.
    fn plan_of(&self, chunk: usize) -> Cow<'_, Plan> {
        match self.layers {
            0 => Cow::Borrowed(&self.plan),
            _ => Cow::Owned(self.plan.layer(self.layer_of(chunk) as u64)),
        }
    }

    /// Passes the rows of a chunk of bytes.
    fn for_each(&self, chunk: usize, act: impl FnMut(Matrix)) {
        let plan = self.plan_of(chunk);
        let first = (chunk % self.each) as u64 * CHUNK;
        plan.rows_in(first..plan.bytes().min(first + CHUNK)).for_each(act);
    }

    /// Passes each tile of a chunk of tiles, and the tile after it.
    fn for_each_tile(&self, chunk: usize, mut act: impl FnMut(&Tile, Option<&Tile>)) {
        let plan = self.plan_of(chunk);
        let first = (chunk % self.each) as u64 * self.tiles;
        let mut last = None;
        for tile in plan.tiles_in(first..first + self.tiles) {
            if let Some(last) = last.replace(tile) {
                act(&last, Some(&tile));
            }
        }
        if let Some(last) = last {
            act(&last, None);
        }
    }

    fn copy(&self, chunk: usize) {
        match self.tiles {
            0 => self.for_each(chunk, |each| self.copy_rows(each)),
            _ => self.for_each_tile(chunk, |each, next| {
                // SAFETY: as for `copy_rows`.
                unsafe { tile::copy(each, next, self.is_streamed) };
            }),
        }
        if self.is_streamed {
            streaming::settle();
        }
    }

    fn copy_rows(&self, each: Matrix) {
        // SAFETY: the plan checked both spans against their layouts, which the run keeps alive until the last chunk is
        // copied, and `engine::prepare` that no written byte is read. Callers that write to the blocks meanwhile get what
        // they asked for. `suits` said that this machine can stream.
        unsafe { copy_matrix(&each, None, self.is_streamed) };
    }
}

struct HostRun {
    next: AtomicUsize,
    left: AtomicUsize,
    /// Chunks left of each layer.
    left_of_layers: Box<[AtomicUsize]>,
    /// Layers that are known to be complete, from the first on. Changed with the lock of the run: there may be thousands.
    complete: AtomicUsize,
    /// Some chunks were not begun, and will not be.
    is_cut_short: AtomicBool,
    /// A chunk ended by a panic.
    failure: OnceCell<Error>,
    chunks: Chunks,
    /// `None` for a copy of one chunk, which nothing interrupts.
    stop: Option<Stop>,
    /// Until it is over.
    run: Mutex<Option<Run>>,
}

impl Shared for HostRun {
    fn run(&self) {
        self.work(|| true);
    }
}

impl HostRun {
    fn new(chunks: Chunks, run: Run, stop: Option<Stop>) -> Self {
        let left_of_layers = chunks.of_layers();
        Self::with(left_of_layers, chunks, run, stop)
    }

    fn with(left_of_layers: Box<[AtomicUsize]>, chunks: Chunks, run: Run, stop: Option<Stop>) -> Self {
        Self {
            next: AtomicUsize::new(0),
            left: AtomicUsize::new(chunks.count()),
            left_of_layers,
            complete: AtomicUsize::new(0),
            is_cut_short: AtomicBool::new(false),
            failure: OnceCell::new(),
            chunks,
            stop,
            run: Mutex::new(Some(run)),
        }
    }

    /// Becomes another run of the same copy. Allocates nothing.
    fn restart(&mut self, run: Run, stop: Option<Stop>) {
        let mut left_of_layers = std::mem::take(&mut self.left_of_layers);
        left_of_layers.iter_mut().for_each(|left| *left.get_mut() = self.chunks.each);
        *self = Self::with(left_of_layers, self.chunks.clone(), run, stop);
    }

    /// Copies chunks until none is left, or there is no time.
    fn work(&self, has_time: impl Fn() -> bool) {
        self.work_with(has_time, |chunk| self.chunks.copy(chunk));
    }

    /// The same with a function that copies a chunk.
    fn work_with(&self, has_time: impl Fn() -> bool, copy: impl Fn(usize)) {
        while has_time() {
            if self.end_if_cancelled() {
                return;
            }
            let chunk = self.next.fetch_add(1, Ordering::Relaxed);
            if chunk >= self.chunks.count() {
                return;
            }
            let copied = guarded(|| {
                self.stop.iter().filter(|_| chunk == 0).for_each(Stop::begun);
                copy(chunk);
                if let Some(stop) = &self.stop {
                    stop.count(self.chunks.bytes_of(chunk));
                }
                self.note(chunk);
            });
            if let Err(panic) = copied {
                drop(self.failure.set(panic));
                self.cut_short();
            }
            if self.left.fetch_sub(1, Ordering::AcqRel) == 1 {
                self.finish();
            }
        }
    }

    /// Reports the layers that are complete with this chunk.
    fn note(&self, chunk: usize) {
        let Some(left) = self.left_of_layers.get(self.chunks.layer_of(chunk)) else { return };
        if left.fetch_sub(1, Ordering::AcqRel) > 1 {
            return;
        }
        let run = self.unfinished();
        let is_complete = |left: &&AtomicUsize| left.load(Ordering::Acquire) == 0;
        let known = self.complete.load(Ordering::Relaxed);
        let moved = known + self.left_of_layers[known..].iter().take_while(is_complete).count();
        self.complete.store(moved, Ordering::Relaxed);
        if let Some(run) = &*run {
            run.advance(moved as u64);
        }
    }

    /// Whether this run was cancelled, which ends it unless a chunk is being copied. If it has ended, this has no effect, although the
    /// flag is that of a later run by then.
    fn end_if_cancelled(&self) -> bool {
        let is_cancelled = self.stop.as_ref().is_some_and(Stop::is_asked);
        if is_cancelled {
            self.cut_short();
        }
        is_cancelled
    }

    fn cut_short(&self) {
        let next = self.next.swap(NONE_LEFT, Ordering::AcqRel);
        let skipped = self.chunks.count().saturating_sub(next);
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

    fn unfinished(&self) -> crate::base::sync::MutexGuard<'_, Option<Run>> {
        self.run.lock()
    }
}

#[cfg(test)]
mod tests;
