// SPDX-License-Identifier: Apache-2.0
//! What copies on one device share: its context, the kernel, the descriptor ring, streams, events and staging memory.
//! Made at first use; it lives as long as a transfer, or a layout that was ever moved here.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use super::super::choice::cost;
use super::super::rates::observer::Traffic;
use super::descriptor_ring::{Ring, Slot};
use super::need::Waiting;
use super::pool::{Shelf, Taken};
use crate::cuda::kernel::{CopyKernel, Run};
use crate::cuda::memory::Allocation;
use crate::cuda::stream::Stream;
use crate::cuda::{Context, Device, Event};
use crate::error::Result;
use crate::sync::{Mutex, MutexGuard};
use crate::transfer::verify::gpu::Checker;

/// Runs that are at the driver at a time; more wait their turn.
const MOST_STREAMS: usize = 64;
/// Staged runs at a time in each direction: one keeps the link busy by itself that way.
const MOST_STAGED: usize = 1;

/// The engine of one device.
pub struct DeviceState {
    context: Arc<Context>,
    kernel: Mutex<Option<Arc<CopyKernel>>>,
    rings: Mutex<Vec<Arc<Ring>>>,
    streams: Arc<Shelf<Stream>>,
    events: Arc<Shelf<Event>>,
    /// For blocks on their way to the device, and to the host.
    stagings: [Arc<Shelf<Staging>>; 2],
    checkers: Arc<Shelf<Checker>>,
    /// Runs that were submitted and wait for one of the things above.
    pub waiting: Waiting,
    /// Runs that are under way.
    pub traffic: Arc<Traffic>,
    is_broken: AtomicBool,
}

/// Engines by ordinal. Dead ones stay until somebody asks again.
static ENGINES: Mutex<Vec<(i32, Weak<DeviceState>)>> = Mutex::new(Vec::new());

impl DeviceState {
    /// The engine of a device.
    pub fn of(ordinal: i32) -> Result<Arc<Self>> {
        let device = Device::get(ordinal)?;
        // Dropped after the lock: the last holder of an unusable engine frees its memory, which may wait for the GPU.
        let known: Vec<Arc<Self>>;
        let mut engines = ENGINES.lock();
        known = engines.iter().filter(|(of, _)| *of == ordinal).filter_map(|(_, it)| it.upgrade()).collect();
        if let Some(engine) = known.iter().find(|engine| engine.is_usable()) {
            return Ok(engine.clone());
        }
        let engine = Arc::new(Self {
            context: Arc::new(Context::retain(device)?),
            kernel: Mutex::default(),
            rings: Mutex::default(),
            streams: Shelf::new(MOST_STREAMS),
            events: Shelf::new(usize::MAX),
            stagings: [Shelf::new(MOST_STAGED), Shelf::new(MOST_STAGED)],
            checkers: Shelf::new(usize::MAX),
            waiting: Waiting::default(),
            traffic: Arc::default(),
            is_broken: AtomicBool::new(false),
        });
        engines.retain(|(_, engine)| engine.strong_count() > 0);
        engines.push((ordinal, Arc::downgrade(&engine)));
        Ok(engine)
    }

    /// The device's context.
    pub fn context(&self) -> &Arc<Context> {
        &self.context
    }

    /// The copy kernel, loaded at first use, with the ring that it needs.
    pub fn kernel(&self) -> Result<Arc<CopyKernel>> {
        self.ensure_ring()?;
        let mut kernel = self.kernel.lock();
        if let Some(kernel) = &*kernel {
            return Ok(kernel.clone());
        }
        let loaded = Arc::new(CopyKernel::load(&self.context)?);
        *kernel = Some(loaded.clone());
        Ok(loaded)
    }

    fn ensure_ring(&self) -> Result<()> {
        let mut rings = self.rings();
        if rings.is_empty() {
            rings.push(Ring::allocate(self.context.device().ordinal())?);
        }
        Ok(())
    }

    /// Writes runs for kernels to read again and again; `None` where the ring has no room to spare for that. More than
    /// it takes of one copy get memory of their own.
    pub fn keep(&self, runs: &[Run]) -> Result<Option<Slot>> {
        let own = Ring::of_one_copy(self.context.device().ordinal(), runs)?;
        Ok(own.or_else(|| self.rings().iter().find_map(|ring| ring.keep(runs))))
    }

