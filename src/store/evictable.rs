// SPDX-License-Identifier: Apache-2.0
//! How many blocks could be evicted for others. Nothing is evicted meanwhile, so that a put that cannot succeed leaves all blocks.

use std::ops::Bound::{Excluded, Unbounded};

use super::index::{Index, Slot};
use super::key::Key;

/// The blocks of a namespace that can be evicted one after the other: leaves, and parents all of whose children can be. Counted in steps,
/// between which others may change the index: then the number is about right.
pub(super) struct EvictableBlocks {
    namespace: u32,
    /// Counting ends with this number.
    wanted: usize,
    pub(super) found: usize,
    /// The last leaf that was looked at: its last use and its slot.
    leaf: Option<(u64, u32)>,
    /// The parent of the last block that was counted.
    parent: Option<Key>,
}

impl EvictableBlocks {
    /// Counts a block no longer, if it was counted.
    pub(super) fn exclude(&mut self, index: &Index, key: &Key) {
        let Some(Slot::Stored(stored)) = index.stored.get(key).map(|slot| &index.slots[*slot as usize])
        else {
            return;
        };
        if stored.counted == (index.count_number, stored.children) && !stored.is_kept() {
            self.found = self.found.saturating_sub(1);
        }
    }
}

impl Index {
    /// Begins to count up to `wanted` blocks. One count is made at a time.
    pub(super) fn evictable(&mut self, namespace: u32, wanted: usize) -> EvictableBlocks {
        self.count_number = self.count_number.wrapping_add(1);
        // If there are as many leaves, no parent is looked at.
        let leaves = self.pools.get(namespace).map_or(0, |pool| pool.evictable.len());
        let found = if leaves >= wanted { wanted } else { 0 };
        EvictableBlocks { namespace, wanted, found, leaf: None, parent: None }
    }

    /// Looks at up to `most` blocks more. Returns whether all that are wanted, or all that there are, have been counted.
    pub(super) fn count_evictable(&mut self, blocks: &mut EvictableBlocks, most: usize) -> bool {
        for _ in 0..most {
            if blocks.found >= blocks.wanted {
                return true;
            }
            let parent = blocks.parent.take();
            let is_parent = parent.is_some();
            let slot = match parent {
                Some(key) => self.stored.get(&key).copied(),
                None => {
                    blocks.leaf = self.leaf_after(blocks);
                    let Some((_, slot)) = blocks.leaf else { return true };
                    Some(slot)
                }
            };
            let number = self.count_number;
            let Some(Slot::Stored(stored)) = slot.map(|slot| &mut self.slots[slot as usize]) else {
                continue;
            };
            let counted = if stored.counted.0 == number { stored.counted.1 } else { 0 };
            stored.counted = (number, counted + u32::from(is_parent));
            if stored.counted.1 == stored.children && !stored.is_kept() {
                blocks.found += 1;
                blocks.parent = stored.block.parent;
            }
        }
        false
    }

    fn leaf_after(&self, blocks: &EvictableBlocks) -> Option<(u64, u32)> {
        let after = blocks.leaf.map_or(Unbounded, Excluded);
        self.pools.get(blocks.namespace)?.evictable.range((after, Unbounded)).next().copied()
    }
}
