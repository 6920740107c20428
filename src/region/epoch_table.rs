// SPDX-License-Identifier: Apache-2.0
//! The epochs of blocks: a table of 64-bit words in host memory, one per block. The owner of the blocks raises them, and readers
//! compare them. docs/epochs.md says why that is enough.
#![allow(unsafe_code)]

use std::sync::Arc;

use super::{Region, Tier};
use crate::base::atomic::{AtomicU64, Ordering, fence};
use crate::base::{Result, ensure};
use crate::nixl::{Descriptor, MemoryType, Span};

/// Bytes of an epoch.
const WORD: u64 = size_of::<u64>() as u64;

/// A table of this process, or of another process that is mapped here; or a copy of parts of one.
#[derive(Clone)]
pub struct EpochTable {
    /// It has at least this many words at its start.
    region: Arc<Region>,
    /// Of the region, which does not move.
    address: u64,
    words: u64,
}

impl EpochTable {
    /// Bytes of a table.
    pub fn size(words: u64) -> u64 {
        words.saturating_mul(WORD)
    }

    /// The table at the start of a region. Fails if the region is not host memory, is too small, or is not aligned.
    pub fn new(region: Arc<Region>, words: u64) -> Result<Self> {
        ensure!(
            matches!(region.tier(), Tier::System | Tier::Pinned),
            Unsupported,
            "a table of epochs is in host memory, and this region is {} memory; create it with kvmem_region_create_system",
            region.tier().name()
        );
        ensure!(
            region.size() >= Self::size(words),
            OutOfRange,
            "the region of the table has {} bytes, and {words} blocks need {} of 8 bytes each",
            region.size(),
            Self::size(words)
        );
        ensure!(
            region.address().is_multiple_of(WORD),
            InvalidArgument,
            "the region of the table starts at {:#x}; an epoch is atomic at a multiple of 8 bytes only",
            region.address()
        );
        Ok(Self { address: region.address(), region, words })
    }

    pub fn region(&self) -> &Arc<Region> {
        &self.region
    }

    pub fn words(&self) -> u64 {
        self.words
    }

    /// What NIXL reads for a peer: the table as a part of its region.
    pub fn descriptor(&self) -> Descriptor {
        Descriptor { size: Self::size(self.words), ..self.region.descriptor() }
    }

    /// The bytes of some words of a table.
    pub fn span(table: &Descriptor, first: u64, words: u64) -> Span {
        debug_assert!(table.memory_type == MemoryType::Dram);
        Span { address: table.address + first * WORD, size: Self::size(words), device_id: table.device_id }
    }

    /// The current value of a word; that of no block is 0. A reader calls [`after_reading`] before.
    pub fn load(&self, index: u64) -> u64 {
        self.word(index).map_or(0, |word| word.load(Ordering::Acquire))
    }

    /// Adds 1 to a word. Returns the new value. The caller calls [`fence_for_devices`] after the last one.
    pub fn raise(&self, index: u64) -> u64 {
        self.word(index).map_or(0, |word| word.fetch_add(1, Ordering::AcqRel).wrapping_add(1))
    }

    /// Replaces a word of a copy.
    pub fn store(&self, index: u64, value: u64) {
        if let Some(word) = self.word(index) {
            word.store(value, Ordering::Relaxed);
        }
    }

    #[cfg(not(kvmem_model))]
    fn word(&self, index: u64) -> Option<&AtomicU64> {
        let address = (index < self.words).then(|| self.address + index * WORD)?;
        // SAFETY: in the region, which is mapped as long as this holds it, and aligned. Other processes access it by atomic words, and
        // NIXL by whole words. Nothing writes to a table that is mapped read-only.
        Some(unsafe { AtomicU64::from_ptr(address as *mut u64) })
    }

    #[cfg(kvmem_model)]
    fn word(&self, index: u64) -> Option<Arc<AtomicU64>> {
        (index < self.words).then(|| crate::base::atomic::word_at(self.address + index * WORD))
    }
}

/// Orders the bytes that were read before the words that are read after it: a reader that has a byte that was written after a raise
/// reads that raise, or a later one.
pub fn after_reading() {
    fence(Ordering::Acquire);
}

/// A fence also for devices that access the memory, such as a network adapter that reads it for a peer: it reads an entry without
/// a call of this process, so that NIXL cannot order what it reads. On Arm the fence of the language covers processors only.
pub fn fence_for_devices() {
    fence(Ordering::SeqCst);
    #[cfg(target_arch = "aarch64")]
    // SAFETY: a barrier changes neither memory nor registers. Devices are in the outer shareable domain, processors in the inner one.
    unsafe {
        std::arch::asm!("dmb osh", options(nostack, preserves_flags));
    }
}
