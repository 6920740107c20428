// SPDX-License-Identifier: Apache-2.0
//! The staging ring of a GPU: page-locked host memory in slots, of which one is filled while another is
//! drained. A file system that does not respond keeps its slots, so each has its own.
#![forbid(unsafe_code)]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::inbox::Inbox;
use crate::base::error::{Error, Result, Status};
use crate::base::file_systems::FileSystems;
use crate::base::process::PerProcess;
use crate::base::shared_objects::SharedObjects;
use crate::cuda::stream::Stream;
use crate::cuda::{Context, ContextIdentity, Device, Event};
use crate::region::{PinnedConfig, PinnedMemory};

pub const SLOTS: usize = 4;
/// Alignment of slots.
const PAGE: u64 = 4096;

/// Page-locked memory, and the stream that copies between it and the GPU. Transfers, runs and layouts of the
/// GPU hold it.
pub struct StagingRing {
    slot_size: u64,
    memory: PinnedMemory,
    /// The stream of the copies.
    pub stream: Stream,
    /// Recorded behind the copies of each slot.
    pub copied: [Event; SLOTS],
    /// The driver has failed here: new transfers use a new ring.
    is_broken: AtomicBool,
    /// The queue of the thread that serves it.
    pub inbox: Arc<Inbox>,
}

impl StagingRing {
    /// A ring of a device, for files on these file systems, with slots of at least `slot` bytes: an existing one, or a new one.
    pub fn for_device(ordinal: i32, on: &FileSystems, slot: u64) -> Result<Arc<Self>> {
        static RINGS: PerProcess<SharedObjects<(i32, FileSystems), StagingRing>> = PerProcess::new();
        let suits = |ring: &Self| ring.slot_size >= slot && ring.is_usable();
        let make = || Self::allocate(ordinal, slot.next_multiple_of(PAGE));
        RINGS.get(SharedObjects::default).get((ordinal, on.clone()), suits, None, make)
    }

    fn allocate(ordinal: i32, slot_size: u64) -> Result<Self> {
        let size = slot_size
            .checked_mul(SLOTS as u64)
            .ok_or_else(|| Error::new(Status::InvalidArgument, "staging_size exceeds the address space"))?;
        let context = Arc::new(Context::retain(Device::get(ordinal)?)?);
        let event = || Event::new(&context);
        let copied = [event()?, event()?, event()?, event()?];
        let config = PinnedConfig { size, ordinal, ..PinnedConfig::default() };
        Ok(Self {
            slot_size,
            copied,
            stream: Stream::new(&context)?,
            memory: PinnedMemory::allocate(&config, &mut |_, _| true)?,
            is_broken: AtomicBool::new(false),
            inbox: Arc::default(),
        })
    }

    /// The address of a slot.
    pub fn slot(&self, index: usize) -> u64 {
        self.memory.memory().address() as u64 + index as u64 * self.slot_size
    }

    /// Makes new transfers use another ring.
    pub fn retire(&self) {
        self.is_broken.store(true, Ordering::Release);
    }

    /// The context that it belongs to.
    pub fn identity(&self) -> ContextIdentity {
        self.memory.identity()
    }

    /// Whether new transfers may use it: the driver has not failed here, and the device was not reset.
    fn is_usable(&self) -> bool {
        !self.is_broken.load(Ordering::Acquire) && self.identity().ensure_alive().is_ok()
    }
}
