// SPDX-License-Identifier: Apache-2.0
//! The bounce arena of an agent: registered memory in slots. A slot is the credit for one chunk in flight, so that the
//! arena never overflows, whatever the number of transfers that share it.
#![forbid(unsafe_code)]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::memory::StagingMemory;
use super::shared::SharedObjects;
use crate::error::{Result, ensure};
use crate::leak;
use crate::nixl::{self, Agent};
use crate::process::PerProcess;
use crate::region::{Region, Registration, RegistrationHold};
use crate::sync::Mutex;
use crate::transfer::engine::cuda::row_copier::RowCopier;

/// Slots of an arena.
pub const SLOTS: u64 = 8;
/// Default size of an arena in host memory, and of one in GPU memory, from which a peer reads a slot in the time of a message.
const DEFAULT_SIZE: u64 = 16 << 20;
const DEFAULT_DEVICE_SIZE: u64 = 64 << 20;
/// The minimum size of a slot.
const PAGE: u64 = 4096;

/// Bytes of a slot of an arena of `size` bytes; 0 for the default.
pub fn slot_size(size: u64, memory: StagingMemory) -> Result<u64> {
    let default = if let StagingMemory::Device(_) = memory { DEFAULT_DEVICE_SIZE } else { DEFAULT_SIZE };
    let size = if size == 0 { default } else { size };
    let slot = size / SLOTS / PAGE * PAGE;
    ensure!(
        slot > 0,
        InvalidArgument,
        "staging_size is {size} bytes; a transfer over NIXL through staging memory needs {} or more",
        SLOTS * PAGE
    );
    Ok(slot)
}

/// Bytes of a slot that contains `content` bytes of an object, of an arena of `size` bytes; 0 for one that is large enough.
pub fn object_slot_size(size: u64, memory: StagingMemory, content: u64) -> Result<u64> {
    let needed = content.next_multiple_of(PAGE);
    if size == 0 {
        return Ok(needed);
    }
    let slot = slot_size(size, memory)?;
    ensure!(
        slot >= content,
        InvalidArgument,
        "staging_size is {size} bytes; objects of {content} bytes pass through staging memory as a whole, which needs {} or more",
        SLOTS * needed
    );
    Ok(slot)
}

/// What the slots of an arena are for. Each has arenas of its own: a run that holds a slot of one may wait for a slot of
/// another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ArenaUse {
    /// Blocks.
    Chunks,
    /// Copies of control blocks.
    Mailboxes,
}

/// What an arena is for.
#[derive(PartialEq)]
struct ArenaKey {
    /// The address. An arena keeps its agent, so no other one has it while the arena exists.
    agent: usize,
    purpose: ArenaUse,
    kind: StagingMemory,
    slot_size: u64,
}

/// Registered memory in slots. Transfers and layouts of the agent hold it.
pub struct Arena {
    kind: StagingMemory,
    memory: RegistrationHold,
    copier: Option<Arc<RowCopier>>,
    slot_size: u64,
    free: Mutex<Vec<u64>>,
    /// A request could not be released, so NIXL may still use a slot: new transfers use a new arena.
    is_retired: AtomicBool,
}

impl Arena {
    /// The arena of an agent for this use with slots of this size: an existing one, or a new one.
    pub fn of(
        agent: &Arc<Agent>,
        purpose: ArenaUse,
        kind: StagingMemory,
        slot_size: u64,
    ) -> Result<Arc<Self>> {
        static ARENAS: PerProcess<SharedObjects<ArenaKey, Arena>> = PerProcess::new();
        let key = ArenaKey { agent: Arc::as_ptr(agent).addr(), purpose, kind, slot_size };
        let deadline = agent.call_deadline();
        let make = || nixl::within(deadline, || Self::allocate(agent, kind, slot_size));
        ARENAS.get(SharedObjects::default).get(key, deadline, Self::is_usable, make)
    }

    fn allocate(agent: &Arc<Agent>, kind: StagingMemory, slot_size: u64) -> Result<Self> {
        Ok(Self {
            kind,
            memory: Registration::create(&kind.allocate(SLOTS * slot_size)?, agent)?.hold()?,
            copier: kind.copier()?,
            slot_size,
            free: Mutex::new((0..SLOTS).rev().collect()),
            is_retired: AtomicBool::new(false),
        })
    }

    /// Takes a free slot, if there is one.
    pub fn take(self: &Arc<Self>) -> Option<Slot> {
        let index = self.free.lock().pop()?;
        Some(Slot { arena: self.clone(), index })
    }

    /// What it is.
    pub fn kind(&self) -> StagingMemory {
        self.kind
    }

    /// What copies between it and a layout; `None` for the threads that copy host memory.
    pub fn copier(&self) -> Option<&RowCopier> {
        self.copier.as_deref()
    }

    /// Whether runs may use it.
    pub fn is_usable(&self) -> bool {
        !self.is_retired.load(Ordering::Acquire)
    }
}

/// A slot that is in use. It is free again once this is dropped.
pub struct Slot {
    arena: Arc<Arena>,
    index: u64,
}

impl Slot {
    /// Its address.
    pub fn address(&self) -> u64 {
        self.arena.memory.region().address() + self.index * self.arena.slot_size
    }

    /// The arena that it is a part of.
    pub fn arena(&self) -> &Arc<Arena> {
        &self.arena
    }

    /// The region that it is a part of.
    pub fn region(&self) -> &Region {
        self.arena.memory.region()
    }

    /// Never frees it, because NIXL may still use it.
    pub fn retire(self) {
        self.arena.is_retired.store(true, Ordering::Release);
        leak::intentionally(self);
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.arena.free.lock().push(self.index);
    }
}