    /// Writes runs for a kernel to read; `None` while the ring is full.
    pub fn put(&self, runs: &[Run]) -> Option<Slot> {
        self.rings().iter().find_map(|ring| ring.put(runs))
    }

    /// The same where nobody can wait: another ring is made when the ring is full.
    pub fn put_now(&self, runs: &[Run]) -> Result<Slot> {
        loop {
            if let Some(slot) = self.put(runs) {
                return Ok(slot);
            }
            let ring = Ring::allocate(self.context.device().ordinal())?;
            self.rings().push(ring);
        }
    }

    /// A stream for one run; `None` while all are in use.
    pub fn stream(&self) -> Result<Option<Taken<Stream>>> {
        self.streams.take(|_| true, || Stream::new(&self.context))
    }

    /// The same however many are in use.
    pub fn one_more_stream(&self) -> Result<Taken<Stream>> {
        self.streams.take_one_more(|_| true, || Stream::new(&self.context))
    }

    /// An event for one run.
    pub fn event(&self) -> Result<Option<Taken<Event>>> {
        self.events.take(|_| true, || Event::new(&self.context))
    }

    /// Staging memory of at least `size` bytes for blocks on their way to the host, or from it; `None` while it is in use.
    pub fn staging(&self, size: u64, to_host: bool) -> Result<Option<Taken<Staging>>> {
        let shelf = &self.stagings[usize::from(to_host)];
        shelf.take(|staging| staging.memory.size() >= size, || Staging::new(&self.context, size))
    }

    /// Has staging memory of at least `size` bytes there for a later run, unless what there is is in use.
    pub fn provide_staging(&self, size: u64, to_host: bool) -> Result<()> {
        let shelf = &self.stagings[usize::from(to_host)];
        shelf.provide(|staging| staging.memory.size() >= size, || Staging::new(&self.context, size))
    }

    /// What checksums are computed with.
    pub fn checker(&self) -> Result<Taken<Checker>> {
        self.checkers.take_one_more(|_| true, || Checker::new(self))
    }

    /// The driver has failed here: new transfers begin with a new engine.
    pub fn retire(&self) {
        self.is_broken.store(true, Ordering::Release);
    }

    /// Whether new transfers may begin with it: the driver has not failed here, and nobody has reset the device.
    fn is_usable(&self) -> bool {
        self.is_sound() && self.context.ensure_alive().is_ok()
    }

    /// Whether the driver has not failed here.
    pub fn is_sound(&self) -> bool {
        !self.is_broken.load(Ordering::Acquire)
    }

    fn rings(&self) -> MutexGuard<'_, Vec<Arc<Ring>>> {
        self.rings.lock()
    }
}

/// Device memory in parts that fill and drain in turn, and what keeps kernel and copy engine in step.
pub struct Staging {
    memory: Allocation,
    parts: Vec<Part>,
    /// Where the copy engine works.
    pub copier: Stream,
    /// What the run waits for was reached.
    pub begun: Event,
}

/// What tells of a part of the staging memory.
pub struct Part {
    /// It is full.
    pub filled: Event,
    /// It is empty.
    pub drained: Event,
}

impl Staging {
    fn new(context: &Arc<Context>, size: u64) -> Result<Self> {
        let memory = Allocation::new(context.device().ordinal(), size)?;
        let part = |_| Ok(Part { filled: Event::new(context)?, drained: Event::new(context)? });
        let parts = (0..cost::MOST_PARTS).map(part).collect::<Result<_>>()?;
        Ok(Self { memory, parts, copier: Stream::new(context)?, begun: Event::new(context)? })
    }

    /// The part that a chunk goes through, of as many parts of `size` bytes as the run uses, and where it begins.
    pub fn part(&self, chunk: usize, parts: usize, size: u64) -> (u64, &Part) {
        let index = chunk % parts.min(self.parts.len());
        (self.memory.address() + index as u64 * size, &self.parts[index])
    }
}
