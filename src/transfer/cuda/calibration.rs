// SPDX-License-Identifier: Apache-2.0
//! Measures what copies of a device cost, by a few real ones between small buffers that are freed afterwards.
//!
//! Everything is done with a small and a large amount, several times in turns, and the least time of each counts: what
//! else the machine does makes copies slower, never faster, and the difference of the two has no fixed costs in it. The
//! turns make a busy time hit all ways alike. It takes about 10 ms, and the first time what loading the kernel takes.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::choice::{self, Direction};
use super::engine::Engine;
use super::kernel::{Shape, TILE};
use super::rates::Rates;
use crate::cuda::copy::{Batch, Copy, Reading};
use crate::cuda::ending::is_over;
use crate::cuda::kernel::{CopyKernel, Layer, Run};
use crate::cuda::memory::Allocation;
use crate::cuda::stream::{Active, Stream};
use crate::cuda::{Context, Event};
use crate::error::{Error, Result, Status};
use crate::region::{PinnedConfig, PinnedMemory};

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const ROUNDS: usize = 3;
/// Two of these are more than a device keeps in its cache.
const DEVICE_SIZE: u64 = 32 * MIB;
const HOST_SIZE: u64 = 8 * MIB;
const PAGEABLE_SIZE: u64 = 2 * MIB;
/// A block of the kernel's, and a copy of a batch: smaller ones go by the kernel anyway.
const BLOCK: u64 = 64 * KIB;
/// A copy whose bytes take no time.
const TINY: u64 = 512;
/// So few that they don't fill a link: two do, towards the host.
const FEW_CTAS: u32 = 1;

/// One thing that is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Task {
    /// One copy of the driver's.
    Copy(Direction),
    /// The same from memory that is not page-locked.
    Pageable,
    /// Many tiny copies, a call each.
    Copies,
    /// Many blocks in one call.
    Batch(Direction),
    /// The kernel with as many CTAs as it gets.
    Kernel(Direction),
    /// The kernel with a few.
    FewCtas(Direction),
}

use Direction::{OnDevice, ToDevice, ToHost};

const TASKS: [Task; 14] = [
    Task::Copy(ToDevice),
    Task::Copy(ToHost),
    Task::Copy(OnDevice),
    Task::Pageable,
    Task::Copies,
    Task::Batch(ToDevice),
    Task::Batch(ToHost),
    Task::Batch(OnDevice),
    Task::Kernel(ToDevice),
    Task::Kernel(ToHost),
    Task::Kernel(OnDevice),
    Task::FewCtas(ToDevice),
    Task::FewCtas(ToHost),
    Task::FewCtas(OnDevice),
];

impl Task {
    /// A small and a large amount: bytes, or copies where those are counted.
    fn amounts(self) -> [u64; 2] {
        match self {
            Self::Copy(OnDevice) | Self::Kernel(OnDevice) => [DEVICE_SIZE / 4, DEVICE_SIZE],
            Self::Copy(_) | Self::Kernel(_) => [HOST_SIZE / 4, HOST_SIZE],
            Self::Pageable => [PAGEABLE_SIZE / 4, PAGEABLE_SIZE],
            Self::Copies => [8, 32],
            Self::Batch(_) => [16, 64],
            Self::FewCtas(_) => [256 * KIB, MIB],
        }
    }
}

/// The least seconds that each task took with its two amounts.
#[derive(Clone, Copy, Debug)]
pub struct Times([[f64; 2]; TASKS.len()]);

impl Times {
    fn none() -> Self {
        Self([[f64::INFINITY; 2]; TASKS.len()])
    }

    fn of(&self, task: Task) -> [f64; 2] {
        let index = TASKS.iter().position(|known| *known == task);
        index.map_or([f64::INFINITY; 2], |index| self.0[index])
    }

    /// Seconds for each byte or copy more; 0 where that is not known.
    fn each(&self, task: Task) -> f64 {
        let ([few, many], [small, large]) = (task.amounts(), self.of(task));
        let each = (large - small) / (many - few) as f64;
        if each.is_finite() && each > 0.0 { each } else { 0.0 }
    }

    /// Bytes a second; 0 where that is not known.
    fn rate(&self, task: Task) -> f64 {
        let each = self.each(task);
        if each > 0.0 { 1.0 / each } else { 0.0 }
    }

    /// What they say of the device. Nothing of it is checked yet.
    pub fn rates(&self) -> Rates {
        let mut rates = Rates {
            pageable: self.rate(Task::Pageable),
            copy: self.each(Task::Copies),
            kernel_start: self.kernel_start(),
            ..Rates::default()
        };
        for (direction, into) in
            [(ToDevice, &mut rates.to_device), (ToHost, &mut rates.to_host), (OnDevice, &mut rates.on_device)]
        {
            into.link = self.rate(Task::Copy(direction));
            into.batched =
                self.each(Task::Batch(direction)) - BLOCK as f64 * self.each(Task::Copy(direction));
            into.kernel = self.rate(Task::Kernel(direction));
            into.cta = self.rate(Task::FewCtas(direction)) / f64::from(FEW_CTAS);
        }
        rates
    }

    /// What is left of a small copy by the kernel once its bytes are taken off.
    fn kernel_start(&self) -> f64 {
        let task = Task::FewCtas(ToDevice);
        self.of(task)[0] - task.amounts()[0] as f64 * self.each(task)
    }
}

