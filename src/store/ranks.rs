// SPDX-License-Identifier: Apache-2.0
//! Ranks of stored blocks. The rank of a block is above the rank of its parent, so a cycle of parents is found without a walk to the first
//! ancestor: a prefix of a million tokens has 64,000 of them, and the index is locked meanwhile.

use super::blocks::NewBlock;
use super::index::{Index, Orphans, Slot, Stored};

/// The rank of a block whose parent is not stored. It is above those of the blocks of a prefix that is stored from its begin, whose ranks
/// begin at 0, so most parents can be stored between both without another rank for a block.
const ORPHAN: i64 = 1 << 62;

impl Orphans {
    pub(super) const NONE: Self = Self { count: 0, rank: i64::MAX };

    /// The rank of their parent, if it has none itself.
    pub(super) fn first_rank(&self) -> i64 {
        self.rank.min(1) - 1
    }
}

impl Index {
    /// The rank of a block that will be stored: above that of its parent, which is in that slot, and below those of its children. `None` if
    /// the block is an ancestor of its own parent.
    ///
    /// If the parent's rank is too high for that, ancestors get lower ranks: from that of the first ancestor that leaves enough space, or far
    /// below if none does. So later blocks of the same prefix have space, and an ancestor is seldom visited again.
    pub(super) fn rank(&mut self, block: &NewBlock, parent: Option<u32>, children: &Orphans) -> Option<i64> {
        if block.parent == Some(block.key) {
            return None;
        }
        let Some(parent) = parent else {
            return Some(match block.parent {
                Some(_) => ORPHAN.min(children.rank - 1),
                None => children.first_rank(),
            });
        };
        let (mut ancestor, mut visited) = (Some(parent), 0);
        // There are fewer blocks than slots.
        let mut above = children.rank - 1 - self.slots.len() as i64;
        while let Some(Stored { rank, block: NewBlock { parent, .. }, .. }) = self.stored_in(ancestor) {
            if *rank + visited + 1 < children.rank {
                above = *rank;
                break;
            }
            let next = *parent;
            if next == Some(block.key) {
                return None;
            }
            ancestor = next.and_then(|key| self.stored.get(&key).copied());
            visited += 1;
        }
        let mut lowered = Some(parent);
        for lower in (above + 1..=above + visited).rev() {
            let Some(stored) = self.stored_in(lowered) else { break };
            stored.rank = lower;
            let next = stored.block.parent;
            lowered = next.and_then(|key| self.stored.get(&key).copied());
            if let Some(orphans) = next.and_then(|key| self.absent_parents.get_mut(&key)) {
                orphans.rank = orphans.rank.min(lower);
            }
        }
        Some(above + visited + 1)
    }

    fn stored_in(&mut self, slot: Option<u32>) -> Option<&mut Stored> {
        #[cfg(test)]
        self.visits.set(self.visits.get() + 1);
        match &mut self.slots[slot? as usize] {
            Slot::Stored(stored) => Some(stored),
            _ => None,
        }
    }
}
