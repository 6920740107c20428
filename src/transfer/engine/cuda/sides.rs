// SPDX-License-Identifier: Apache-2.0
//! The two sides of a copy as the device sees them: which of them is the host's, and what a kernel reaches.

use std::sync::Arc;

use super::choice::cost::Direction;
use super::page_locks::Locks;
use crate::cuda::ipc::DevicePair;
use crate::cuda::memory::is_accessible;
use crate::cuda::peer::{self, PeerReach, peer_reach};
use crate::cuda::{Context, Device};
use crate::error::{Error, Result, Status};
use crate::layout::Layout;
use crate::region::{Backing, DeviceMemory, DeviceUsers, Region};
use crate::transfer::path::Path;

/// The two sides of a copy.
pub struct Sides {
    /// Where the blocks come from.
    pub source: Arc<Layout>,
    /// Where they go.
    pub destination: Arc<Layout>,
    /// Which way that is.
    pub direction: Direction,
    /// The device that the copy runs on.
    pub ordinal: i32,
    /// The other device that the blocks come from or go to.
    pub peer: Option<i32>,
    /// The host's side is not page-locked, or not all of it.
    pub is_pageable: bool,
    /// The page locks of the host's side, where the library did not lock it.
    pub locks: Locks,
    /// Whether a kernel reaches both sides, or why not.
    pub kernel_reaches: std::result::Result<(), String>,
    /// The driver passes bytes from device to device through the host.
    devices_are_apart: bool,
}

impl Sides {
    /// Asks the driver what it takes.
    pub fn of(source: &Arc<Layout>, destination: &Arc<Layout>) -> Result<Self> {
        let (from, to) = (place(source), place(destination));
        let neither = || Error::new(Status::Unsupported, "neither layout is GPU memory");
        // The driver's copies cross devices by themselves; the destination's device does the work. Memory of another
        // process's is reached by the device it was opened for: then that one does.
        let ordinal = to.or(from).ok_or_else(neither)?.user;
        let (direction, peer) = match (from, to) {
            (Some(from), Some(_)) if from.owner != ordinal => (Direction::FromPeer, Some(from.owner)),
            (Some(_), Some(to)) if to.owner != ordinal => (Direction::ToPeer, Some(to.owner)),
            (Some(_), Some(_)) => (Direction::OnDevice, None),
            (Some(_), None) => (Direction::ToHost, None),
            (None, _) => (Direction::ToDevice, None),
        };
        let mut sides = Self {
            source: source.clone(),
            destination: destination.clone(),
            direction,
            ordinal,
            peer,
            is_pageable: false,
            locks: Locks::default(),
            kernel_reaches: Ok(()),
            devices_are_apart: false,
        };
        sides.look()?;
        Ok(sides)
    }

    fn look(&mut self) -> Result<()> {
        if let Some(host) = self.host() {
            self.locks = Locks::of(host, self.ordinal)?;
            if !self.locks.are_complete() {
                self.is_pageable = true;
                self.kernel_reaches =
                    Err("the host memory is not page-locked, and no kernel reaches it".to_string());
            }
        }
        for side in [self.source.clone(), self.destination.clone()] {
            let Some(place) = place(&side).filter(|place| *place != DevicePair::on(self.ordinal)) else {
                continue;
            };
            self.devices_are_apart |= !Device::get(self.ordinal)?.can_access(&Device::get(place.owner)?)?;
            if self.kernel_reaches.is_ok() {
                self.kernel_reaches = self.reach_of_peer(&side, place)?;
            }
        }
        Ok(())
    }

