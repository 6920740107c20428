// SPDX-License-Identifier: Apache-2.0
//! Buffers and a stream on which copies are timed to see what they cost.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::super::choice::cost;
use super::super::choice::cost::Direction;
use super::super::device::state::DeviceState;
use super::super::work::kernel::{Shape, TILE};
use super::measure::{BATCH_BLOCK, BLOCK, DEVICE_SIZE, FEW_CTAS, HOST_SIZE, PAGEABLE_SIZE, PEER_SIZE, Task};
use crate::cuda::copy::{Batch, Copy, EngineLoad, SourceOrder};
use crate::cuda::ending::is_over;
use crate::cuda::kernel::{CopyKernel, Layer, Run};
use crate::cuda::memory::Allocation;
use crate::cuda::stream::{Active, Stream};
use crate::cuda::vmm::{
    AddressRange, AllocationProperties, DeviceAccess, DeviceMapping, Granularity, PhysicalMemory,
};
use crate::cuda::{Context, Device, Event};
use crate::error::{Error, Result, Status};
use crate::region::{PinnedConfig, PinnedMemory};

/// Bytes of a copy that take no time.
const TINY: u64 = 512;

/// A stream, and buffers on the device, at the host and, where it is about one, on a peer.
pub struct Bench<'a> {
    engine: &'a DeviceState,
    stream: Stream,
    begun: Event,
    ended: Event,
    kernel: Result<Arc<CopyKernel>>,
    memory: Option<Memory>,
}

struct Memory {
    device: Allocation,
    /// With the kernel's runs at its end.
    host: PinnedMemory,
    pageable: Vec<u8>,
    peer: Option<Peer>,
}

/// Memory of another device.
enum Peer {
    /// Mapped for the device, which needs no context of the peer's.
    Mapped(Arc<DeviceMapping>),
    /// Out of the device's reach: the driver's copies alone get there.
    Apart(Allocation),
}

impl Peer {
    fn allocate(device: Device, ordinal: i32) -> Result<Self> {
        let peer = Device::get(ordinal)?;
        if !peer.has_vmm() || !device.can_access(&peer)? {
            return Allocation::new(ordinal, PEER_SIZE).map(Self::Apart);
        }
        let properties = AllocationProperties::on_device(ordinal);
        let granularity = properties.granularity(Granularity::Minimum)?;
        let memory = PhysicalMemory::create(PEER_SIZE.next_multiple_of(granularity), properties)?;
        let range = AddressRange::reserve(memory.size(), granularity)?;
        let mapping = DeviceMapping::create(&range, 0, &memory)?;
        let accesses = [ordinal, device.ordinal()].map(|ordinal| (ordinal, DeviceAccess::ReadWrite));
        DeviceMapping::set_access_of_all(std::slice::from_ref(&mapping), &accesses)?;
        Ok(Self::Mapped(mapping))
    }

    fn address(&self) -> u64 {
        match self {
            Self::Mapped(mapping) => mapping.address(),
            Self::Apart(memory) => memory.address(),
        }
    }
}

impl<'a> Bench<'a> {
    /// For what one device does.
    pub fn open(engine: &'a DeviceState) -> Result<Self> {
        Self::with(engine, DEVICE_SIZE, HOST_SIZE, PAGEABLE_SIZE, None)
    }

    /// For what a device does with memory of another.
    pub fn open_with_peer(engine: &'a DeviceState, peer: i32) -> Result<Self> {
        Self::with(engine, PEER_SIZE / 2, 0, 0, Some(peer))
    }

    /// Two buffers of the size that is given for the device, side by side.
    fn with(
        engine: &'a DeviceState,
        device: u64,
        host: u64,
        pageable: u64,
        peer: Option<i32>,
    ) -> Result<Self> {
        let context: &Arc<Context> = engine.context();
        let ordinal = context.device().ordinal();
        let config = PinnedConfig { size: host + BLOCK, ordinal, threads: 1, ..PinnedConfig::default() };
        let memory = Memory {
            device: Allocation::new(ordinal, 2 * device)?,
            host: PinnedMemory::allocate(&config, &mut |_, _| true)?,
            pageable: vec![1; pageable as usize],
            peer: peer.map(|peer| Peer::allocate(context.device(), peer)).transpose()?,
        };
        Ok(Self {
            engine,
            stream: Stream::new(context)?,
            begun: Event::timed(context)?,
            ended: Event::timed(context)?,
            kernel: engine.kernel(),
            memory: Some(memory),
        })
    }

    /// Whether there is a kernel, or why not.
    pub fn kernel(&self) -> Result<()> {
        self.kernel.as_ref().map(drop).map_err(Clone::clone)
    }

