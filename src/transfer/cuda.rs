// SPDX-License-Identifier: Apache-2.0
//! The CUDA engine: the driver's copies, one a move, on a stream of the transfer's own.

use std::sync::{Arc, Mutex, MutexGuard};

use super::completion::Run;
use super::plan::{Move, Plan};
use super::pool::{Pool, Shared};
use crate::cuda::{Context, Device, Stream};
use crate::error::{Error, Result, Status};
use crate::layout::Layout;

/// A prepared copy.
pub struct CudaCopy {
    copy: Arc<Copy>,
    stretches: u64,
    layouts: [Arc<Layout>; 2],
}

struct Copy {
    moves: Vec<Move>,
    stream: Stream,
}

impl CudaCopy {
    /// Makes the stream, on the device of whichever side is GPU memory.
    pub fn prepare(source: &Arc<Layout>, destination: &Arc<Layout>, plan: &Plan) -> Result<Self> {
        let stretches: Vec<_> = plan.moves(source.placement(), destination.placement()).collect();
        let moves: Vec<_> = stretches.iter().flat_map(|each| cut(source, destination, *each)).collect();
        super::host::ensure_apart(source, destination, &stretches)?;
        let stream = Stream::new(Context::retain(Device::get(ordinal(source, destination)?)?)?)?;
        let layouts = [source.clone(), destination.clone()];
        Ok(Self { copy: Arc::new(Copy { moves, stream }), stretches: stretches.len() as u64, layouts })
    }

    /// How many stretches of memory it moves.
    pub fn moves(&self) -> u64 {
        self.stretches
    }

    /// Starts the copy.
    pub fn submit(&self, run: Run) {
        let job = Job { copy: self.copy.clone(), ending: Mutex::new(Some((self.layouts.clone(), run))) };
        Pool::get().run(&(Arc::new(job) as Arc<dyn Shared>), 1);
    }
}

/// No copy of the driver's may reach over the end of an extent or of a page lock, on either side.
fn cut<'a>(
    source: &'a Layout,
    destination: &'a Layout,
    mut left: Move,
) -> impl Iterator<Item = Move> + use<'a> {
    std::iter::from_fn(move || {
        let here = source.bytes_in_piece(left.source_region, left.source);
        let there = destination.bytes_in_piece(left.destination_region, left.destination);
        let size = left.size.min(here).min(there);
        let next = Move { size, ..left };
        left = Move {
            source: left.source + size,
            destination: left.destination + size,
            size: left.size - size,
            ..left
        };
        (size > 0).then_some(next)
    })
}

/// The driver's copies cross devices by themselves; the stream belongs to the destination where that is a GPU's.
fn ordinal(source: &Layout, destination: &Layout) -> Result<i32> {
    let of = |layout: &Layout| layout.memory().regions().first().and_then(|region| region.ordinal());
    let neither = || Error::new(Status::Unsupported, "neither layout is GPU memory");
    of(destination).or(of(source)).ok_or_else(neither)
}

/// One run of the copy.
struct Job {
    copy: Arc<Copy>,
    /// The layouts are let go before anyone hears that the run is over: who hears it may free their memory.
    ending: Mutex<Option<([Arc<Layout>; 2], Run)>>,
}

impl Shared for Job {
    fn run(&self) {
        let Some((layouts, run)) = self.ending().take() else { return };
        let outcome = self.copy.execute();
        drop(layouts);
        run.end(outcome);
    }
}

impl Job {
    fn ending(&self) -> MutexGuard<'_, Option<([Arc<Layout>; 2], Run)>> {
        self.ending.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

impl Copy {
    /// Waits for what was started also after a failure: it may still write.
    fn execute(&self) -> Result<()> {
        let started = self.moves.iter().try_for_each(|each| {
            // SAFETY: the plan checked both spans against their layouts, which the job keeps alive until this ends.
            unsafe { self.stream.copy(each.source, each.destination, each.size) }
        });
        let ended = self.stream.synchronize();
        started.and(ended)
    }
}
