// SPDX-License-Identifier: Apache-2.0
//! The descriptor ring: page-locked memory that the host writes runs of blocks to, and that kernels read them from. One half
//! is for transfers in flight: a slot is freed when its transfer ends, so submissions allocate nothing. The other half is
//! for prepared transfers, until it is full.
#![allow(unsafe_code)]

use std::convert::Infallible;
use std::sync::Arc;

use crate::base::{Mutex, MutexGuard, Result};
use crate::cuda::KernelRun;
use crate::region::{PinnedConfig, PinnedMemory, Ranges};

const SIZE: u64 = 8 << 20;
/// The maximum for one transfer, so that several fit.
const MAX_RUNS: usize = (SIZE as usize / 4) / size_of::<KernelRun>();
/// Slots start at a cache line of the device.
const LINE: u64 = 128;

/// Spans of which none has work: they are freed when it has ended.
type Spans = Ranges<Infallible>;

/// Page-locked memory, and the spans of its halves.
pub struct DescriptorRing {
    memory: PinnedMemory,
    passing: Mutex<Spans>,
    kept: Mutex<Spans>,
    /// Where the half of those that are kept begins.
    middle: u64,
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
        let part = |size| Mutex::new(Spans::new(size));
        Ok(Arc::new(Self { memory, passing: part(passing), kept: part(kept), middle: passing }))
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
        let offset = self.half(is_kept).take(slot_size(runs), |never| match *never {})?.offset;
        let slot = DescriptorSlot { ring: self.clone(), offset, is_kept };
        // SAFETY: only this object uses the slot, which is large enough and aligned. It holds the ring's memory.
        unsafe {
            let to = slot.address() as *mut KernelRun;
            std::ptr::copy_nonoverlapping(runs.as_ptr(), to, runs.len());
        }
        Some(slot)
    }

    fn half(&self, is_kept: bool) -> MutexGuard<'_, Spans> {
        let half = if is_kept { &self.kept } else { &self.passing };
        half.lock()
    }
}

fn slot_size(runs: &[KernelRun]) -> u64 {
    (size_of_val(runs) as u64).max(1).next_multiple_of(LINE)
}

/// A part of the ring, freed when dropped.
pub struct DescriptorSlot {
    ring: Arc<DescriptorRing>,
    /// In its half.
    offset: u64,
    is_kept: bool,
}

impl DescriptorSlot {
    /// Its address, on host and device.
    pub fn address(&self) -> u64 {
        let half = if self.is_kept { self.ring.middle } else { 0 };
        self.ring.memory.memory().address() as u64 + half + self.offset
    }
}

impl Drop for DescriptorSlot {
    fn drop(&mut self) {
        self.ring.half(self.is_kept).give(self.offset, None);
    }
}
