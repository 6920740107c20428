// SPDX-License-Identifier: Apache-2.0
//! The CUDA engine: the driver's copies, one a move, on a stream of the transfer's own.

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use once_cell::sync::OnceCell;

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
        Flights::get().add(Flight {
            copy: self.copy.clone(),
            layouts: self.layouts.clone(),
            run,
            failure: None,
        });
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
struct Flight {
    copy: Arc<Copy>,
    layouts: [Arc<Layout>; 2],
    run: Run,
    failure: Option<Error>,
}

impl Flight {
    fn start(&mut self) {
        let moves = self.copy.moves.iter().map(|each| (each.source, each.destination, each.size));
        // SAFETY: the plan checked all spans against their layouts, which are held until the stream is done.
        self.failure = unsafe { self.copy.stream.copy_all(moves) }.err();
    }

    /// The stream and the layouts are let go before anyone hears that the run is over: who hears it may free their
    /// memory.
    fn end(self, outcome: Result<()>) {
        let Self { copy, layouts, run, failure } = self;
        drop((copy, layouts));
        run.end(failure.map_or(outcome, Err));
    }
}

/// All copies of this process that the driver is at, watched by one thread while there are any.
#[derive(Default)]
struct Flights(Mutex<Watch>);

#[derive(Default)]
struct Watch {
    new: Vec<Flight>,
    watched: bool,
}

/// How long the thread polls after the last copy ended before it begins to sleep in between.
const SPIN: Duration = Duration::from_micros(200);
const SLEEP: Duration = Duration::from_micros(20);

impl Flights {
    fn get() -> &'static Arc<Self> {
        static FLIGHTS: OnceCell<Arc<Flights>> = OnceCell::new();
        FLIGHTS.get_or_init(Arc::default)
    }

    fn add(self: &Arc<Self>, flight: Flight) {
        let mut watch = self.lock();
        watch.new.push(flight);
        if !std::mem::replace(&mut watch.watched, true) {
            drop(watch);
            Pool::get().run(&(self.clone() as Arc<dyn Shared>), 1);
        }
    }

    /// What was added, or `None` when the thread may go.
    fn take_new(&self, idle: bool) -> Option<Vec<Flight>> {
        let mut watch = self.lock();
        if watch.new.is_empty() && idle {
            watch.watched = false;
            return None;
        }
        Some(std::mem::take(&mut watch.new))
    }

    fn lock(&self) -> MutexGuard<'_, Watch> {
        self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

impl Shared for Flights {
    fn run(&self) {
        let mut flights: Vec<Flight> = Vec::new();
        let mut progress = Instant::now();
        while let Some(mut new) = self.take_new(flights.is_empty()) {
            new.iter_mut().for_each(Flight::start);
            flights.extend(new);
            let before = flights.len();
            flights = flights.into_iter().filter_map(watched).collect();
            if flights.len() < before {
                progress = Instant::now();
            } else if progress.elapsed() < SPIN {
                std::thread::yield_now();
            } else {
                std::thread::sleep(SLEEP);
            }
        }
    }
}

/// The flight while it goes on.
fn watched(flight: Flight) -> Option<Flight> {
    match flight.copy.stream.is_done() {
        Ok(false) => return Some(flight),
        Ok(true) => flight.end(Ok(())),
        Err(error) => flight.end(Err(error)),
    }
    None
}
