// SPDX-License-Identifier: Apache-2.0
//! Stores of blocks that are open: an index with its journal, and the layout whose blocks are the slots. Puts and gets are transfers
//! between that layout and one of the caller.

mod checkpoints;
mod conversion;
mod moves;
mod opening;
mod run_ends;
mod scrub;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Instant;

use crate::base::{Mutex, Result, WorkInTurn, by_deadline, lists};
use crate::layout::Layout;
use crate::store::{Counts, Durability, Entry, Key, Keys, Store, StoreFolder};
use checkpoints::Checkpoints;

pub use crate::store::{Access, Policy, describe};
pub use moves::{Moved, StoredBlocks};
pub use opening::OpenConfig;

/// A store that this process has open. Runs of puts and gets keep it open.
pub struct OpenStore {
    store: Store<StoreFolder>,
    layout: Arc<Layout>,
    /// The same file, in which a slot is one piece.
    slots: Arc<Layout>,
    /// The slot from which the next check goes on. Locked by the thread that checks.
    checked: Mutex<u64>,
    /// Of calls that write the index.
    writes: Arc<WorkInTurn>,
    _checkpoints: Option<Checkpoints>,
}

impl OpenStore {
    /// Notes for each key whether it is stored.
    pub fn contains(&self, keys: Keys<'_>, found: impl FnMut(bool)) {
        self.store.contains(keys, found);
    }

    /// Removes blocks. Returns how many were stored. If it is late, they are removed later.
    pub fn remove(self: &Arc<Self>, keys: Keys<'_>, deadline: Option<Instant>) -> Result<u64> {
        let (keys, store): (Vec<Key>, _) = (lists::collect(keys.iter())?, self.clone());
        by_deadline(&self.writes, deadline, "remove blocks of a store", move || store.store.remove(&keys))
    }

    /// Protects blocks from eviction, or no longer. Returns how many are stored.
    pub fn pin(&self, keys: Keys<'_>, is_pinned: bool) -> Result<u64> {
        self.store.pin(keys, is_pinned)
    }

    /// Makes all that was stored durable. A reader reads what was stored since. If it is late, it goes on.
    pub fn flush(self: &Arc<Self>, deadline: Option<Instant>) -> Result<()> {
        let store = self.clone();
        by_deadline(&self.writes, deadline, "flush a store", move || store.store.flush())
    }

    /// Passes the stored blocks from a slot on to `take`, at most so many.
    pub fn list(&self, first: u64, count: usize, take: impl FnMut(Entry)) {
        self.store.list(first, count, take);
    }

    pub fn counts(&self) -> Counts {
        self.store.counts()
    }

    pub fn durability(&self) -> Durability {
        self.store.policy().durability
    }

    /// Bytes of the file for each block.
    pub fn slot_size(&self) -> u64 {
        self.layout.geometry().block_stride()
    }
}