    /// Seconds of the device's clock, from before a task to after it.
    pub fn time(&self, task: Task, amount: u64) -> Result<f64> {
        let Some(memory) = &self.memory else { return Ok(f64::INFINITY) };
        let on = self.stream.activate()?;
        on.record(&self.begun)?;
        let was_done = match task {
            Task::Copy(direction) => memory.copy(&on, direction, amount)?,
            Task::Pageable => memory.copy_pageable(&on, amount)?,
            Task::Copies => memory.copy_tiny(&on, amount)?,
            Task::Batch(direction) => {
                self.engine.context().driver().copies_batches() && memory.batch(&on, direction, amount)?
            }
            Task::Kernel(direction) => {
                let multiprocessors = self.engine.context().device().multiprocessors();
                let ctas = cost::ctas(direction, false, multiprocessors, BLOCK);
                self.launch(memory, &on, direction, amount, ctas)?
            }
            Task::FewCtas(direction) => self.launch(memory, &on, direction, amount, FEW_CTAS)?,
        };
        on.record(&self.ended)?;
        self.ended.wait()?;
        if was_done { self.ended.seconds_since(&self.begun) } else { Ok(f64::INFINITY) }
    }

    fn launch(
        &self,
        memory: &Memory,
        on: &Active<'_>,
        way: Direction,
        bytes: u64,
        ctas: u32,
    ) -> Result<bool> {
        let Ok(kernel) = &self.kernel else { return Ok(false) };
        if matches!(memory.peer, Some(Peer::Apart(_))) {
            return Ok(false);
        }
        memory.launch(kernel, on, way, bytes, ctas).map(|()| true)
    }

    /// Whether the stream has nothing to do any more.
    fn is_over(&self) -> bool {
        const PATIENCE: Duration = Duration::from_secs(2);
        let until = Instant::now() + PATIENCE;
        while !is_over(|| self.stream.is_done(), &mut None) {
            if Instant::now() > until {
                return false;
            }
            std::thread::yield_now();
        }
        true
    }
}

impl Drop for Bench<'_> {
    fn drop(&mut self) {
        if !self.is_over() {
            // A copy is still under way: its memory must stay.
            std::mem::forget(self.memory.take());
        }
    }
}

impl Memory {
    /// Where a copy reads and writes.
    fn ends(&self, direction: Direction) -> (u64, u64) {
        let (device, host) = (self.device.address(), self.host.memory().address() as u64);
        let peer = self.peer.as_ref().map_or(0, Peer::address);
        match direction {
            Direction::ToDevice => (host, device),
            Direction::ToHost => (device, host),
            Direction::OnDevice => (device, device + DEVICE_SIZE),
            Direction::FromPeer => (peer, device),
            Direction::ToPeer => (device, peer),
        }
    }

    fn copy(&self, on: &Active<'_>, direction: Direction, size: u64) -> Result<bool> {
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
        let (source, destination) = self.ends(Direction::ToDevice);
        let copy = |index| Copy {
            source: source + index * BLOCK,
            destination: destination + index * BLOCK,
            size: TINY,
        };
        // SAFETY: as above.
        (0..count).map(copy).try_for_each(|copy| unsafe { on.copy(copy) }).map(|()| true)
    }

    /// Blocks in another order than they lie in at the source, so that no two are one; in full calls, which most of a
    /// large batch goes in; and read in turn: where the driver may read small ones at once, the first few hundred take it
    /// several times as long as those after them, and as larger ones.
    fn batch(&self, on: &Active<'_>, direction: Direction, count: u64) -> Result<bool> {
        let blocks = HOST_SIZE / BATCH_BLOCK;
        let (source, destination) = self.ends(direction);
        let copies = (0..count as usize).map(|index| index as u64).map(|index| Copy {
            source: source + index * 37 % blocks * BATCH_BLOCK,
            destination: destination + index * BATCH_BLOCK,
            size: BATCH_BLOCK,
        });
        // SAFETY: as above.
        unsafe { on.copy_batch(&Batch::new(copies), SourceOrder::Stream, EngineLoad::Busy) }.map(|()| true)
    }

    fn launch(
        &self,
        kernel: &CopyKernel,
        on: &Active<'_>,
        way: Direction,
        bytes: u64,
        ctas: u32,
    ) -> Result<()> {
        let (source, destination) = self.ends(way);
        let length = u32::try_from(bytes / BLOCK)
            .map_err(|_| Error::new(Status::Panic, "a buffer of more blocks than a run has"))?;
        let runs = self.host.memory().address() as u64 + self.host.memory().size() as u64 - BLOCK;
        // SAFETY: the end of the page-locked buffer, which is aligned; no kernel reads it now, for each is waited for.
        unsafe { (runs as *mut Run).write(Run::new(0, 0, length)) };
        let shape = Shape {
            unit_size: BLOCK,
            outers: 1,
            block_strides: [BLOCK; 2],
            outer_strides: [0; 2],
            most_blocks: length,
            most_tile: TILE,
        };
        let mut blocks = shape.blocks(&[Layer { source, destination }], 0, 1);
        blocks.runs = runs;
        // SAFETY: as above; the kernel reaches page-locked memory, its own device's, and a peer's that is mapped
        // for it, and no two overlap.
        unsafe { kernel.launch(on, &blocks, ctas) }
    }
}
