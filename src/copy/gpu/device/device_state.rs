// SPDX-License-Identifier: Apache-2.0
//! The state of one device that all copies on it share: its context, the kernel, the descriptor ring,
//! streams, events and staging memory. Created at first use. It lives as long as any transfer, or any layout
//! whose blocks were copied on the device.

use std::any::Any;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use once_cell::sync::OnceCell;

use super::descriptor_ring::{DescriptorRing, DescriptorSlot};
use super::pool::{Pooled, ResourcePool};
use super::resource::WaitCounts;
use super::run_counter::RunCounter;
use super::staging::Staging;
use crate::base::{Error, Keyed, Mutex, MutexGuard, Result, Status};
use crate::cuda::kernel::{CopyKernel, KernelRun};
use crate::cuda::{Context, Device, Event, Patience, Stream};
use crate::layout::Layout;
use crate::layout::cache::LayoutCache;
use crate::region::PinnedMemory;

/// The maximum number of runs that the driver executes at a time; more runs wait.
const MAX_STREAMS: usize = 64;
/// Staged runs at a time in each direction: one saturates the link.
const MAX_STAGED: usize = 1;

pub struct DeviceState {
    context: Arc<Context>,
    kernel: Arc<CopyKernel>,
    rings: Mutex<Vec<Arc<DescriptorRing>>>,
    streams: Arc<ResourcePool<Stream>>,
    events: Arc<ResourcePool<Event>>,
    /// For copies to the device, and to the host.
    stagings: [Arc<ResourcePool<Staging>>; 2],
    /// Submitted runs that wait for one of the resources above.
    pub waiting: WaitCounts,
    pub run_counter: Arc<RunCounter>,
    /// Page-locked memory of measurements. It is kept, because unlocking it would wait for all work on the device.
    pub bench_memory: Mutex<Vec<PinnedMemory>>,
    is_broken: AtomicBool,
    /// State that a module above attaches to the device.
    attached: OnceCell<Arc<dyn Any + Send + Sync>>,
}

/// The state of a device exists as long as a layout on it.
static OF_LAYOUTS: LayoutCache<DeviceState> = LayoutCache::new();
/// By ordinal.
static STATES: Keyed<i32, Mutex<Weak<DeviceState>>> = Keyed::new();

impl DeviceState {
    pub fn for_device(ordinal: i32) -> Result<Arc<Self>> {
        let device = Device::get(ordinal)?;
        let slot = STATES.get(ordinal);
        // Dropped after the lock: the last holder of an unusable state frees its memory, which may wait for
        // the GPU.
        let known: Option<Arc<Self>>;
        let mut slot = slot.lock();
        known = slot.upgrade();
        if let Some(state) = known.as_ref().filter(|state| state.is_usable()) {
            return Ok(state.clone());
        }
        let context = Arc::new(Context::retain(device)?);
        let state = Arc::new(Self {
            kernel: Arc::new(CopyKernel::new(&context)),
            context,
            rings: Mutex::default(),
            streams: ResourcePool::new(ordinal, MAX_STREAMS),
            events: ResourcePool::new(ordinal, usize::MAX),
            stagings: [ResourcePool::new(ordinal, MAX_STAGED), ResourcePool::new(ordinal, MAX_STAGED)],
            waiting: WaitCounts::default(),
            run_counter: Arc::default(),
            bench_memory: Mutex::default(),
            is_broken: AtomicBool::new(false),
            attached: OnceCell::new(),
        });
        *slot = Arc::downgrade(&state);
        Ok(state)
    }

    /// The state of the device of a layout, which keeps it.
    pub fn kept_by(layout: &Layout, ordinal: i32) -> Result<Arc<Self>> {
        let kept = OF_LAYOUTS.get(layout).filter(|kept| kept.is_usable());
        kept.map_or_else(|| Self::newly_kept_by(layout, ordinal), Ok)
    }

    #[cold]
    fn newly_kept_by(layout: &Layout, ordinal: i32) -> Result<Arc<Self>> {
        let state = Self::for_device(ordinal)?;
        OF_LAYOUTS.put(layout, state.clone());
        Ok(state)
    }

    pub fn context(&self) -> &Arc<Context> {
        &self.context
    }

