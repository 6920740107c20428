// SPDX-License-Identifier: Apache-2.0
//! The descriptor ring: page-locked memory that the host writes runs of blocks to, and that kernels read them from. One half
//! is for transfers in flight: a slot is freed when its transfer ends, so submissions allocate nothing. The other half is
//! for prepared transfers, until it is full.
#![allow(unsafe_code)]

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::base::{Mutex, MutexGuard, Result};
use crate::cuda::KernelRun;
use crate::region::{PinnedConfig, PinnedMemory};

const SIZE: u64 = 8 << 20;
/// The maximum for one transfer, so that several fit.
const MAX_RUNS: usize = (SIZE as usize / 4) / size_of::<KernelRun>();
/// Slots start at a cache line of the device.
const LINE: u64 = 128;

/// Page-locked memory, and the free spans of its halves.
pub struct DescriptorRing {
    memory: PinnedMemory,
    passing: Mutex<Spans>,
    kept: Mutex<Spans>,
}

impl DescriptorRing {
    pub fn allocate(ordinal: i32) -> Result<Arc<Self>> {
        Self::with_parts(ordinal, SIZE / 2, SIZE / 2)
    }

    /// The same with space for these runs, however many they are.
    pub fn allocate_for(ordinal: i32, runs: &[KernelRun]) -> Result<Arc<Self>> {
        Self::with_parts(ordinal, slot_size(runs).max(SIZE / 2), SIZE / 2)
    }

    /// Writes the runs of one prepared copy to separate memory, if they are too many for the ring.
    pub fn of_one_copy(ordinal: i32, runs: &[KernelRun]) -> Result<Option<DescriptorSlot>> {
        if runs.len() <= MAX_RUNS {
            return Ok(None);
        }
        Ok(Self::with_parts(ordinal, 0, slot_size(runs))?.keep(runs))
    }

    fn with_parts(ordinal: i32, passing: u64, kept: u64) -> Result<Arc<Self>> {
        let size = passing + kept;
        // Huge pages, because small ones would take longer to allocate than the rest of a device's first copy.
        let config = PinnedConfig { size, ordinal, threads: 1, ..PinnedConfig::default() };
        let memory = PinnedMemory::allocate(&config, &mut |_, _| true)?;
        let part = |begin, size| Mutex::new(Spans::new(begin, size));
        Ok(Arc::new(Self { memory, passing: part(0, passing), kept: part(passing, kept) }))
    }

    /// Writes runs for a kernel to read; `None` while there is no space.
    pub fn put(self: &Arc<Self>, runs: &[KernelRun]) -> Option<DescriptorSlot> {
        self.write(runs, false)
    }

    /// Writes runs that stay until the slot is dropped.
    pub fn keep(self: &Arc<Self>, runs: &[KernelRun]) -> Option<DescriptorSlot> {
        self.write(runs, true)
    }

    fn write(self: &Arc<Self>, runs: &[KernelRun], is_kept: bool) -> Option<DescriptorSlot> {
        let size = slot_size(runs);
        let offset = self.free(is_kept).take(size)?;
        let slot = DescriptorSlot { ring: self.clone(), offset, size, is_kept };
        // SAFETY: only this object uses the slot, which is large enough and aligned. It holds the ring's memory.
        unsafe {
            let to = slot.address() as *mut KernelRun;
            std::ptr::copy_nonoverlapping(runs.as_ptr(), to, runs.len());
        }
        Some(slot)
    }

    fn free(&self, is_kept: bool) -> MutexGuard<'_, Spans> {
        let half = if is_kept { &self.kept } else { &self.passing };
        half.lock()
    }
}

fn slot_size(runs: &[KernelRun]) -> u64 {
    (size_of_val(runs) as u64).next_multiple_of(LINE)
}

/// A part of the ring, freed when dropped.
pub struct DescriptorSlot {
    ring: Arc<DescriptorRing>,
    offset: u64,
    size: u64,
    is_kept: bool,
}

impl DescriptorSlot {
    /// Its address, on host and device.
    pub fn address(&self) -> u64 {
        self.ring.memory.memory().address() as u64 + self.offset
    }
}

impl Drop for DescriptorSlot {
    fn drop(&mut self) {
        self.ring.free(self.is_kept).release(self.offset, self.size);
    }
}

/// Free spans: offset → size, never two adjacent ones.
struct Spans(BTreeMap<u64, u64>);

impl Spans {
    fn new(begin: u64, size: u64) -> Self {
        Self(BTreeMap::from([(begin, size)]))
    }

    /// The first span that is large enough.
    fn take(&mut self, size: u64) -> Option<u64> {
        let (offset, found) =
            self.0.iter().find(|(_, found)| **found >= size).map(|(at, found)| (*at, *found))?;
        self.0.remove(&offset);
        if found > size {
            self.0.insert(offset + size, found - size);
        }
        Some(offset)
    }

    fn release(&mut self, mut offset: u64, mut size: u64) {
        if let Some(after) = self.0.remove(&(offset + size)) {
            size += after;
        }
        if let Some((before, length)) = self.0.range(..offset).next_back().map(|(at, length)| (*at, *length))
            && before + length == offset
        {
            offset = before;
            size += length;
        }
        self.0.insert(offset, size);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn spans_never_overlap_and_released_ones_are_free_again(sizes in prop::collection::vec(1u64..300, 1..60)) {
            let mut spans = Spans::new(0, 4096);
            let mut taken: Vec<(u64, u64)> = Vec::new();
            for (step, size) in sizes.into_iter().enumerate() {
                match spans.take(size) {
                    Some(offset) => {
                        prop_assert!(offset + size <= 4096);
                        prop_assert!(taken.iter().all(|(at, length)| offset + size <= *at || at + length <= offset));
                        taken.push((offset, size));
                    }
                    None => prop_assert!(!taken.is_empty()),
                }
                if step % 3 == 2 && !taken.is_empty() {
                    let (offset, size) = taken.swap_remove(step % taken.len());
                    spans.release(offset, size);
                }
            }
            for (offset, size) in taken {
                spans.release(offset, size);
            }
            prop_assert_eq!(spans.0, BTreeMap::from([(0, 4096)]));
        }
    }
}
