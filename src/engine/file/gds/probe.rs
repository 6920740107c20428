// SPDX-License-Identifier: Apache-2.0
//! A trial transfer: moves test bytes from a GPU to a temporary file in the directory of the caller's file, and back. Each
//! result is verified by an engine without NIXL.
#![allow(unsafe_code)]

use std::sync::Arc;
use std::time::Instant;

use super::super::file_sides::FileSides;
use super::super::host_io::HostIo;
use super::super::io::Io;
use crate::base::{Result, ensure};
use crate::engine::Engine;
use crate::engine::direct::cuda::CudaCopy;
use crate::engine::peer::NixlMove;
use crate::engine::preferences::Preferences;
use crate::layout::{AllocationConfig, Arrangement, Dimensions, Geometry, Layout, LayoutSource};
use crate::nixl::{Agent, MemoryType};
use crate::plan::{BlockPair, Plan, Wanted};
use crate::region::{DeviceConfig, DiskFile, Region, SystemConfig};
use crate::run::RunHolds;
use crate::run::completion::{Account, Completion};
use crate::run::steps::RunPart;
use crate::run::ticket::Ticket;

const SIZE: u64 = 1 << 20;
const PAIRS: [BlockPair; 1] = [BlockPair { source: 0, destination: 0 }];

/// A temporary file in the directory of the caller's file.
pub fn beside(file: &DiskFile) -> Result<Arc<Region>> {
    file.beside(SIZE).map(Region::new)
}

/// Moves bytes between a GPU and a file, both ways, and compares them, until a time at the latest.
pub fn there_and_back(agent: &Arc<Agent>, ordinal: i32, file: Arc<Region>, end: Instant) -> Result<()> {
    let build = |source, agent| Layout::build(block()?, source, agent);
    let known = |source| build(source, Some(agent.clone()));
    let disk = known(LayoutSource::Regions(vec![file]))?;
    let device = AllocationConfig::Device(DeviceConfig { ordinal, size: SIZE });
    let device = known(LayoutSource::Allocate(device))?;
    let host = AllocationConfig::System(SystemConfig::default());
    let host = build(LayoutSource::Allocate(host), None)?;
    for (direction, source, destination, salt) in
        [("NIXL writes", &device, &disk, 0x5a), ("NIXL reads", &disk, &device, 0xa4)]
    {
        fill(&host, |index| byte(index, salt))?;
        copy(&host, source, end)?;
        fill(&host, |_| 0)?;
        copy(&host, destination, end)?;
        by_nixl([source, destination], end).map_err(|error| error.context(direction))?;
        copy(destination, &host, end)?;
        ensure!(holds(&host, |index| byte(index, salt))?, Corrupt, "{direction}: other bytes arrived");
    }
    Ok(())
}

fn block() -> Result<Geometry> {
    let dimensions = Dimensions { inner_dim: SIZE, ..Dimensions::ONE };
    Geometry::new(dimensions, Arrangement::FULLY_CONTIGUOUS)
}

/// Never 0, and different on each page.
fn byte(index: usize, salt: u8) -> u8 {
    ((index ^ (index >> 8) ^ (index >> 16)) as u8 ^ salt) | 1
}

/// Copies between host memory and a GPU or a file, by an engine that needs no NIXL.
fn copy(source: &Arc<Layout>, destination: &Arc<Layout>, end: Instant) -> Result<()> {
    let plan = Plan::once(source, destination, &PAIRS, Wanted::default())?;
    if [source, destination].iter().any(|layout| layout.memory_type() == MemoryType::Vram) {
        let copy = CudaCopy::prepare(source, destination, plan, &Preferences::default())?;
        return run(end, [source, destination], |ticket| copy.submit(ticket));
    }
    let sides = FileSides::new(source, destination);
    let (io, _) = Io::choose(&sides, None)?;
    let copy = HostIo::prepare(&sides, plan, io);
    run(end, [source, destination], |ticket| {
        copy.prepare_start(ticket.start())();
        Ok(())
    })
}

fn by_nixl(sides @ [source, destination]: [&Arc<Layout>; 2], end: Instant) -> Result<()> {
    let plan = Plan::once(source, destination, &PAIRS, Wanted::default())?;
    let moved = NixlMove::prepare(sides, plan, None)?;
    run(end, sides, |ticket| {
        moved.prepare_start(ticket.start())();
        Ok(())
    })
}

/// Starts a run between two layouts and waits for its end, until a time. The run holds the layouts: one that takes too long still moves
/// bytes when the trial has failed.
fn run(end: Instant, sides: [&Arc<Layout>; 2], start: impl FnOnce(Ticket) -> Result<()>) -> Result<()> {
    let completion = Arc::new(Completion::new(1, None));
    completion.claim();
    let held = RunHolds { layouts: Some(sides.map(Arc::clone)), ..RunHolds::default() };
    start(Ticket::new(completion.clone(), Account::default(), held)?)?;
    completion.wait(Some(end))
}

fn fill(host: &Layout, byte: impl Fn(usize) -> u8) -> Result<()> {
    with_bytes(host, |bytes| bytes.iter_mut().enumerate().for_each(|(index, each)| *each = byte(index)))
}

fn holds(host: &Layout, byte: impl Fn(usize) -> u8) -> Result<bool> {
    with_bytes(host, |bytes| bytes.iter().enumerate().all(|(index, each)| *each == byte(index)))
}

fn with_bytes<R>(host: &Layout, work: impl FnOnce(&mut [u8]) -> R) -> Result<R> {
    let (address, size) = host.block(0, 0, 0)?;
    // SAFETY: host memory of a layout that only the probe uses. No transfer is in flight, and no other slice of it exists.
    Ok(work(unsafe { std::slice::from_raw_parts_mut(address as *mut u8, size as usize) }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::Status;

    #[test]
    fn a_run_that_takes_too_long_holds_the_memory_until_it_has_ended() {
        let memory = || LayoutSource::Allocate(AllocationConfig::System(SystemConfig::default()));
        let layouts = [(); 2].map(|()| Layout::build(block().unwrap(), memory(), None).unwrap());
        let holders = || layouts.each_ref().map(Arc::strong_count);
        let mut late = None;
        let error = run(Instant::now(), layouts.each_ref(), |ticket| {
            late = Some(ticket.start());
            Ok(())
        });
        assert_eq!(error.unwrap_err().status(), Status::TimedOut);
        assert_eq!(holders(), [2; 2]);
        drop(late);
        assert_eq!(holders(), [1; 2]);
    }
}
