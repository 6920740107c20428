// SPDX-License-Identifier: Apache-2.0
//! A stream and buffers for timing copies on a device.
#![allow(unsafe_code)]

pub mod measurement_task;

use std::sync::Arc;
use std::time::{Duration, Instant};

use self::measurement_task::{
    BATCH_BLOCK, BLOCK, FEW_CTAS, HOST_SIZE, PAGEABLE_SIZE, PEER_SIZE, Task, device_size,
};
use crate::base::{Result, Status, error, leak, lists, thread};
use crate::copy::gpu::device::device_state::DeviceState;
use crate::copy::gpu::direction::CopyDirection;
use crate::copy::gpu::launch::{self, TILE, single_units};
use crate::cuda::memory::free_memory;
use crate::cuda::{
    Active, Batch, Context, Copy, CopyKernel, Device, DeviceBuffer, EngineLoad, Event, KernelRun, Layer,
    Patience, SourceOrder, Stream, Units, is_over, quiet,
};
use crate::region::{PinnedConfig, PinnedMemory};

/// How long the thread polls before it sleeps between polls.
const SPIN: Duration = Duration::from_millis(20);
const SLEEP: Duration = Duration::from_millis(1);
/// Bytes of a copy whose duration is the call's alone.
const TINY: u64 = 512;

/// A stream, and buffers on the device, in host memory and, if a peer is measured, on the peer.
pub struct Bench<'a> {
    device: &'a DeviceState,
    stream: Stream,
    begun: Event,
    ended: Event,
    kernel: Result<Arc<CopyKernel>>,
    memory: Option<Memory>,
}

struct Memory {
    /// Two adjacent buffers.
    device: DeviceBuffer,
    device_size: u64,
    /// The last `BLOCK` bytes hold the descriptor of the kernel's run.
    host: PinnedMemory,
    pageable: Vec<u8>,
    peer: Option<Peer>,
}

/// Memory of another device.
struct Peer {
    memory: DeviceBuffer,
    /// Kernels of the device can access it. This needs no context of the peer.
    is_mapped: bool,
}

impl Peer {
    fn allocate(device: Device, ordinal: i32) -> Result<Self> {
        let peer = Device::get(ordinal)?;
        let is_accessible = device.can_access(&peer)?;
        let users = [ordinal, device.ordinal()];
        let memory = match is_accessible {
            true => DeviceBuffer::with_users(peer, PEER_SIZE, &users)?,
            false => DeviceBuffer::new(peer, PEER_SIZE)?,
        };
        let is_mapped = is_accessible && matches!(memory, DeviceBuffer::Mapped(_));
        Ok(Self { memory, is_mapped })
    }
}

impl<'a> Bench<'a> {
    pub fn open(device: &'a DeviceState) -> Result<Self> {
        let context = device.context();
        let free = free_memory(context).map_or(0, |(free, _)| free as u64);
        let open = |size| Self::with(device, size, PAGEABLE_SIZE, None);
        match open(device_size(context.device().cache_size(), free)) {
            // The program has allocated meanwhile, or memory is fragmented.
            Err(error) if error.status() == Status::OutOfMemory => open(device_size(0, 0)),
            opened => opened,
        }
    }

    /// For copies between a device and a peer.
    pub fn open_with_peer(device: &'a DeviceState, peer: i32) -> Result<Self> {
        Self::with(device, PEER_SIZE / 2, 0, Some(peer))
    }

