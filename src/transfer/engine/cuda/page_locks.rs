// SPDX-License-Identifier: Apache-2.0
//! Page locks of host memory that the library did not lock itself. Engines lock a large pool in several pieces, and may
//! lock a part of it only. Kernels reach over the ends of pieces; a copy of the driver's that starts in one piece must end
//! in it, or it fails. A copy that starts in memory that is not page-locked may end anywhere (seen with driver 580).

use std::collections::BTreeMap;

use crate::cuda::context::Entered;
use crate::cuda::memory::{AllocationStamp, host_range, is_mapped_at};
use crate::cuda::{Context, Device};
use crate::error::{Error, Result};
use crate::layout::Layout;
use crate::region::{Backing, Region, Tier};
use crate::sync::Mutex;

/// The page locks of one layout in host memory.
#[derive(Default)]
pub struct Locks {
    /// Start → end of those that are known.
    pieces: Mutex<BTreeMap<u64, u64>>,
    /// All of the memory is page-locked, and mapped for devices.
    are_complete: bool,
    /// There may be more of them, which the driver is asked for.
    may_be_more: bool,
    /// One of each context.
    sightings: Vec<AllocationStamp>,
    failure: Mutex<Option<Error>>,
}

impl Locks {
    /// Asks the driver. The library's own pinned memory is page-locked, and knows where its locks end.
    pub fn of(host: &Layout, ordinal: i32) -> Result<Self> {
        let mut locks = Self { are_complete: true, ..Self::default() };
        if host.memory().tier() == Tier::Pinned {
            return Ok(locks);
        }
        let context = Context::retain(Device::get(ordinal)?)?;
        let entered = context.enter()?;
        for region in host.memory().regions() {
            locks.look(region, &entered)?;
        }
        Ok(locks)
    }

    /// Follows the pieces of a region to the first address that is not page-locked.
    fn look(&mut self, region: &Region, entered: &Entered<'_>) -> Result<()> {
        let mut next = region.address();
        while next < region.address() + region.size() {
            let Some(range) = host_range(next)? else {
                self.are_complete = false;
                // Asking at every move costs: only memory of the caller's can be page-locked in parts.
                self.may_be_more |= matches!(region.root(), Backing::Adopted(_));
                return Ok(());
            };
            self.are_complete &= is_mapped_at(entered, next)?;
            self.see(next)?;
            self.pieces.get_mut().insert(range.start, range.end);
            next = range.end;
        }
        Ok(())
    }

    fn see(&mut self, address: u64) -> Result<()> {
        let is_new = |new: &AllocationStamp| !self.sightings.iter().any(|known| known.is_of_context_of(new));
        self.sightings.extend(AllocationStamp::of(address)?.filter(is_new));
        Ok(())
    }

    /// Whether kernels reach all of the memory.
    pub fn are_complete(&self) -> bool {
        self.are_complete
    }

    /// What tells whether the page locks that kernels rely on are still there, one of each context.
    pub fn sightings(&self) -> &[AllocationStamp] {
        if self.are_complete { &self.sightings } else { &[] }
    }

    /// Whether no copy within a region can reach over the end of a piece.
    pub fn has_no_end_in(&self, region: &Region) -> bool {
        !self.may_be_more && self.known_left(region.address()).is_none_or(|left| left >= region.size())
    }

    /// Bytes from an address to the end of its piece; no bound if it is not page-locked.
    pub fn left(&self, address: u64) -> u64 {
        if let Some(left) = self.known_left(address) {
            return left;
        }
        if !self.may_be_more {
            return u64::MAX;
        }
        match host_range(address) {
            Ok(None) => u64::MAX,
            Ok(Some(range)) => {
                self.pieces.lock().insert(range.start, range.end);
                range.end - address
            }
            Err(error) => {
                self.failure.lock().get_or_insert(error);
                u64::MAX
            }
        }
    }

    fn known_left(&self, address: u64) -> Option<u64> {
        let pieces = self.pieces.lock();
        let (_, end) = pieces.range(..=address).next_back()?;
        (*end > address).then(|| end - address)
    }

    /// Fails if the driver failed to say where a piece ends.
    pub fn check(&self) -> Result<()> {
        self.failure.lock().clone().map_or(Ok(()), Err)
    }
}
