// SPDX-License-Identifier: Apache-2.0
//! The two sides of a copy as the device sees them: which of them is the host's, and what a kernel reaches.

use super::choice::Direction;
use crate::cuda::memory::{is_accessible, is_mapped_host};
use crate::cuda::{Context, Device};
use crate::error::{Error, Result, Status};
use crate::layout::Layout;
use crate::region::{Backing, DeviceMemory, Region, Tier};
use crate::transfer::Path;

/// The two sides of a copy.
pub struct Sides<'a> {
    /// Where the blocks come from.
    pub source: &'a Layout,
    /// Where they go.
    pub destination: &'a Layout,
    /// Which way that is.
    pub direction: Direction,
    /// The device that the copy runs on.
    pub ordinal: i32,
    /// The host's side is not page-locked.
    pub is_pageable: bool,
    /// Whether a kernel reaches both sides, or why not.
    pub kernel_reaches: std::result::Result<(), String>,
    /// The driver passes bytes from device to device through the host.
    devices_are_apart: bool,
}

impl<'a> Sides<'a> {
    /// Asks the driver what it takes.
    pub fn of(source: &'a Layout, destination: &'a Layout) -> Result<Self> {
        let of = |layout: &Layout| layout.memory().regions().first().and_then(|region| region.ordinal());
        let (from, to) = (of(source), of(destination));
        let neither = || Error::new(Status::Unsupported, "neither layout is GPU memory");
        let direction = match (from, to) {
            (Some(from), Some(to)) if from == to => Direction::OnDevice,
            (Some(_), Some(_)) => Direction::BetweenDevices,
            (Some(_), None) => Direction::ToHost,
            (None, _) => Direction::ToDevice,
        };
        // The driver's copies cross devices by themselves; the destination's device does the work.
        let ordinal = to.or(from).ok_or_else(neither)?;
        let mut sides = Self {
            source,
            destination,
            direction,
            ordinal,
            is_pageable: false,
            kernel_reaches: Ok(()),
            devices_are_apart: false,
        };
        sides.look()?;
        Ok(sides)
    }

    fn look(&mut self) -> Result<()> {
        if let Some(host) = self.host()
            && !is_page_locked(host, self.ordinal)?
        {
            self.is_pageable = true;
            self.kernel_reaches =
                Err("the host memory is not page-locked, and no kernel reaches it".to_string());
        }
        if self.direction == Direction::BetweenDevices {
            let ordinals = [self.source, self.destination]
                .map(|side| side.memory().regions().first().and_then(|region| region.ordinal()).unwrap_or(0));
            let [from, to] = ordinals;
            self.devices_are_apart = !Device::get(to)?.can_access(&Device::get(from)?)?;
            self.kernel_reaches = self.reach_of_peer(Device::get(to)?, Device::get(from)?)?;
        }
        Ok(())
    }

    /// Whether kernels of the destination's device reach the source's memory: VMM memory says so itself, for plain
    /// memory the driver is asked to map it.
    fn reach_of_peer(&self, own: Device, peer: Device) -> Result<std::result::Result<(), String>> {
        let (own_ordinal, peer_ordinal) = (own.ordinal(), peer.ordinal());
        if self.devices_are_apart {
            return Ok(Err(format!("device {own_ordinal} does not reach device {peer_ordinal}")));
        }
        let mut has_plain = false;
        for region in self.source.memory().regions() {
            match peer_memory(region) {
                PeerMemory::Vmm(address) if is_accessible(own, address, false)? => {}
                PeerMemory::Plain => has_plain = true,
                _ => {
                    let reason =
                        format!("memory of device {peer_ordinal} is not mapped for device {own_ordinal}");
                    return Ok(Err(reason));
                }
            }
        }
        if has_plain {
            let enabled = Context::retain(own)?.enable_access_to(&Context::retain(peer)?);
            return Ok(enabled.map_err(|error| error.message().to_string()));
        }
        Ok(Ok(()))
    }

    /// The side that is host memory.
    pub fn host(&self) -> Option<&'a Layout> {
        match self.direction {
            Direction::ToDevice => Some(self.source),
            Direction::ToHost => Some(self.destination),
            _ => None,
        }
    }

    /// The other one.
    pub fn device(&self) -> Option<&'a Layout> {
        match self.direction {
            Direction::ToDevice => Some(self.destination),
            Direction::ToHost => Some(self.source),
            _ => None,
        }
    }

    /// The one on the device that the copy runs on.
    pub fn own(&self) -> &'a Layout {
        if self.to_host() { self.source } else { self.destination }
    }

    /// Whether the blocks go to the host.
    pub fn to_host(&self) -> bool {
        self.direction == Direction::ToHost
    }

    /// Whether bytes pass through host memory that is neither side's.
    pub fn bounces(&self, path: Path) -> bool {
        path != Path::CudaKernel && (self.is_pageable || self.devices_are_apart)
    }
}

/// How a kernel of another device would reach a region.
enum PeerMemory {
    /// Mapped, with the same access for all of it; an address that has memory.
    Vmm(u64),
    /// One allocation.
    Plain,
    /// Several pieces of an engine's, each with an access of its own; or no memory.
    Unknown,
}

fn peer_memory(region: &Region) -> PeerMemory {
    match region.root() {
        Backing::Elastic(memory) => match memory.committed().first() {
            Some(extent) => PeerMemory::Vmm(memory.span(*extent).0),
            None => PeerMemory::Unknown,
        },
        Backing::Device(memory) => match &**memory {
            DeviceMemory::Owned(_) => PeerMemory::Plain,
            _ => PeerMemory::Unknown,
        },
        _ => PeerMemory::Unknown,
    }
}

/// Whether all of a host layout is page-locked and mapped for devices: the library's own pinned memory is, of all
/// else the driver knows.
fn is_page_locked(host: &Layout, ordinal: i32) -> Result<bool> {
    if host.memory().tier() == Tier::Pinned {
        return Ok(true);
    }
    let context = Context::retain(Device::get(ordinal)?)?;
    for region in host.memory().regions() {
        if !is_mapped_host(&context, region.address(), region.size())? {
            return Ok(false);
        }
    }
    Ok(true)
}