    /// Allocates two adjacent buffers of `device_size` bytes each on the device, and host memory.
    fn with(
        device: &'a DeviceState,
        device_size: u64,
        pageable_size: u64,
        peer: Option<i32>,
    ) -> Result<Self> {
        let context: &Arc<Context> = device.context();
        let ordinal = context.device().ordinal();
        let size = HOST_SIZE + BLOCK;
        let config = PinnedConfig { size, ordinal, threads: 1, ..PinnedConfig::default() };
        let (stream, begun, ended) = (Stream::new(context)?, Event::timed(context)?, Event::timed(context)?);
        let buffers = DeviceBuffer::new(context.device(), 2 * device_size)?;
        let peer = peer.map(|peer| Peer::allocate(context.device(), peer)).transpose()?;
        let mut pageable = Vec::new();
        lists::reserve(&mut pageable, pageable_size as usize)?;
        pageable.resize(pageable_size as usize, 1);
        // Last, because a failure after it would unlock it.
        let kept = device.bench_memory.lock().pop();
        let host = kept.map_or_else(|| PinnedMemory::allocate(&config, &mut |_, _| true), Ok)?;
        let memory = Memory { device: buffers, device_size, host, pageable, peer };
        let kernel = device.kernel(&Patience::needed(quiet::PATIENCE));
        Ok(Self { device, stream, begun, ended, kernel, memory: Some(memory) })
    }

    /// The size of each buffer on the device.
    pub fn device_size(&self) -> u64 {
        self.memory.as_ref().map_or(0, |memory| memory.device_size)
    }

    /// Fails if the kernel could not be loaded.
    pub fn kernel(&self) -> Result<()> {
        self.kernel.as_ref().map(drop).map_err(Clone::clone)
    }

    /// Duration of a task in seconds, by the device's clock.
    pub fn time(&self, task: Task, amount: u64) -> Result<f64> {
        let Some(memory) = &self.memory else { return Ok(f64::INFINITY) };
        let on = self.stream.activate()?;
        on.record(&self.begun)?;
        let was_done = match task {
            Task::Copy(direction) => memory.copy(&on, direction, amount)?,
            Task::Pageable => memory.copy_pageable(&on, amount)?,
            Task::Copies => memory.copy_tiny(&on, amount)?,
            Task::Batch(direction) => {
                self.device.context().driver().copies_batches() && memory.batch(&on, direction, amount)?
            }
            Task::Kernel(direction) => {
                let multiprocessors = self.device.context().device().multiprocessors();
                let ctas = launch::ctas(direction, false, multiprocessors, BLOCK);
                self.launch(memory, &on, direction, (0, amount), ctas)?
            }
            Task::FewCtas(direction) => {
                // The small amount is not a part of the large one, which would find it in the cache.
                let offset = if direction == CopyDirection::OnDevice { amount } else { 0 };
                self.launch(memory, &on, direction, (offset, amount), FEW_CTAS)?
            }
        };
        on.record(&self.ended)?;
        // Polled, because the driver must not be in a call with the event when the program resets its device. Without a
        // deadline: a kernel of the program may occupy the device for any time, and nothing else waits for this thread.
        thread::poll(SPIN, SLEEP, || self.ended.is_done())?;
        if was_done { self.ended.seconds_since(&self.begun) } else { Ok(f64::INFINITY) }
    }

    fn launch(
        &self,
        memory: &Memory,
        on: &Active<'_>,
        direction: CopyDirection,
        part: (u64, u64),
        ctas: u32,
    ) -> Result<bool> {
        let Ok(kernel) = &self.kernel else { return Ok(false) };
        if memory.peer.as_ref().is_some_and(|peer| !peer.is_mapped) {
            return Ok(false);
        }
        memory.launch(kernel, on, direction, part, ctas).map(|()| true)
    }

    /// Waits up to two seconds for the stream. Returns whether it has completed.
    fn is_over(&self) -> bool {
        const PATIENCE: Duration = Duration::from_secs(2);
        let until = Instant::now() + PATIENCE;
        let mut has_ended = false;
        let looked = thread::poll(SPIN, SLEEP, || {
            has_ended = is_over(|| self.stream.is_done(), &mut None);
            Ok(has_ended || Instant::now() > until)
        });
        looked.is_ok() && has_ended
    }
}

impl Drop for Bench<'_> {
    fn drop(&mut self) {
        if !self.is_over() {
            // A copy is in progress and still uses the memory.
            let ordinal = self.device.context().device().ordinal();
            let bytes = self.memory.as_ref().map_or(0, |memory| memory.device.size());
            leak::with_memory(self.memory.take(), [(ordinal, bytes)]);
        } else if let Some(memory) = self.memory.take() {
            self.device.bench_memory.lock().push(memory.host);
        }
    }
}

