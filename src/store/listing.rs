// SPDX-License-Identifier: Apache-2.0
//! What an index has in some slots: records for a checkpoint, entries for a caller, blocks to check.

use std::ops::Range;

use super::blocks::{Entry, Located, NewBlock};
use super::index::{Index, Slot, Stored};
use super::record::Record;
use crate::base::{Result, lists};

/// Records of slots, of which the blocks have the time of their last use.
#[derive(Default)]
pub struct ListedRecords {
    retired: Vec<Record>,
    stored: Vec<(u64, Record)>,
}

impl ListedRecords {
    /// The least recently used block first.
    pub fn in_order(mut self) -> Result<Vec<Record>> {
        self.stored.sort_unstable_by_key(|(used, _)| *used);
        lists::extend(&mut self.retired, self.stored.into_iter().map(|(_, record)| record))?;
        Ok(self.retired)
    }
}

impl Index {
    /// Adds the records of some slots.
    pub fn list_records(&self, slots: Range<usize>, listed: &mut ListedRecords) -> Result<()> {
        for (slot, state) in (slots.start as u64..).zip(&self.slots[slots]) {
            match state {
                Slot::Retired => lists::push(&mut listed.retired, Record::Retired { slot })?,
                Slot::Stored(Stored { block: NewBlock { key, parent }, checksum, seal, used, .. }) => {
                    let (key, parent, checksum, seal) = (*key, *parent, *checksum, seal.clone());
                    let record = Record::Stored { slot, key, parent, checksum, seal };
                    lists::push(&mut listed.stored, (*used, record))?;
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// The stored blocks of a namespace in some slots, in the order of these. Not those that are hidden.
    pub fn entries(&self, namespace: u32, slots: Range<usize>) -> impl Iterator<Item = Entry> {
        (slots.start as u32..).zip(&self.slots[slots]).filter_map(move |(slot, state)| {
            let Slot::Stored(Stored { block, checksum, seal, is_pinned, is_hidden: false, .. }) = state
            else {
                return None;
            };
            let (block, checksum, is_pinned) = (*block, *checksum, *is_pinned);
            let entry = || Entry { slot, block, checksum, seal: seal.clone(), is_pinned };
            (block.key.namespace() == namespace).then(entry)
        })
    }

    /// Holds stored blocks in some slots, of one namespace or of all, until so many are held. This is no use of them: nothing changes in the
    /// order of eviction.
    pub fn hold_in(
        &mut self,
        namespace: Option<u32>,
        slots: Range<usize>,
        count: usize,
        held: &mut Vec<Located>,
    ) {
        let is_wanted = |stored: &Stored| {
            !stored.is_hidden && namespace.is_none_or(|number| stored.block.key.namespace() == number)
        };
        for slot in slots.start as u32..slots.end as u32 {
            if held.len() == count {
                return;
            }
            let hold = |stored: &mut Stored| is_wanted(stored).then(|| stored.hold(slot));
            held.extend(self.change(slot, hold).flatten());
        }
    }
}
