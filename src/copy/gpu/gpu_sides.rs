// SPDX-License-Identifier: Apache-2.0
//! The two sides of a copy: the direction, the device that executes it, and the memory that a kernel can access.

use std::borrow::Cow;
use std::sync::Arc;

use super::direction::CopyDirection;
use super::page_locks::PageLocks;
use crate::base::{Result, error};
use crate::cuda::memory::is_accessible;
use crate::cuda::peer::{self, PeerReach, peer_reach};
use crate::cuda::{Context, Device, DevicePair};
use crate::layout::Layout;
use crate::region::{DeviceUsers, PeerMemory, Tier};

pub struct CudaSides {
    pub source: Arc<Layout>,
    pub destination: Arc<Layout>,
    pub direction: CopyDirection,
    /// The device that the copy runs on.
    pub ordinal: i32,
    /// The other device, if the copy is between two.
    pub peer: Option<i32>,
    /// The host's side is not page-locked, or not all of it.
    pub is_pageable: bool,
    /// The page locks of the host's side that kvmem did not make itself.
    pub locks: PageLocks,
    /// Whether a kernel can access both sides, or why not.
    pub kernel_reaches: std::result::Result<(), Cow<'static, str>>,
    /// The driver copies between the devices through the host.
    devices_are_apart: bool,
    /// The contexts between which access was enabled: it ends with either of them, and memory of VMM keeps none.
    enabled: Option<[Context; 2]>,
}

impl CudaSides {
    /// Queries the driver.
    pub fn new(source: &Arc<Layout>, destination: &Arc<Layout>) -> Result<Self> {
        let (from, to) = (place(source), place(destination));
        let (_, ordinal) = executor(source, destination)?;
        let (direction, peer) = match (from, to) {
            (Some(from), Some(_)) if from.owner != ordinal => (CopyDirection::FromPeer, Some(from.owner)),
            (Some(_), Some(to)) if to.owner != ordinal => (CopyDirection::ToPeer, Some(to.owner)),
            (Some(_), Some(_)) => (CopyDirection::OnDevice, None),
            (Some(_), None) => (CopyDirection::ToHost, None),
            (None, _) => (CopyDirection::ToDevice, None),
        };
        let mut sides = Self {
            source: source.clone(),
            destination: destination.clone(),
            direction,
            ordinal,
            peer,
            is_pageable: false,
            locks: PageLocks::default(),
            kernel_reaches: Ok(()),
            devices_are_apart: false,
            enabled: None,
        };
        sides.query([(&**source, from), (&**destination, to)])?;
        Ok(sides)
    }

    fn query(&mut self, placed: [(&Layout, Option<DevicePair>); 2]) -> Result<()> {
        if let Some(host) = self.host() {
            let tier = host.memory().tier();
            self.locks = PageLocks::new(host, self.ordinal)?;
            if !self.locks.are_complete() {
                self.is_pageable = true;
                self.kernel_reaches = Err(match tier {
                    Tier::Pinned => "the device has another address for the host memory than the host",
                    _ => "the host memory is not page-locked, so kernels cannot access it",
                }
                .into());
            }
        }
        let own = DevicePair::on(self.ordinal);
        let others = placed.into_iter().filter_map(|(side, place)| Some((side, place?)));
        for (side, place) in others.filter(|(_, place)| *place != own) {
            self.devices_are_apart |= !Device::get(self.ordinal)?.can_access(&Device::get(place.owner)?)?;
            if self.kernel_reaches.is_ok() {
                self.kernel_reaches = self.reach_of_peer(side, place)?.map_err(Cow::from);
            }
        }
        Ok(())
    }