impl Memory {
    /// The addresses of source and destination.
    fn ends(&self, direction: CopyDirection) -> (u64, u64) {
        let (device, host) = (self.device.address(), self.host.memory().address() as u64);
        let peer = self.peer.as_ref().map_or(0, |peer| peer.memory.address());
        match direction {
            CopyDirection::ToDevice => (host, device),
            CopyDirection::ToHost => (device, host),
            CopyDirection::OnDevice => (device, device + self.device_size),
            CopyDirection::FromPeer => (peer, device),
            CopyDirection::ToPeer => (device, peer),
        }
    }

    fn copy(&self, on: &Active<'_>, direction: CopyDirection, size: u64) -> Result<bool> {
        let (source, destination) = self.ends(direction);
        // SAFETY: within the two buffers, which stay until the stream is done.
        unsafe { on.copy(Copy { source, destination, size }) }.map(|()| true)
    }

    fn copy_pageable(&self, on: &Active<'_>, size: u64) -> Result<bool> {
        let (source, destination) = (self.pageable.as_ptr() as u64, self.device.address());
        // SAFETY: as above.
        unsafe { on.copy(Copy { source, destination, size }) }.map(|()| true)
    }

    fn copy_tiny(&self, on: &Active<'_>, count: u64) -> Result<bool> {
        let (source, destination) = self.ends(CopyDirection::ToDevice);
        let copy = |index| Copy {
            source: source + index * BLOCK,
            destination: destination + index * BLOCK,
            size: TINY,
        };
        // SAFETY: as above.
        (0..count).map(copy).try_for_each(|copy| unsafe { on.copy(copy) }).map(|()| true)
    }

    /// Copies blocks in an order in which no two neighbours can be merged, in calls of full size, as most of a large
    /// batch is submitted. The sources are read in stream order: if the driver may read small sources at submission, the
    /// first few hundred take several times as long as later ones.
    fn batch(&self, on: &Active<'_>, direction: CopyDirection, count: u64) -> Result<bool> {
        let blocks = HOST_SIZE / BATCH_BLOCK;
        let (source, destination) = self.ends(direction);
        let copies = (0..count as usize).map(|index| index as u64).map(|index| Copy {
            source: source + index * 37 % blocks * BATCH_BLOCK,
            destination: destination + index * BATCH_BLOCK,
            size: BATCH_BLOCK,
        });
        let batch = Batch::new(copies)?;
        // SAFETY: as above.
        unsafe { on.copy_batch(&batch, SourceOrder::Stream, EngineLoad::Busy) }.map(|()| true)
    }

    fn launch(
        &self,
        kernel: &CopyKernel,
        on: &Active<'_>,
        direction: CopyDirection,
        (offset, bytes): (u64, u64),
        ctas: u32,
    ) -> Result<()> {
        let (source, destination) = self.ends(direction);
        let (source, destination) = (source + offset, destination + offset);
        let length = u32::try_from(bytes / BLOCK)
            .map_err(|_| error!(Panic, "the buffer has more blocks than one run can have"))?;
        let runs = self.host.memory().address() as u64 + self.host.memory().size() as u64 - BLOCK;
        // SAFETY: the end of the page-locked buffer, which is aligned. No kernel reads it now: `time` waits for each.
        unsafe { (runs as *mut KernelRun).write(KernelRun::new(0, 0, length)) };
        let units = Units { unit_size: BLOCK, block_strides: [BLOCK; 2], max_blocks: length };
        let layers = [Layer { source, destination }];
        let mut blocks = single_units(&units, (1, [0; 2]), TILE, &layers, &(0..1));
        blocks.runs = runs;
        // SAFETY: as above. The kernel can access page-locked memory, memory of its device, and memory of a peer that is
        // mapped for it. Source and destination do not overlap.
        unsafe { kernel.launch(on, &blocks, ctas) }
    }
}
