// SPDX-License-Identifier: Apache-2.0
//! A stream and buffers for timing copies on a device.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::super::device::state::DeviceState;
use super::super::direction::CopyDirection;
use super::super::launch;
use super::super::launch::{LaunchShape, TILE};
use super::task::{BATCH_BLOCK, BLOCK, FEW_CTAS, HOST_SIZE, PAGEABLE_SIZE, PEER_SIZE, Task, device_size};
use crate::cuda::copy::{Batch, Copy, EngineLoad, SourceOrder};
use crate::cuda::ending::is_over;
use crate::cuda::kernel::{CopyKernel, KernelRun, Layer};
use crate::cuda::memory::{Allocation, free_memory};
use crate::cuda::stream::{Active, Stream};
use crate::cuda::vmm::{
    AddressRange, AllocationProperties, DeviceAccess, DeviceMapping, Granularity, PhysicalMemory,
};
use crate::cuda::{Context, Device, Event};
use crate::error::{Error, Result, Status};
use crate::leak;
use crate::region::{PinnedConfig, PinnedMemory};

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
    device: Allocation,
    /// The size of each.
    device_size: u64,
    /// The last `BLOCK` bytes hold the descriptor of the kernel's run.
    host: PinnedMemory,
    pageable: Vec<u8>,
    peer: Option<Peer>,
}

/// Memory of another device.
enum Peer {
    /// Mapped for the device. This needs no context of the peer.
    Mapped(Arc<DeviceMapping>),
    /// The device cannot access it: only the driver copies from and to it.
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
    /// For copies of one device.
    pub fn open(device: &'a DeviceState) -> Result<Self> {
        let context = device.context();
        let free = free_memory(context).map_or(0, |(free, _)| free as u64);
        let open = |size| Self::with(device, size, HOST_SIZE, PAGEABLE_SIZE, None);
        match open(device_size(context.device().cache_size(), free)) {
            // The program has allocated meanwhile, or memory is fragmented.
            Err(error) if error.status() == Status::OutOfMemory => open(device_size(0, 0)),
            opened => opened,
        }
    }

    /// For copies between a device and a peer.
    pub fn open_with_peer(device: &'a DeviceState, peer: i32) -> Result<Self> {
        Self::with(device, PEER_SIZE / 2, 0, 0, Some(peer))
    }

    /// Allocates two adjacent buffers of `device_size` bytes each on the device, and host memory.
    fn with(
        device: &'a DeviceState,
        device_size: u64,
        host_size: u64,
        pageable_size: u64,
        peer: Option<i32>,
    ) -> Result<Self> {
        let context: &Arc<Context> = device.context();
        let ordinal = context.device().ordinal();
        let config = PinnedConfig { size: host_size + BLOCK, ordinal, threads: 1, ..PinnedConfig::default() };
        let memory = Memory {
            device: Allocation::new(ordinal, 2 * device_size)?,
            device_size,
            host: PinnedMemory::allocate(&config, &mut |_, _| true)?,
            pageable: vec![1; pageable_size as usize],
            peer: peer.map(|peer| Peer::allocate(context.device(), peer)).transpose()?,
        };
        Ok(Self {
            device,
            stream: Stream::new(context)?,
            begun: Event::timed(context)?,
            ended: Event::timed(context)?,
            kernel: device.kernel(),
            memory: Some(memory),
        })
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
        // Polled, because the driver must not be in a call with the event when the program resets its device.
        while !self.ended.is_done()? {
            std::thread::yield_now();
        }
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
        if matches!(memory.peer, Some(Peer::Apart(_))) {
            return Ok(false);
        }
        memory.launch(kernel, on, direction, part, ctas).map(|()| true)
    }

    /// Waits up to two seconds for the stream. Returns whether it has completed.
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
            // A copy is in progress and still uses the memory.
            leak::intentionally(self.memory.take());
        }
    }
}

impl Memory {
    /// The addresses of source and destination.
    fn ends(&self, direction: CopyDirection) -> (u64, u64) {
        let (device, host) = (self.device.address(), self.host.memory().address() as u64);
        let peer = self.peer.as_ref().map_or(0, Peer::address);
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
            .map_err(|_| Error::new(Status::Panic, "the buffer has more blocks than one run can have"))?;
        let runs = self.host.memory().address() as u64 + self.host.memory().size() as u64 - BLOCK;
        // SAFETY: the end of the page-locked buffer, which is aligned. No kernel reads it now: `time` waits for each.
        unsafe { (runs as *mut KernelRun).write(KernelRun::new(0, 0, length)) };
        let shape = LaunchShape {
            unit_size: BLOCK,
            outers: 1,
            block_strides: [BLOCK; 2],
            outer_strides: [0; 2],
            most_blocks: length,
            most_tile: TILE,
        };
        let mut blocks = shape.blocks(&[Layer { source, destination }], 0, 1);
        blocks.runs = runs;
        // SAFETY: as above. The kernel can access page-locked memory, memory of its device, and memory of a peer that is
        // mapped for it. Source and destination do not overlap.
        unsafe { kernel.launch(on, &blocks, ctas) }
    }
}
