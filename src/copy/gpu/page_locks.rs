// SPDX-License-Identifier: Apache-2.0
//! Page locks of host memory that kvmem did not lock itself. Engines lock a large pool in several ranges, and
//! may lock only a part of it. Kernels can cross the ends of ranges. A driver copy that starts in one range
//! must end in it, or it fails. A copy that starts in memory that is not page-locked may end anywhere
//! (measured with driver 580).

use std::collections::BTreeMap;

use crate::base::{Error, Mutex, Result};
use crate::cuda::context::Entered;
use crate::cuda::memory::{AllocationStamp, host_range, is_mapped_at};
use crate::cuda::{Context, Device};
use crate::layout::Layout;
use crate::region::{Region, Source, Tier};

/// The page locks of one layout in host memory.
#[derive(Default)]
pub struct PageLocks {
    /// Start → end of the known ranges.
    ranges: Mutex<BTreeMap<u64, u64>>,
    /// All of the memory is page-locked, and mapped for devices.
    are_complete: bool,
    /// There may be unknown ranges, for which the driver is queried.
    may_be_more: bool,
    /// One allocation per context.
    stamps: Vec<AllocationStamp>,
    failure: Mutex<Option<Error>>,
}

impl PageLocks {
    /// Queries the driver. Pinned memory of kvmem is page-locked, and its locks are known.
    pub fn new(host: &Layout, ordinal: i32) -> Result<Self> {
        let mut locks = Self { are_complete: true, ..Self::default() };
        let context = Context::retain(Device::get(ordinal)?)?;
        let entered = context.enter()?;
        if host.memory().tier() == Tier::Pinned {
            // Not on every system: kernels and copies get the host address.
            for region in host.memory().regions() {
                locks.are_complete &= is_mapped_at(&entered, region.address())?;
            }
            return Ok(locks);
        }
        for region in host.memory().regions() {
            locks.add_region(region, &entered)?;
        }
        Ok(locks)
    }

    /// Adds the ranges of a region up to the first address that is not page-locked.
    fn add_region(&mut self, region: &Region, entered: &Entered<'_>) -> Result<()> {
        let mut next = region.address();
        while next < region.address() + region.size() {
            let Some(range) = host_range(next)? else {
                self.are_complete = false;
                // Querying at each move is expensive: only the caller's memory can be page-locked in parts.
                self.may_be_more |= region.properties().source == Source::Adopted;
                return Ok(());
            };
            self.are_complete &= is_mapped_at(entered, next)?;
            self.add_stamp(next)?;
            self.ranges.get_mut().insert(range.start, range.end);
            next = range.end;
        }
        Ok(())
    }

    fn add_stamp(&mut self, address: u64) -> Result<()> {
        let is_new = |new: &AllocationStamp| !self.stamps.iter().any(|known| known.is_of_context_of(new));
        self.stamps.extend(AllocationStamp::from_address(address)?.filter(is_new));
        Ok(())
    }

    /// Whether kernels can access all of the memory.
    pub fn are_complete(&self) -> bool {
        self.are_complete
    }

    /// One allocation per context, to check that the page locks that kernels rely on still exist.
    pub fn stamps(&self) -> &[AllocationStamp] {
        if self.are_complete { &self.stamps } else { &[] }
    }

    /// Whether no copy within a region can cross the end of a range.
    pub fn has_no_end_in(&self, region: &Region) -> bool {
        !self.may_be_more && self.known_left(region.address()).is_none_or(|left| left >= region.size())
    }

    /// Bytes from an address to the end of its range; unlimited if it is not page-locked.
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
                self.ranges.lock().insert(range.start, range.end);
                range.end - address
            }
            Err(error) => {
                self.failure.lock().get_or_insert(error);
                u64::MAX
            }
        }
    }

    fn known_left(&self, address: u64) -> Option<u64> {
        let ranges = self.ranges.lock();
        let (_, end) = ranges.range(..=address).next_back()?;
        (*end > address).then(|| end - address)
    }

    /// Fails if a query of the driver has failed.
    pub fn check(&self) -> Result<()> {
        self.failure.lock().clone().map_or(Ok(()), Err)
    }
}