    /// The copy kernel, loaded at first use, with the descriptor ring that it needs. Fails with BUSY if loading it takes longer than
    /// `patience`.
    pub fn kernel(&self, patience: &Patience) -> Result<Arc<CopyKernel>> {
        self.load_kernel(patience)?;
        self.ensure_ring()?;
        Ok(self.kernel.clone())
    }

    /// Loads the copy kernel. Fails with BUSY if that takes longer than `patience`.
    pub fn load_kernel(&self, patience: &Patience) -> Result<()> {
        self.kernel.provide_blocks(patience)
    }

    /// Allocates without the lock, which all submissions need.
    fn ensure_ring(&self) -> Result<()> {
        if !self.rings().is_empty() {
            return Ok(());
        }
        let ring = DescriptorRing::allocate(self.context.device().ordinal())?;
        let mut rings = self.rings();
        let unneeded = if rings.is_empty() {
            rings.push(ring);
            None
        } else {
            Some(ring)
        };
        drop(rings);
        drop(unneeded);
        Ok(())
    }

    /// Writes runs that kernels read repeatedly; `None` if the ring has no space. Runs that are too many for
    /// the ring get separate memory.
    pub fn keep(&self, runs: &[KernelRun]) -> Result<Option<DescriptorSlot>> {
        let own = DescriptorRing::of_one_copy(self.context.device().ordinal(), runs)?;
        Ok(own.or_else(|| self.rings().iter().find_map(|ring| ring.keep(runs))))
    }

    /// Writes runs for a kernel to read; `None` while the ring is full.
    pub fn put(&self, runs: &[KernelRun]) -> Option<DescriptorSlot> {
        self.rings().iter().find_map(|ring| ring.put(runs))
    }

    /// Writes runs for a kernel to read; allocates another ring if no ring has space for them.
    pub fn put_now(&self, runs: &[KernelRun]) -> Result<DescriptorSlot> {
        loop {
            if let Some(slot) = self.put(runs) {
                return Ok(slot);
            }
            let ring = DescriptorRing::allocate_for(self.context.device().ordinal(), runs)?;
            self.rings().push(ring);
        }
    }

    /// A stream for one run; `None` while all are in use.
    pub fn stream(&self) -> Result<Option<Pooled<Stream>>> {
        self.streams.take(|_| true, || Stream::new(&self.context))
    }

    /// A stream for one run, beyond the limit if all are in use.
    pub fn one_more_stream(&self) -> Result<Pooled<Stream>> {
        self.streams.take_one_more(|_| true, || Stream::new(&self.context))
    }

    pub fn event(&self) -> Result<Option<Pooled<Event>>> {
        self.events.take(|_| true, || Event::new(&self.context))
    }

    /// Staging memory of at least `size` bytes for one direction; `None` while it is in use.
    pub fn staging(&self, size: u64, to_host: bool) -> Result<Option<Pooled<Staging>>> {
        let pool = &self.stagings[usize::from(to_host)];
        pool.take(|staging| staging.size() >= size, || Staging::new(&self.context, size))
    }

    /// Allocates staging memory of at least `size` bytes for a later run, unless there is enough or it is in
    /// use.
    pub fn provide_staging(&self, size: u64, to_host: bool) -> Result<()> {
        let pool = &self.stagings[usize::from(to_host)];
        pool.provide(|staging| staging.size() >= size, || Staging::new(&self.context, size))
    }

    /// State that a module above attaches to the device, created once and always of the same type. It lives as long as the
    /// device's state.
    pub fn attached<T: Any + Send + Sync>(&self, create: impl FnOnce() -> Arc<T>) -> Result<Arc<T>> {
        let attached = self.attached.get_or_init(|| create());
        let other = |_| Error::new(Status::Panic, "two types of state are attached to one device");
        attached.clone().downcast().map_err(other)
    }

    /// Makes new transfers use new state, because the driver has failed here.
    pub fn retire(&self) {
        self.is_broken.store(true, Ordering::Release);
    }

    /// Whether new transfers may use it: the driver has not failed here, and the device was not reset.
    pub fn is_usable(&self) -> bool {
        self.is_sound() && self.context.ensure_alive().is_ok()
    }

    /// Whether the driver has not failed here.
    pub fn is_sound(&self) -> bool {
        !self.is_broken.load(Ordering::Acquire)
    }

    fn rings(&self) -> MutexGuard<'_, Vec<Arc<DescriptorRing>>> {
        self.rings.lock()
    }
}