    /// Whether kernels of the copying device can access a side that is on another device, or was opened for another device.
    /// The access rights of VMM memory define this. Plain memory of this process, of an engine or of kvmem, is mapped by
    /// enabling peer access.
    fn reach_of_peer(&mut self, side: &Layout, place: DevicePair) -> Result<std::result::Result<(), String>> {
        let DevicePair { owner, user } = place;
        let own = Device::get(self.ordinal)?;
        if self.devices_are_apart {
            return Ok(Err(format!("device {} cannot access device {owner}", self.ordinal)));
        }
        let write = std::ptr::eq(side, &raw const *self.destination);
        let mut has_plain = false;
        for region in side.memory().regions() {
            region.open_for(DeviceUsers::Device(self.ordinal))?;
            match region.peer_memory() {
                PeerMemory::Opened if user == self.ordinal => {}
                PeerMemory::Opened => {
                    return Ok(Err(format!(
                        "memory of device {owner} was opened for device {user}, and device {} executes the copy; open it \
                         for device {}",
                        self.ordinal, self.ordinal
                    )));
                }
                PeerMemory::Vmm(address) if is_accessible(own, address, write)? => {}
                PeerMemory::Plain => has_plain = true,
                PeerMemory::Adopted => {
                    let peer = Context::retain(Device::get(owner)?)?;
                    match peer_reach(own, &peer, region.address(), region.size(), write)? {
                        PeerReach::Mapped => {}
                        PeerReach::OncePeersAreEnabled => has_plain = true,
                        PeerReach::None => return Ok(Err(self.not_mapped(owner))),
                    }
                }
                _ => return Ok(Err(self.not_mapped(owner))),
            }
        }
        if has_plain {
            let [own, peer] =
                self.enabled.insert([Context::retain(own)?, Context::retain(Device::get(owner)?)?]);
            return peer::enable(own, peer);
        }
        Ok(Ok(()))
    }

    fn not_mapped(&self, owner: i32) -> String {
        format!(
            "memory of device {owner} is not mapped for device {} with the access that the transfer needs",
            self.ordinal
        )
    }

    pub fn host(&self) -> Option<&Layout> {
        match self.direction {
            CopyDirection::ToDevice => Some(&self.source),
            CopyDirection::ToHost => Some(&self.destination),
            _ => None,
        }
    }

    pub fn to_host(&self) -> bool {
        self.direction == CopyDirection::ToHost
    }

    /// The maximum size of a driver copy that starts at an address of a side's region: it must not cross the
    /// end of an extent, of a page lock or of an allocation.
    pub fn left<'a>(&'a self, side: &'a Layout) -> impl Fn(u32, u64) -> u64 + 'a {
        let locks = self.locks_of(side);
        move |region, address| {
            let left = side.bytes_in_piece(region, address);
            locks.map_or(left, |locks| left.min(locks.left(address)))
        }
    }

    /// Whether copies within any region of a side need no cuts.
    pub fn is_one_piece(&self, side: &Layout) -> bool {
        let locks = self.locks_of(side);
        side.memory().regions().iter().enumerate().all(|(index, region)| {
            side.bytes_in_piece(index as u32, region.address()) >= region.size()
                && locks.is_none_or(|locks| locks.has_no_end_in(region))
        })
    }

    fn locks_of(&self, side: &Layout) -> Option<&PageLocks> {
        self.host().is_some_and(|host| std::ptr::eq(host, side)).then_some(&self.locks)
    }

    /// Whether copies by the driver pass through host memory that belongs to neither side.
    pub fn driver_bounces(&self) -> bool {
        self.is_pageable || self.devices_are_apart
    }
}

/// The device that executes copies between two layouts, and the layout that is its memory. Copies between two devices are executed by
/// the destination's. Memory of another process is accessible only to the device that it was opened for; then that device executes
/// them.
pub fn executor<'a>(source: &'a Layout, destination: &'a Layout) -> Result<(&'a Layout, i32)> {
    let neither = || error!(Unsupported, "neither layout is GPU memory");
    [destination, source].into_iter().find_map(|side| Some((side, place(side)?.user))).ok_or_else(neither)
}

/// The device of a layout, if it is in GPU memory; all its regions are on the same device.
fn place(layout: &Layout) -> Option<DevicePair> {
    layout.memory().regions().first().and_then(|region| region.devices())
}