/// Measures, and answers what it has got when something fails, with the failure.
pub fn measure(engine: &Engine) -> (Times, Result<()>) {
    let mut times = Times::none();
    let outcome = Bench::open(engine).and_then(|bench| {
        let rounds = (0..ROUNDS).try_for_each(|_| bench.round(&mut times));
        rounds.and(bench.kernel.as_ref().map(drop).map_err(Clone::clone))
    });
    (times, outcome)
}

/// Two buffers on the device, one page-locked, one not, and a stream.
struct Bench<'a> {
    engine: &'a Engine,
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
}

impl<'a> Bench<'a> {
    fn open(engine: &'a Engine) -> Result<Self> {
        let context: &Arc<Context> = engine.context();
        let ordinal = context.device().ordinal();
        let config = PinnedConfig { size: HOST_SIZE + BLOCK, ordinal, threads: 1, ..PinnedConfig::default() };
        let memory = Memory {
            device: Allocation::new(ordinal, 2 * DEVICE_SIZE)?,
            host: PinnedMemory::allocate(&config, &mut |_, _| true)?,
            pageable: vec![1; PAGEABLE_SIZE as usize],
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

    /// Each task once with each amount.
    fn round(&self, times: &mut Times) -> Result<()> {
        for (task, best) in TASKS.into_iter().zip(&mut times.0) {
            for (amount, best) in task.amounts().into_iter().zip(best) {
                *best = best.min(self.time(task, amount)?);
            }
        }
        Ok(())
    }

    /// Seconds of the device's clock, from before a task to after it.
    fn time(&self, task: Task, amount: u64) -> Result<f64> {
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
                self.launch(memory, &on, direction, amount, choice::ctas(direction, false, multiprocessors))?
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
        match direction {
            Direction::ToDevice => (host, device),
            Direction::ToHost => (device, host),
            Direction::OnDevice | Direction::BetweenDevices => (device, device + DEVICE_SIZE),
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

    /// Blocks in another order than they lie in at the source, so that no two are one.
    fn batch(&self, on: &Active<'_>, direction: Direction, count: u64) -> Result<bool> {
        let blocks = HOST_SIZE / BLOCK;
        let (source, destination) = self.ends(direction);
        let copies = (0..count as usize).map(|index| index as u64).map(|index| Copy {
            source: source + index * 37 % blocks * BLOCK,
            destination: destination + index * BLOCK,
            size: BLOCK,
        });
        // SAFETY: as above.
        unsafe { on.copy_batch(&Batch::new(copies), Reading::InTurn) }.map(|()| true)
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
        let runs = self.host.memory().address() as u64 + HOST_SIZE;
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
        // SAFETY: as above; the kernel reaches page-locked memory and its own device's, and the two do not overlap.
        unsafe { kernel.launch(on, &blocks, ctas) }
    }
}

#[cfg(test)]
mod tests {
    use super::super::rates::{DEFAULT, DirectionRates, Source};
    use super::*;

    /// What a device of these rates would take, each time with the same fixed cost.
    fn times_of(rates: &Rates, fixed: f64) -> Times {
        let of = |direction| -> &DirectionRates { rates.of(direction) };
        let seconds = |task, amount: u64| {
            let amount = amount as f64;
            fixed
                + match task {
                    Task::Copy(direction) => amount / of(direction).link,
                    Task::Pageable => amount / rates.pageable,
                    Task::Copies => amount * rates.copy,
                    Task::Batch(way) => amount * (of(way).batched + BLOCK as f64 / of(way).link),
                    Task::Kernel(direction) => amount / of(direction).kernel,
                    Task::FewCtas(direction) => amount / (f64::from(FEW_CTAS) * of(direction).cta),
                }
        };
        let mut times = Times::none();
        for (task, best) in TASKS.into_iter().zip(&mut times.0) {
            *best = task.amounts().map(|amount| seconds(task, amount));
        }
        times
    }

    #[test]
    fn fixed_costs_are_in_none_of_the_rates() {
        let rates = Rates::plausible(&times_of(&DEFAULT, DEFAULT.kernel_start).rates());
        assert_eq!((rates.num_defaults, rates.source), (0, Source::Measured));
        for (found, known) in [
            (rates.to_device, DEFAULT.to_device),
            (rates.to_host, DEFAULT.to_host),
            (rates.on_device, DEFAULT.on_device),
        ] {
            for (found, known) in [
                (found.link, known.link),
                (found.batched, known.batched),
                (found.kernel, known.kernel),
                (found.cta, known.cta),
            ] {
                assert!((found / known - 1.0).abs() < 1e-6, "{found} for {known}");
            }
        }
        assert!((rates.kernel_start / DEFAULT.kernel_start - 1.0).abs() < 1e-6);
    }

    #[test]
    fn without_a_measurement_there_are_defaults() {
        let rates = Rates::plausible(&Times::none().rates());
        assert_eq!(Rates { num_defaults: 0, ..rates }, DEFAULT);
    }

    #[test]
    fn a_clock_that_stands_still_is_not_believed() {
        let still = Times([[1e-6; 2]; TASKS.len()]);
        assert_eq!(Rates::plausible(&still.rates()).to_device, DEFAULT.to_device);
    }
}
