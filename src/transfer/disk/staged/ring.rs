// SPDX-License-Identifier: Apache-2.0
//! The staging ring of a GPU: page-locked host memory in slots, each of which fills while another drains.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, Weak};
use std::time::Duration;

use super::Prepared;
use super::session::Session;
use crate::cuda::stream::Stream;
use crate::cuda::{Context, Device, Event};
use crate::error::{Error, Result, Status};
use crate::layout::Layout;
use crate::process::PerProcess;
use crate::region::{PinnedConfig, PinnedMemory};
use crate::transfer::completion::Run;
use crate::transfer::pool::{Pool, Shared};

/// Slots of a ring.
pub const SLOTS: usize = 4;
/// Slots begin where any device reads.
const PAGE: u64 = 4096;

/// Page-locked memory, what copies between it and the GPU, and the runs that go through it.
pub struct Ring {
    ordinal: i32,
    slot_size: u64,
    memory: PinnedMemory,
    /// Where the GPU copies.
    pub stream: Stream,
    /// A slot's copies are over.
    pub copied: [Event; SLOTS],
    state: Mutex<State>,
    arrival: Condvar,
}

#[derive(Default)]
struct State {
    new: Vec<Flight>,
    answers: VecDeque<Answer>,
    is_served: bool,
    /// The driver has failed here: new transfers begin with a new ring.
    is_broken: bool,
}

/// How a slot's I/O went.
pub struct Answer {
    /// Which slot.
    pub slot: usize,
    /// How it went.
    pub outcome: Result<()>,
}

/// One run.
pub struct Flight {
    /// What it does.
    pub prepared: Arc<Prepared>,
    layouts: [Arc<Layout>; 2],
    run: Run,
    /// The chunk to begin with next.
    pub next: usize,
    /// Chunks in slots.
    pub under_way: usize,
    failure: Option<Error>,
}

impl Ring {
    /// A ring of a device with slots of at least `slot` bytes: one that is there, or a new one.
    pub fn of(ordinal: i32, slot: u64) -> Result<Arc<Self>> {
        static RINGS: PerProcess<Mutex<Vec<Weak<Ring>>>> = PerProcess::new();
        let rings = RINGS.get(Mutex::default);
        let mut rings = rings.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        rings.retain(|ring| ring.strong_count() > 0);
        let suits =
            |ring: &Arc<Self>| ring.ordinal == ordinal && ring.slot_size >= slot && !ring.state().is_broken;
        if let Some(ring) = rings.iter().filter_map(Weak::upgrade).find(suits) {
            return Ok(ring);
        }
        let ring = Arc::new(Self::allocate(ordinal, slot.next_multiple_of(PAGE))?);
        rings.push(Arc::downgrade(&ring));
        Ok(ring)
    }

    fn allocate(ordinal: i32, slot_size: u64) -> Result<Self> {
        let size = slot_size.checked_mul(SLOTS as u64).ok_or_else(|| {
            Error::new(Status::InvalidArgument, "staging_size is more than can be addressed")
        })?;
        let context = Arc::new(Context::retain(Device::get(ordinal)?)?);
        let event = || Event::new(&context);
        let copied = [event()?, event()?, event()?, event()?];
        let config = PinnedConfig { size, ordinal, ..PinnedConfig::default() };
        Ok(Self {
            ordinal,
            slot_size,
            copied,
            stream: Stream::new(&context)?,
            memory: PinnedMemory::allocate(&config, &mut |_, _| true)?,
            state: Mutex::default(),
            arrival: Condvar::new(),
        })
    }

    /// A slot's first byte.
    pub fn slot(&self, index: usize) -> u64 {
        self.memory.memory().address() as u64 + index as u64 * self.slot_size
    }

    /// Has a run go through.
    pub fn start(self: &Arc<Self>, flight: Flight) {
        let mut state = self.state();
        state.new.push(flight);
        let is_served = std::mem::replace(&mut state.is_served, true);
        drop(state);
        self.arrival.notify_one();
        if !is_served {
            Pool::get().run(&(Arc::new(Serving(self.clone())) as Arc<dyn Shared>), 1);
        }
    }

    /// Tells how a slot's I/O went; from any thread.
    pub fn answer(&self, answer: Answer) {
        self.state().answers.push_back(answer);
        self.arrival.notify_one();
    }

    /// What has come, or `None` when the thread may go.
    pub fn take_new(&self, is_idle: bool) -> Option<(Vec<Flight>, VecDeque<Answer>)> {
        let mut state = self.state();
        if is_idle && state.new.is_empty() {
            state.is_served = false;
            return None;
        }
        Some((std::mem::take(&mut state.new), std::mem::take(&mut state.answers)))
    }

    /// Sleeps until something comes, or for so long.
    pub fn sleep(&self, at_most: Duration) {
        let state = self.state();
        if state.new.is_empty() && state.answers.is_empty() {
            drop(self.arrival.wait_timeout(state, at_most));
        }
    }

    /// No new transfer goes through it.
    pub fn retire(&self) {
        self.state().is_broken = true;
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

/// A thread's time with a ring.
struct Serving(Arc<Ring>);

impl Shared for Serving {
    fn run(&self) {
        Session::new(&self.0).run();
    }
}

impl Flight {
    /// A run that has not begun.
    pub fn new(prepared: Arc<Prepared>, layouts: [Arc<Layout>; 2], run: Run) -> Self {
        Self { prepared, layouts, run, next: 0, under_way: 0, failure: None }
    }

    /// Whether no chunk is left to begin with.
    pub fn is_begun(&self) -> bool {
        self.failure.is_some() || self.next == self.prepared.chunks.list.len()
    }

    /// Nothing more is begun.
    pub fn fail(&mut self, error: Error) {
        self.failure.get_or_insert(error);
    }

    /// All that it used is let go before anyone hears that the run is over: who hears it may free their memory.
    pub fn end(self) {
        let Self { prepared, layouts, run, failure, .. } = self;
        drop((prepared, layouts));
        run.end(failure.map_or(Ok(()), Err));
    }
}
