// SPDX-License-Identifier: Apache-2.0
//! Removing blocks of a store: those that the caller names, and those that are damaged.

use super::block_store::{Access, Durability, Pending, Store};
use super::blocks::Located;
use super::files::Files;
use super::index::Index;
use super::key::Key;
use super::record::Record;
use super::statistics::DAMAGED;
use crate::base::{MutexGuard, Result, fail, lists};

impl<F: Files> Store<F> {
    /// Removes blocks. Returns how many were stored. Fails with BUSY, and removes none, while one of them is read.
    pub fn remove(&self, keys: &[Key]) -> Result<u64> {
        self.ensure_writable()?;
        let mut pending = self.pending(keys.len())?;
        let mut read = None;
        self.in_steps(keys.iter(), |index, key| {
            if read.is_none() && !index.hide(key) {
                read = Some(key);
            }
        });
        if let Some(key) = read {
            self.in_steps(keys.iter(), Index::show);
            fail!(Busy, "block {key:?} is being read; wait for the end of its get");
        }
        let mut removed = 0;
        self.record(&mut pending, keys.iter(), |index, key| index.remove(key).inspect(|_| removed += 1))?;
        Ok(removed)
    }

    /// Ends the use of blocks, of which those with the indices in `damaged` have wrong bytes in their slots. These are removed, and their
    /// slots are not used again.
    ///
    /// A reader removes them from its own index only.
    pub fn release_damaged(&self, run: Vec<Located>, damaged: &[u64]) -> Result<()> {
        let found = || damaged.iter().filter_map(|at| run.get(*at as usize));
        if self.policy.access == Access::Read {
            self.in_steps(found(), |index, block| {
                if index.has(block) {
                    retire(index, block);
                }
            });
            return Ok(());
        }
        let outcome =
            self.pending(damaged.len()).and_then(|mut pending| self.record(&mut pending, found(), retire));
        // After that, so that no slot has another block before it is retired.
        self.release(run);
        outcome
    }

    /// Locks the journal, with memory for so many records more.
    fn pending(&self, count: usize) -> Result<MutexGuard<'_, Pending>> {
        let mut pending = self.journal.lock();
        lists::reserve(&mut pending.records, count)?;
        Ok(pending)
    }

    /// Changes the index for each item, and has the records of it in the journal when the mode requires it. There is memory for them.
    fn record<T>(
        &self,
        pending: &mut Pending,
        items: impl Iterator<Item = T>,
        mut change: impl FnMut(&mut Index, T) -> Option<Record>,
    ) -> Result<()> {
        self.in_steps(items, |index, item| pending.records.extend(change(index, item)));
        match self.policy.durability {
            Durability::Relaxed => Ok(()),
            Durability::None | Durability::Strict => self.write_pending(pending),
        }
    }
}

/// Removes a damaged block, and counts it unless another reader was first.
fn retire(index: &mut Index, block: &Located) -> Option<Record> {
    index.retire(block).inspect(|_| DAMAGED.add(1))
}