    /// Whether kernels of the device that copies reach a side that lies elsewhere, or was opened for another device:
    /// VMM memory says so itself, for plain memory of this process, its engines' or ours, the driver is asked to map it.
    fn reach_of_peer(&self, side: &Layout, place: DevicePair) -> Result<std::result::Result<(), String>> {
        let DevicePair { owner, user } = place;
        let own = Device::get(self.ordinal)?;
        if self.devices_are_apart {
            return Ok(Err(format!("device {} does not reach device {owner}", self.ordinal)));
        }
        let mut has_plain = false;
        for region in side.memory().regions() {
            region.open_for(DeviceUsers::Device(self.ordinal))?;
            match peer_memory(region) {
                PeerMemory::Opened if user == self.ordinal => {}
                PeerMemory::Opened => {
                    return Ok(Err(format!(
                        "memory of device {owner} was opened for device {user}, and device {} does the copy: open it for \
                         that one",
                        self.ordinal
                    )));
                }
                PeerMemory::Vmm(address) if is_accessible(own, address, false)? => {}
                PeerMemory::Plain => has_plain = true,
                PeerMemory::Adopted { address, size } => {
                    let peer = Context::retain(Device::get(owner)?)?;
                    match peer_reach(own, &peer, address, size)? {
                        PeerReach::Mapped => {}
                        PeerReach::OncePeersAreEnabled => has_plain = true,
                        PeerReach::None => return Ok(Err(self.not_mapped(owner))),
                    }
                }
                _ => return Ok(Err(self.not_mapped(owner))),
            }
        }
        if has_plain {
            let peer = Context::retain(Device::get(owner)?)?;
            return peer::enable(&Context::retain(own)?, &peer);
        }
        Ok(Ok(()))
    }

    fn not_mapped(&self, owner: i32) -> String {
        format!("memory of device {owner} is not mapped for device {}", self.ordinal)
    }

    /// The side that is host memory.
    pub fn host(&self) -> Option<&Layout> {
        match self.direction {
            Direction::ToDevice => Some(&self.source),
            Direction::ToHost => Some(&self.destination),
            _ => None,
        }
    }

    /// The other one.
    pub fn device(&self) -> Option<&Layout> {
        match self.direction {
            Direction::ToDevice => Some(&self.destination),
            Direction::ToHost => Some(&self.source),
            _ => None,
        }
    }

    /// The one on the device that the copy runs on.
    pub fn own(&self) -> &Layout {
        if self.to_host() { &self.source } else { &self.destination }
    }

    /// Whether the blocks go to the host.
    pub fn to_host(&self) -> bool {
        self.direction == Direction::ToHost
    }

    /// How many bytes a copy of the driver's that starts at an address of a side's region may have: it must not reach
    /// over the end of an extent, of a page lock or of an allocation.
    pub fn left<'a>(&'a self, side: &'a Layout) -> impl Fn(u32, u64) -> u64 + 'a {
        let locks = self.locks_of(side);
        move |region, address| {
            let left = side.bytes_in_piece(region, address);
            locks.map_or(left, |locks| left.min(locks.left(address)))
        }
    }

    /// Whether no region of a side has a place that copies must not reach over.
    pub fn is_one_piece(&self, side: &Layout) -> bool {
        let locks = self.locks_of(side);
        side.memory().regions().iter().enumerate().all(|(index, region)| {
            side.bytes_in_piece(index as u32, region.address()) >= region.size()
                && locks.is_none_or(|locks| locks.has_no_end_in(region))
        })
    }

    fn locks_of(&self, side: &Layout) -> Option<&Locks> {
        self.host().is_some_and(|host| std::ptr::eq(host, side)).then_some(&self.locks)
    }

    /// Whether bytes pass through host memory that is neither side's.
    pub fn bounces(&self, path: Path) -> bool {
        path != Path::CudaKernel && (self.is_pageable || self.devices_are_apart)
    }
}

/// Where a layout lies, if on a device; all of its regions lie there.
fn place(layout: &Layout) -> Option<DevicePair> {
    layout.memory().regions().first().and_then(|region| region.place())
}

/// How a kernel of another device would reach a region.
enum PeerMemory {
    /// Mapped, with the same access for all of it; an address that has memory.
    Vmm(u64),
    /// One allocation of this process's.
    Plain,
    /// Another process's allocation, mapped for one device.
    Opened,
    /// An engine's, of whatever kind: the driver is asked.
    Adopted { address: u64, size: u64 },
    /// No memory.
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
            DeviceMemory::Imported(_) => PeerMemory::Opened,
            DeviceMemory::Mapped(memory) => PeerMemory::Vmm(memory.address()),
            DeviceMemory::Adopted(_) => {
                PeerMemory::Adopted { address: region.address(), size: region.size() }
            }
        },
        _ => PeerMemory::Unknown,
    }
}
