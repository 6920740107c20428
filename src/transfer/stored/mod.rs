// SPDX-License-Identifier: Apache-2.0
//! Stores of blocks that are open: an index with its journal, and the layout whose blocks are the slots. Puts and gets are transfers
//! between that layout and one of the caller.

mod checkpoints;
mod conversion;
mod moves;
mod namespaces;
mod opening;
mod run_ends;
mod scrub;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Instant;

use crate::base::{Mutex, Result, Turns, by_deadline, lists};
use crate::layout::Layout;
use crate::store::{
    Counts, Durability, Entry, Key, Keys, Namespace, NewBlock, ReportedStore, Store, StoreFolder,
};
use checkpoints::Checkpoints;

pub use crate::store::{Access, Policy, describe};
pub use moves::{Moved, StoredBlocks};
pub use opening::OpenConfig;

/// Entries that are listed, and then decrypted, at a time.
const DECRYPTED: usize = 1024;

/// A store that this process has open, or a namespace of it. Runs of puts and gets keep it open.
pub struct OpenStore {
    store: Arc<Store<StoreFolder>>,
    layout: Arc<Layout>,
    /// The same file, in which a slot is one piece.
    slots: Arc<Layout>,
    /// Where the keys of the caller are.
    namespace: Arc<Namespace>,
    /// The slot from which the next check goes on. Locked by the thread that checks.
    checked: Mutex<u64>,
    /// Of calls that write the index.
    writes: Arc<Turns<()>>,
    _checkpoints: Option<Arc<Checkpoints>>,
    _reported: Arc<ReportedStore>,
}

impl OpenStore {
    /// Notes for each key whether it is stored.
    pub fn contains(&self, keys: Keys<'_>, found: impl FnMut(bool)) {
        self.store.contains(self.keys(keys), found);
    }

    /// What the index has for keys of the caller.
    fn keys<'a>(&'a self, keys: Keys<'a>) -> impl ExactSizeIterator<Item = Key> + 'a {
        keys.iter().map(|key| self.namespace.key(key))
    }

    /// Removes blocks. Returns how many were stored. If it is late, they are removed later.
    pub fn remove(self: &Arc<Self>, keys: Keys<'_>, deadline: Option<Instant>) -> Result<u64> {
        let (keys, store): (Vec<Key>, _) = (lists::collect(self.keys(keys))?, self.clone());
        by_deadline(&self.writes, deadline, "remove blocks of a store", move || store.store.remove(&keys))
    }

    /// Protects blocks from eviction, or no longer. Returns how many are stored.
    pub fn pin(&self, keys: Keys<'_>, is_pinned: bool) -> Result<u64> {
        self.store.pin(self.keys(keys), is_pinned)
    }

    /// Makes all that was stored durable. A reader reads what was stored since. If it is late, it goes on.
    pub fn flush(self: &Arc<Self>, deadline: Option<Instant>) -> Result<()> {
        let store = self.clone();
        by_deadline(&self.writes, deadline, "flush a store", move || store.store.flush())
    }

    /// Passes the stored blocks from a slot on to `take`, with the keys of the caller, at most so many.
    pub fn list(&self, first: u64, count: usize, mut take: impl FnMut(&Entry, NewBlock)) -> Result<()> {
        let number = self.namespace.number();
        let Some(cipher) = self.namespace.cipher() else {
            self.store.list(number, first, count, |entry| take(&entry, entry.block));
            return Ok(());
        };
        let (mut next, mut left) = (first, count);
        while left > 0 {
            let mut entries = Vec::new();
            lists::reserve(&mut entries, left.min(DECRYPTED))?;
            self.store.list(number, next, left.min(DECRYPTED), |entry| entries.push(entry));
            let Some(last) = entries.last() else { break };
            next = u64::from(last.slot) + 1;
            for entry in &entries {
                // One whose key was damaged is not found by any key.
                if let Some(Ok(block)) = entry.seal.as_ref().map(|seal| cipher.block(seal)) {
                    take(entry, block);
                    left -= 1;
                }
            }
        }
        Ok(())
    }

    /// Those of a namespace, or of all.
    pub fn counts(&self) -> Counts {
        match self.namespace.is_unnamed() {
            true => self.store.counts(),
            false => self.store.counts_of(self.namespace.number()),
        }
    }

    pub fn is_read_only(&self) -> bool {
        self.store.policy().access == Access::Read
    }

    pub fn durability(&self) -> Durability {
        self.store.policy().durability
    }

    /// Bytes of the file for each block.
    pub fn slot_size(&self) -> u64 {
        self.layout.geometry().block_stride()
    }
}
